// `g10`: tensors migrate to the SSD and to the host while they are inactive (Zhang et al., MICRO
// 2023).
//
//   device ──► SSD    what leaves, as long as its link has room: there is plenty of it
//   device ──► host   what leaves while that link is busy: fast, and smaller
//
// `evict.h` chooses; what it leaves short is sent away on demand, as page faults would, least
// recently used first, to the host. With one tier below the device all goes there. No
// recomputation. Pure functions but for the search object.
#pragma once

#include "outsize/planners/g10/evict.h"
#include "outsize/planners/search.h"

namespace outsize::planning::g10 {

std::optional<Decision> decide(const Case& c, int64_t capacity, const Rules& rules,
                               Trouble& trouble);

Status plan_with(Search& search, const Rules& rules);

}  // namespace outsize::planning::g10
