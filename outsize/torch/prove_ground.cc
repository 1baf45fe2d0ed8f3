#include "outsize/torch/prove_ground.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "outsize/base/random.h"
#include "outsize/split/pointwise.h"
#include "outsize/split/slicing.h"
#include "outsize/torch/op_call.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

constexpr int64_t kAlignment = 64;
// A prime, so that rows of the usual lengths don't all hold the same numbers.
constexpr int64_t kTableLength = 65'521;

// Integers that an op takes for indices: what they must be below, and what else they may be.
struct Indices {
  int64_t below = 0;
  std::optional<int64_t> also;
};

std::map<StorageId, Indices> indices_of(const Graph& graph, const Op& op) {
  std::map<StorageId, Indices> found;
  const auto at = [&](size_t index, int64_t below, std::optional<int64_t> also) {
    if (const ValueId* id = value_in(op.args, index))
      found[graph.value(*id).storage] = {below, also};
  };
  const auto size = [&](size_t index, size_t dim) {
    const ValueId* id = value_in(op.args, index);
    return id == nullptr || graph.value(*id).sizes.size() <= dim ? 1 : graph.value(*id).sizes[dim];
  };
  const auto ignored = [&](size_t index) -> std::optional<int64_t> {
    const int64_t* number = std::get_if<int64_t>(&op.args[index].data);
    return number == nullptr ? std::nullopt : std::optional<int64_t>(*number);
  };
  if (op.name == "aten.nll_loss_forward.default") at(1, size(0, 1), ignored(4));
  if (op.name == "aten.nll_loss_backward.default") at(2, size(1, 1), ignored(5));
  if (op.name == "aten.embedding.default") at(1, size(0, 0), std::nullopt);
  if (op.name == "aten.max_pool2d_with_indices_backward.default")
    at(7, size(1, 2) * size(1, 3), std::nullopt);
  return found;
}

// The dtype of each storage's first value; empty where it has none.
std::vector<std::string> storage_dtypes(const Graph& graph) {
  std::vector<std::string> dtypes(graph.storages.size());
  for (const Value& value : graph.values)
    if (dtypes[value.storage.index()].empty()) dtypes[value.storage.index()] = value.dtype;
  return dtypes;
}

void fill_varied(std::byte* to, int64_t bytes, const std::string& dtype, uint64_t seed) {
  const std::optional<c10::ScalarType> type = scalar_type_of(dtype);
  if (!type) return;
  const int64_t count = std::min(bytes / element_bytes(dtype), kTableLength);
  const at::Tensor numbers = varied_numbers(*type, count, seed);
  const auto length = static_cast<int64_t>(numbers.nbytes());
  for (int64_t at = 0; length > 0 && at < bytes; at += length)
    std::memcpy(to + at, numbers.const_data_ptr(),
                static_cast<size_t>(std::min(length, bytes - at)));
}

void collect(const Argument& wanted, const c10::IValue& had,
             std::vector<std::pair<ValueId, at::Tensor>>& found) {
  if (const auto* value = std::get_if<ValueId>(&wanted.data)) {
    if (had.isTensor() && had.toTensor().defined()) found.emplace_back(*value, had.toTensor());
  } else if (const auto* items = std::get_if<Argument::List>(&wanted.data)) {
    if (!had.isList()) return;
    const auto list = had.toList();
    for (size_t i = 0; i < std::min(items->size(), list.size()); ++i)
      collect((*items)[i], list.get(i), found);
  }
}

}  // namespace

