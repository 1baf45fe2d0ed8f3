// How many bytes of each storage an op touches, whichever and however many of its accesses do.
//
//   op reads x[0, 60) and x[40, 100), makes y[0, 10)      touched_bytes: {x, 100}, {y, 10}
//
// A pure function.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "outsize/graph/graph.h"

namespace outsize {

// By storage. Requires: ids in range.
std::vector<std::pair<StorageId, int64_t>> touched_bytes(const Graph& graph, OpId op);

}  // namespace outsize
