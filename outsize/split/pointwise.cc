#include "outsize/split/pointwise.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace outsize {
namespace {

constexpr auto kPointwise = std::to_array<std::string_view>({"_to_copy",
                                                             "abs",
                                                             "add",
                                                             "addcdiv",
                                                             "addcmul",
                                                             "atan2",
                                                             "bitwise_and",
                                                             "bitwise_not",
                                                             "bitwise_or",
                                                             "ceil",
                                                             "clamp",
                                                             "clamp_max",
                                                             "clamp_min",
                                                             "clone",
                                                             "copy",
                                                             "cos",
                                                             "div",
                                                             "elu",
                                                             "elu_backward",
                                                             "eq",
                                                             "erf",
                                                             "exp",
                                                             "expm1",
                                                             "fill",
                                                             "floor",
                                                             "fmod",
                                                             "ge",
                                                             "gelu",
                                                             "gelu_backward",
                                                             "gt",
                                                             "hardsigmoid",
                                                             "hardsigmoid_backward",
                                                             "hardswish",
                                                             "hardswish_backward",
                                                             "hardtanh",
                                                             "hardtanh_backward",
                                                             "isinf",
                                                             "isnan",
                                                             "le",
                                                             "leaky_relu",
                                                             "leaky_relu_backward",
                                                             "lerp",
                                                             "log",
                                                             "log1p",
                                                             "logical_and",
                                                             "logical_not",
                                                             "logical_or",
                                                             "lt",
                                                             "masked_fill",
                                                             "maximum",
                                                             "minimum",
                                                             "mul",
                                                             "native_dropout_backward",
                                                             "ne",
                                                             "neg",
                                                             "pow",
                                                             "reciprocal",
                                                             "relu",
                                                             "remainder",
                                                             "round",
                                                             "rsqrt",
                                                             "rsub",
                                                             "sigmoid",
                                                             "sigmoid_backward",
                                                             "sign",
                                                             "silu",
                                                             "silu_backward",
                                                             "sin",
                                                             "softplus",
                                                             "softplus_backward",
                                                             "sqrt",
                                                             "square",
                                                             "sub",
                                                             "tanh",
                                                             "tanh_backward",
                                                             "threshold",
                                                             "threshold_backward",
                                                             "where",
                                                             "zero"});
static_assert(std::is_sorted(kPointwise.begin(), kPointwise.end()));

// Strides of dimensions with one element say nothing.
bool same_layout(const Value& a, const Value& b) {
  if (a.sizes != b.sizes) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

// Every element once and no gaps, in whatever order of dimensions.
bool is_dense(const Value& value) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t d = 0; d < value.sizes.size(); ++d)
    if (value.sizes[d] != 1) dims.emplace_back(value.strides[d], value.sizes[d]);
  std::sort(dims.begin(), dims.end());
  int64_t stride = 1;
  for (const auto& [had, size] : dims) {
    if (had != stride) return false;
    stride *= size;
  }
  return true;
}

// The size that `value` has in dimension `d` of `like`, counted from the right; 1 where it has
// none.
int64_t aligned_size(const Value& value, const Value& like, size_t d) {
  const size_t missing = like.sizes.size() - value.sizes.size();
  return d < missing ? 1 : value.sizes[d - missing];
}

// One element, whatever its dimensions: as a number (0 dimensions stay 0) or a list of one, so that
// it does not give the piece dimensions.
SlicedValue as_one(Value value) {
  if (value.sizes.size() > 1) {
    value.sizes = {1};
    value.strides = {1};
  }
  return {value, -1, 1};
}

// Without its first `leading` dimensions, which have one element each where they are there at all.
SlicedValue without_leading(Value value, const Value& like, size_t leading) {
  const size_t missing = like.sizes.size() - value.sizes.size();
  const size_t drop = std::min(leading > missing ? leading - missing : 0, value.sizes.size());
  const bool had_dims = !value.sizes.empty();
  value.sizes.erase(value.sizes.begin(), value.sizes.begin() + static_cast<std::ptrdiff_t>(drop));
  value.strides.erase(value.strides.begin(),
                      value.strides.begin() + static_cast<std::ptrdiff_t>(drop));
  if (had_dims && value.sizes.empty()) {
    value.sizes = {1};
    value.strides = {1};
  }
  return {value, -1, 1};
}

