#include "outsize/torch/op_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <map>

#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

// "aten.add.Tensor" -> {"aten::add", "Tensor"}; "…default" -> "".
std::optional<c10::OperatorName> operator_name(const std::string& name) {
  const size_t first = name.find('.');
  const size_t last = name.rfind('.');
  if (first == std::string::npos || last == first) return std::nullopt;
  std::string overload = name.substr(last + 1);
  if (overload == "default") overload.clear();
  return c10::OperatorName(name.substr(0, first) + "::" + name.substr(first + 1, last - first - 1),
                           overload);
}

// Everything above the kernels: autograd, autocast, and Python's dispatch modes.
c10::DispatchKeySet keys_to_skip() {
  return c10::autocast_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::Python) |
         c10::DispatchKeySet(c10::DispatchKey::PythonTLSSnapshot) |
         c10::DispatchKeySet(c10::DispatchKey::PythonDispatcher) |
         c10::DispatchKeySet(c10::DispatchKey::PreDispatch);
}

struct CallGuards {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard skip{keys_to_skip()};
  c10::AutoGradMode no_grad{false};
};

Result<at::Tensor> no_tensors(ValueId) { return at::Tensor(); }

std::string list_text(c10::IntArrayRef list) {
  return fmt::format("[{}]", fmt::join(list.begin(), list.end(), ", "));
}

// Strides of dimensions with one element say nothing about where elements lie.
bool same_strides(const Value& value, c10::IntArrayRef strides) {
  for (size_t d = 0; d < value.sizes.size(); ++d)
    if (value.sizes[d] > 1 && value.strides[d] != strides[d]) return false;
  return true;
}

}  // namespace

std::string describe_op(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  std::string site = op.site.module;
  if (!op.site.file.empty())
    site += fmt::format("{}{}:{}", site.empty() ? "" : ", ", op.site.file, op.site.line);
  return site.empty() ? fmt::format("op {} {}", id.value, op.name)
                      : fmt::format("op {} {} ({})", id.value, op.name, site);
}

const std::string& OpCall::name() const { return graph_->op(op_).name; }

Result<OpCall> OpCall::prepare(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  const auto fail = [&](const std::string& what) {
    return bad_input("{}: {}", describe_op(graph, id), what);
  };
  const auto operator_of = operator_name(op.name);
  if (!operator_of) return fail("wanted a name such as aten.add.Tensor");
  const auto handle = c10::Dispatcher::singleton().findSchema(*operator_of);
  if (!handle) return fail("PyTorch has no such op");

  OpCall call(graph, id, *handle);
  call.accesses_ = accesses_of(op);
  const auto& schema_args = call.schema().arguments();
  if (op.args.size() > schema_args.size())
    return fail(fmt::format("{} arguments, the schema has {}", op.args.size(), schema_args.size()));
  for (size_t i = 0; i < schema_args.size(); ++i) {
    const c10::Argument& wanted = schema_args[i];
    if (i >= op.args.size()) {
      if (!wanted.default_value())
        return fail(fmt::format("argument {} '{}' is missing", i, wanted.name()));
      call.constants_.push_back(*wanted.default_value());
      continue;
    }
    const Argument& arg = op.args[i];
    Result<c10::IValue> decoded = decode_argument(arg, wanted, no_tensors);
    if (!decoded.ok())
      return fail(fmt::format("argument {} '{}': {}", i, wanted.name(), decoded.error().message));
    find_slots(arg, wanted, i, call.slots_);
    const bool makes_tensors = holds_values(arg);
    if (makes_tensors) call.tensor_args_.push_back(i);
    call.constants_.push_back(makes_tensors ? c10::IValue() : std::move(*decoded));
  }
  if (!op.results.empty() && op.results.size() != call.schema().returns().size())
    return fail(fmt::format("{} results, the schema has {}", op.results.size(),
                            call.schema().returns().size()));
  return call;
}

Result<OpCall::Place> OpCall::place_of(ValueId id, std::span<std::byte* const> addresses) const {
  const Value& value = graph_->value(id);
  if (!scalar_type_of(value.dtype))
    return bad_input("{}: value {} has the dtype '{}'", describe_op(*graph_, op_), id.value,
                     value.dtype);
  const bool empty = elements_of(value) == 0;
  const Interval bytes = empty ? Interval{} : bytes_of(value);
  Place place;
  // Later accesses win: what is mutated is where the op must write.
  for (size_t k = 0; k < accesses_.size(); ++k) {
    const Access& access = accesses_[k].access;
    if (access.storage != value.storage) continue;
    if (!empty && !access.bytes.contains(bytes)) continue;
    place.base = addresses[k] - access.bytes.begin;
    place.access = k;
  }
  if (!place.access && !empty)
    return bad_input(
        "{}: value {} lies in bytes [{}, {}) of storage {}, which the op does not "
        "read, make or mutate",
        describe_op(*graph_, op_), id.value, bytes.begin, bytes.end, value.storage.value);
  return place;
}

