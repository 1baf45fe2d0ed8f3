#include "outsize/torch/measure_requests.h"

#include <gtest/gtest.h>

#include <limits>

#include "outsize/base/random.h"

namespace outsize {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The header's picture: a packing buffer given back before the end, and the output.
TEST(MeasureRequests, TemporaryBesideAnOutput) {
  const SeenRun run = {{65536, false, 0, 2, -1}, {2 << 20, false, 1, kNever, 0}};
  const OpRequests requests = requests_from({run, run}, 1);
  EXPECT_EQ(requests.requests, (std::vector<Request>{{65536, -1, 0}, {2 << 20, 0, 0}}));
  EXPECT_EQ(requests.workspace_bytes, 65536);
  EXPECT_FALSE(requests.scratch);
}

TEST(MeasureRequests, TemporariesShareBytesWhenTheirLivesDont) {
  // 100 [0, 1), 50 [2, 5), 60 [3, 4): 50 and 60 live together, 100 before them. 64-byte places:
  // 100 at 0, 60 at 0, 50 at 64.
  const SeenRun run = {{100, false, 0, 1, -1}, {50, false, 2, 5, -1}, {60, false, 3, 4, -1}};
  const OpRequests requests = requests_from({run}, 1);
  EXPECT_EQ(requests.requests, (std::vector<Request>{{100, -1, 0}, {50, -1, 64}, {60, -1, 0}}));
  EXPECT_EQ(requests.workspace_bytes, 128);
}

TEST(MeasureRequests, VaryingRunsAndWorkersWantScratch) {
  const SeenRun one = {{640, false, 0, 1, -1}, {64, false, 2, kNever, 0}};
  const SeenRun two = {{1280, false, 0, 1, -1}, {64, false, 2, kNever, 0}};
  OpRequests requests = requests_from({one, two}, 2);
  EXPECT_TRUE(requests.scratch);
  EXPECT_GE(requests.workspace_bytes, 1280);
  EXPECT_EQ(requests.requests, (std::vector<Request>{{1280, -1, 0}, {64, 0, 0}}));

  const SeenRun worker = {{640, false, 0, 3, -1}, {320, true, 1, 2, -1}, {64, false, 4, kNever, 0}};
  requests = requests_from({worker, worker}, 2);
  EXPECT_TRUE(requests.scratch);
  EXPECT_GE(requests.workspace_bytes, 640 + 320);
  EXPECT_EQ(requests.requests, (std::vector<Request>{{640, -1, 0}, {64, 0, 0}}));
  EXPECT_GE(requests_from({worker, worker}, 4).workspace_bytes, 640 + 2 * 320);
}

// Random lives: no two temporaries that live together share a byte, all lie inside the workspace,
// on PyTorch's alignment, and the workspace is no smaller than the worst moment.
TEST(MeasureRequests, RandomPlacementsHold) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SeenRun run;
    int64_t moment = 0;
    for (int64_t n = random.between(1, 12); n > 0; --n) {
      const int64_t made = moment++;
      run.push_back({random.between(1, 500), false, made, made + random.between(1, 9), -1});
    }
    const OpRequests requests = requests_from({run}, 1);
    for (size_t a = 0; a < run.size(); ++a) {
      const Request& one = requests.requests[a];
      EXPECT_EQ(one.offset % 64, 0);
      EXPECT_LE(one.offset + one.bytes, requests.workspace_bytes);
      for (size_t b = a + 1; b < run.size(); ++b) {
        const bool together = run[a].made_at < run[b].freed_at && run[b].made_at < run[a].freed_at;
        const Request& two = requests.requests[b];
        const bool apart =
            one.offset + one.bytes <= two.offset || two.offset + two.bytes <= one.offset;
        EXPECT_TRUE(apart || !together);
      }
    }
    for (int64_t t = 0; t < moment; ++t) {
      int64_t live = 0;
      for (const SeenRequest& r : run)
        if (r.made_at <= t && t < r.freed_at) live += (r.bytes + 63) / 64 * 64;
      EXPECT_LE(live, requests.workspace_bytes);
    }
  }
}

}  // namespace
}  // namespace outsize