struct Operands {
  std::vector<ValueId> all;  // arguments and the result
  ValueId result;
};

std::optional<Operands> operands_of(const Op& op) {
  Operands operands;
  if (op.results.size() != 1 || value_in(op.results, 0) == nullptr) return std::nullopt;
  operands.result = *value_in(op.results, 0);
  for (const Argument& argument : op.args) {
    if (std::holds_alternative<Argument::List>(argument.data)) return std::nullopt;
    if (const auto* id = std::get_if<ValueId>(&argument.data)) operands.all.push_back(*id);
  }
  operands.all.push_back(operands.result);
  return operands;
}

std::optional<Slicing> by_elements(const Graph& graph, const Op& op, const Operands& operands) {
  const Value& result = graph.value(operands.result);
  if (!is_dense(result)) return std::nullopt;
  Slicing slicing{CutKind::kElements, count_of(result), op.args, {}};
  for (const ValueId id : operands.all) {
    const Value& value = graph.value(id);
    if (same_layout(value, result)) {
      Value flat = value;
      flat.sizes = {slicing.count};
      flat.strides = {1};
      slicing.values[id] = {flat, 0, 1};
    } else if (count_of(value) == 1) {
      slicing.values[id] = as_one(value);
    } else {
      return std::nullopt;
    }
  }
  return slicing;
}

std::optional<Slicing> by_rows(const Graph& graph, const Op& op, const Operands& operands,
                               size_t leading) {
  const Value& result = graph.value(operands.result);
  const std::optional<Value> rows = merged(result, leading);
  if (!rows || rows->sizes[0] < 2) return std::nullopt;
  Slicing slicing{CutKind::kRows, rows->sizes[0], op.args, {}};
  for (const ValueId id : operands.all) {
    const Value& value = graph.value(id);
    if (value.sizes.size() > result.sizes.size()) return std::nullopt;
    bool has = true, lacks = true;
    for (size_t d = 0; d < leading; ++d) {
      has = has && aligned_size(value, result, d) == result.sizes[d];
      lacks = lacks && aligned_size(value, result, d) == 1;
    }
    if (has) {
      const std::optional<Value> view = merged(value, leading);
      if (!view) return std::nullopt;
      slicing.values[id] = {*view, 0, 1};
    } else if (lacks) {
      slicing.values[id] = without_leading(value, result, leading);
    } else {
      return std::nullopt;
    }
  }
  return slicing;
}

}  // namespace

bool is_pointwise(const std::string& name) {
  // The one that is not in place copies its operand's storage, a piece's too.
  if (!name.starts_with("aten.") || name == "aten.copy.default") return false;
  std::string_view base = std::string_view(name).substr(5);
  base = base.substr(0, base.find('.'));
  if (base.ends_with('_') && !base.starts_with("__")) base.remove_suffix(1);
  return std::binary_search(kPointwise.begin(), kPointwise.end(), base);
}

std::vector<std::string> pointwise_ops() { return {kPointwise.begin(), kPointwise.end()}; }

std::optional<Value> merged(const Value& value, size_t leading) {
  if (leading == 0 || leading > value.sizes.size()) return std::nullopt;
  int64_t rows = 1, stride = 0, next = 0;
  for (size_t d = leading; d-- > 0;) {
    if (value.sizes[d] == 1) continue;
    if (rows == 1)
      stride = value.strides[d];
    else if (value.strides[d] != next)
      return std::nullopt;
    rows *= value.sizes[d];
    next = value.strides[d] * value.sizes[d];
  }
  if (rows == 1) stride = value.strides[leading - 1];
  Value out = value;
  out.sizes.assign(1, rows);
  out.strides.assign(1, stride);
  for (size_t d = leading; d < value.sizes.size(); ++d) {
    out.sizes.push_back(value.sizes[d]);
    out.strides.push_back(value.strides[d]);
  }
  return out;
}

std::optional<Slicing> pointwise_of(const Graph& graph, const Op& op) {
  const std::optional<Operands> operands = operands_of(op);
  if (!operands) return std::nullopt;
  if (auto slicing = by_elements(graph, op, *operands)) return slicing;
  for (size_t leading = graph.value(operands->result).sizes.size(); leading > 0; --leading)
    if (auto slicing = by_rows(graph, op, *operands, leading)) return slicing;
  return std::nullopt;
}

}  // namespace outsize
