#include "outsize/torch/prove.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "outsize/base/files.h"
#include "outsize/base/random.h"
#include "outsize/torch/measure_cache.h"
#include "outsize/torch/measure_key.h"
#include "outsize/torch/measure_operands.h"
#include "outsize/torch/op_call.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

constexpr int64_t kAlignment = 64;
constexpr std::string_view kEqual = "equal";
constexpr std::string_view kDiffers = "differs: ";

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The op alone in a graph of its own: what it needs is there at entry, what it writes is wanted.
struct Alone {
  Graph graph;
  Cut cut;
};

Alone alone(const Graph& graph, const Cut& cut) {
  Alone out;
  const Op& op = graph.op(cut.op);
  out.graph.device_type = graph.device_type;
  out.graph.threads = graph.threads;
  // Numbers that the step computes are given here.
  for (size_t s = 0; s < graph.scalars.size(); ++s) {
    Scalar scalar;
    scalar.name = fmt::format("{}", s);
    scalar.present = graph.scalars[s].present;
    out.graph.scalars.push_back(std::move(scalar));
  }
  std::map<StorageId, StorageId> storages;
  std::map<ValueId, ValueId> values;
  const auto storage_of = [&](StorageId id) {
    const auto [at, fresh] =
        storages.try_emplace(id, StorageId(static_cast<int64_t>(out.graph.storages.size())));
    if (fresh) {
      Storage storage = graph.storage(id);
      storage.entry = storage.persistent = false;
      storage.exit = true;
      out.graph.storages.push_back(storage);
    }
    return at->second;
  };
  const auto convert = [&](const auto& self, const Argument& argument) -> Argument {
    if (const auto* id = std::get_if<ValueId>(&argument.data)) {
      const auto [at, fresh] =
          values.try_emplace(*id, ValueId(static_cast<int64_t>(out.graph.values.size())));
      if (fresh) {
        Value value = graph.value(*id);
        value.storage = storage_of(value.storage);
        out.graph.values.push_back(std::move(value));
      }
      return Argument{at->second};
    }
    if (const auto* list = std::get_if<Argument::List>(&argument.data)) {
      Argument::List items;
      for (const Argument& item : *list) items.push_back(self(self, item));
      return Argument{std::move(items)};
    }
    return argument;
  };
  Op copy = op;
  for (Argument& argument : copy.args) argument = convert(convert, argument);
  for (Argument& argument : copy.results) argument = convert(convert, argument);
  for (auto* list : {&copy.reads, &copy.makes, &copy.mutates})
    for (Access& access : *list) {
      access.storage = storage_of(access.storage);
      if (list != &copy.makes) out.graph.storages[access.storage.index()].entry = true;
    }
  // What is made only in part is no content of the rest.
  for (const Access& made : copy.makes)
    if (made.bytes.size() < out.graph.storage(made.storage).bytes)
      out.graph.storages[made.storage.index()].exit = false;
  out.graph.ops.push_back(std::move(copy));
  out.cut = cut;
  out.cut.op = OpId{0};
  out.cut.run = -1;
  return out;
}

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

