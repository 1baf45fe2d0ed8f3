// Orders that SwapAdvisor's first generation begins with, beside random ones (ours; the paper's
// first generation is all random, and it searches for 30 minutes on 72 cores).
//
//   lstm cells (layer, time), program order time by time, weights of a layer larger than the pool:
//   depth_first goes along one layer as far as it can; nearest_first takes the op whose tensors are
//   on the device already, so that a layer's weights are fetched once
//
// Pure functions.
#pragma once

#include <vector>

#include "outsize/graph/graph.h"
#include "outsize/planners/parts.h"

namespace outsize::planning::swapadvisor {

// dependencies_of the graph, and those that hold where parts move whole: ops that touch one part, a
// writer among them, keep their order even where their bytes are apart.
std::vector<std::vector<OpId>> dependencies_by_part(const Graph& graph, const Parts& parts);
bool keeps(const std::vector<OpId>& order, const std::vector<std::vector<OpId>>& before);

// Of the ready ops the one made ready last; of several made ready by one op the first, or the last.
std::vector<OpId> depth_first(const Graph& graph, const std::vector<std::vector<OpId>>& before,
                              bool last_of_several);

// Of the ready ops that which brings the fewest bytes onto a device of `capacity` bytes (run as a
// least-recently-used cache) less those that it is the last to need; the first of equals.
std::vector<OpId> nearest_first(const Graph& graph, const std::vector<std::vector<OpId>>& before,
                                int64_t capacity);

}  // namespace outsize::planning::swapadvisor
