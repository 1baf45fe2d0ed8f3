// A graph's arguments as PyTorch's boxed values, by the type that the op's schema gives them.
//
//   add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) given [{value 0}, 2.0, {scalar 3}]:
//   a tensor; a 0-dimensional "wrapped number", as eager makes of a Python number; a slot for
//   scalar 3
//
// Pure functions of their arguments; nothing is kept.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

// Where a scalar goes when the op is called.
struct ScalarSlot {
  size_t arg = 0;
  std::optional<size_t> item;  // position in a list argument
  ScalarId scalar;
  enum class As { kNumber, kInt, kFloat, kBool, kTensor } as = As::kNumber;
};

// Gives the tensor for a value. Called during decode_argument only.
using TensorMaker = std::function<Result<at::Tensor>(ValueId)>;

// Whether the argument holds values, so that it must be decoded anew for each place they lie at.
bool holds_values(const Argument& argument);

// The boxed value for `argument` as `schema` wants it; a scalar's place holds a number of the right
// type until fill_slot. kBadInput says which type was wanted and what was there.
Result<c10::IValue> decode_argument(const Argument& argument, const c10::Argument& schema,
                                    const TensorMaker& tensor);

// The slots for the scalars in `argument`, which is argument `index` of the op.
void find_slots(const Argument& argument, const c10::Argument& schema, size_t index,
                std::vector<ScalarSlot>& slots);

// Puts the number in its slot of the stack. kInternal if it does not fit the slot's type.
Status fill_slot(const ScalarSlot& slot, const Number& number, std::vector<c10::IValue>& stack);

// "a list of 3", "the number 2.5", "none", for messages.
std::string describe_argument(const Argument& argument);

}  // namespace outsize
