// Pointwise ops: each element of the result comes from the elements at its place in the operands.
//
//   add(a [8,512,64], b [64])   4096 rows of 64: b is whole in each piece
//   add(a [8,512,64], 1.0)      262,144 elements
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/split/slicing.h"

namespace outsize {

// By name, in place or not: "aten.add_.Tensor". Ops that draw random numbers are not among them.
bool is_pointwise(const std::string& name);

// Their names without "aten.", overload and the sign of being in place; sorted.
std::vector<std::string> pointwise_ops();

// By elements where all operands have one dense layout, else by rows of the leading dimensions that
// all of them have or lack together.
std::optional<Slicing> pointwise_of(const Graph& graph, const Op& op);

// `value` with its first `leading` dimensions as one; nothing where its strides don't allow that.
std::optional<Value> merged(const Value& value, size_t leading);

}  // namespace outsize