Result<BoundOp> OpCall::bind(std::span<std::byte* const> addresses) const {
  OUTSIZE_CHECK(addresses.size() == accesses_.size(), "{}: {} addresses for {} accesses", name(),
                addresses.size(), accesses_.size());
  BoundOp bound;
  bound.addresses.assign(addresses.begin(), addresses.end());
  bound.stack = constants_;
  // Values of one access share a storage and equal values a tensor, as they did in the user's step:
  // kernels look at both.
  std::map<std::optional<size_t>, c10::Storage> storages;
  std::map<ValueId, at::Tensor> tensors;
  const TensorMaker maker = [&](ValueId id) -> Result<at::Tensor> {
    if (const auto found = tensors.find(id); found != tensors.end()) return found->second;
    Result<Place> place = place_of(id, addresses);
    if (!place.ok()) return place.error();
    const Value& value = graph_->value(id);
    auto [storage, made] = storages.try_emplace(place->access);
    if (made)
      storage->second =
          storage_on(place->base, place->access ? graph_->storage(value.storage).bytes : 0);
    at::Tensor tensor = tensor_on(value, storage->second);
    tensors.emplace(id, tensor);
    return tensor;
  };
  const auto& args = graph_->op(op_).args;
  for (const size_t i : tensor_args_) {
    Result<c10::IValue> decoded = decode_argument(args[i], schema().arguments()[i], maker);
    if (!decoded.ok()) return decoded.error();
    bound.stack[i] = std::move(*decoded);
  }
  // Arguments with scalars in a list are changed from call to call: not shared with other bindings.
  for (const ScalarSlot& slot : slots_)
    if (slot.item && bound.stack[slot.arg].isList())
      bound.stack[slot.arg] = bound.stack[slot.arg].toList().copy();
  return bound;
}

Status OpCall::fill_scalars(BoundOp& bound, const ScalarTable& scalars) const {
  for (const ScalarSlot& slot : slots_) {
    const std::optional<Number>& number = scalars[slot.scalar.index()];
    if (!number)
      return Error{ErrorKind::kInternal, fmt::format("{}: scalar {} is not known yet",
                                                     describe_op(*graph_, op_), slot.scalar.value)};
    if (Status status = fill_slot(slot, *number, bound.stack); !status)
      return Error{status.error().kind,
                   fmt::format("{}: {}", describe_op(*graph_, op_), status.error().message)};
  }
  return Done{};
}

Result<std::vector<c10::IValue>> OpCall::invoke(const BoundOp& bound) const {
  std::vector<c10::IValue> stack = bound.stack;
  try {
    const CallGuards guards;
    handle_.callBoxed(stack);
  } catch (const c10::Error& e) {
    return device_error("{}: {}", describe_op(*graph_, op_), e.what_without_backtrace());
  } catch (const std::exception& e) {
    return device_error("{}: {}", describe_op(*graph_, op_), e.what());
  }
  return stack;
}

Status OpCall::check_results(const BoundOp& bound, const std::vector<c10::IValue>& results,
                             ScalarTable* scalars) const {
  const auto& wanted = graph_->op(op_).results;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (Status status =
            check_result(bound, wanted[i], results[i], fmt::format("result {}", i), scalars);
        !status)
      return status;
  return Done{};
}

Status OpCall::check_result(const BoundOp& bound, const Argument& wanted, const c10::IValue& had,
                            const std::string& where, ScalarTable* scalars) const {
  const auto fail = [&](const std::string& what) {
    return device_error("{}: {}: {}", describe_op(*graph_, op_), where, what);
  };
  if (const auto* scalar = std::get_if<ScalarId>(&wanted.data)) {
    if (scalars == nullptr) return Done{};
    std::optional<Number>& place = (*scalars)[scalar->index()];
    if (had.isBool())
      place = Number{had.toBool()};
    else if (had.isInt())
      place = Number{had.toInt()};
    else if (had.isDouble())
      place = Number{had.toDouble()};
    else
      return fail(fmt::format("wanted a number, had {}", had.tagKind()));
    return Done{};
  }
  if (const auto* items = std::get_if<Argument::List>(&wanted.data)) {
    if (!had.isList()) return fail(fmt::format("wanted a list, had {}", had.tagKind()));
    const auto list = had.toList();
    if (list.size() != items->size())
      return fail(fmt::format("wanted {} items, had {}", items->size(), list.size()));
    for (size_t k = 0; k < items->size(); ++k)
      if (Status status = check_result(bound, (*items)[k], list.get(k),
                                       fmt::format("{}[{}]", where, k), scalars);
          !status)
        return status;
    return Done{};
  }
  const auto* id = std::get_if<ValueId>(&wanted.data);
  if (id == nullptr) return Done{};
  if (!had.isTensor() || !had.toTensor().defined()) return fail("wanted a tensor, had none");
  const at::Tensor& tensor = had.toTensor();
  const Value& value = graph_->value(*id);
  if (tensor.scalar_type() != scalar_type_of(value.dtype))
    return fail(
        fmt::format("wanted dtype {}, had {}", value.dtype, dtype_name(tensor.scalar_type())));
  if (tensor.sizes() != c10::IntArrayRef(value.sizes))
    return fail(
        fmt::format("wanted sizes {}, had {}", list_text(value.sizes), list_text(tensor.sizes())));
  if (elements_of(value) == 0) return Done{};
  if (!same_strides(value, tensor.strides()))
    return fail(fmt::format("wanted strides {}, had {}", list_text(value.strides),
                            list_text(tensor.strides())));
  if (tensor.is_conj() != value.conj || tensor.is_neg() != value.neg)
    return fail("its conjugate or negative bit differs");
  Result<Place> place = place_of(*id, bound.addresses);
  if (!place.ok()) return place.error();
  const auto* expected = place->base + value.offset * static_cast<int64_t>(tensor.itemsize());
  const auto* actual = static_cast<const std::byte*>(tensor.const_data_ptr());
  if (actual != expected)
    return fail(fmt::format("lies {} bytes from where the plan puts it", actual - expected));
  return Done{};
}

}  // namespace outsize
