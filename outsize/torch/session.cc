#include "outsize/torch/session.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "outsize/plan/check.h"
#include "outsize/tiers/arena.h"
#include "outsize/tiers/disk.h"
#include "outsize/torch/allocator.h"
#include "outsize/torch/generator.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

// Persistent storages below this are kept at entry, so that a step that changed only them can be
// undone.
constexpr int64_t kSmallBytes = 64 << 10;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string storage_text(const Graph& graph, StorageId id) {
  const std::string& name = graph.storage(id).name;
  return name.empty() ? fmt::format("storage {}", id.value)
                      : fmt::format("storage {} '{}'", id.value, name);
}

// The bytes of an input: its storage, if that is exactly the wanted size, or the tensor's own
// elements.
Result<const std::byte*> input_bytes(const Graph& graph, StorageId id, const at::Tensor& tensor) {
  const int64_t wanted = graph.storage(id).bytes;
  if (!tensor.defined() || tensor.device().type() != c10::kCPU || !tensor.has_storage())
    return bad_input("input {}: wanted a CPU tensor", storage_text(graph, id));
  if (static_cast<int64_t>(tensor.storage().nbytes()) == wanted)
    return static_cast<const std::byte*>(tensor.storage().data());
  if (tensor.is_contiguous() && static_cast<int64_t>(tensor.nbytes()) == wanted)
    return static_cast<const std::byte*>(tensor.const_data_ptr());
  return bad_input("input {}: wanted {} bytes, had a storage of {} and elements of {}",
                   storage_text(graph, id), wanted, tensor.storage().nbytes(), tensor.nbytes());
}

// Sorted, disjoint, touching ones merged.
std::vector<Interval> merged(std::vector<Interval> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<Interval> result;
  for (const Interval& r : ranges) {
    if (r.empty()) continue;
    if (!result.empty() && r.begin <= result.back().end)
      result.back().end = std::max(result.back().end, r.end);
    else
      result.push_back(r);
  }
  return result;
}

// Memory for a shadow: all of it is there from the start.
Result<std::unique_ptr<TierMemory>> shadow_memory(Tier tier, int64_t bytes,
                                                  const std::string& disk_dir) {
  if (tier == Tier::kDisk) {
    auto disk = DiskMemory::create(disk_dir, bytes, {});
    if (!disk.ok()) return disk.error();
    return std::unique_ptr<TierMemory>(std::move(*disk));
  }
  Result<Arena> arena = Arena::create("rollback", bytes);
  if (!arena.ok()) return arena.error();
  return std::unique_ptr<TierMemory>(std::make_unique<ArenaMemory>(std::move(*arena)));
}

bool touches(const std::vector<Interval>& ranges, const Interval& range) {
  auto it = std::upper_bound(ranges.begin(), ranges.end(), range.begin,
                             [](int64_t begin, const Interval& r) { return begin < r.end; });
  return it != ranges.end() && it->overlaps(range);
}

}  // namespace

struct Session::Loaded {
  Graph graph;
  Profile profile;
  Plan plan;
  std::unique_ptr<ScalarProgram> scalars;
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<ThrottledDevice> throttled;  // in front of it, with slower links
  std::unique_ptr<FaultyDevice> faulty;        // in front of that, in tests
  std::unique_ptr<UndoDevice> undo;            // in front of that, with rollback
  std::unique_ptr<Executor> executor;
  std::map<StorageId, std::vector<ResidencyId>> inputs;   // entry residencies of what is handed in
  std::map<StorageId, std::vector<ResidencyId>> outputs;  // exit residencies of what is handed out
  std::map<StorageId, ResidencyId> homes;                 // at entry
  std::vector<ResidencyId> carried;                       // at entry, beside the home
  std::vector<StorageId> small_changed;                   // persistent, small, written by the step
  std::vector<Interval> used[kTiers];                     // bytes the plan touches
};

// What is kept at entry to undo a failed step.
struct Session::Kept {
  at::Tensor generator;
  std::map<StorageId, std::vector<std::byte>> bytes;
};

Session::Session(std::shared_ptr<Homes> homes, std::string disk_dir)
    : homes_(std::move(homes)), disk_dir_(std::move(disk_dir)) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Budgets& sizes,
                                                 const std::string& disk_dir) {
  Result<std::shared_ptr<Homes>> homes = Homes::create(sizes, disk_dir);
  if (!homes.ok()) return homes.error();
  return std::unique_ptr<Session>(new Session(std::move(*homes), disk_dir));
}

