#include "outsize/torch/measure_requests.h"

#include <algorithm>
#include <numeric>

namespace outsize {
namespace {

constexpr int64_t kAlignment = 64;  // PyTorch's, of CPU memory

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool overlap(const SeenRequest& a, const SeenRequest& b) {
  return a.made_at < b.freed_at && b.made_at < a.freed_at;
}

// Places temporaries, the largest first, each at the lowest offset free for its whole life. Returns
// the bytes used.
int64_t place_temporaries(const SeenRun& run, std::vector<Request>& requests) {
  std::vector<size_t> order(run.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return run[a].bytes > run[b].bytes; });
  std::vector<size_t> placed;  // by offset
  int64_t end = 0;
  for (const size_t i : order) {
    if (run[i].output >= 0) continue;
    int64_t at = 0;
    for (const size_t other : placed) {
      if (!overlap(run[i], run[other])) continue;
      if (at + aligned(run[i].bytes) <= requests[other].offset) break;
      at = std::max(at, requests[other].offset + aligned(run[other].bytes));
    }
    requests[i].offset = at;
    end = std::max(end, at + aligned(run[i].bytes));
    placed.insert(std::upper_bound(
                      placed.begin(), placed.end(), i,
                      [&](size_t a, size_t b) { return requests[a].offset < requests[b].offset; }),
                  i);
  }
  return end;
}

// The most bytes of temporaries held at once by one side (workers or the calling thread).
int64_t peak_of(const SeenRun& run, bool worker) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // moment, bytes
  for (const SeenRequest& request : run) {
    if (request.output >= 0 || request.worker != worker) continue;
    changes.emplace_back(request.made_at, aligned(request.bytes));
    changes.emplace_back(request.freed_at, -aligned(request.bytes));
  }
  std::sort(changes.begin(), changes.end());  // at one moment, what is given back comes first
  int64_t live = 0, peak = 0;
  for (const auto& [moment, bytes] : changes) peak = std::max(peak, live += bytes);
  return peak;
}

int64_t scratch_bytes(const std::vector<SeenRun>& runs, int64_t threads) {
  int64_t calling = 0, workers = 0, largest = 0;
  for (const SeenRun& run : runs) {
    calling = std::max(calling, peak_of(run, false));
    workers = std::max(workers, peak_of(run, true));
    for (const SeenRequest& request : run)
      if (request.output < 0) largest = std::max(largest, aligned(request.bytes));
  }
  // Several workers' peaks may not have met in the runs seen.
  if (threads > 2) workers *= 2;
  // Blocks of different sizes come and go in any order: room for what first fit leaves between
  // them.
  const int64_t peak = calling + workers;
  return peak == 0 ? 0 : aligned(peak + peak / 8 + largest);
}

}  // namespace

OpRequests requests_from(const std::vector<SeenRun>& runs, int64_t threads) {
  OUTSIZE_CHECK(!runs.empty(), "no run to tell requests from");
  OpRequests out;
  const SeenRun& first = runs.front();
  for (const SeenRun& run : runs) {
    if (run != first) out.scratch = true;
    for (const SeenRequest& request : run)
      if (request.worker) out.scratch = true;
  }
  // Of an op whose requests vary the calling thread's of the last run serve: the first may have set
  // up what later ones find done.
  for (const SeenRequest& request : runs.back()) {
    if (out.scratch && request.worker) continue;
    out.requests.push_back({request.bytes, request.output, 0});
  }
  out.workspace_bytes =
      out.scratch ? scratch_bytes(runs, threads) : place_temporaries(first, out.requests);
  return out;
}

}  // namespace outsize
