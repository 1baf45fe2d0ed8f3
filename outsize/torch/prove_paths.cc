#include "outsize/torch/prove_paths.h"

#include <ATen/ops/isnan.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "outsize/split/slicing.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

// Rows too short for any vector; few enough elements that one thread does them all.
constexpr int64_t kRowLength = 3;
constexpr int64_t kRows = 10'922;
constexpr int64_t kCount = kRowLength * kRows;

bool touches(const std::vector<Access>& accesses, StorageId storage) {
  return std::any_of(accesses.begin(), accesses.end(),
                     [&](const Access& access) { return access.storage == storage; });
}

bool is_written(const Graph& graph, StorageId storage) {
  const Op& op = graph.ops.front();
  return touches(op.makes, storage) || touches(op.mutates, storage);
}

// The op on kCount elements in rows that lie `stride` apart: at kRowLength they are one range and
// go in vectors, further apart each row goes alone and has none. Operands that are views of one
// storage get one each, as they can't both be its rows. What the op makes has no gaps.
Graph in_rows(const Graph& graph, int64_t stride) {
  Graph out = graph;
  Op& op = out.ops.front();
  out.storages.clear();
  op.reads.clear();
  op.makes.clear();
  op.mutates.clear();
  std::map<StorageId, StorageId> written;
  for (Value& value : out.values) {
    const StorageId had = value.storage;
    Storage storage = graph.storage(had);
    value.offset = 0;
    if (count_of(value) == 1) {
      // As a number, or a list of one.
      value.sizes.assign(value.sizes.empty() ? 0 : 1, 1);
      value.strides.assign(value.sizes.size(), 1);
    } else {
      value.sizes = {kRows, kRowLength};
      value.strides = {storage.entry ? stride : kRowLength, 1};
    }
    value.storage = StorageId(static_cast<int64_t>(out.storages.size()));
    if (is_written(graph, had)) {
      const auto [known, fresh] = written.try_emplace(had, value.storage);
      value.storage = known->second;
      if (!fresh) continue;
    }
    storage.bytes = bytes_of(value).end;
    out.storages.push_back(storage);
    const Op& whole = graph.ops.front();
    auto& accesses = touches(whole.makes, had)     ? op.makes
                     : touches(whole.mutates, had) ? op.mutates
                                                   : op.reads;
    accesses.push_back({value.storage, {0, storage.bytes}});
  }
  // It orders the dimensions of a result; rows have one order.
  for (Argument& argument : op.args)
    if (const auto* word = std::get_if<Keyword>(&argument.data);
        word != nullptr && word->kind == "memory_format")
      argument = Argument{};
  return out;
}

// Every 29th element, from `first` on, becomes one that kernels may treat in a way of its own.
void put_special(const at::Tensor& numbers, int64_t first) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {0.0, -0.0, kInfinity, -kInfinity, std::nan(""), 1.0, -1.0, 1e-40};
  const at::Tensor chosen = numbers.slice(0, first, numbers.numel(), 29);
  for (int64_t k = 0; k < std::ssize(kSpecial); ++k)
    chosen.slice(0, k, chosen.numel(), std::ssize(kSpecial)).fill_(kSpecial[k]);
}

// Operands of kCount elements, or of one, by value. Of several values on a storage that is written
// the first is the operand.
std::vector<at::Tensor> operands_of(const Graph& graph, uint64_t seed) {
  std::vector<at::Tensor> operands(graph.values.size());
  std::set<StorageId> written;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const std::optional<c10::ScalarType> type = scalar_type_of(value.dtype);
    if (!type || !graph.storage(value.storage).entry) continue;
    if (is_written(graph, value.storage) && !written.insert(value.storage).second) continue;
    const bool one = count_of(value) == 1;
    operands[v] = varied_numbers(*type, one ? 1 : kCount, seed + (v << 32));
    if (!one && c10::isFloatingType(*type))
      put_special(operands[v], static_cast<int64_t>(v) * 7 % 29);
  }
  return operands;
}

at::Tensor on_ground(const Graph& graph, const Ground& ground, const Value& value) {
  return tensor_on(value,
                   storage_on(ground.storage(value.storage), graph.storage(value.storage).bytes));
}

// What the op gives, kCount elements in one range.
Result<at::Tensor> result_of(const Graph& graph, const std::vector<at::Tensor>& operands) {
  Ground ground;
  if (Status laid = ground.lay_out(graph); !laid.ok()) return laid.error();
  ground.poison();
  for (size_t v = 0; v < operands.size(); ++v)
    if (operands[v].defined())
      on_ground(graph, ground, graph.values[v]).copy_(operands[v].view(graph.values[v].sizes));
  if (Status ran = run_op(graph, OpId{0}, ground); !ran.ok()) return ran.error();
  const auto result = std::get<ValueId>(graph.ops.front().results.front().data);
  return on_ground(graph, ground, graph.value(result)).reshape(-1).clone();
}

// The first element whose bits differ and that is a number; -1 if none.
int64_t first_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [&](const at::Tensor& t) { return t.view(at::kByte).view({kCount, -1}); };
  const at::Tensor differ = bytes(a).ne(bytes(b)).any(1).logical_and(at::isnan(a).logical_not());
  const at::Tensor places = differ.nonzero();
  return places.size(0) == 0 ? -1 : places[0][0].item<int64_t>();
}

}  // namespace

Result<std::optional<Telltale>> find_telltale(const Graph& graph, uint64_t seed) {
  const std::vector<at::Tensor> operands = operands_of(graph, seed);
  const Result<at::Tensor> vectors = result_of(in_rows(graph, kRowLength), operands);
  if (!vectors.ok()) return vectors.error();
  const Result<at::Tensor> singly = result_of(in_rows(graph, kRowLength + 1), operands);
  if (!singly.ok()) return singly.error();
  const int64_t place = first_difference(*vectors, *singly);
  if (place < 0) return std::optional<Telltale>();
  Telltale telltale(operands.size());
  for (size_t v = 0; v < operands.size(); ++v)
    if (operands[v].defined()) telltale[v] = operands[v][operands[v].numel() == 1 ? 0 : place];
  return std::optional<Telltale>(std::move(telltale));
}

void fill_with(const Telltale& telltale, const Graph& graph, const Ground& ground) {
  for (size_t v = 0; v < telltale.size(); ++v)
    if (telltale[v].defined()) on_ground(graph, ground, graph.values[v]).copy_(telltale[v]);
}

}  // namespace outsize
