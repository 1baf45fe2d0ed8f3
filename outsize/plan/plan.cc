#include "outsize/plan/plan.h"

#include <algorithm>

namespace outsize {

std::vector<OperandAccess> accesses_of(const Op& op) {
  std::vector<OperandAccess> accesses;
  accesses.reserve(op.reads.size() + op.makes.size() + op.mutates.size());
  for (const Access& access : op.reads) accesses.push_back({access, true, false});
  for (const Access& access : op.makes) accesses.push_back({access, false, true});
  for (const Access& access : op.mutates) accesses.push_back({access, true, true});
  return accesses;
}

PlanStatistics statistics_of(const Plan& plan) {
  PlanStatistics statistics;
  const auto reach = [&](Tier tier, int64_t end) {
    int64_t& extent = statistics.extent[static_cast<int>(tier)];
    extent = std::max(extent, end);
  };
  for (const Residency& residency : plan.residencies) reach(residency.tier, residency.range().end);
  const auto tier_of = [&](ResidencyId id) {
    OUTSIZE_CHECK(id.valid() && id.index() < plan.residencies.size(),
                  "residency {} of {} in a copy", id.value, plan.residencies.size());
    return plan.residency(id).tier;
  };
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == InstructionKind::kCopy) {
      const Tier from = tier_of(instruction.from), to = tier_of(instruction.to);
      // By direction, whichever stream carries it.
      int64_t& moved = to == Tier::kDisk       ? statistics.moved_write
                       : from == Tier::kDisk   ? statistics.moved_read
                       : from == Tier::kDevice ? statistics.moved_out
                                               : statistics.moved_in;
      moved += instruction.bytes.size();
      ++statistics.copies;
      continue;
    }
    if (instruction.kind == InstructionKind::kRerun) ++statistics.reruns;
    if (!instruction.workspace.empty()) reach(Tier::kDevice, instruction.workspace.end);
  }
  return statistics;
}

}  // namespace outsize