Result<int64_t> Session::load(Graph graph, Profile profile, Plan plan, const LoadOptions& options) {
  auto loaded = std::make_unique<Loaded>();
  loaded->graph = std::move(graph);
  loaded->profile = std::move(profile);
  loaded->plan = std::move(plan);
  const Graph& g = loaded->graph;
  const Plan& p = loaded->plan;
  if (Status status = check_profile(g, loaded->profile); !status) return status.error();
  if (loaded->profile.threads != 0 && g.threads != 0 && loaded->profile.threads != g.threads)
    return bad_input("the profile was measured with {} threads, the graph captured with {}",
                     loaded->profile.threads, g.threads);
  // The device binds ops to the plan's places, so the plan must be known to be well formed first.
  const Violation violation =
      check_plan(g, workspaces_of(loaded->profile), p, p.budgets, options.alignment);
  if (!violation.ok())
    return Error{ErrorKind::kIllegal,
                 fmt::format("{}: {}: {}", kViolationKindNames.name(violation.kind),
                             violation.where, violation.witness)};
  const Tier shadow_tier = options.rollback.value_or(Tier::kHost);
  if (shadow_tier == Tier::kDevice) return bad_input("rollback takes the host or disk tier");
  const int64_t shadow_bytes = options.rollback ? undo_bytes(g, p) : 0;
  if (Status resident = make_resident(statistics_of(p), shadow_tier, shadow_bytes); !resident.ok())
    return resident.error();
  loaded->scalars = std::make_unique<ScalarProgram>(g);
  auto device =
      CpuDevice::create(g, loaded->profile, p, homes_->tiers(), options.executor.record_times);
  if (!device.ok()) return device.error();
  loaded->device = std::move(*device);
  Device* front = loaded->device.get();
  if (options.links) {
    loaded->throttled = std::make_unique<ThrottledDevice>(*front, *options.links);
    front = loaded->throttled.get();
  }
  if (options.faulty) {
    loaded->faulty = std::make_unique<FaultyDevice>(*front);
    front = loaded->faulty.get();
  }
  if (shadow_bytes > 0) {
    const CpuTiers tiers = homes_->tiers();
    loaded->undo = std::make_unique<UndoDevice>(
        g, p, *front, UndoDevice::Tiers{tiers.device, tiers.host, tiers.disk},
        *shadows_[static_cast<size_t>(shadow_tier)]);
    front = loaded->undo.get();
  }
  auto executor =
      Executor::create(g, loaded->profile, p, *front, options.alignment, options.executor);
  if (!executor.ok()) return executor.error();
  loaded->executor = std::move(*executor);

  for (const BorderItem& item : p.entry) {
    const StorageId storage = p.residency(item.residency).part.storage;
    if (item.home)
      loaded->homes[storage] = item.residency;
    else if (g.storage(storage).persistent)
      loaded->carried.push_back(item.residency);
    else
      loaded->inputs[storage].push_back(item.residency);
  }
  for (const BorderItem& item : p.exit) {
    const StorageId storage = p.residency(item.residency).part.storage;
    if (!item.home && !g.storage(storage).persistent)
      loaded->outputs[storage].push_back(item.residency);
  }
  std::set<StorageId> written;
  for (const Op& op : g.ops) {
    for (const Access& access : op.makes) written.insert(access.storage);
    for (const Access& access : op.mutates) written.insert(access.storage);
  }
  for (const auto& [storage, home] : loaded->homes)
    if (written.contains(storage) && g.storage(storage).bytes < kSmallBytes)
      loaded->small_changed.push_back(storage);
  for (const Residency& r : p.residencies)
    loaded->used[static_cast<size_t>(r.tier)].push_back(r.range());
  for (const Instruction& i : p.instructions) loaded->used[0].push_back(i.workspace);
  for (auto& ranges : loaded->used) ranges = merged(std::move(ranges));

  const int64_t handle = next_handle_++;
  loaded_[handle] = std::move(loaded);
  return handle;
}

