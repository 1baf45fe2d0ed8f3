#include "outsize/planners/planner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "outsize/base/names.h"
#include "outsize/bound/floor.h"
#include "outsize/plan/check.h"
#include "outsize/planners/far_tier.h"
#include "outsize/planners/search.h"
#include "outsize/planners/superneurons.h"
#include "outsize/planners/vdnn.h"
#include "outsize/simulate/simulate.h"

namespace outsize {
namespace {

struct Entry {
  const char* name;
  Status (*plan)(planning::Search& search);
  bool ablation = false;  // found by its name, not listed
};
constexpr Entry kPlanners[] = {
    {"keep", planning::plan_keep},  // one a line
    {"sqrt-n", planning::plan_sqrt_n},
    {"vdnn", planning::plan_vdnn},
    {"vdnn-all", planning::plan_vdnn_all},
    {"vdnn-conv", planning::plan_vdnn_conv},
    {"superneurons", planning::plan_superneurons},
    {"capuchin", planning::plan_capuchin},
    {"tflms", planning::plan_tflms},
    {"home", planning::plan_home},
    {"g10", planning::plan_g10},
    {"odswap", planning::plan_odswap},
    {"swapadvisor", planning::plan_swapadvisor},
    {"swapadvisor-fixed-classes", planning::plan_swapadvisor_fixed_classes, true},
    {"outsize", planning::plan_outsize},
    {"swap-everything", planning::plan_swap_everything},
    {"recompute-everything", planning::plan_recompute_everything},
    {"checkmate", planning::plan_checkmate},
    {"dtr", planning::plan_dtr},
    {"dtr-eq-class", planning::plan_dtr_eq_class},
    {"dtr-msps", planning::plan_dtr_msps},
    {"dtr-lru", planning::plan_dtr_lru},
    {"atp", planning::plan_atp},
};

Status check_problem(const Problem& problem) {
  OUTSIZE_CHECK(problem.graph && problem.profile && problem.machine && problem.deadline,
                "a problem needs a graph, a profile, a machine and a deadline");
  if (Status s = check_profile(*problem.graph, *problem.profile); !s.ok()) return s;
  if (problem.budgets.device < 0 || problem.budgets.host < 0 || problem.budgets.disk < 0)
    return bad_input("budgets can't be negative: device {}, host {}, disk {}",
                     problem.budgets.device, problem.budgets.host, problem.budgets.disk);
  for (const Home& home : problem.border) {
    if (!home.storage.valid() || home.storage.index() >= problem.graph->storages.size())
      return bad_input("the border names storage {}, the graph has {}", home.storage.value,
                       problem.graph->storages.size());
    const Storage& storage = problem.graph->storage(home.storage);
    if (!storage.persistent)
      return bad_input("the border gives storage {} a home, but it is not persistent",
                       home.storage.value);
    if (home.tier == Tier::kDisk && problem.budgets.host > 0)
      return bad_input(
          "the border has the home of storage {} on disk, and there is a host of {} bytes: "
          "planners use one tier below the device; give no host, or homes on it",
          home.storage.value, problem.budgets.host);
    if (home.address < 0 || home.address + storage.bytes > problem.budgets.of(home.tier))
      return infeasible("the home of storage {} ({}) at {} [{}, {}) lies outside the budget of {}",
                        home.storage.value, storage.name, kTierNames.name(home.tier), home.address,
                        home.address + storage.bytes, problem.budgets.of(home.tier));
  }
  return Done{};
}

// The sharpest bound for plans in this one's order; where the plan reaches its ops' sum, or nobody
// waits for more, that sum: the ops follow one another on one stream.
Bound bound_of(const Problem& problem, const Plan& plan, int64_t step_ns) {
  const Bound compute{"compute", HoldsFor::kAnyOrder, compute_ns(*problem.profile)};
  if (step_ns <= compute.ns || problem.deadline->cancelled()) return compute;
  std::vector<OpId> order;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::kRun) order.push_back(instruction.op);
  BoundOptions options;
  options.budgets = problem.budgets;
  options.swap = problem.allow.swap;
  options.recompute = problem.allow.recompute;
  return bound_in_order(*problem.graph, *problem.profile, *problem.machine, order, options);
}

}  // namespace

std::vector<std::string> planner_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kPlanners)
    if (!entry.ablation) names.emplace_back(entry.name);
  return names;
}

Result<Planned> run_planner(const std::string& name, const Problem& problem) {
  auto entry = std::find_if(std::begin(kPlanners), std::end(kPlanners),
                            [&](const Entry& e) { return name == e.name; });
  if (entry == std::end(kPlanners)) {
    const std::vector<std::string> names = planner_names();
    return bad_input("no planner is called '{}'{}; there are {}", name, suggestion(name, names),
                     fmt::join(names, ", "));
  }
  if (Status s = check_problem(problem); !s.ok()) return s.error();

  std::optional<planning::DiskAsHost> disk;
  if (planning::DiskAsHost::applies(problem)) disk.emplace(problem);
  planning::Search search(disk ? disk->problem() : problem);
  Status status = entry->plan(search);
  if (!search.best()) {
    OUTSIZE_CHECK(!status.ok(), "planner {} ends without a plan and without a reason", name);
    return status.error();
  }
  Planned out;
  out.plan = disk ? disk->restored(*search.best()) : *search.best();
  out.plan.planner = name;
  out.planner = name;
  std::vector<int64_t> workspaces = workspaces_of(*problem.profile);
  Violation violation =
      check_plan(*problem.graph, workspaces, out.plan, problem.budgets, problem.machine->alignment);
  OUTSIZE_CHECK(violation.ok(), "planner {} made an illegal plan: {}: {} {}", name,
                kViolationKindNames.name(violation.kind), violation.where, violation.witness);
  Result<Simulation> simulated =
      simulate(*problem.graph, *problem.profile, *problem.machine, out.plan);
  if (!simulated.ok()) return simulated.error();
  out.step_ns = simulated->step_ns;
  out.compute_ns = simulated->compute_ns;
  out.recompute_ns = simulated->recompute_ns;
  out.stall_ns = simulated->stall_ns;
  const Bound bound = bound_of(problem, out.plan, out.step_ns);
  out.bound_ns = bound.ns;
  out.bound_holds_for = bound.holds_for;
  out.floor_bytes = floor_of(*problem.graph, workspaces).bytes;
  for (size_t t = 0; t < kTiers; ++t) out.peak[t] = simulated->tiers[t].extent;
  out.statistics = statistics_of(out.plan);
  out.seconds = problem.deadline->seconds();
  out.work = problem.deadline->work_done();
  out.history = search.history();
  out.first_plan_seconds = out.history.empty() ? out.seconds : out.history.front().first;
  return out;
}

}  // namespace outsize
