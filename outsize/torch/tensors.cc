#include "outsize/torch/tensors.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <array>
#include <utility>

namespace outsize {
namespace {

constexpr std::array<std::pair<const char*, c10::ScalarType>, 25> kDtypes{{
    {"float32", c10::kFloat},
    {"float64", c10::kDouble},
    {"float16", c10::kHalf},
    {"bfloat16", c10::kBFloat16},
    {"int64", c10::kLong},
    {"int32", c10::kInt},
    {"int16", c10::kShort},
    {"int8", c10::kChar},
    {"uint8", c10::kByte},
    {"uint16", c10::kUInt16},
    {"uint32", c10::kUInt32},
    {"uint64", c10::kUInt64},
    {"bool", c10::kBool},
    {"complex32", c10::kComplexHalf},
    {"complex64", c10::kComplexFloat},
    {"complex128", c10::kComplexDouble},
    {"float8_e4m3fn", c10::kFloat8_e4m3fn},
    {"float8_e5m2", c10::kFloat8_e5m2},
    {"float8_e4m3fnuz", c10::kFloat8_e4m3fnuz},
    {"float8_e5m2fnuz", c10::kFloat8_e5m2fnuz},
    {"float8_e8m0fnu", c10::kFloat8_e8m0fnu},
    {"qint8", c10::kQInt8},
    {"quint8", c10::kQUInt8},
    {"qint32", c10::kQInt32},
    {"float", c10::kFloat},
}};

}  // namespace

std::optional<c10::ScalarType> scalar_type_of(const std::string& dtype) {
  for (const auto& [name, type] : kDtypes)
    if (dtype == name) return type;
  return std::nullopt;
}

std::string dtype_name(c10::ScalarType type) {
  for (const auto& [name, known] : kDtypes)
    if (type == known) return name;
  return "";
}

std::optional<c10::Layout> layout_of(const std::string& word) {
  if (word == "strided") return c10::kStrided;
  if (word == "sparse_coo" || word == "sparse") return c10::kSparse;
  if (word == "sparse_csr") return c10::kSparseCsr;
  if (word == "_mkldnn" || word == "mkldnn") return c10::kMkldnn;
  return std::nullopt;
}

std::optional<c10::MemoryFormat> memory_format_of(const std::string& word) {
  if (word == "contiguous_format") return c10::MemoryFormat::Contiguous;
  if (word == "preserve_format") return c10::MemoryFormat::Preserve;
  if (word == "channels_last") return c10::MemoryFormat::ChannelsLast;
  if (word == "channels_last_3d") return c10::MemoryFormat::ChannelsLast3d;
  return std::nullopt;
}

c10::Storage storage_on(void* pointer, int64_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
                      c10::DataPtr(pointer, c10::Device(c10::kCPU)), nullptr, false);
}

at::Tensor tensor_on(const Value& value, const c10::Storage& storage) {
  const auto type = scalar_type_of(value.dtype);
  OUTSIZE_CHECK(type.has_value(), "a value of dtype '{}'", value.dtype);
  // The step's own tensors are ordinary ones, whatever mode the caller is in.
  const c10::InferenceMode ordinary(false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(*type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(value.sizes, value.strides, value.offset);
  if (value.conj) tensor._set_conj(true);
  if (value.neg) tensor._set_neg(true);
  return tensor;
}

at::Tensor byte_tensor(int64_t bytes) {
  const c10::InferenceMode ordinary(false);
  return at::Tensor(at::detail::empty_cpu({bytes}, c10::kByte));
}

at::Tensor byte_view(const c10::Storage& storage, int64_t bytes) {
  Value value;
  value.dtype = "uint8";
  value.sizes = {bytes};
  value.strides = {1};
  return tensor_on(value, storage);
}

int64_t elements_of(const Value& value) {
  int64_t n = 1;
  for (const int64_t size : value.sizes) n *= size;
  return n;
}

}  // namespace outsize
