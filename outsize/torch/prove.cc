#include "outsize/torch/prove.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "outsize/base/files.h"
#include "outsize/split/pointwise.h"
#include "outsize/torch/measure_cache.h"
#include "outsize/torch/measure_key.h"
#include "outsize/torch/prove_ground.h"
#include "outsize/torch/prove_paths.h"

namespace outsize {
namespace {

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

std::string surroundings() {
  const at::Context& context = at::globalContext();
  return fmt::format("torch {}; {} threads; {}, {}; deterministic {}; mkldnn {}; fp32 {}",
                     TORCH_VERSION, at::get_num_threads(), processor_name(),
                     at::get_cpu_capability(), context.deterministicAlgorithms(),
                     context.userEnabledMkldnn(),
                     static_cast<int>(context.float32MatmulPrecision()));
}

// Whether a piece of a pointwise op has one element of an operand that has more: kernels take a
// single element for a number, and then round otherwise.
bool has_single_element(const Graph& graph, const Graph& pieces) {
  const Op& op = graph.ops.front();
  const auto single = [&](const Op& piece, size_t i) {
    const ValueId* whole = value_in(op.args, i);
    const ValueId* part = value_in(piece.args, i);
    return whole != nullptr && part != nullptr && count_of(graph.value(*whole)) > 1 &&
           count_of(pieces.value(*part)) == 1;
  };
  for (const Op& piece : pieces.ops)
    for (size_t i = 0; i < op.args.size(); ++i)
      if (single(piece, i)) return true;
  return false;
}

// An op as a whole and in pieces, each on its ground.
struct BothWays {
  const Graph& graph;
  const Graph& pieces;
  Ground ground;
  Ground cut_ground;

  // On the operands that `fill` puts on the ground.
  template <typename Fill>
  Result<Proof> compare(const Fill& fill) const {
    ground.poison();
    fill();
    cut_ground.poison();
    for (size_t s = 0; s < graph.storages.size(); ++s) {
      const StorageId id(static_cast<int64_t>(s));
      std::memcpy(cut_ground.storage(id), ground.storage(id),
                  static_cast<size_t>(graph.storages[s].bytes));
    }
    if (Status ran = run_op(graph, OpId{0}, ground); !ran.ok()) return ran.error();
    for (size_t t = 0; t < pieces.ops.size(); ++t)
      if (Status ran = run_op(pieces, OpId(static_cast<int64_t>(t)), cut_ground); !ran.ok())
        return Proof{false, "a piece can't run: " + one_line(ran.error().message)};
    for (size_t s = 0; s < graph.storages.size(); ++s) {
      const StorageId id(static_cast<int64_t>(s));
      if (std::memcmp(ground.storage(id), cut_ground.storage(id),
                      static_cast<size_t>(graph.storages[s].bytes)) != 0)
        return Proof{false, "its bits differ when it runs in pieces"};
    }
    return Proof{true, ""};
  }
};

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
  const bool pointwise = is_pointwise(graph.ops.front().name);
  if (pointwise && has_single_element(graph, *pieces))
    return Proof{false,
                 "a piece has one element of an operand, which its kernel takes for a number"};
  BothWays both{graph, *pieces, {}, {}};
  if (Status laid = both.ground.lay_out(graph); !laid.ok()) return laid.error();
  if (Status laid = both.cut_ground.lay_out(*pieces); !laid.ok()) return laid.error();
  for (int r = 0; r < options_.runs; ++r) {
    const uint64_t seed = options_.seed * 1000 + static_cast<uint64_t>(r);
    Result<Proof> proof = both.compare([&] { fill_operands(graph, both.ground, seed); });
    if (!proof.ok() || !proof->equal) return proof;
    if (!pointwise) continue;
    const Result<std::optional<Telltale>> telltale = find_telltale(graph, seed);
    if (!telltale.ok())
      return Proof{false, "it can't run in rows: " + one_line(telltale.error().message)};
    if (!*telltale) continue;
    proof = both.compare([&] { fill_with(**telltale, graph, both.ground); });
    if (!proof.ok() || !proof->equal) return proof;
  }
  return Proof{true, ""};
}

Result<Proof> Prover::prove(const Graph& graph, const Cut& cut) {
  const Alone whole = alone(graph, cut);
  const std::string key =
      fmt::format("outsize-proof 2\n{}; {} runs, seed {}\n{}\nby {} at {}\n", surroundings_,
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
