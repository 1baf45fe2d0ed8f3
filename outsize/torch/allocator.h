// The hook in front of PyTorch's CPU allocator. While an op of a plan runs, each request that the
// op makes is served at its planned address, or stops the op; at all other times requests go to the
// allocator that was there before.
//
//   addmm plans {64 KiB at A, 2 MiB at B}:  PlannedCall call({.op = "aten.addmm.default", ...});
//   the op asks 64 KiB -> A, 2 MiB -> B; a third request, or 2 MiB + 64 for the second, throws
//   c10::Error naming op, bytes asked and bytes planned, and stands in `call.finish()`.
//
// Whose requests count: those of the thread that holds the call, and of the OpenMP threads that
// work for it. Other threads (data loaders, the user's own) are never touched. Zero-byte requests
// get null and count nowhere. The counters are kept by the hook from what it hands out, not from
// any plan. One hook per process, never taken out again: tensors in flight hold its deleter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "outsize/base/result.h"

namespace outsize {

// Puts the hook in place; the second call and later ones do nothing. Must not race with allocations
// of other threads the first time (it is called when the Python module is loaded).
void install_allocator();
bool allocator_installed();

// A range whose pointers the deleter takes back without freeing anything: an arena, or a
// recording's buffer. No tensor that the hook served from it may be alive when it is forgotten.
void register_arena(const std::byte* begin, int64_t bytes);
void forget_arena(const std::byte* begin);

struct AllocatorCounters {
  // Served by planned calls, out of arenas.
  int64_t planned_requests = 0;
  int64_t planned_live = 0;  // bytes handed out and not yet given back
  int64_t planned_live_peak = 0;
  int64_t planned_highest = 0;  // one past the highest byte handed out, from its arena's begin
  // Everything else: what PyTorch's own allocator serves.
  int64_t default_requests = 0;
  int64_t default_live = 0;  // of what was requested since the hook is in place
  int64_t default_live_peak = 0;
  int64_t default_limit = 0;  // 0: none
};
AllocatorCounters allocator_counters();
// Sets the peak to the present live bytes and the count and, of the planned ones, `highest` to 0.
void reset_planned_counters();
void reset_default_counters();
// The most bytes that the default path may have handed out at once; a request beyond it throws the
// error that an exhausted machine throws. 0: no limit.
void set_allocator_limit(int64_t bytes);

// Marks the OpenMP threads that work for the calling thread, so that their requests are told from
// those of strangers. Does nothing while the number of threads is the one marked last. Called by
// PlannedCall and RecordingCall.
void mark_worker_threads();

struct PlannedRequest {
  int64_t bytes = 0;
  std::byte* pointer = nullptr;  // where it is served; null: from the workspace (scratch ops only)
};

// What one op call may ask for. All must outlive the call.
struct PlannedAllocations {
  std::string_view op;                       // for messages
  std::span<const PlannedRequest> requests;  // the calling thread's, in order
  // Scratch: requests with a pointer (the outputs) bind in order; all others, of any thread of the
  // op, are served from the workspace, first fit, in any order.
  bool scratch = false;
  std::byte* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Planned mode for the calling thread, from construction to `finish` (or destruction).
// Must be finished by the thread that made it; not nested.
class PlannedCall {
 public:
  explicit PlannedCall(const PlannedAllocations& planned);
  ~PlannedCall();
  PlannedCall(const PlannedCall&) = delete;
  PlannedCall& operator=(const PlannedCall&) = delete;

  // Ends planned mode. The first violation: a request outside the plan, too little scratch, or
  // bytes still held (`results` are the caller's; it drops them first).
  Status finish();
  // The first violation so far, so that an op's own exception can be told from ours; empty if none.
  std::string violation() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// One request as it was seen. Moments count requests and frees of this call, from 0.
struct RecordedRequest {
  int64_t bytes = 0;
  bool worker = false;  // made by an OpenMP thread of the op, not by the calling thread
  int64_t made_at = 0;
  int64_t freed_at = -1;  // -1: still held when `finish` was called
  const std::byte* pointer = nullptr;
};

// Recording mode for the calling thread: serves requests from `buffer` (memory that was touched
// before, so that times are not those of page faults, and registered as an arena), first fit; from
// the default allocator when it is full or null. Results of the op stay valid until the buffer is
// used again.
class RecordingCall {
 public:
  explicit RecordingCall(std::byte* buffer = nullptr, int64_t buffer_bytes = 0);
  ~RecordingCall();
  RecordingCall(const RecordingCall&) = delete;
  RecordingCall& operator=(const RecordingCall&) = delete;

  // Ends recording. Requests in the order made (of several threads: as they came). Tensors still
  // held may be dropped later; the buffer must outlive them.
  std::vector<RecordedRequest> finish();
  // Requests that the buffer had no room for, served by the default allocator.
  int64_t spilled() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace outsize
