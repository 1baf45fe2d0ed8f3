// PyTorch's default CPU generator, kept and put back whole, so that an op run again draws what it
// drew.
//
//   GeneratorStates states;
//   states.save(OpId{3});  … dropout …  states.rewind(OpId{3});  … dropout again … states.resume();
//
// Called by one thread at a time; locks the generator against others.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

at::Tensor generator_state();
Status set_generator_state(const at::Tensor& state);

class GeneratorStates {
 public:
  void clear();
  Status save(OpId op);
  // Puts back what `save(op)` kept, keeping the present state aside. kInternal if there is none.
  Status rewind(OpId op);
  Status resume();

 private:
  std::map<OpId, at::Tensor> saved_;
  std::optional<at::Tensor> aside_;
};

}  // namespace outsize
