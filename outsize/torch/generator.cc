#include "outsize/torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace outsize {

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

Status set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const std::exception& e) {
    return device_error("the generator's state could not be put back: {}", e.what());
  }
  return Done{};
}

void GeneratorStates::clear() {
  saved_.clear();
  aside_.reset();
}

Status GeneratorStates::save(OpId op) {
  saved_[op] = generator_state();
  return Done{};
}

Status GeneratorStates::rewind(OpId op) {
  const auto found = saved_.find(op);
  if (found == saved_.end())
    return Error{ErrorKind::kInternal,
                 fmt::format("no generator state was kept for op {}", op.value)};
  aside_ = generator_state();
  return set_generator_state(found->second);
}

Status GeneratorStates::resume() {
  if (!aside_) return Error{ErrorKind::kInternal, "no generator state was set aside"};
  Status status = set_generator_state(*aside_);
  aside_.reset();
  return status;
}

}  // namespace outsize
