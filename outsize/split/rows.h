// Ops whose results don't mix rows: softmax, norms, matrix products, convolutions by image, losses'
// gradients, look-ups.
//
//   _log_softmax(x [8,512,8192], -1)    4096 rows; pieces see x as [n, 8192] and take dim 1
//   bmm(a [64,512,64], b [64,64,512])   64 products
//
// Pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/split/slicing.h"

namespace outsize {

std::optional<Slicing> rows_of(const Graph& graph, const Op& op);

// The ops that it knows, beside the pointwise ones; sorted.
std::vector<std::string> row_ops();

}  // namespace outsize
