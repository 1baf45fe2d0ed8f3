#include "outsize/torch/arguments.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/InferenceMode.h>

#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

using c10::IValue;
using c10::TypeKind;

// What a list or an optional holds: the innermost kind that matters for decoding.
c10::TypePtr without_optional(const c10::TypePtr& type) {
  if (type->kind() == TypeKind::OptionalType)
    return type->expectRef<c10::OptionalType>().getElementType();
  return type;
}

bool is_none(const Argument& a) { return std::holds_alternative<std::monostate>(a.data); }

std::optional<Number> literal_number(const Argument& a) {
  if (const bool* b = std::get_if<bool>(&a.data)) return Number{*b};
  if (const int64_t* i = std::get_if<int64_t>(&a.data)) return Number{*i};
  if (const double* d = std::get_if<double>(&a.data)) return Number{*d};
  return std::nullopt;
}

c10::Scalar to_scalar(const Number& n) {
  if (const bool* b = std::get_if<bool>(&n)) return c10::Scalar(*b);
  if (const int64_t* i = std::get_if<int64_t>(&n)) return c10::Scalar(*i);
  return c10::Scalar(std::get<double>(n));
}

IValue to_ivalue(const Number& n) {
  if (const bool* b = std::get_if<bool>(&n)) return IValue(*b);
  if (const int64_t* i = std::get_if<int64_t>(&n)) return IValue(*i);
  return IValue(std::get<double>(n));
}

std::optional<int64_t> as_int(const Number& n) {
  if (const bool* b = std::get_if<bool>(&n)) return *b ? 1 : 0;
  if (const int64_t* i = std::get_if<int64_t>(&n)) return *i;
  return std::nullopt;
}

double as_float(const Number& n) {
  if (const double* d = std::get_if<double>(&n)) return *d;
  return static_cast<double>(*as_int(n));
}

bool as_bool(const Number& n) { return as_float(n) != 0.0; }

// As at::native::wrapped_scalar_tensor: a number that takes no part in choosing the result's type.
at::Tensor wrapped_number(const Number& n) {
  const c10::InferenceMode ordinary(false);
  return at::native::wrapped_scalar_tensor(to_scalar(n));
}

Error mismatch(const Argument& a, const c10::TypePtr& type) {
  return bad_input("wanted {}, had {}", type->str(), describe_argument(a));
}

Result<IValue> decode_keyword(const Argument& a, const c10::TypePtr& type) {
  const auto* word = std::get_if<Keyword>(&a.data);
  if (word == nullptr) return mismatch(a, type);
  const TypeKind kind = type->kind();
  // Schemas read at run time may give plain int for these.
  const bool any = kind == TypeKind::IntType || kind == TypeKind::AnyType;
  if (word->kind == "dtype" && (any || kind == TypeKind::ScalarTypeType))
    if (const auto t = scalar_type_of(word->text)) return IValue(static_cast<int64_t>(*t));
  if (word->kind == "layout" && (any || kind == TypeKind::LayoutType))
    if (const auto t = layout_of(word->text)) return IValue(static_cast<int64_t>(*t));
  if (word->kind == "memory_format" && (any || kind == TypeKind::MemoryFormatType))
    if (const auto t = memory_format_of(word->text)) return IValue(static_cast<int64_t>(*t));
  if (word->kind == "device" && (any || kind == TypeKind::DeviceObjType)) {
    try {
      return IValue(c10::Device(word->text));
    } catch (const std::exception&) {
      return mismatch(a, type);
    }
  }
  return mismatch(a, type);
}

Result<IValue> decode_tensor(const Argument& a, const c10::TypePtr& type,
                             const TensorMaker& tensor) {
  if (is_none(a)) return IValue(at::Tensor());
  if (const auto* value = std::get_if<ValueId>(&a.data)) {
    Result<at::Tensor> t = tensor(*value);
    if (!t.ok()) return t.error();
    return IValue(std::move(*t));
  }
  if (std::holds_alternative<ScalarId>(a.data)) return IValue(wrapped_number(Number{0.0}));
  if (const auto number = literal_number(a)) return IValue(wrapped_number(*number));
  return mismatch(a, type);
}

