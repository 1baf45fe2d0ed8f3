#include "outsize/torch/allocator.h"

#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "outsize/torch/openmp.h"

namespace outsize {
namespace {

[[noreturn]] void throw_torch_error(const std::string& message) {
  throw c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}

// What an op call in progress does with requests and frees.
class Call {
 public:
  virtual ~Call() = default;
  // Requires: bytes > 0. Throws c10::Error to refuse.
  virtual std::byte* serve(int64_t bytes, bool worker) = 0;
  // Whether `pointer` was this call's.
  virtual bool take_back(std::byte* pointer) = 0;
};

// The threads that work for one calling thread.
struct Team {
  std::atomic<Call*> active{nullptr};
  std::atomic<int64_t> lost{0};  // marked workers that have ended since the last marking
};

// A worker's link to the team it works for; tells the team when the worker ends, as the pool may
// then hold threads that were never marked.
struct Membership {
  std::shared_ptr<Team> team;
  ~Membership() {
    if (team) team->lost.fetch_add(1);
  }
};

thread_local Call* t_call = nullptr;            // of the thread that holds a call
thread_local std::shared_ptr<Team> t_own_team;  // of a calling thread
thread_local Membership t_membership;           // of a worker
thread_local int t_marked_threads = 0;

struct ArenaRange {
  const std::byte* begin;
  const std::byte* end;
};

struct SizeShard {
  std::mutex mutex;
  std::unordered_map<const void*, int64_t> sizes;
};

// All that the hook knows. One per process: the table that PyTorch looks allocators up in is, too.
struct Hook {
  c10::Allocator* previous = nullptr;
  c10::DeleterFnPtr previous_deleter = nullptr;
  std::atomic<bool> installed{false};

  // Read without a lock on every free; replaced as a whole, and old tables are kept, as a reader
  // may still be in them (a few dozen bytes per arena made in the process's life).
  std::atomic<const std::vector<ArenaRange>*> arenas{nullptr};
  std::mutex arenas_mutex;
  std::vector<std::unique_ptr<const std::vector<ArenaRange>>> arena_tables;

  std::atomic<int64_t> calls_in_progress{0};
  std::mutex calls_mutex;
  struct Entry {
    Call* call;
    std::shared_ptr<Team> team;
  };
  std::vector<Entry> calls;

  std::atomic<int64_t> planned_requests{0}, planned_live{0}, planned_live_peak{0},
      planned_highest{0};
  std::atomic<int64_t> default_requests{0}, default_live{0}, default_live_peak{0}, default_limit{0};
  static constexpr size_t kShards = 64;
  std::array<SizeShard, kShards> shards;

