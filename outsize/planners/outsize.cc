// `outsize`: our own planner. Where the step fits, nothing is done. Else it chooses swaps and
// recomputations over all storages for several sets of prices, writes each choice out with its copies
// beside the ops and on the streams of the links, and keeps what the simulator finds fastest.
#include <algorithm>

#include "outsize/planners/search.h"

namespace outsize::planning {
namespace {

double ns_per_byte(int64_t bytes_per_s) {
  return bytes_per_s > 0 ? 1e9 / static_cast<double>(bytes_per_s) : 0;
}

// Copies in the compute stream: every byte costs the step its time.
Prices prices_beside_ops(const Machine& machine) {
  Prices p;
  int64_t sync = machine.sync_bytes_per_s;
  p.out_per_byte = ns_per_byte(sync > 0 ? sync : machine.out.bytes_per_s);
  p.in_per_byte = ns_per_byte(sync > 0 ? sync : machine.in.bytes_per_s);
  p.out_latency_ns = machine.out.latency_ns;
  p.in_latency_ns = machine.in.latency_ns;
  return p;
}

ChooseParams params_of(const Problem& problem) {
  ChooseParams params;
  params.capacity = problem.budgets.device;
  params.swap = problem.allow.swap && problem.budgets.host > 0 &&
                problem.machine->out.bytes_per_s > 0 && problem.machine->in.bytes_per_s > 0;
  params.recompute = problem.allow.recompute;
  // Small storages are not worth a copy; what is small depends on the budget.
  params.stay_bytes = std::min<int64_t>(64 << 10, problem.budgets.device / 1000);
  return params;
}

bool works_at(const Case& c, int64_t device_budget) {
  Problem other = *c.problem;
  other.budgets.device = device_budget;
  Case at = c;
  at.problem = &other;
  Random random(other.seed);
  Trouble trouble;
  return solve(at, prices_beside_ops(*other.machine), params_of(other), CopyStyle::kBesideOps,
               random, nullptr, trouble)
      .has_value();
}

}  // namespace

Status plan_outsize(Search& search) {
  const Problem& problem = search.problem();
  Trouble trouble;
  {
    Chooser chooser(problem, Prices{}, ChooseParams{});
    std::optional<Plan> plan = write_plan(search.step(), chooser, plain_program(search.step()),
                                          CopyStyle::kBesideOps, trouble);
    problem.deadline->spend(1);
    if (plan) {
      search.offer(*plan);
      return Done{};
    }
  }
  Random random(problem.seed);
  std::optional<Solution> first =
      solve(search.step(), prices_beside_ops(*problem.machine), params_of(problem),
            CopyStyle::kBesideOps, random, nullptr, trouble);
  problem.deadline->spend(1);
  if (!first)
    return search.infeasible("outsize", trouble,
                             [&](int64_t budget) { return works_at(search.step(), budget); });
  search.offer(first->plan);
  return Done{};
}

}  // namespace outsize::planning
