#include "outsize/split/slicing.h"

#include <algorithm>
#include <set>

#include "outsize/split/pointwise.h"
#include "outsize/split/rows.h"

namespace outsize {
namespace {

bool all_values(const Argument::List& list) {
  return std::all_of(list.begin(), list.end(), [](const Argument& item) {
    return std::holds_alternative<ValueId>(item.data);
  });
}

// _foreach_* and _fused_*: every list of tensors has as many items as the first or none.
std::optional<Slicing> items_of(const Op& op) {
  std::optional<size_t> count;
  for (const auto* arguments : {&op.args, &op.results})
    for (const Argument& argument : *arguments) {
      const auto* list = std::get_if<Argument::List>(&argument.data);
      if (list == nullptr || list->empty() || !all_values(*list)) continue;
      if (!count) count = list->size();
      if (list->size() != *count) return std::nullopt;
    }
  if (!count) return std::nullopt;
  return Slicing{CutKind::kItems, static_cast<int64_t>(*count), op.args, {}};
}

// convolution_backward and native_layer_norm_backward: the last argument says which outputs are
// wanted.
std::optional<Slicing> outputs_of(const Op& op) {
  if (op.args.empty()) return std::nullopt;
  const auto* mask = std::get_if<Argument::List>(&op.args.back().data);
  if (mask == nullptr || mask->size() != op.results.size()) return std::nullopt;
  int64_t wanted = 0;
  for (size_t i = 0; i < mask->size(); ++i) {
    const bool* asked = std::get_if<bool>(&(*mask)[i].data);
    if (asked == nullptr) return std::nullopt;
    if (*asked != std::holds_alternative<ValueId>(op.results[i].data)) return std::nullopt;
    wanted += *asked ? 1 : 0;
  }
  return Slicing{CutKind::kOutputs, wanted, op.args, {}};
}

// nll_loss_forward(input [n, c], target [n], weight, reduction, ignore_index): see pieces.cc.
std::optional<Slicing> loss_of(const Graph& graph, const Op& op) {
  const ValueId* input = value_in(op.args, 0);
  const ValueId* target = value_in(op.args, 1);
  if (input == nullptr || target == nullptr || op.args.size() < 5) return std::nullopt;
  const int64_t* ignored = std::get_if<int64_t>(&op.args[4].data);
  // The rows picked are told from the ignored ones by their sign; class weights are not picked.
  if (ignored == nullptr || *ignored >= 0) return std::nullopt;
  if (!std::holds_alternative<std::monostate>(op.args[2].data)) return std::nullopt;
  const Value& picked_from = graph.value(*input);
  const Value& target_value = graph.value(*target);
  if (picked_from.sizes.size() != 2 || target_value.sizes.size() != 1) return std::nullopt;
  if (target_value.dtype != "int64") return std::nullopt;
  Slicing slicing{CutKind::kLoss, picked_from.sizes[0], op.args, {}};
  slicing.values[*input] = {picked_from, 0, 1};
  return slicing;
}

// A storage that is written must be cut alike for all that the op does with it.
bool writes_are_clear(const Graph& graph, const Op& op, const Slicing& slicing) {
  std::set<StorageId> written;
  for (const Access& access : op.makes) written.insert(access.storage);
  for (const Access& access : op.mutates) written.insert(access.storage);
  for (const auto* arguments : {&op.args, &op.results})
    for (const Argument& argument : *arguments) {
      const auto* id = std::get_if<ValueId>(&argument.data);
      if (id == nullptr || !written.contains(graph.value(*id).storage)) continue;
      const auto sliced = slicing.values.find(*id);
      if (sliced == slicing.values.end() || sliced->second.dim < 0) return false;
      for (const auto& [other, view] : slicing.values)
        if (graph.value(other).storage == graph.value(*id).storage &&
            !(view.view == sliced->second.view && view.dim == sliced->second.dim))
          return false;
    }
  return true;
}

}  // namespace

Value SlicedValue::piece(int64_t begin, int64_t end) const {
  Value value = view;
  if (dim < 0) return value;
  const auto d = static_cast<size_t>(dim);
  value.sizes[d] = (end - begin) * unit;
  value.offset += begin * unit * value.strides[d];
  return value;
}

bool SlicedValue::tiles(const Storage& storage) const {
  if (dim < 0 || view.offset != 0) return false;
  const auto d = static_cast<size_t>(dim);
  const int64_t element = element_bytes(view.dtype);
  if (element == 0 || count_of(view) * element != storage.bytes) return false;
  return view.strides[d] * view.sizes[d] == count_of(view);
}

const ValueId* value_in(const std::vector<Argument>& arguments, size_t index) {
  return index < arguments.size() ? std::get_if<ValueId>(&arguments[index].data) : nullptr;
}

int64_t count_of(const Value& value) {
  int64_t count = 1;
  for (const int64_t size : value.sizes) count *= size;
  return count;
}

bool is_contiguous(const Value& value) {
  int64_t stride = 1;
  for (size_t d = value.sizes.size(); d-- > 0;) {
    if (value.sizes[d] != 1 && value.strides[d] != stride) return false;
    stride *= value.sizes[d];
  }
  return true;
}

std::optional<Slicing> slicing_of(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  if (op.uses_rng || op.collective || op.host_sync || op.args.empty()) return std::nullopt;
  std::optional<Slicing> slicing;
  if (op.name.starts_with("aten._foreach_") || op.name.starts_with("aten._fused_")) {
    slicing = items_of(op);
  } else if (op.name == "aten.nll_loss_forward.default") {
    slicing = loss_of(graph, op);
  } else if (op.name == "aten.convolution_backward.default") {
    slicing = outputs_of(op);
    if (slicing && slicing->count < 2) slicing = rows_of(graph, op);
  } else if (is_pointwise(op.name)) {
    slicing = pointwise_of(graph, op);
  } else {
    slicing = rows_of(graph, op);
  }
  if (!slicing || slicing->count < 2) return std::nullopt;
  if ((slicing->kind == CutKind::kElements || slicing->kind == CutKind::kRows) &&
      !writes_are_clear(graph, op, *slicing))
    return std::nullopt;
  return slicing;
}

}  // namespace outsize