// Memory for every storage of a small graph, by storage.
class Ground {
 public:
  Status lay_out(const Graph& graph) {
    offsets_.clear();
    int64_t bytes = 0;
    for (const Storage& storage : graph.storages) {
      offsets_.push_back(bytes);
      bytes += (storage.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    bytes_ = bytes;
    return block_.reserve(bytes);
  }
  std::byte* at(const Access& access) const {
    return block_.base() + offsets_[access.storage.index()] + access.bytes.begin;
  }
  std::byte* storage(StorageId id) const { return block_.base() + offsets_[id.index()]; }
  // Another value than any result's, so that what nobody wrote is seen.
  void poison() const { std::memset(block_.base(), 0xa5, static_cast<size_t>(bytes_)); }

 private:
  TouchedBlock block_{"proof"};
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
};

void fill(const Graph& graph, const Ground& ground, uint64_t seed) {
  Numbers numbers(seed);
  Random random(seed);
  const std::map<StorageId, Indices> indices = indices_of(graph, graph.ops.front());
  std::vector<std::string> dtypes(graph.storages.size());
  for (const Value& value : graph.values)
    if (dtypes[value.storage.index()].empty()) dtypes[value.storage.index()] = value.dtype;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (!graph.storages[s].entry) continue;
    const StorageId id(static_cast<int64_t>(s));
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

// Runs one op of the graph on the ground; what it makes is put in its place there.
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

std::string surroundings() {
  const at::Context& context = at::globalContext();
  return fmt::format("torch {}; {} threads; {}, {}; deterministic {}; mkldnn {}; fp32 {}",
                     TORCH_VERSION, at::get_num_threads(), processor_name(),
                     at::get_cpu_capability(), context.deterministicAlgorithms(),
                     context.userEnabledMkldnn(),
                     static_cast<int>(context.float32MatmulPrecision()));
}

}  // namespace

Prover::Prover(const ProveOptions& options)
    : options_(options),
      folder_(options.use_cache ? measure_cache_folder(options.cache_dir) : ""),
      surroundings_(surroundings()) {}

std::string Prover::path_of(const std::string& key) const {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return fmt::format("{}/proofs/{:016x}.txt", folder_, hash);
}

Result<Proof> Prover::run(const Graph& graph, const Cut& cut) const {
  // Cut as it will be in the step: the same pieces, one after another.
  const Result<Graph> pieces = apply_cuts(graph, {cut});
  if (!pieces.ok()) return Proof{false, pieces.error().message};
  Ground ground, cut_ground;
  if (Status laid = ground.lay_out(graph); !laid.ok()) return laid.error();
  if (Status laid = cut_ground.lay_out(*pieces); !laid.ok()) return laid.error();
  for (int r = 0; r < options_.runs; ++r) {
    ground.poison();
    fill(graph, ground, options_.seed * 1000 + static_cast<uint64_t>(r));
    cut_ground.poison();
    for (size_t s = 0; s < graph.storages.size(); ++s) {
      const StorageId id(static_cast<int64_t>(s));
      std::memcpy(cut_ground.storage(id), ground.storage(id),
                  static_cast<size_t>(graph.storages[s].bytes));
    }
    if (Status ran = run_op(graph, OpId{0}, ground); !ran.ok()) return ran.error();
    for (size_t t = 0; t < pieces->ops.size(); ++t)
      if (Status ran = run_op(*pieces, OpId(static_cast<int64_t>(t)), cut_ground); !ran.ok())
        return Proof{false, "a piece can't run: " + one_line(ran.error().message)};
    for (size_t s = 0; s < graph.storages.size(); ++s) {
      const StorageId id(static_cast<int64_t>(s));
      if (std::memcmp(ground.storage(id), cut_ground.storage(id),
                      static_cast<size_t>(graph.storages[s].bytes)) != 0)
        return Proof{false, "its bits differ when it runs in pieces"};
    }
  }
  return Proof{true, ""};
}

Result<Proof> Prover::prove(const Graph& graph, const Cut& cut) {
  const Alone whole = alone(graph, cut);
  const std::string key =
      fmt::format("outsize-proof 1\n{}; {} runs, seed {}\n{}\nby {} at {}\n", surroundings_,
                  options_.runs, options_.seed, measure_key(whole.graph, OpId{0}, {}),
                  kCutKindNames.name(cut.kind), fmt::join(cut.bounds, ","));
  const auto keep = [&](Proof proof) { return known_[key] = std::move(proof); };
  if (const auto known = known_.find(key); known != known_.end()) {
    ++from_cache_;
    return known->second;
  }
  const std::string path = folder_.empty() ? "" : path_of(key);
  std::error_code error;
  if (!path.empty() && std::filesystem::exists(path, error)) {
    // A file that is damaged, or of another key whose hash is equal, is proved again and replaced.
    const Result<std::string> text = read_file(path);
    if (text.ok() && text->starts_with(key) && text->ends_with('\n')) {
      const std::string verdict = text->substr(key.size(), text->size() - key.size() - 1);
      ++from_cache_;
      if (verdict == kEqual) return keep({true, ""});
      if (verdict.starts_with(kDiffers)) return keep({false, verdict.substr(kDiffers.size())});
      --from_cache_;
    }
  }
  ++proved_;
  Result<Proof> proof = run(whole.graph, whole.cut);
  if (!proof.ok()) return proof;
  if (!path.empty()) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const std::string verdict =
        proof->equal ? std::string(kEqual) : std::string(kDiffers) + proof->why;
    // What can't be kept is proved again next time.
    if (error || !write_file_atomically(path, key + verdict + "\n").ok()) folder_.clear();
  }
  return keep(std::move(*proof));
}

}  // namespace outsize