Result<IValue> decode_number(const Argument& a, const c10::TypePtr& type) {
  const TypeKind kind = type->kind();
  const bool later = std::holds_alternative<ScalarId>(a.data);
  const auto number = later ? std::optional<Number>(Number{int64_t{0}}) : literal_number(a);
  if (!number) return mismatch(a, type);
  switch (kind) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (const auto i = as_int(*number)) return IValue(*i);
      return mismatch(a, type);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return IValue(as_float(*number));
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      if (!later && !std::holds_alternative<bool>(*number)) return mismatch(a, type);
      return IValue(as_bool(*number));
    default:
      return to_ivalue(*number);
  }
}

Result<IValue> decode(const Argument& a, const c10::TypePtr& type, std::optional<int32_t> n,
                      const TensorMaker& tensor);

// `items` is the argument's list, or the broadcast of a single number.
Result<IValue> decode_list(const Argument& a, const c10::TypePtr& type, std::optional<int32_t> n,
                           const TensorMaker& tensor) {
  const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
  const c10::TypePtr inner = without_optional(element);
  Argument::List broadcast;
  const auto* items = std::get_if<Argument::List>(&a.data);
  if (items == nullptr) {
    // int[2] takes one int for all.
    if (!n || inner->kind() == TypeKind::TensorType) return mismatch(a, type);
    broadcast.assign(static_cast<size_t>(*n), a);
    items = &broadcast;
  }
  std::vector<IValue> decoded;
  for (size_t k = 0; k < items->size(); ++k) {
    Result<IValue> item = decode((*items)[k], element, std::nullopt, tensor);
    if (!item.ok()) return bad_input("item {}: {}", k, item.error().message);
    decoded.push_back(std::move(*item));
  }
  switch (inner->kind()) {
    case TypeKind::TensorType:
      if (element->kind() == TypeKind::OptionalType) {
        c10::List<std::optional<at::Tensor>> list;
        for (IValue& v : decoded)
          list.push_back(v.isNone() ? std::nullopt : std::optional<at::Tensor>(v.toTensor()));
        return IValue(std::move(list));
      } else {
        c10::List<at::Tensor> list;
        for (IValue& v : decoded) list.push_back(v.toTensor());
        return IValue(std::move(list));
      }
    case TypeKind::IntType:
    case TypeKind::SymIntType: {
      c10::List<int64_t> list;
      for (const IValue& v : decoded) list.push_back(v.toInt());
      return IValue(std::move(list));
    }
    case TypeKind::FloatType: {
      c10::List<double> list;
      for (const IValue& v : decoded) list.push_back(v.toDouble());
      return IValue(std::move(list));
    }
    case TypeKind::BoolType: {
      c10::List<bool> list;
      for (const IValue& v : decoded) list.push_back(v.toBool());
      return IValue(std::move(list));
    }
    default: {
      c10::impl::GenericList list(inner);
      for (IValue& v : decoded) list.push_back(std::move(v));
      return IValue(std::move(list));
    }
  }
}

Result<IValue> decode(const Argument& a, const c10::TypePtr& type, std::optional<int32_t> n,
                      const TensorMaker& tensor) {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      if (is_none(a)) return IValue();
      return decode(a, without_optional(type), n, tensor);
    case TypeKind::TensorType:
      return decode_tensor(a, type, tensor);
    case TypeKind::ListType:
      return decode_list(a, type, n, tensor);
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::DeviceObjType:
      return decode_keyword(a, type);
    case TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&a.data)) return IValue(*text);
      return mismatch(a, type);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (std::holds_alternative<Keyword>(a.data)) return decode_keyword(a, type);
      return decode_number(a, type);
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
    case TypeKind::NumberType:
      return decode_number(a, type);
    case TypeKind::NoneType:
    case TypeKind::GeneratorType:
      // A generator of the user's own is no part of the graph; none is the device's default.
      if (is_none(a)) return IValue();
      return mismatch(a, type);
    case TypeKind::AnyType:
      if (const auto* text = std::get_if<std::string>(&a.data)) return IValue(*text);
      if (const auto number = literal_number(a)) return to_ivalue(*number);
      if (std::holds_alternative<Keyword>(a.data)) return decode_keyword(a, type);
      return mismatch(a, type);
    default:
      return bad_input("arguments of type {} can't be replayed", type->str());
  }
}

ScalarSlot::As slot_kind(const c10::TypePtr& type) {
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ScalarSlot::As::kTensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ScalarSlot::As::kInt;
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return ScalarSlot::As::kFloat;
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return ScalarSlot::As::kBool;
    default:
      return ScalarSlot::As::kNumber;
  }
}

