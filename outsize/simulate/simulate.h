// The simulator: what a plan would do on a machine. Five streams run their instructions in order;
// an instruction starts when the one before it in its stream and all it waits for have ended.
//
//   unit machine, 1 byte = 1 ns: Run a (10 ns), Copy out of its 8 bytes, Run b (5 ns) over that
//   place
//
//   ns       0         10       18   23
//   compute  |a --------|        |b --|      step 23 ns, ops 15 ns, stall 8 ns
//   out                 |copy ---|
//
// How time passes, exactly, in integers:
//   - An op takes its profiled ns. While a copy of another stream is moving, it advances at
//     compute_permille_beside_copy / 1000 of its speed (compute_permille_beside_disk for a copy to
//     or from the disk; beside both, at the lower).
//   - A copy waits its link's latency, then moves its bytes. Its own rate is its link's: device ->
//   host
//     `out`, host -> device `in`, to disk `write`, from disk `read` (between device and disk too),
//     within a tier memory_bytes_per_s. In the compute stream it is sync_bytes_per_s where that is
//     given and no disk is concerned, with the link's latency, and no op runs beside it in that
//     stream.
//   - Copies moving in one direction share the fastest of their own rates, in proportion to these.
//   Then
//     `out` and `in` share both_bytes_per_s, and `write` and `read` disk_both_bytes_per_s,
//     likewise; a shared sum is never less than the fastest own rate in it.
//   - While an op runs, copies go at copy_permille_beside_compute / 1000 of what that gives
//     (disk_permille_beside_compute for the disk's).
//   - Rates are whole bytes/s, rounded down at each of these steps, at least 1. Bytes are kept
//   exact to
//     1e-9; an instruction ends at the first whole ns at which its work is done.
// At one moment, first all that is done ends, then all that can starts, in stream order, until
// nothing changes: an instruction without work takes no time but has its turn.
//
// A residency is live from the beginning of its first writer (entry: from 0) to the end of the last
// instruction that touches it (exit: to the end of the step); a workspace while its op runs. `live`
// adds sizes, so two residencies that name the same addresses at once count twice.
//
// Pure functions. The plan need not be legal, but its ids must be in range and its waits must lead
// somewhere; the error says what is wrong otherwise. reference.h has a slow, plain second
// simulator.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize {

// When an instruction ran.
struct Span {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool operator==(const Span&) const = default;
};

// What a tier holds from `ns` on. Several levels may bear the same ns; the last one stays.
struct Level {
  int64_t ns = 0;
  int64_t live_bytes = 0;
  bool operator==(const Level&) const = default;
};

struct TierUse {
  int64_t extent = 0;           // one past the highest address of a residency or workspace in use
  int64_t peak_live_bytes = 0;  // most bytes live at one moment
  std::vector<Level> levels;    // from 0, one per change; empty where nothing ever lies here
  bool operator==(const TierUse&) const = default;
};

struct Simulation {
  int64_t step_ns = 0;
  int64_t compute_ns = 0;    // ops' own times, first runs
  int64_t recompute_ns = 0;  // reruns
  int64_t stall_ns = 0;      // step - compute - recompute: waiting, interference, copies in compute
  std::array<int64_t, kStreams> busy_ns = {};  // by Stream: sum of its instructions' spans
  std::vector<Span> spans;                     // per instruction
  std::array<TierUse, kTiers> tiers;           // by Tier
  int64_t moved_out = 0, moved_in = 0, moved_write = 0, moved_read = 0;  // bytes, by link
  bool operator==(const Simulation&) const = default;
};

// Fails with kIllegal for a plan that is no plan of `graph` or can't finish, with kBadInput where a
// copy needs a link that `machine` has not or `profile` is for another graph.
Result<Simulation> simulate(const Graph& graph, const Profile& profile, const Machine& machine,
                            const Plan& plan);

// step_ns alone, for planners that ask often: about 0.2 us per instruction.
Result<int64_t> simulated_ns(const Graph& graph, const Profile& profile, const Machine& machine,
                             const Plan& plan);

}  // namespace outsize
