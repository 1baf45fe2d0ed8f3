// Tensors on memory that is already there, and PyTorch's words for dtypes and the like.
//
//   at::Tensor t = tensor_on(graph, value, storage_on(pointer, bytes));   // nothing is copied or
//   owned
#pragma once

#include <ATen/core/TensorBody.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "outsize/graph/graph.h"

namespace outsize {

std::optional<c10::ScalarType> scalar_type_of(const std::string& dtype);
// "float32"; empty for a type that graphs don't know.
std::string dtype_name(c10::ScalarType type);
std::optional<c10::Layout> layout_of(const std::string& word);
std::optional<c10::MemoryFormat> memory_format_of(const std::string& word);

// A storage that frees nothing. The bytes must outlive it.
c10::Storage storage_on(void* pointer, int64_t bytes);

// The value as a view on `storage`, whose first byte is the value's storage's first byte.
// Requires: the value's dtype is known.
at::Tensor tensor_on(const Value& value, const c10::Storage& storage);

// A one-dimensional uint8 tensor in ordinary memory of the default allocator.
at::Tensor byte_tensor(int64_t bytes);
// A one-dimensional uint8 view on `storage`.
at::Tensor byte_view(const c10::Storage& storage, int64_t bytes);

int64_t elements_of(const Value& value);

}  // namespace outsize
