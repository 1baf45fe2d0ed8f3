// `keep`: everything stays on the device from its first use to its last; nothing is moved and
// nothing run again. What a step takes when memory is no matter, and the plan of choice when it
// fits.
#include "outsize/planners/search.h"

namespace outsize::planning {

Status plan_keep(Search& search) {
  const Case& c = search.step();
  Chooser chooser(search.problem(), Prices{}, ChooseParams{});
  Trouble trouble;
  std::optional<Plan> plan =
      write_plan(c, chooser, plain_program(c), Style{}, Effort::kThorough, trouble);
  if (!plan)
    return search.infeasible("keep", trouble,
                             [&](int64_t budget) { return budget >= trouble.height; });
  search.offer(*plan);
  search.problem().deadline->spend(1);
  return Done{};
}

}  // namespace outsize::planning
