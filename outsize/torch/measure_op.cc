#include "outsize/torch/measure_op.h"

#include <ATen/Parallel.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>

#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

constexpr int64_t kAlignment = 64;
// An op that touches no more than this costs its dispatch; it is timed warm, many calls at once.
constexpr int64_t kSmallBytes = int64_t{64} << 10;
constexpr int kSmallCalls = 20;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Private memory of this process that is resident and not PyTorch's; arenas are shared memory and
// don't count.
int64_t runtime_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line))
    if (line.starts_with("RssAnon:"))
      return std::stoll(line.substr(8)) * 1024 - allocator_counters().default_live;
  return 0;
}

// What became resident since `before` and is still in use.
int64_t runtime_growth(int64_t before) {
  if (runtime_resident_bytes() <= before) return 0;
  // What was freed may still be resident; give it back before it is counted.
  malloc_trim(0);
  return std::max<int64_t>(0, runtime_resident_bytes() - before);
}

void collect_tensors(const Argument& wanted, const c10::IValue& had,
                     std::vector<std::pair<ValueId, at::Tensor>>& found) {
  if (const auto* value = std::get_if<ValueId>(&wanted.data)) {
    if (had.isTensor() && had.toTensor().defined()) found.emplace_back(*value, had.toTensor());
  } else if (const auto* items = std::get_if<Argument::List>(&wanted.data)) {
    if (!had.isList()) return;
    const auto list = had.toList();
    for (size_t i = 0; i < std::min(items->size(), list.size()); ++i)
      collect_tensors((*items)[i], list.get(i), found);
  }
}

std::vector<std::pair<ValueId, at::Tensor>> returned_tensors(
    const Op& op, const std::vector<c10::IValue>& results) {
  std::vector<std::pair<ValueId, at::Tensor>> found;
  for (size_t i = 0; i < std::min(op.results.size(), results.size()); ++i)
    collect_tensors(op.results[i], results[i], found);
  return found;
}

int64_t index_of(const std::vector<LocalStorage>& locals, StorageId storage) {
  for (size_t i = 0; i < locals.size(); ++i)
    if (locals[i].storage == storage) return static_cast<int64_t>(i);
  return -1;
}

bool is_made(const Op& op, StorageId storage) {
  return std::any_of(op.makes.begin(), op.makes.end(),
                     [&](const Access& access) { return access.storage == storage; });
}

bool is_mutated(const Op& op, StorageId storage) {
  return std::any_of(op.mutates.begin(), op.mutates.end(),
                     [&](const Access& access) { return access.storage == storage; });
}

// Per output of `makes`, where its storage's bytes lie.
std::vector<const std::byte*> made_places(const Graph& graph, const Op& op,
                                          const std::vector<c10::IValue>& results) {
  std::vector<const std::byte*> places(op.makes.size(), nullptr);
  for (const auto& [value, tensor] : returned_tensors(op, results))
    for (size_t k = 0; k < op.makes.size(); ++k)
      if (op.makes[k].storage == graph.value(value).storage && places[k] == nullptr)
        places[k] = static_cast<const std::byte*>(tensor.storage().data());
  return places;
}

