#include "outsize/split/rows.h"

#include <functional>
#include <map>
#include <string>

#include "outsize/split/pointwise.h"

namespace outsize {
namespace {

// Collects operands for one op; any that can't be cut makes the whole fail.
class Rows {
 public:
  Rows(const Graph& graph, const Op& op) : graph_(graph), op_(op) {
    slicing_.kind = CutKind::kRows;
    slicing_.args = op.args;
  }

  const Value* arg(size_t index) const { return value_of(op_.args, index); }
  // Argument or result `index`, cut along its first `leading` dimensions taken as one.
  void cut(size_t index, size_t leading = 1) { add(value_in(op_.args, index), leading); }
  void cut_if_there(size_t index) {
    if (value_in(op_.args, index) != nullptr) cut(index);
  }
  void cut_result(size_t index, size_t leading = 1) { add(value_in(op_.results, index), leading); }
  void keep(size_t index) {
    if (const ValueId* id = value_in(op_.args, index)) kept_.push_back(*id);
  }
  void set(size_t index, Argument argument) { slicing_.args[index] = std::move(argument); }
  void fail() { failed_ = true; }
  size_t results() const { return op_.results.size(); }

  template <typename T>
  const T* literal(size_t index) const {
    return index < op_.args.size() ? std::get_if<T>(&op_.args[index].data) : nullptr;
  }
  bool none(size_t index) const {
    return index >= op_.args.size() || std::holds_alternative<std::monostate>(op_.args[index].data);
  }

  std::optional<Slicing> done() {
    // One value in two roles, one of them whole: m @ m.
    for (const ValueId id : kept_)
      if (slicing_.values.contains(id)) failed_ = true;
    if (failed_ || slicing_.count < 2) return std::nullopt;
    return std::move(slicing_);
  }

 private:
  const Value* value_of(const std::vector<Argument>& arguments, size_t index) const {
    const ValueId* id = value_in(arguments, index);
    return id == nullptr ? nullptr : &graph_.value(*id);
  }
  void add(const ValueId* id, size_t leading) {
    if (id == nullptr) return fail();
    const std::optional<Value> view = merged(graph_.value(*id), leading);
    if (!view) return fail();
    const int64_t rows = view->sizes[0];
    if (slicing_.count == 0) slicing_.count = rows;
    if (slicing_.count != rows) return fail();
    slicing_.values[*id] = {*view, 0, 1};
  }

