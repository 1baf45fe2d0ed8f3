// Reordering: a legal order in which the optimizer's ops run as soon as what they need is there, so
// that a gradient dies right after it is final.
//
//   program:  b1 makes g1, b0 makes g0, u1 reads g1, u0 reads g0        g1 and g0 live at once
//   early:    b1 makes g1, u1 reads g1, b0 makes g0, u0 reads g0        one at a time
//
// Pure function.
#pragma once

#include <vector>

#include "outsize/graph/graph.h"

namespace outsize::planning {

// Ops of the phase "optimizer" first among those that may come next, else program order. Program
// order where no op has that phase.
std::vector<OpId> early_updates(const Graph& graph);

}  // namespace outsize::planning