// Live bytes at the worst moment of a run.
int64_t peak_of(const SeenRun& run) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const SeenRequest& request : run) {
    changes.emplace_back(request.made_at, aligned(request.bytes));
    changes.emplace_back(request.freed_at, -aligned(request.bytes));
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, peak = 0;
  for (const auto& [moment, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

SeenRun seen_run(const std::vector<RecordedRequest>& recorded,
                 const std::vector<const std::byte*>& made) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  SeenRun run;
  for (const RecordedRequest& request : recorded)
    run.push_back({request.bytes, request.worker, request.made_at,
                   request.freed_at < 0 ? kNever : request.freed_at, -1});
  // A place may have served a temporary before the output: the last request there is the output's.
  for (size_t k = 0; k < made.size(); ++k)
    for (size_t i = recorded.size(); made[k] != nullptr && i-- > 0;)
      if (recorded[i].pointer == made[k] && run[i].output < 0) {
        run[i].output = static_cast<int32_t>(k);
        // How long results are looked at is no part of what the op does.
        run[i].freed_at = kNever;
        break;
      }
  return run;
}

int64_t quantile(const std::vector<int64_t>& sorted, double at) {
  return sorted[static_cast<size_t>(at * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

OpMeasurer::OpMeasurer(const MeasureOptions& options)
    : options_(options), numbers_(options.seed), evictor_(options.evict_bytes) {}

Result<OpMeasurer::Operands> OpMeasurer::lay_out(const Graph& graph, OpId id) {
  Operands operands;
  operands.storages = local_storages(graph, id);
  std::vector<int64_t> offsets;
  for (const LocalStorage& local : operands.storages) {
    offsets.push_back(operands.bytes);
    // Outputs that are no argument get their memory from the op itself.
    if (local.read) operands.bytes += aligned(local.hull.size());
  }
  if (Status reserved = operands_.reserve(operands.bytes); !reserved.ok())
    return Error{reserved.error().kind,
                 fmt::format("{}: laying out its operands: {}", describe_op(graph, id),
                             reserved.error().message)};
  for (size_t i = 0; i < operands.storages.size(); ++i)
    operands.places.push_back(operands.storages[i].read ? operands_.base() + offsets[i] : nullptr);
  const Op& op = graph.op(id);
  for (const auto* list : {&op.reads, &op.makes, &op.mutates})
    for (const Access& access : *list) {
      const auto local = static_cast<size_t>(index_of(operands.storages, access.storage));
      std::byte* place = operands.places[local];
      operands.addresses.push_back(
          place == nullptr ? nullptr
                           : place + (access.bytes.begin - operands.storages[local].hull.begin));
    }
  return operands;
}

Status OpMeasurer::fill(const Graph& graph, const Operands& operands,
                        const std::map<StorageId, at::Tensor>& entry_tensors, bool mutated_only,
                        OpId id) {
  for (size_t i = 0; i < operands.storages.size(); ++i) {
    const LocalStorage& local = operands.storages[i];
    if (!local.read || (mutated_only && !is_mutated(graph.op(id), local.storage))) continue;
    const auto given = entry_tensors.find(local.storage);
    if (given == entry_tensors.end()) {
      numbers_.fill(operands.places[i], local.hull.size(), local.dtype);
      continue;
    }
    const c10::Storage& storage = given->second.storage();
    if (static_cast<int64_t>(storage.nbytes()) < local.hull.end)
      return bad_input("{}: the tensor given for storage {} has {} bytes, the op reads up to {}",
                       describe_op(graph, id), local.storage.value, storage.nbytes(),
                       local.hull.end);
    std::memcpy(operands.places[i],
                static_cast<const std::byte*>(storage.data()) + local.hull.begin,
                static_cast<size_t>(local.hull.size()));
  }
  return Done{};
}

void OpMeasurer::examine(const Graph& graph, OpId id, const OpCall& call, BoundOp bound,
                         const Operands& operands, const std::vector<c10::IValue>& results,
                         MeasuredOp& measured) {
  const Op& op = graph.op(id);
  const auto add = [&](FindingKind kind, int64_t local, std::string text) {
    measured.findings.push_back({kind, local, std::move(text)});
  };
  std::vector<const std::byte*> made = made_places(graph, op, results);
  bool on_input = false;
  for (const auto& [value, tensor] : returned_tensors(op, results)) {
    const auto* data = static_cast<const std::byte*>(tensor.storage().data());
    if (!is_made(op, graph.value(value).storage) || tensor.numel() == 0) continue;
    for (size_t i = 0; i < operands.storages.size(); ++i) {
      const std::byte* place = operands.places[i];
      if (place == nullptr || is_made(op, operands.storages[i].storage)) continue;
      const std::byte* base = place - operands.storages[i].hull.begin;
      if (data != base) continue;
      on_input = true;
      add(FindingKind::kOutputOnInput, static_cast<int64_t>(i), "");
    }
  }
  // With what was made where the op put it, everything else must be as the graph says. An op that
  // makes a part of a storage asks for that part alone.
  for (size_t k = 0; k < op.makes.size(); ++k)
    if (made[k] != nullptr) bound.addresses[op.reads.size() + k] = const_cast<std::byte*>(made[k]);
  if (on_input) return;
  if (Status same = call.check_results(bound, results, nullptr); !same.ok()) {
    std::string text = same.error().message;
    const std::string name = describe_op(graph, id) + ": ";
    if (text.starts_with(name)) text = text.substr(name.size());
    add(FindingKind::kGeometry, -1, text);
  }
}

Result<OpMeasurer::RunResult> OpMeasurer::run_once(const Graph& graph, OpId id, const OpCall& call,
                                                   BoundOp& bound, const Operands& operands,
                                                   bool in_buffer, MeasuredOp* examined) {
  RunResult run;
  RecordingCall recording(in_buffer ? outputs_.base() : nullptr, in_buffer ? outputs_.bytes() : 0);
  const int64_t begin = now_ns();
  Result<std::vector<c10::IValue>> results = call.invoke(bound);
  run.ns = now_ns() - begin;
  if (!results.ok()) return results.error();
  const std::vector<const std::byte*> made = made_places(graph, graph.op(id), *results);
  if (examined != nullptr) examine(graph, id, call, bound, operands, *results, *examined);
  results->clear();
  run.spilled = recording.spilled();
  run.requests = seen_run(recording.finish(), made);
  run.peak_bytes = peak_of(run.requests);
  return run;
}

Result<int64_t> OpMeasurer::time_small(const OpCall& call, const BoundOp& bound) {
  const RecordingCall recording(outputs_.base(), outputs_.bytes());
  const int64_t begin = now_ns();
  for (int i = 0; i < kSmallCalls; ++i) {
    const Result<std::vector<c10::IValue>> results = call.invoke(bound);
    if (!results.ok()) return results.error();
  }
  return (now_ns() - begin) / kSmallCalls;
}

Result<MeasuredOp> OpMeasurer::measure(const Graph& graph, OpId id,
                                       const std::map<StorageId, at::Tensor>& entry_tensors) {
  const Op& op = graph.op(id);
  Result<OpCall> call = OpCall::prepare(graph, id);
  if (!call.ok()) return call.error();
  Result<Operands> laid_out = lay_out(graph, id);
  if (!laid_out.ok()) return laid_out.error();
  const Operands& operands = *laid_out;
  Result<BoundOp> bound = call->bind(operands.addresses);
  if (!bound.ok()) return bound.error();
  if (call->takes_scalars()) {
    ScalarTable scalars(graph.scalars.size());
    for (size_t s = 0; s < scalars.size(); ++s)
      scalars[s] = graph.scalars[s].present.value_or(Number{int64_t{1}});
    if (Status filled = call->fill_scalars(*bound, scalars); !filled.ok()) return filled.error();
  }
  if (Status filled = fill(graph, operands, entry_tensors, false, id); !filled.ok())
    return filled.error();

  std::vector<uint64_t> before;
  const auto prints_of_reads = [&] {
    std::vector<uint64_t> prints;
    for (size_t i = 0; i < op.reads.size(); ++i)
      prints.push_back(is_mutated(op, op.reads[i].storage)
                           ? 0
                           : fingerprint(operands.addresses[i], op.reads[i].bytes.size()));
    return prints;
  };
  before = prints_of_reads();

  // The first run warms up and says how much memory the others need. What kernels set up once and
  // keep comes from the default allocator here, where nothing will overwrite it.
  MeasuredOp measured;
  const int64_t resident_before = runtime_resident_bytes();
  Result<RunResult> first = run_once(graph, id, *call, *bound, operands, false, &measured);
  if (!first.ok()) return first.error();
  measured.runtime_bytes = runtime_growth(resident_before);

  const std::vector<uint64_t> after = prints_of_reads();
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i])
      measured.findings.push_back(
          {FindingKind::kChangedInput, index_of(operands.storages, op.reads[i].storage), ""});

  if (Status reserved = outputs_.reserve(first->peak_bytes + first->peak_bytes / 4); !reserved.ok())
    return reserved.error();
  peak_bytes_ = std::max(peak_bytes_, operands_.bytes() + outputs_.bytes() + options_.evict_bytes);

  std::vector<SeenRun> runs = {first->requests};
  std::vector<int64_t> times;
  const bool small = operands.bytes + first->peak_bytes <= kSmallBytes;
  int64_t spent = first->ns;
  for (int r = 0; r < std::max(2, options_.timed_runs); ++r) {
    if (r >= 2 && spent > options_.longest_op_ns) break;
    if (Status filled = fill(graph, operands, entry_tensors, true, id); !filled.ok())
      return filled.error();
    if (!small) evictor_.evict();
    Result<RunResult> run = run_once(graph, id, *call, *bound, operands, true, nullptr);
    if (!run.ok()) return run.error();
    spent += run->ns;
    runs.push_back(run->requests);
    if (run->spilled > 0 && r == 0) {
      // First fit left holes: make room, and this run's time holds page faults, so do it over.
      if (Status reserved = outputs_.reserve(2 * outputs_.bytes()); !reserved.ok())
        return reserved.error();
      times.clear();
      continue;
    }
    if (!small) {
      times.push_back(run->ns);
      continue;
    }
    Result<int64_t> ns = time_small(*call, *bound);
    if (!ns.ok()) return ns.error();
    times.push_back(*ns);
  }
  std::sort(times.begin(), times.end());
  measured.cost.ns = quantile(times, 0.5);
  measured.cost.spread_ns = (quantile(times, 0.75) - quantile(times, 0.25)) / 2;

  const OpRequests requests = requests_from(runs, at::get_num_threads());
  measured.cost.requests = requests.requests;
  measured.cost.workspace_bytes = requests.workspace_bytes;
  measured.cost.scratch = requests.scratch;
  measured.made_bytes.assign(op.makes.size(), -1);
  for (const Request& request : requests.requests)
    if (request.output >= 0)
      measured.made_bytes[static_cast<size_t>(request.output)] = request.bytes;
  return measured;
}

}  // namespace outsize
