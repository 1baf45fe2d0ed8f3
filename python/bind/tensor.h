// Tensors across the border: PyTorch's own wrapping, so that objects stay the ones that the user
// has.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include "python/bind/convert.h"

namespace outsize::bind {

inline at::Tensor tensor_of(const py::handle& object, const std::string& what) {
  if (!THPVariable_Check(object.ptr()))
    raise(bad_input("{}: wanted a tensor, had {}", what, py::repr(object).cast<std::string>()));
  return THPVariable_Unpack(object.ptr());
}

inline py::object object_of(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
}

}  // namespace outsize::bind
