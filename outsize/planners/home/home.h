// `home`: a particle swarm decides for every tensor that the forward pass leaves: keep, swap or
// make again (He et al., IEEE TC 2023).
//
// `swarm.h` searches with the estimate of `evaluate.h`; the best policy becomes a plan, as 3.6 has
// it: a swapped tensor leaves when the forward pass no longer needs it, ops waiting for the copy
// only where they need its room, and comes back beside the op before its reader; a recomputed one
// is dropped then and made again at its reader. Parameters, gradients that stay and optimizer state
// stay on the device. Pure functions but for the search object.
#pragma once

#include "outsize/planners/home/swarm.h"
#include "outsize/planners/search.h"

namespace outsize::planning::home {

// The policy as a decision; none where it needs more than `capacity` after all: what recomputation
// holds on its way is not in the estimate.
std::optional<Decision> decide(const Case& c, const Stages& stages, const Policy& policy,
                               int64_t capacity, const Rules& rules, Trouble& trouble);

Status plan_with(Search& search, const Rules& rules);

}  // namespace outsize::planning::home