// Writes the number into `tensor` if it has the type already, so that no memory is asked for.
bool overwrite(at::Tensor& tensor, const Number& number) {
  if (const bool* b = std::get_if<bool>(&number)) {
    if (tensor.scalar_type() != c10::kBool) return false;
    *static_cast<bool*>(tensor.mutable_data_ptr()) = *b;
  } else if (const int64_t* i = std::get_if<int64_t>(&number)) {
    if (tensor.scalar_type() != c10::kLong) return false;
    *static_cast<int64_t*>(tensor.mutable_data_ptr()) = *i;
  } else {
    if (tensor.scalar_type() != c10::kDouble) return false;
    *static_cast<double*>(tensor.mutable_data_ptr()) = std::get<double>(number);
  }
  return true;
}

}  // namespace

bool holds_values(const Argument& argument) {
  if (std::holds_alternative<ValueId>(argument.data)) return true;
  const auto* items = std::get_if<Argument::List>(&argument.data);
  if (items == nullptr) return false;
  for (const Argument& item : *items)
    if (holds_values(item)) return true;
  return false;
}

Result<IValue> decode_argument(const Argument& argument, const c10::Argument& schema,
                               const TensorMaker& tensor) {
  return decode(argument, schema.real_type(), schema.N(), tensor);
}

void find_slots(const Argument& argument, const c10::Argument& schema, size_t index,
                std::vector<ScalarSlot>& slots) {
  const c10::TypePtr type = without_optional(schema.real_type());
  const bool is_list = type->kind() == TypeKind::ListType;
  const c10::TypePtr element =
      is_list ? without_optional(type->expectRef<c10::ListType>().getElementType()) : type;
  const ScalarSlot::As as = slot_kind(element);
  if (const auto* scalar = std::get_if<ScalarId>(&argument.data)) {
    const size_t copies = is_list ? static_cast<size_t>(schema.N().value_or(0)) : 1;
    for (size_t k = 0; k < copies; ++k)
      slots.push_back({index, is_list ? std::optional<size_t>(k) : std::nullopt, *scalar, as});
    return;
  }
  if (const auto* items = std::get_if<Argument::List>(&argument.data))
    for (size_t k = 0; k < items->size(); ++k)
      if (const auto* scalar = std::get_if<ScalarId>(&(*items)[k].data))
        slots.push_back({index, k, *scalar, as});
}

Status fill_slot(const ScalarSlot& slot, const Number& number, std::vector<IValue>& stack) {
  IValue value;
  switch (slot.as) {
    case ScalarSlot::As::kNumber:
      value = to_ivalue(number);
      break;
    case ScalarSlot::As::kInt: {
      const auto i = as_int(number);
      if (!i)
        return Error{ErrorKind::kDevice,
                     fmt::format("scalar {} is the float {} where the op takes an integer",
                                 slot.scalar.value, as_float(number))};
      value = IValue(*i);
      break;
    }
    case ScalarSlot::As::kFloat:
      value = IValue(as_float(number));
      break;
    case ScalarSlot::As::kBool:
      value = IValue(as_bool(number));
      break;
    case ScalarSlot::As::kTensor: {
      IValue& place = stack[slot.arg];
      if (!slot.item && place.isTensor() && overwrite(place.toTensor(), number)) return Done{};
      value = IValue(wrapped_number(number));
      break;
    }
  }
  if (!slot.item) {
    stack[slot.arg] = std::move(value);
    return Done{};
  }
  // Lists are shared with nobody between calls.
  c10::List<IValue> list = stack[slot.arg].toList();
  list.set(*slot.item, std::move(value));
  return Done{};
}

std::string describe_argument(const Argument& argument) {
  struct Describe {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool b) const { return b ? "the bool true" : "the bool false"; }
    std::string operator()(int64_t i) const { return fmt::format("the integer {}", i); }
    std::string operator()(double d) const { return fmt::format("the float {}", d); }
    std::string operator()(const std::string& s) const { return fmt::format("the string '{}'", s); }
    std::string operator()(ValueId v) const { return fmt::format("value {}", v.value); }
    std::string operator()(ScalarId s) const { return fmt::format("scalar {}", s.value); }
    std::string operator()(const Keyword& k) const {
      return fmt::format("{} '{}'", k.kind, k.text);
    }
    std::string operator()(const Argument::List& l) const {
      return fmt::format("a list of {}", l.size());
    }
  };
  return std::visit(Describe{}, argument.data);
}

}  // namespace outsize
