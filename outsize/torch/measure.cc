#include "outsize/torch/measure.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "outsize/torch/allocator.h"
#include "outsize/torch/generator.h"
#include "outsize/torch/measure_cache.h"
#include "outsize/torch/measure_key.h"
#include "outsize/torch/measure_op.h"

namespace outsize {
namespace {

// Distinct ops in order of their first op.
struct Distinct {
  std::string key;
  std::vector<OpId> ops;
};

std::vector<Distinct> distinct_ops(const Graph& graph, const std::set<StorageId>& given) {
  std::vector<Distinct> distinct;
  std::map<std::string, size_t> found;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId op{static_cast<int64_t>(i)};
    std::string key = measure_key(graph, op, given);
    const auto [at, made] = found.try_emplace(key, distinct.size());
    if (made) distinct.push_back({std::move(key), {}});
    distinct[at->second].ops.push_back(op);
  }
  return distinct;
}

std::string surroundings_of(const MeasureOptions& options) {
  const at::Context& context = at::globalContext();
  return fmt::format(
      "torch {}; {} threads; {}, {}; deterministic {}; mkldnn {}; fp32 {}; evict {}; runs {}; "
      "seed {}",
      TORCH_VERSION, at::get_num_threads(), processor_name(), at::get_cpu_capability(),
      context.deterministicAlgorithms(), context.userEnabledMkldnn(),
      static_cast<int>(context.float32MatmulPrecision()), options.evict_bytes, options.timed_runs,
      options.seed);
}

// Random ops leave the generator where it was.
class GeneratorKeeper {
 public:
  GeneratorKeeper() : state_(generator_state()) {}
  ~GeneratorKeeper() {
    // Putting back what was taken a moment ago fails only where torch itself is broken.
    (void)set_generator_state(state_).ok();
  }
  GeneratorKeeper(const GeneratorKeeper&) = delete;
  GeneratorKeeper& operator=(const GeneratorKeeper&) = delete;

 private:
  const at::Tensor state_;
};

std::string text_of(const LocalFinding& finding, StorageId storage) {
  switch (finding.kind) {
    case FindingKind::kChangedInput:
      return fmt::format("changes storage {}, which the graph has it only read", storage.value);
    case FindingKind::kOutputOnInput:
      return fmt::format("a result lies on storage {}, the graph has it made anew", storage.value);
    case FindingKind::kGeometry:
    case FindingKind::kStorageBytes:
      break;
  }
  return finding.text;
}

void tell_of(const Graph& graph, OpId id, const MeasuredOp& measured, Measured& out,
             std::map<StorageId, int64_t>& corrections) {
  const Op& op = graph.op(id);
  out.profile.ops[id.index()] = measured.cost;
  std::vector<LocalStorage> locals;
  if (!measured.findings.empty()) locals = local_storages(graph, id);
  for (const LocalFinding& finding : measured.findings) {
    const bool known = finding.local >= 0 && finding.local < static_cast<int64_t>(locals.size());
    const StorageId storage =
        known ? locals[static_cast<size_t>(finding.local)].storage : StorageId{};
    out.findings.push_back(
        {finding.kind, id, storage, describe_op(graph, id) + ": " + text_of(finding, storage)});
  }
  for (size_t k = 0; k < op.makes.size() && k < measured.made_bytes.size(); ++k) {
    const Access& made = op.makes[k];
    const int64_t had = graph.storage(made.storage).bytes;
    const int64_t asked = measured.made_bytes[k];
    if (asked < 0 || asked == had || made.bytes.size() != had) continue;
    corrections[made.storage] = asked;
    out.findings.push_back({FindingKind::kStorageBytes, id, made.storage,
                            fmt::format("{}: asks for {} bytes for storage {}, the graph has {}",
                                        describe_op(graph, id), asked, made.storage.value, had)});
  }
}

}  // namespace

Result<Measured> measure_profile(const Graph& graph,
                                 const std::map<StorageId, at::Tensor>& entry_tensors,
                                 const MeasureOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  install_allocator();
  std::set<StorageId> given;
  for (const auto& [storage, tensor] : entry_tensors) given.insert(storage);
  const std::vector<Distinct> distinct = distinct_ops(graph, given);

  Measured out;
  out.profile.how = "measured";
  out.profile.machine = options.machine;
  out.profile.torch_version = TORCH_VERSION;
  out.profile.threads = at::get_num_threads();
  out.profile.ops.resize(graph.ops.size());
  out.distinct = static_cast<int64_t>(distinct.size());
  MeasureCache cache(options.use_cache ? measure_cache_folder(options.cache_dir) : "",
                     surroundings_of(options));
  const GeneratorKeeper keeper;
  std::optional<OpMeasurer> measurer;  // made when the first op is not in the cache
  std::map<StorageId, int64_t> corrections;
  for (size_t d = 0; d < distinct.size(); ++d) {
    if (options.progress && !options.progress(static_cast<int64_t>(d), out.distinct))
      return Error{
          ErrorKind::kCancelled,
          fmt::format("measuring was cancelled after {} of {} distinct ops", d, out.distinct)};
    const OpId first = distinct[d].ops.front();
    // A collective must be called by all ranks or by none, whatever their caches hold.
    const bool cacheable = !graph.op(first).collective;
    std::optional<MeasuredOp> measured = cacheable ? cache.find(distinct[d].key) : std::nullopt;
    if (measured) {
      ++out.from_cache;
    } else {
      if (!measurer) measurer.emplace(options);
      Result<MeasuredOp> fresh = measurer->measure(graph, first, entry_tensors);
      if (!fresh.ok()) return fresh.error();
      measured = std::move(*fresh);
      if (cacheable) cache.keep(distinct[d].key, *measured);
    }
    out.profile.runtime_bytes += measured->runtime_bytes;
    for (const OpId op : distinct[d].ops) tell_of(graph, op, *measured, out, corrections);
  }
  if (options.progress && !options.progress(out.distinct, out.distinct))
    return Error{ErrorKind::kCancelled, "measuring was cancelled at its end"};

  std::stable_sort(out.findings.begin(), out.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.op < b.op; });
  for (const auto& [storage, bytes] : corrections) out.storage_bytes.push_back({storage, bytes});
  out.notes = cache.notes();
  if (measurer) out.peak_bytes = measurer->peak_bytes();
  if (const std::string busy = busy_machine_note(); measurer && !busy.empty())
    out.notes.push_back(busy);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return out;
}

}  // namespace outsize