  const Graph& graph_;
  const Op& op_;
  Slicing slicing_;
  std::vector<ValueId> kept_;
  bool failed_ = false;
};

// softmax(x, dim, …) and its gradient (grad, y, dim, …): the dimensions before `dim` are rows.
void softmax(Rows& rows, size_t tensors) {
  const Value* x = rows.arg(0);
  const int64_t* dim = rows.literal<int64_t>(tensors);
  if (x == nullptr || dim == nullptr) return rows.fail();
  const auto dims = static_cast<int64_t>(x->sizes.size());
  const int64_t leading = *dim < 0 ? *dim + dims : *dim;
  if (leading <= 0 || leading >= dims) return rows.fail();
  for (size_t i = 0; i < tensors; ++i) rows.cut(i, static_cast<size_t>(leading));
  rows.cut_result(0, static_cast<size_t>(leading));
  rows.set(tensors, Argument{int64_t{1}});
}

// native_layer_norm(x, shape, weight, bias, eps) -> y, mean, rstd
void layer_norm(Rows& rows) {
  const Value* x = rows.arg(0);
  const auto* shape = rows.literal<Argument::List>(1);
  if (x == nullptr || shape == nullptr || shape->size() >= x->sizes.size()) return rows.fail();
  const size_t leading = x->sizes.size() - shape->size();
  rows.cut(0, leading);
  rows.keep(2);
  rows.keep(3);
  for (size_t r = 0; r < rows.results(); ++r) rows.cut_result(r, leading);
}

// mm(a, b), bmm(a, b)
void product(Rows& rows, bool batched) {
  rows.cut(0);
  if (batched)
    rows.cut(1);
  else
    rows.keep(1);
  rows.cut_result(0);
}

// addmm(bias, a, b), baddbmm(bias, a, b)
void added_product(Rows& rows, bool batched) {
  const Value* bias = rows.arg(0);
  const Value* a = rows.arg(1);
  if (bias == nullptr || a == nullptr) return rows.fail();
  const size_t dims = a->sizes.size();
  if (bias->sizes.size() == dims && bias->sizes[0] == a->sizes[0])
    rows.cut(0);
  else if (bias->sizes.size() < dims || bias->sizes[0] == 1)
    rows.keep(0);
  else
    return rows.fail();
  rows.cut(1);
  if (batched)
    rows.cut(2);
  else
    rows.keep(2);
  rows.cut_result(0);
}

// nll_loss_backward(grad, input, target, weight, reduction, ignored, total_weight)
void nll_backward(Rows& rows) {
  const Value* input = rows.arg(1);
  if (input == nullptr || input->sizes.size() != 2) return rows.fail();
  const Value* grad = rows.arg(0);
  if (grad == nullptr) return rows.fail();
  if (grad->sizes.empty())
    rows.keep(0);
  else
    rows.cut(0);
  rows.cut(1);
  rows.cut(2);
  rows.keep(3);
  rows.keep(6);
  rows.cut_result(0);
}

// embedding(weight, indices, …)
void embedding(Rows& rows) {
  const Value* indices = rows.arg(1);
  if (indices == nullptr || indices->sizes.empty()) return rows.fail();
  rows.keep(0);
  rows.cut(1, indices->sizes.size());
  rows.cut_result(0, indices->sizes.size());
}

// convolution(x, weight, bias, …): by images.
void convolution(Rows& rows) {
  rows.cut(0);
  rows.keep(1);
  rows.keep(2);
  rows.cut_result(0);
}

// convolution_backward(grad, x, weight, …, mask), the gradient of x alone: by images.
void convolution_input_gradient(Rows& rows) {
  const auto* mask = rows.literal<Argument::List>(10);
  if (mask == nullptr || mask->size() != 3) return rows.fail();
  const auto wanted = [&](size_t i) {
    const bool* b = std::get_if<bool>(&(*mask)[i].data);
    return b != nullptr && *b;
  };
  if (!wanted(0) || wanted(1) || wanted(2)) return rows.fail();
  rows.cut(0);
  rows.cut(1);
  rows.keep(2);
  rows.cut_result(0);
}

// The first `tensors` arguments and all results have the batch as their first dimension.
void batch(Rows& rows, size_t tensors) {
  for (size_t i = 0; i < tensors; ++i) rows.cut(i);
  for (size_t r = 0; r < rows.results(); ++r) rows.cut_result(r);
}

// _scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, mask, scale) and, with
// (grad, q, k, v, out, logsumexp, dropout, …), its gradient. A mask is shared or there for each of
// the batch.
void attention(Rows& rows, size_t tensors) {
  const double* dropout = rows.literal<double>(tensors);
  const int64_t* no_dropout = rows.literal<int64_t>(tensors);
  if (!(dropout != nullptr && *dropout == 0) && !(no_dropout != nullptr && *no_dropout == 0))
    return rows.fail();
  batch(rows, tensors);
  const Value* mask = rows.arg(tensors + 2);
  if (mask == nullptr) return;
  if (mask->sizes.size() == 4 && mask->sizes[0] > 1)
    rows.cut(tensors + 2);
  else
    rows.keep(tensors + 2);
}

void max_pool_backward(Rows& rows) {
  rows.cut(0);
  rows.cut(1);
  rows.cut(7);
  rows.cut_result(0);
}

using Rule = std::function<void(Rows&)>;

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> kRules = {
      {"aten._softmax.default", [](Rows& r) { softmax(r, 1); }},
      {"aten._safe_softmax.default", [](Rows& r) { softmax(r, 1); }},
      {"aten._log_softmax.default", [](Rows& r) { softmax(r, 1); }},
      {"aten._softmax_backward_data.default", [](Rows& r) { softmax(r, 2); }},
      {"aten._log_softmax_backward_data.default", [](Rows& r) { softmax(r, 2); }},
      {"aten.native_layer_norm.default", layer_norm},
      {"aten.mm.default", [](Rows& r) { product(r, false); }},
      {"aten.bmm.default", [](Rows& r) { product(r, true); }},
      {"aten.addmm.default", [](Rows& r) { added_product(r, false); }},
      {"aten.baddbmm.default", [](Rows& r) { added_product(r, true); }},
      {"aten.nll_loss_backward.default", nll_backward},
      {"aten.embedding.default", embedding},
      {"aten.convolution.default", convolution},
      {"aten.convolution_backward.default", convolution_input_gradient},
      {"aten._scaled_dot_product_flash_attention_for_cpu.default",
       [](Rows& r) { attention(r, 3); }},
      {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
       [](Rows& r) { attention(r, 6); }},
      {"aten.max_pool2d_with_indices.default", [](Rows& r) { batch(r, 1); }},
      {"aten.max_pool2d_with_indices_backward.default", max_pool_backward},
      {"aten.avg_pool2d.default", [](Rows& r) { batch(r, 1); }},
      {"aten.avg_pool2d_backward.default", [](Rows& r) { batch(r, 2); }},
      {"aten.upsample_nearest2d.default", [](Rows& r) { batch(r, 1); }},
      {"aten.upsample_bilinear2d.default", [](Rows& r) { batch(r, 1); }},
  };
  return kRules;
}

}  // namespace

std::optional<Slicing> rows_of(const Graph& graph, const Op& op) {
  const auto rule = rules().find(op.name);
  if (rule == rules().end()) return std::nullopt;
  Rows rows(graph, op);
  rule->second(rows);
  return rows.done();
}

std::vector<std::string> row_ops() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : rules()) names.push_back(name);
  return names;
}

}  // namespace outsize
