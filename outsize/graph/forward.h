// Where a training step's forward pass ends.
//
//   op0 conv, op1 relu, | op2 relu_backward, op3 convolution_backward      forward_ops == 2
//
// Imported graphs have no phases and only the words of whoever wrote them: an op whose name has
// "backward" in it begins the backward pass. Pure functions.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "outsize/graph/graph.h"

namespace outsize {

// Ops, in program order, before the first of the backward pass: by the phases where there are any,
// else by the ops' names, else up to where most bytes are alive.
size_t forward_ops(const Graph& graph);

// Whether the op's name has one of these words in it, in upper or lower case. Requires: the words
// are in lower case.
bool name_has(const Op& op, std::initializer_list<std::string_view> words);

}  // namespace outsize