  SizeShard& shard_of(const void* pointer) {
    return shards[(reinterpret_cast<uintptr_t>(pointer) >> 6) % kShards];
  }
};

// Never destroyed: tensors freed at the process's end still come here.
Hook& hook() {
  static Hook* const instance = new Hook;
  return *instance;
}

// A forked child (a data-loading worker) must not inherit a lock that another thread held.
void lock_all() {
  Hook& h = hook();
  h.arenas_mutex.lock();
  h.calls_mutex.lock();
  for (SizeShard& shard : h.shards) shard.mutex.lock();
}

void unlock_all() {
  Hook& h = hook();
  for (SizeShard& shard : h.shards) shard.mutex.unlock();
  h.calls_mutex.unlock();
  h.arenas_mutex.unlock();
}

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

const ArenaRange* arena_of(const void* pointer) {
  const auto* table = hook().arenas.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto* p = static_cast<const std::byte*>(pointer);
  for (const ArenaRange& range : *table)
    if (range.begin <= p && p < range.end) return &range;
  return nullptr;
}

// The call that a request of this thread belongs to, or null: the default path's.
Call* call_of_this_thread(bool& worker) {
  worker = false;
  if (t_call != nullptr) return t_call;
  Hook& h = hook();
  if (h.calls_in_progress.load(std::memory_order_relaxed) == 0) return nullptr;
  worker = true;
  if (t_membership.team) return t_membership.team->active.load();
  if (!OpenMp::get().is_worker()) return nullptr;
  // A pool thread that nobody marked: a kernel library let some go and the pool was filled up
  // again.
  std::lock_guard lock(h.calls_mutex);
  for (const Hook::Entry& entry : h.calls)
    if (entry.team->lost.load() > 0) return entry.call;
  return nullptr;
}

void note_freed_by_default(void* pointer) {
  Hook& h = hook();
  SizeShard& shard = h.shard_of(pointer);
  std::lock_guard lock(shard.mutex);
  const auto found = shard.sizes.find(pointer);
  if (found == shard.sizes.end()) return;  // made before the hook was in place
  h.default_live.fetch_sub(found->second, std::memory_order_relaxed);
  shard.sizes.erase(found);
}

bool take_back_by_calls(void* pointer) {
  auto* p = static_cast<std::byte*>(pointer);
  bool worker = false;
  if (Call* call = call_of_this_thread(worker); call != nullptr && call->take_back(p)) return true;
  Hook& h = hook();
  if (h.calls_in_progress.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard lock(h.calls_mutex);
  for (const Hook::Entry& entry : h.calls)
    if (entry.call->take_back(p)) return true;
  return false;
}

void delete_any(void* pointer) {
  if (pointer == nullptr) return;
  take_back_by_calls(pointer);
  if (arena_of(pointer) != nullptr) return;
  note_freed_by_default(pointer);
  hook().previous_deleter(pointer);
}

std::byte* allocate_by_default(int64_t bytes) {
  Hook& h = hook();
  const int64_t live = h.default_live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  const int64_t limit = h.default_limit.load(std::memory_order_relaxed);
  if (limit > 0 && live > limit) {
    h.default_live.fetch_sub(bytes, std::memory_order_relaxed);
    throw_torch_error(fmt::format(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes. Error code 12 "
        "(Cannot allocate memory): {} bytes are in use and the limit is {}",
        bytes, live - bytes, limit));
  }
  c10::DataPtr data;
  try {
    data = h.previous->allocate(static_cast<size_t>(bytes));
  } catch (...) {
    h.default_live.fetch_sub(bytes, std::memory_order_relaxed);
    throw;
  }
  void* pointer = data.release_context();
  raise_to(h.default_live_peak, live);
  h.default_requests.fetch_add(1, std::memory_order_relaxed);
  SizeShard& shard = h.shard_of(pointer);
  std::lock_guard lock(shard.mutex);
  shard.sizes[pointer] = bytes;
  return static_cast<std::byte*>(pointer);
}

class HookAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    const auto bytes = static_cast<int64_t>(n);
    void* pointer = nullptr;
    if (bytes > 0) {
      bool worker = false;
      Call* call = call_of_this_thread(worker);
      pointer = call != nullptr ? call->serve(bytes, worker) : allocate_by_default(bytes);
    }
    return {pointer, pointer, &delete_any, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_any; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

void begin_call(Call* call) {
  OUTSIZE_CHECK(t_call == nullptr, "an op call inside another one on the same thread");
  OUTSIZE_CHECK(allocator_installed(), "the allocator's hook is not in place");
  mark_worker_threads();
  Hook& h = hook();
  {
    std::lock_guard lock(h.calls_mutex);
    h.calls.push_back({call, t_own_team});
  }
  t_call = call;
  t_own_team->active.store(call);
  h.calls_in_progress.fetch_add(1);
}

void end_call(Call* call) {
  Hook& h = hook();
  h.calls_in_progress.fetch_sub(1);
  t_own_team->active.store(nullptr);
  t_call = nullptr;
  std::lock_guard lock(h.calls_mutex);
  std::erase_if(h.calls, [call](const Hook::Entry& entry) { return entry.call == call; });
}

// The lowest address in [begin, begin + size) where `bytes` fit between live blocks, aligned as
// PyTorch aligns CPU memory; null if there is none.
std::byte* first_fit(const std::map<std::byte*, int64_t>& live, std::byte* begin, int64_t size,
                     int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(c10::gAlignment);
  int64_t at = 0;
  for (auto it = live.lower_bound(begin); it != live.end() && it->first < begin + size; ++it) {
    if (it->first - begin >= at + bytes) break;
    at = std::max(at, it->first - begin + it->second);
    at = (at + kAlignment - 1) / kAlignment * kAlignment;
  }
  return at + bytes <= size ? begin + at : nullptr;
}

}  // namespace

void install_allocator() {
  Hook& h = hook();
  if (h.installed.load()) return;
  c10::Allocator* previous = c10::GetAllocator(c10::DeviceType::CPU);
  OUTSIZE_CHECK(previous != nullptr && previous->raw_deleter() != nullptr,
                "the CPU allocator in place gives no raw deleter, so it can't be wrapped");
  h.previous = previous;
  h.previous_deleter = previous->raw_deleter();
  h.installed.store(true);
  OUTSIZE_CHECK(pthread_atfork(&lock_all, &unlock_all, &unlock_all) == 0, "no handler for fork");
  static HookAllocator* const allocator = new HookAllocator;
  c10::SetAllocator(c10::DeviceType::CPU, allocator, 100);
}

bool allocator_installed() { return hook().installed.load(); }

void register_arena(const std::byte* begin, int64_t bytes) {
  Hook& h = hook();
  std::lock_guard lock(h.arenas_mutex);
  const auto* present = h.arenas.load();
  auto next = std::make_unique<std::vector<ArenaRange>>();
  if (present != nullptr) *next = *present;
  next->push_back({begin, begin + bytes});
  h.arenas.store(next.get(), std::memory_order_release);
  h.arena_tables.push_back(std::move(next));
}

void forget_arena(const std::byte* begin) {
  Hook& h = hook();
  std::lock_guard lock(h.arenas_mutex);
  const auto* present = h.arenas.load();
  if (present == nullptr) return;
  auto next = std::make_unique<std::vector<ArenaRange>>(*present);
  std::erase_if(*next, [begin](const ArenaRange& range) { return range.begin == begin; });
  h.arenas.store(next.get(), std::memory_order_release);
  h.arena_tables.push_back(std::move(next));
}

AllocatorCounters allocator_counters() {
  const Hook& h = hook();
  return {h.planned_requests.load(),  h.planned_live.load(),     h.planned_live_peak.load(),
          h.planned_highest.load(),   h.default_requests.load(), h.default_live.load(),
          h.default_live_peak.load(), h.default_limit.load()};
}

void reset_planned_counters() {
  Hook& h = hook();
  h.planned_requests.store(0);
  h.planned_live_peak.store(h.planned_live.load());
  h.planned_highest.store(0);
}

void reset_default_counters() {
  Hook& h = hook();
  h.default_requests.store(0);
  h.default_live_peak.store(h.default_live.load());
}

void set_allocator_limit(int64_t bytes) { hook().default_limit.store(bytes); }

void mark_worker_threads() {
  if (!t_own_team) t_own_team = std::make_shared<Team>();
  const int threads = at::get_num_threads();
  if (t_marked_threads == threads && t_own_team->lost.load() == 0) return;
  const std::shared_ptr<Team> team = t_own_team;
  team->lost.store(0);
  OpenMp::get().run_on_all([&team](int thread, int) {
    if (thread > 0) t_membership.team = team;
  });
  t_marked_threads = threads;
}

// --- planned calls
// ----------------------------------------------------------------------------------

struct PlannedCall::State final : Call {
  explicit State(const PlannedAllocations& p) : planned(p) {}

  std::byte* serve(int64_t bytes, bool worker) override {
    std::lock_guard lock(mutex);
    std::byte* pointer =
        planned.scratch ? serve_scratch(bytes, worker) : serve_exact(bytes, worker);
    hold(pointer, bytes);
    ++served;
    return pointer;
  }

  bool take_back(std::byte* pointer) override {
    std::lock_guard lock(mutex);
    const auto found = live.find(pointer);
    if (found == live.end()) return false;
    hook().planned_live.fetch_sub(found->second, std::memory_order_relaxed);
    live.erase(found);
    return true;
  }

  std::byte* serve_exact(int64_t bytes, bool worker) {
    if (worker)
      refuse(
          "a worker thread asks for {} bytes; the plan has requests of the calling thread only "
          "(profile the op again with this thread count)",
          bytes);
    if (next == planned.requests.size())
      refuse("request {} of {} bytes; the plan has {} requests", next, bytes, next);
    const PlannedRequest& expected = planned.requests[next];
    if (expected.bytes != bytes)
      refuse("request {} of {} bytes; the plan has {} bytes for it", next, bytes, expected.bytes);
    ++next;
    return expected.pointer;
  }

  std::byte* serve_scratch(int64_t bytes, bool worker) {
    if (!worker) {
      // Temporaries of the calling thread may come or stay away; outputs bind in their order.
      for (size_t k = next; k < planned.requests.size(); ++k) {
        const PlannedRequest& expected = planned.requests[k];
        if (expected.bytes == bytes) {
          next = k + 1;
          if (expected.pointer != nullptr) return expected.pointer;
          break;
        }
        if (expected.pointer != nullptr) break;
      }
    }
    std::byte* pointer = first_fit(live, planned.workspace, planned.workspace_bytes, bytes);
    if (pointer == nullptr) {
      int64_t held = 0;
      for (auto it = live.lower_bound(planned.workspace);
           it != live.end() && it->first < planned.workspace + planned.workspace_bytes; ++it)
        held += it->second;
      refuse("scratch is full: {} bytes asked by {} thread, {} of the {} planned are held", bytes,
             worker ? "a worker" : "the calling", held, planned.workspace_bytes);
    }
    return pointer;
  }

  void hold(std::byte* pointer, int64_t bytes) {
    const auto after = live.lower_bound(pointer);
    const bool meets_next = after != live.end() && after->first < pointer + bytes;
    const bool meets_previous =
        after != live.begin() && std::prev(after)->first + std::prev(after)->second > pointer;
    if (meets_next || meets_previous)
      refuse(
          "request {} of {} bytes lies on a request that is still held (it was given back "
          "earlier when the op was profiled)",
          served, bytes);
    live.emplace(pointer, bytes);
    Hook& h = hook();
    h.planned_requests.fetch_add(1, std::memory_order_relaxed);
    raise_to(h.planned_live_peak,
             h.planned_live.fetch_add(bytes, std::memory_order_relaxed) + bytes);
    if (const ArenaRange* arena = arena_of(pointer))
      raise_to(h.planned_highest, pointer + bytes - arena->begin);
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
    const std::string message =
        fmt::format("{}: {}", planned.op, fmt::format(text, std::forward<Args>(args)...));
    if (first_violation.empty()) first_violation = message;
    throw_torch_error("outsize: allocation outside the plan: " + message);
  }

  const PlannedAllocations planned;
  mutable std::mutex mutex;  // guards all below
  std::map<std::byte*, int64_t> live;
  size_t next = 0;
  int64_t served = 0;
  std::string first_violation;
  bool ended = false;
};

PlannedCall::PlannedCall(const PlannedAllocations& planned)
    : state_(std::make_unique<State>(planned)) {
  begin_call(state_.get());
}

PlannedCall::~PlannedCall() {
  if (state_ && !state_->ended) (void)finish();
}

Status PlannedCall::finish() {
  OUTSIZE_CHECK(!state_->ended, "{}: finished twice", state_->planned.op);
  state_->ended = true;
  end_call(state_.get());
  std::lock_guard lock(state_->mutex);
  int64_t held = 0;
  for (const auto& [pointer, bytes] : state_->live) held += bytes;
  hook().planned_live.fetch_sub(held, std::memory_order_relaxed);
  if (!state_->first_violation.empty())
    return device_error("allocation outside the plan: {}", state_->first_violation);
  if (held > 0)
    return device_error(
        "{}: still holds {} bytes in {} requests after its end, in memory that the "
        "plan gives to others",
        state_->planned.op, held, state_->live.size());
  return Done{};
}

std::string PlannedCall::violation() const {
  std::lock_guard lock(state_->mutex);
  return state_->first_violation;
}

// --- recording calls
// --------------------------------------------------------------------------------

struct RecordingCall::State final : Call {
  State(std::byte* memory, int64_t bytes) : buffer(memory), buffer_bytes(bytes) {}

  std::byte* serve(int64_t bytes, bool worker) override {
    std::lock_guard lock(mutex);
    std::byte* pointer = buffer != nullptr ? first_fit(live, buffer, buffer_bytes, bytes) : nullptr;
    if (pointer == nullptr) {
      pointer = allocate_by_default(bytes);
      if (buffer != nullptr) ++spilled;
    }
    live.emplace(pointer, bytes);
    held_as[pointer] = requests.size();
    requests.push_back({bytes, worker, moment++, -1, pointer});
    return pointer;
  }

  bool take_back(std::byte* pointer) override {
    std::lock_guard lock(mutex);
    const auto found = held_as.find(pointer);
    if (found == held_as.end()) return false;
    requests[found->second].freed_at = moment++;
    held_as.erase(found);
    live.erase(pointer);
    return true;
  }

  std::byte* const buffer;
  const int64_t buffer_bytes;
  mutable std::mutex mutex;  // guards all below
  std::map<std::byte*, int64_t> live;
  std::map<std::byte*, size_t> held_as;  // index in requests
  std::vector<RecordedRequest> requests;
  int64_t moment = 0;
  int64_t spilled = 0;
  bool ended = false;
};

RecordingCall::RecordingCall(std::byte* buffer, int64_t buffer_bytes)
    : state_(std::make_unique<State>(buffer, buffer_bytes)) {
  OUTSIZE_CHECK(buffer == nullptr || arena_of(buffer) != nullptr,
                "a recording's buffer must be registered as an arena");
  begin_call(state_.get());
}

RecordingCall::~RecordingCall() {
  if (state_ && !state_->ended) (void)finish();
}

std::vector<RecordedRequest> RecordingCall::finish() {
  OUTSIZE_CHECK(!state_->ended, "a recording finished twice");
  state_->ended = true;
  end_call(state_.get());
  std::lock_guard lock(state_->mutex);
  return state_->requests;
}

int64_t RecordingCall::spilled() const {
  std::lock_guard lock(state_->mutex);
  return state_->spilled;
}

}  // namespace outsize
