// Choosing by a linear program: which gaps to swap and which to recompute as the fluid optimum has
// it, rounded to whole storages.
//
//   1. the swap + recompute program of outsize/bound says which storages are dropped, and what a
//      byte on the device costs while each op runs;
//   2. each drop is made with its inputs: kept longer, or made again, whichever those prices make
//      cheaper; a drop that turned out dear is charged for it, and 1 is solved again;
//   3. the swap program of the step with its reruns says which gaps are swapped; what rounding
//      leaves short is chosen greedily (choose.h).
//
// docs/planning.md tells more. Deterministic but for the deadline.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/search.h"

namespace outsize::planning {

// Offers its plans to `search`, until its deadline; the best of them, if there is one.
struct PricedSolution {
  Solution solution;
  int64_t ns = 0;
};
std::optional<PricedSolution> choose_by_prices(Search& search, const Prices& prices,
                                               const ChooseParams& params);

}  // namespace outsize::planning