Status Session::make_resident(const PlanStatistics& statistics, Tier shadow_tier,
                              int64_t shadow_bytes) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    const auto t = static_cast<size_t>(tier);
    TierMemory* memory = homes_->tiers().of(tier);
    const int64_t extent = std::max(resident_[t], statistics.extent[t]);
    const int64_t held = shadows_[t] ? shadows_[t]->bytes() : 0;
    const int64_t shadow = std::max(held, tier == shadow_tier ? shadow_bytes : 0);
    const int64_t bytes = memory == nullptr ? 0 : memory->bytes();
    if (shadow > 0 && shadow > bytes - extent)
      return infeasible(
          "rollback keeps {} bytes of what a step changes, plans use {} of the {} tier beside "
          "them, "
          "which has {}: give it more, or leave rollback out",
          shadow, extent, kTierNames.name(tier), bytes);
    if (memory == nullptr) continue;
    if (Status resident = memory->make_resident(extent); !resident.ok()) return resident;
    resident_[t] = extent;
    if (shadow == held) continue;
    Result<std::unique_ptr<TierMemory>> larger = shadow_memory(tier, shadow, disk_dir_);
    if (!larger.ok()) return larger.error();
    if (shadows_[t])
      shadows_[t]->replace(std::move(*larger));
    else
      shadows_[t] = std::make_unique<GrowingMemory>(std::move(*larger));
  }
  return Done{};
}

Status Session::unload(int64_t handle) {
  const std::unique_lock lock(stepping_, std::try_to_lock);
  if (!lock.owns_lock()) return bad_input("a step is running");
  if (loaded_.erase(handle) == 0) return bad_input("no plan with the handle {}", handle);
  return Done{};
}

Status Session::check_call(const Loaded& loaded,
                           const std::map<StorageId, at::Tensor>& inputs) const {
  const Graph& g = loaded.graph;
  if (g.threads != 0 && g.threads != at::get_num_threads())
    return bad_input("the step was captured with {} threads, PyTorch now uses {}", g.threads,
                     at::get_num_threads());
  for (const auto& [storage, tensor] : inputs)
    if (!loaded.inputs.contains(storage))
      return bad_input("{} is not an input of the plan",
                       storage.valid() && storage.index() < g.storages.size()
                           ? storage_text(g, storage)
                           : fmt::format("storage {}", storage.value));
  for (const auto& [storage, residencies] : loaded.inputs) {
    const auto found = inputs.find(storage);
    if (found == inputs.end()) return bad_input("input {} was not given", storage_text(g, storage));
    if (Result<const std::byte*> bytes = input_bytes(g, storage, found->second); !bytes.ok())
      return bytes.error();
  }
  return check_homes(loaded);
}

Status Session::check_homes(const Loaded& loaded) const {
  std::set<HomePlace> own;
  for (const auto& [storage, home] : loaded.homes) {
    const Residency& r = loaded.plan.residency(home);
    own.insert({r.tier, r.address, r.part.bytes.size()});
  }
  for (const HomePlace& place : homes_->adopted()) {
    if (own.contains(place)) continue;
    const Interval range{place.address, place.address + place.bytes};
    if (touches(loaded.used[static_cast<size_t>(place.tier)], range))
      return bad_input(
          "a tensor lies in {} bytes [{}, {}), which the plan uses for something else; "
          "release it or adopt it where the plan's entry has it",
          kTierNames.name(place.tier), range.begin, range.end);
  }
  return Done{};
}

Status Session::copy_inputs(const Loaded& loaded,
                            const std::map<StorageId, at::Tensor>& inputs) const {
  for (const auto& [storage, residencies] : loaded.inputs) {
    Result<const std::byte*> bytes = input_bytes(loaded.graph, storage, inputs.at(storage));
    if (!bytes.ok()) return bytes.error();
    for (const ResidencyId id : residencies) {
      const Residency& r = loaded.plan.residency(id);
      if (Status status =
              homes_->write(r.tier, r.address, *bytes + r.part.bytes.begin, r.part.bytes.size());
          !status)
        return status;
    }
  }
  return Done{};
}

Status Session::refresh_carried(const Loaded& loaded) const {
  std::vector<std::byte> buffer;
  for (const ResidencyId id : loaded.carried) {
    const Residency& r = loaded.plan.residency(id);
    const auto home = loaded.homes.find(r.part.storage);
    OUTSIZE_CHECK(home != loaded.homes.end(), "a carried copy without a home");
    const Residency& from = loaded.plan.residency(home->second);
    constexpr int64_t kPiece = 4 << 20;
    buffer.resize(static_cast<size_t>(std::min(kPiece, r.part.bytes.size())));
    for (int64_t at = r.part.bytes.begin; at < r.part.bytes.end; at += kPiece) {
      const int64_t bytes = std::min(kPiece, r.part.bytes.end - at);
      if (Status status = homes_->read(from.tier, from.address + at - from.part.bytes.begin,
                                       buffer.data(), bytes);
          !status)
        return status;
      if (Status status =
              homes_->write(r.tier, r.address + at - r.part.bytes.begin, buffer.data(), bytes);
          !status)
        return status;
    }
  }
  return Done{};
}

