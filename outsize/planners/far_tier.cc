#include "outsize/planners/far_tier.h"

namespace outsize::planning {
namespace {

Machine with_disk_as_host(const Machine& machine) {
  Machine out = machine;
  out.host_bytes = machine.disk_bytes;
  out.out = machine.write;
  out.in = machine.read;
  out.both_bytes_per_s = machine.disk_both_bytes_per_s;
  out.sync_bytes_per_s = 0;
  out.compute_permille_beside_copy = machine.compute_permille_beside_disk;
  out.copy_permille_beside_compute = machine.disk_permille_beside_compute;
  return out;
}

Stream to_disk(Stream stream) {
  if (stream == Stream::kOut) return Stream::kWrite;
  if (stream == Stream::kIn) return Stream::kRead;
  return stream;
}

}  // namespace

bool DiskAsHost::applies(const Problem& problem) {
  return problem.budgets.disk > 0 && problem.budgets.host == 0;
}

DiskAsHost::DiskAsHost(const Problem& problem)
    : given_(&problem), machine_(with_disk_as_host(*problem.machine)), problem_(problem) {
  problem_.machine = &machine_;
  problem_.far = Tier::kDisk;
  problem_.block = problem.machine->disk_alignment;
  problem_.budgets.host = problem.budgets.disk;
  problem_.budgets.disk = 0;
  for (Home& home : problem_.border)
    if (home.tier == Tier::kDisk) home.tier = Tier::kHost;
  for (auto& [tier, range] : problem_.reserved)
    if (tier == Tier::kDisk) tier = Tier::kHost;
}

Plan DiskAsHost::restored(Plan plan) const {
  plan.budgets = given_->budgets;
  for (Residency& residency : plan.residencies)
    if (residency.tier == Tier::kHost) residency.tier = Tier::kDisk;
  for (Instruction& instruction : plan.instructions)
    instruction.stream = to_disk(instruction.stream);
  return plan;
}

}  // namespace outsize::planning
