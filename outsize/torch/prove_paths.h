// The two ways of pointwise kernels: most elements in whole vectors, those that are left at the end
// of each thread's range or row one by one. For some ops and dtypes the two round differently.
//
//   sigmoid of float32 [100003] in two threads: each has about 50002 elements and leaves its last
//   18 or so to the second way. In pieces other elements are left, and for 1 number of 30 the last
//   bit is another.
//
// Few elements change ways, so random operands seldom show it. With a number for which the ways
// differ in every element, each that changes its way is seen. Threads: runs on the calling thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/torch/prove_ground.h"

namespace outsize {

// Per value of the graph, the number that its elements are to have; undefined where the op takes it
// from nobody.
using Telltale = std::vector<at::Tensor>;

// Operands for which the ways of the graph's one op, a pointwise one, give different bits; none if
// 32,766 random ones give the same. Where both are NaN their bits may differ.
Result<std::optional<Telltale>> find_telltale(const Graph& graph, uint64_t seed);

// Gives every element of each operand the telltale's number.
void fill_with(const Telltale& telltale, const Graph& graph, const Ground& ground);

}  // namespace outsize
