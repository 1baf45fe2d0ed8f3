// `swap-everything` and `recompute-everything`: as much of the one or the other as a step allows,
// for tests of what runs plans, and for looking at what each costs.
//
//   swap-everything        each storage is on the device only while an op touches it
//   recompute-everything   each activation that can be made again is dropped wherever the next op
//                          doesn't touch it; what that leaves too large is swapped where it may be
#include "outsize/planners/dissolve.h"
#include "outsize/planners/plan_once.h"

namespace outsize::planning {
namespace {

// A drop that runs more ops again than this is not made: chains of them grow with the square of a
// step's length.
constexpr size_t kLongestRerun = 8;

ChooseParams everything_may_move(const Problem& problem) {
  ChooseParams params;
  params.capacity = problem.budgets.device;
  params.swap = can_swap(problem);
  params.stay_bytes = 0;
  return params;
}

// Reruns are numbered after the runs, so only gaps of the step as given are dropped.
Program all_dropped(const Case& c) {
  Program program = plain_program(c);
  const Program::RunPrice run = run_times(c);
  const auto instances = static_cast<int32_t>(program.instances().size());
  for (int32_t i = 0; i < instances; ++i) {
    const PartInfo& part = program.part_of(i);
    if (part.persistent || part.entry) continue;
    for (size_t k = program.instance(i).touches.size(); k-- > 1;) {
      const std::vector<Touch>& touches = program.instance(i).touches;
      if (k >= touches.size()) continue;
      if (program.rank(touches[k].step) - program.rank(touches[k - 1].step) < 2) continue;
      const std::optional<Program::Draft> draft =
          program.draft_drop(i, k - 1, run, held_for_nothing);
      if (draft && draft->runs.size() <= kLongestRerun) program.drop(i, k - 1, *draft);
    }
  }
  return program;
}

using Make = Program (*)(const Case& c, const Chooser& chooser);

std::optional<Plan> plan_of(const Case& c, Make make, Trouble& trouble) {
  Chooser chooser(*c.problem, Prices{}, everything_may_move(*c.problem));
  std::optional<Solution> solution = solve_dissolving(c, chooser, make(c, chooser), trouble);
  if (!solution) return std::nullopt;
  return std::move(solution->plan);
}

Status plan_forced(Search& search, const std::string& name, Make make) {
  return plan_once(search, name,
                   [make](const Case& c, Trouble& trouble) { return plan_of(c, make, trouble); });
}

}  // namespace

Status plan_swap_everything(Search& search) {
  if (!can_swap(search.problem()))
    return ::outsize::infeasible(
        "planner swap-everything: there is nowhere to swap to; give a host or a disk budget, and a "
        "machine with links to it");
  return plan_forced(search, "swap-everything", all_away);
}

Status plan_recompute_everything(Search& search) {
  return plan_forced(search, "recompute-everything",
                     [](const Case& c, const Chooser&) { return all_dropped(c); });
}

}  // namespace outsize::planning
