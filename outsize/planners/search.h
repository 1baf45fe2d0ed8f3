// A planner's search: the case it works on, the best plan so far kept apart, and what it can't do.
//
//   Search search(problem);
//   search.offer(plan);             // simulated; kept if it is the first or a faster one
//   if (!search.best()) return search.infeasible("keep", least_budget);
//
// One owner thread. The problem must outlive the search.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outsize/planners/solve.h"

namespace outsize::planning {

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(&problem), case_(case_of(problem)) {}

  const Problem& problem() const { return *problem_; }
  const Case& step() const { return case_; }
  Case& step() { return case_; }

  // Simulated time of the plan; it becomes the best if it is the first or faster than the best.
  int64_t offer(const Plan& plan);
  const std::optional<Plan>& best() const { return best_; }
  int64_t best_ns() const { return best_ns_; }
  const std::vector<std::pair<double, int64_t>>& history() const { return history_; }

  // "planner `name` needs 3.2 GiB ...": what is short, the floor and the op that sets it, and the
  // least device budget at which `name` finds a plan (by bisection with `works`, to half a
  // percent).
  Error infeasible(const std::string& name, const Trouble& trouble,
                   const std::function<bool(int64_t device_budget)>& works) const;

 private:
  const Problem* problem_;
  Case case_;
  std::optional<Plan> best_;
  int64_t best_ns_ = 0;
  std::vector<std::pair<double, int64_t>> history_;
};

// The planners by name; each leaves its best plan in `search`, or says why there is none.
Status plan_keep(Search& search);
Status plan_sqrt_n(Search& search);
Status plan_odswap(Search& search);
Status plan_swapadvisor(Search& search);
Status plan_swapadvisor_fixed_classes(Search& search);  // Figure 10: allocations aren't searched
Status plan_outsize(Search& search);
Status plan_swap_everything(Search& search);
Status plan_recompute_everything(Search& search);
Status plan_dtr(Search& search);
Status plan_dtr_eq_class(Search& search);
Status plan_dtr_msps(Search& search);
Status plan_dtr_lru(Search& search);
Status plan_atp(Search& search);
Status plan_capuchin(Search& search);
Status plan_tflms(Search& search);
Status plan_home(Search& search);
Status plan_g10(Search& search);
Status plan_checkmate(Search& search);

}  // namespace outsize::planning