Status Session::allocate_outputs(const Loaded& loaded,
                                 std::map<StorageId, at::Tensor>& outputs) const {
  for (const auto& [storage, residencies] : loaded.outputs) {
    try {
      outputs[storage] = byte_tensor(loaded.graph.storage(storage).bytes);
    } catch (const std::exception& e) {
      return device_error("no ordinary memory for output {}: {} (the step has not begun)",
                          storage_text(loaded.graph, storage), e.what());
    }
  }
  return Done{};
}

Status Session::copy_outputs(const Loaded& loaded, std::map<StorageId, at::Tensor>& outputs) const
    try {
  if (loaded.faulty != nullptr)
    if (Status injected = loaded.faulty->beside([] { return Status(Done{}); }); !injected.ok())
      return injected;
  for (const auto& [storage, residencies] : loaded.outputs) {
    auto* bytes = static_cast<std::byte*>(outputs.at(storage).mutable_data_ptr());
    for (const ResidencyId id : residencies) {
      const Residency& r = loaded.plan.residency(id);
      if (Status status =
              homes_->read(r.tier, r.address, bytes + r.part.bytes.begin, r.part.bytes.size());
          !status)
        return status;
    }
  }
  return Done{};
} catch (const std::exception& e) {
  return device_error("the copy threw: {}", e.what());
}

int64_t Session::highest_at_entry(const Loaded& loaded) const {
  int64_t highest = 0;
  for (const HomePlace& place : homes_->adopted())
    if (place.tier == Tier::kDevice) highest = std::max(highest, place.address + place.bytes);
  for (const auto& [storage, residencies] : loaded.inputs)
    for (const ResidencyId id : residencies) {
      const Residency& r = loaded.plan.residency(id);
      if (r.tier == Tier::kDevice) highest = std::max(highest, r.range().end);
    }
  return highest;
}

void Session::poison_free_bytes(const Loaded& loaded) const {
  TierMemory* memory = homes_->tiers().device;
  std::vector<Interval> kept;
  for (const BorderItem& item : loaded.plan.entry) {
    const Residency& r = loaded.plan.residency(item.residency);
    if (r.tier == Tier::kDevice) kept.push_back(r.range());
  }
  for (const HomePlace& place : homes_->adopted())
    if (place.tier == Tier::kDevice) kept.push_back({place.address, place.address + place.bytes});
  kept = merged(std::move(kept));
  kept.push_back({memory->bytes(), memory->bytes()});
  int64_t at = 0;
  for (const Interval& range : kept) {
    std::memset(memory->base() + at, 0xff, static_cast<size_t>(range.begin - at));
    at = range.end;
  }
}

Result<Session::Kept> Session::keep(const Loaded& loaded) const {
  Kept kept;
  kept.generator = generator_state();
  for (const StorageId storage : loaded.small_changed) {
    const Residency& r = loaded.plan.residency(loaded.homes.at(storage));
    std::vector<std::byte>& bytes = kept.bytes[storage];
    bytes.resize(static_cast<size_t>(r.part.bytes.size()));
    if (Status status = homes_->read(r.tier, r.address, bytes.data(), r.part.bytes.size()); !status)
      return status.error();
  }
  return kept;
}

