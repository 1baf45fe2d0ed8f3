// What all planners do that make one plan, without a search over several: offer it, or say what is
// short and from which budget on there would be one. Not thread-safe, as the search.
//
//   Status plan_greedy(Search& search) {
//     return plan_once(search, "greedy", [](const Case& c, Trouble& trouble) {
//       return realise_within(c, decide, trouble);
//     });
//   }
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "outsize/planners/search.h"

namespace outsize::planning {

// `plan`: the plan for a case, at whatever budgets it has, or what is short. A unit of work.
Status plan_once(Search& search, const std::string& name,
                 const std::function<std::optional<Plan>(const Case& c, Trouble& trouble)>& plan);

}  // namespace outsize::planning