Status Ground::lay_out(const Graph& graph) {
  offsets_.clear();
  int64_t bytes = 0;
  for (const Storage& storage : graph.storages) {
    offsets_.push_back(bytes);
    bytes += (storage.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  bytes_ = bytes;
  return block_.reserve(bytes);
}

void Ground::poison() const { std::memset(block_.base(), 0xa5, static_cast<size_t>(bytes_)); }

at::Tensor varied_numbers(c10::ScalarType type, int64_t count, uint64_t seed) {
  Random random(seed);
  at::Tensor numbers = at::empty({count}, at::kDouble);
  double* at = numbers.mutable_data_ptr<double>();
  const bool bools = type == c10::ScalarType::Bool;
  const bool floats = c10::isFloatingType(type) || c10::isComplexType(type);
  for (int64_t i = 0; i < count; ++i) {
    if (bools)
      at[i] = random.chance(0.5) ? 1 : 0;
    else if (floats)
      at[i] = std::ldexp(2 * random.uniform() - 1, static_cast<int>(random.between(-8, 4)));
    else
      at[i] = static_cast<double>(random.between(1, 101));
  }
  return numbers.to(type);
}

void fill_operands(const Graph& graph, const Ground& ground, uint64_t seed) {
  Numbers numbers(seed);
  Random random(seed);
  const std::map<StorageId, Indices> indices = indices_of(graph, graph.ops.front());
  const std::vector<std::string> dtypes = storage_dtypes(graph);
  const bool pointwise = is_pointwise(graph.ops.front().name);
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (!graph.storages[s].entry) continue;
    const StorageId id(static_cast<int64_t>(s));
    if (pointwise) {
      // Each from numbers of its own: where operands are equal, many ops can't go wrong.
      fill_varied(ground.storage(id), graph.storages[s].bytes, dtypes[s], seed + (s << 32));
      continue;
    }
    numbers.fill(ground.storage(id), graph.storages[s].bytes, dtypes[s]);
    const auto index = indices.find(id);
    if (index == indices.end() || dtypes[s] != "int64") continue;
    for (int64_t i = 0; i < graph.storages[s].bytes / 8; ++i) {
      int64_t number = random.below(std::max<int64_t>(1, index->second.below));
      if (index->second.also && random.chance(0.1)) number = *index->second.also;
      std::memcpy(ground.storage(id) + 8 * i, &number, 8);
    }
  }
}

Status run_op(const Graph& graph, OpId id, const Ground& ground) {
  const Op& op = graph.op(id);
  Result<OpCall> call = OpCall::prepare(graph, id);
  if (!call.ok()) return call.error();
  std::vector<std::byte*> addresses;
  for (const auto* list : {&op.reads, &op.makes, &op.mutates})
    for (const Access& access : *list) addresses.push_back(ground.at(access));
  Result<BoundOp> bound = call->bind(addresses);
  if (!bound.ok()) return bound.error();
  if (call->takes_scalars()) {
    ScalarTable scalars(graph.scalars.size());
    for (size_t s = 0; s < scalars.size(); ++s)
      scalars[s] = graph.scalars[s].present.value_or(Number{int64_t{1}});
    if (Status filled = call->fill_scalars(*bound, scalars); !filled.ok()) return filled.error();
  }
  Result<std::vector<c10::IValue>> results = call->invoke(*bound);
  if (!results.ok()) return results.error();
  std::vector<std::pair<ValueId, at::Tensor>> tensors;
  for (size_t i = 0; i < std::min(op.results.size(), results->size()); ++i)
    collect(op.results[i], (*results)[i], tensors);
  std::vector<const std::byte*> made(op.makes.size(), nullptr);
  for (const auto& [value, tensor] : tensors)
    for (size_t k = 0; k < op.makes.size(); ++k)
      if (op.makes[k].storage == graph.value(value).storage && made[k] == nullptr) {
        made[k] = static_cast<const std::byte*>(tensor.storage().data());
        bound->addresses[op.reads.size() + k] = const_cast<std::byte*>(made[k]);
        if (static_cast<int64_t>(tensor.storage().nbytes()) < op.makes[k].bytes.size())
          return device_error("{}: result has {} bytes, wanted {}", describe_op(graph, id),
                              tensor.storage().nbytes(), op.makes[k].bytes.size());
      }
  if (Status same = call->check_results(*bound, *results, nullptr); !same.ok()) return same;
  for (size_t k = 0; k < op.makes.size(); ++k)
    if (made[k] != nullptr)
      std::memcpy(ground.at(op.makes[k]), made[k], static_cast<size_t>(op.makes[k].bytes.size()));
  return Done{};
}

}  // namespace outsize