Error Session::fail(Loaded& loaded, const Error& error, const Kept& kept, const Failure& done) {
  failure_ = {error, done.instruction, false, {}};
  std::set<StorageId> mixed(done.changed.begin(), done.changed.end());
  mixed.insert(done.displaced.begin(), done.displaced.end());
  std::string restoring;
  if (loaded.undo != nullptr) {
    if (Status back = loaded.undo->undo(); back.ok())
      mixed.clear();
    else
      restoring = "; and then: " + back.error().message;
  }
  for (const auto& [storage, bytes] : kept.bytes) {
    const Residency& r = loaded.plan.residency(loaded.homes.at(storage));
    const Status status = homes_->write(r.tier, r.address, bytes.data(), r.part.bytes.size());
    if (status.ok())
      mixed.erase(storage);
    else
      restoring = "; and then: " + status.error().message;
  }
  if (Status status = set_generator_state(kept.generator); !status)
    restoring = "; and then: " + status.error().message;
  for (const StorageId storage : mixed) {
    const std::string& name = loaded.graph.storage(storage).name;
    failure_.mixed.push_back(name.empty() ? storage_text(loaded.graph, storage) : name);
  }
  failure_.undone = mixed.empty() && restoring.empty();
  const std::string outcome =
      failure_.undone
          ? "the step was undone"
          : fmt::format("of two steps mixed: {}; load or restore them before the next step{}",
                        fmt::join(failure_.mixed, ", "), restoring);
  failure_.error.message = fmt::format("{} ({})", error.message, outcome);
  return failure_.error;
}

Result<StepResult> Session::step(int64_t handle, const std::map<StorageId, at::Tensor>& inputs,
                                 const std::map<std::string, Number>& scalars,
                                 const Executor::Between& between) {
  const std::unique_lock lock(stepping_, std::try_to_lock);
  if (!lock.owns_lock()) return bad_input("a step is running already");
  const auto found = loaded_.find(handle);
  if (found == loaded_.end()) return bad_input("no plan with the handle {}", handle);
  if (poisoned())
    return bad_input(
        "a failed step left a mix of two steps in: {}; load or restore them and say so "
        "with mark_restored",
        fmt::join(failure_.mixed, ", "));
  failure_ = {};
  Loaded& loaded = *found->second;
  if (Status status = check_call(loaded, inputs); !status) return status.error();
  Result<ScalarTable> table = loaded.scalars->start(scalars);
  if (!table.ok()) return table.error();

  StepResult result;
  if (Status status = allocate_outputs(loaded, result.outputs); !status) return status.error();
  const int64_t begun = now_ns();
  if (poison_) poison_free_bytes(loaded);
  if (Status status = copy_inputs(loaded, inputs); !status) return status.error();
  if (Status status = refresh_carried(loaded); !status) return status.error();
  Result<Kept> kept = keep(loaded);
  if (!kept.ok()) return kept.error();
  result.copy_in_ns = now_ns() - begun;

  const int64_t at_entry = highest_at_entry(loaded);
  reset_planned_counters();
  loaded.device->set_scalars(std::move(*table));
  Result<StepReport> report = loaded.executor->step(between);
  if (!report.ok()) return fail(loaded, report.error(), *kept, loaded.executor->failure());
  result.report = std::move(*report);
  result.scalars = loaded.device->scalars();
  const AllocatorCounters counters = allocator_counters();
  result.arena_highest =
      std::max({counters.planned_highest, loaded.device->highest_copied(), at_entry});
  result.requests = counters.planned_requests;
  for (int t = 0; t < kTiers; ++t) result.live_peak[t] = loaded.device->live_peak(Tier{t});

  result.live_levels = loaded.device->live_levels();

  const int64_t ended = now_ns();
  if (Status status = copy_outputs(loaded, result.outputs); !status)
    return fail(loaded, {status.error().kind, "copying outputs: " + status.error().message}, *kept,
                loaded.executor->failure_at_end());
  result.copy_out_ns = now_ns() - ended;
  return result;
}

Result<FaultyDevice*> Session::faulty_of(int64_t handle) const {
  const auto found = loaded_.find(handle);
  if (found == loaded_.end()) return bad_input("no plan with the handle {}", handle);
  if (found->second->faulty == nullptr) return bad_input("the plan was not loaded as faulty");
  return found->second->faulty.get();
}

Status Session::set_fault(int64_t handle, const DeviceFault& fault) {
  Result<FaultyDevice*> device = faulty_of(handle);
  if (!device.ok()) return device.error();
  (*device)->fail(fault);
  return Done{};
}

Result<int64_t> Session::device_calls(int64_t handle) const {
  Result<FaultyDevice*> device = faulty_of(handle);
  if (!device.ok()) return device.error();
  return (*device)->calls();
}

Result<int64_t> Session::failed_guard(int64_t handle,
                                      const std::map<std::string, Number>& scalars) const {
  const auto found = loaded_.find(handle);
  if (found == loaded_.end()) return bad_input("no plan with the handle {}", handle);
  return found->second->scalars->first_failed_guard(scalars);
}

}  // namespace outsize
