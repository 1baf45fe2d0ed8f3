// A CPU allocator for unplanned runs: it counts the bytes that tensors ask for, and fails as
// PyTorch's own does when they would exceed a limit. It knows nothing of Outsize and wraps whatever
// allocator was there.
//
//   install();  set_limit(1000);  a = at::empty(600 bytes);  b = at::empty(600 bytes) -> throws
//   live() == 600, peak() == 600
//
// Counted are exact requested bytes of what was allocated since install(). Thread-safe; install()
// once, before the first tensor that is to be counted. Built by limits.py and called through
// ctypes.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

struct Point {
  int64_t ns;
  int64_t live;
};

struct Counts {
  std::mutex mutex;  // guards all below
  std::unordered_map<void*, int64_t> sizes;
  int64_t live = 0;
  int64_t peak = 0;
  int64_t limit = 0;  // 0: none
  bool recording = false;
  std::chrono::steady_clock::time_point began;
  std::vector<Point> points;

  void record() {
    if (!recording) return;
    const auto since = std::chrono::steady_clock::now() - began;
    points.push_back({std::chrono::duration_cast<std::chrono::nanoseconds>(since).count(), live});
  }
};

// Outlives every tensor, static ones included.
Counts& counts = *new Counts;
c10::Allocator* wrapped = nullptr;

// Takes pointers of both allocators: tensors made before install() are freed after it.
void free_counted(void* pointer) {
  if (pointer == nullptr) return;
  {
    const std::lock_guard lock(counts.mutex);
    if (const auto found = counts.sizes.find(pointer); found != counts.sizes.end()) {
      counts.live -= found->second;
      counts.sizes.erase(found);
      counts.record();
    }
  }
  wrapped->raw_deleter()(pointer);
}

class LimitAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    const auto bytes = static_cast<int64_t>(size);
    {
      const std::lock_guard lock(counts.mutex);
      TORCH_CHECK(counts.limit == 0 || counts.live + bytes <= counts.limit,
                  "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
                  " bytes (", counts.live, " held, limit ", counts.limit, ")");
      // Taken before the memory is: two threads may not both pass the check for the last bytes.
      counts.live += bytes;
      if (counts.live > counts.peak) counts.peak = counts.live;
    }
    void* pointer = nullptr;
    try {
      pointer = wrapped->raw_allocate(size);
    } catch (...) {
      const std::lock_guard lock(counts.mutex);
      counts.live -= bytes;
      throw;
    }
    const std::lock_guard lock(counts.mutex);
    if (pointer != nullptr) {
      counts.sizes[pointer] = bytes;
    } else {
      counts.live -= bytes;
    }
    counts.record();
    return {pointer, pointer, &free_counted, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_counted; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

extern "C" {

void outsize_bench_install() {
  if (wrapped != nullptr) return;
  wrapped = c10::GetAllocator(c10::kCPU);
  c10::SetAllocator(c10::kCPU, new LimitAllocator, /*priority=*/100);
}

void outsize_bench_set_limit(int64_t bytes) {
  const std::lock_guard lock(counts.mutex);
  counts.limit = bytes;
}

int64_t outsize_bench_live() {
  const std::lock_guard lock(counts.mutex);
  return counts.live;
}

int64_t outsize_bench_peak() {
  const std::lock_guard lock(counts.mutex);
  return counts.peak;
}

// From here on live() is noted at every change, with nanoseconds since this call.
void outsize_bench_start_timeline() {
  const std::lock_guard lock(counts.mutex);
  counts.points.clear();
  counts.points.reserve(1 << 16);
  counts.began = std::chrono::steady_clock::now();
  counts.recording = true;
  counts.record();
}

// Ends the recording; returns how many points there are.
int64_t outsize_bench_stop_timeline() {
  const std::lock_guard lock(counts.mutex);
  counts.recording = false;
  return static_cast<int64_t>(counts.points.size());
}

// `to` has room for two numbers, ns and bytes, a point.
void outsize_bench_copy_timeline(int64_t* to) {
  const std::lock_guard lock(counts.mutex);
  for (const Point& point : counts.points) {
    *to++ = point.ns;
    *to++ = point.live;
  }
}
}
