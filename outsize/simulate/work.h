// What each instruction of a plan has to do on a machine: which link, how fast alone, how much.
// Shared by the simulator and its reference, so that they differ only in how they let time pass.
//
//   Copy of 8 bytes device -> host, unit machine: link kOut, latency 0 ns, 8 bytes at 1e9 bytes/s
//   Run of a 10 ns op: link kNone, 10 ns
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize {

// The road a copy takes. kWithin: a move within a tier, which shares nothing.
enum class Road { kNone, kOut, kIn, kWrite, kRead, kWithin };
inline constexpr int kRoads = 6;
inline constexpr bool is_disk(Road road) { return road == Road::kWrite || road == Road::kRead; }

struct Work {
  Road road = Road::kNone;  // kNone: an op
  int64_t ns = 0;           // an op's time, or a copy's latency
  int64_t bytes = 0;        // a copy's
  int64_t bytes_per_s = 0;  // a copy's, alone
};

// One per instruction; refuses what simulate's contract says.
Result<std::vector<Work>> works_of(const Graph& graph, const Profile& profile,
                                   const Machine& machine, const Plan& plan);

}  // namespace outsize
