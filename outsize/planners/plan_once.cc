#include "outsize/planners/plan_once.h"

#include "outsize/planners/realise.h"

namespace outsize::planning {

Status plan_once(Search& search, const std::string& name,
                 const std::function<std::optional<Plan>(const Case& c, Trouble& trouble)>& plan) {
  Trouble trouble;
  const std::optional<Plan> found = plan(search.step(), trouble);
  search.problem().deadline->spend(1);
  if (!found)
    return search.infeasible(name, trouble, works_at(search.step(), [&](const Case& at) {
                               Trouble why;
                               return plan(at, why).has_value();
                             }));
  search.offer(*found);
  return Done{};
}

}  // namespace outsize::planning
