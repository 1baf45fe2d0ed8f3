// What happens to each job when a policy divides the device: an event-driven simulation in
// integers.
//
//   Outcome o = simulate(workload, {.policy = Policy::kSwapAware});
//   o.makespan_ns;  o.jobs[0].slowdown        // response beside the time it takes alone
//
// Memory serves one command at a time: allocate (only making room takes time), read, write. Making
// room writes the least recently used pages to swap, page by page, clean or not; what is missing is
// then read from swap. Under `swap-aware` and `broker` a job's share in swap is never brought in:
// reads and writes of it pass at the swap's rates, and take no memory. A command of higher priority
// interrupts one of lower priority, which later goes on where it was.
//
// `fifo` and `round-robin` decide who may start something; what has started (an allocation; from a
// read to the end of its slice or write) is always finished, so a turn can end late by that much.
// Deterministic. Work grows with the number of slices and commands.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "outsize/share/policy.h"
#include "outsize/share/workload.h"

namespace outsize::share {

// Each can be turned off, to see what it is worth.
struct Rules {
  bool priority = true;          // swap-aware, broker: the memory queue by rank; off: by arrival
  bool use_in_swap = true;       // swap-aware: a share stays in swap; off: all is brought in
  bool lowest_first = true;      // swap-aware: the lowest priority gives first; off: the highest
  bool for_each_subtask = true;  // swap-aware: weights are divided by the number of sub-tasks
  bool close = true;             // mat: a job that thrashes is closed; off: it is not
  bool early_release = true;     // round-robin: an idle holder gives the device back
  bool link_limit = true;        // broker: the link is promised once; off: as often as asked for
};

struct Options {
  Policy policy = Policy::kLru;
  int64_t quantum_ns = 30'000'000'000;  // round-robin
  Rules rules = {};
};

struct JobOutcome {
  int64_t response_ns = 0;  // from arrival to end
  int64_t alone_ns = 0;     // with the device to itself
  double slowdown = 1;      // response / alone
  double swap_share = 0;    // of the bytes it touched, how many came from or went to swap
  double weight = 0;        // swap-aware: W_i
  int rank = 0;             // swap-aware: 0 goes first
  int swap_percent = 0;     // swap-aware, broker: of its pages, used in swap
  std::optional<int64_t> budget_bytes;  // broker: the chosen point of its curve
};

struct Outcome {
  Policy policy = Policy::kLru;
  int64_t makespan_ns = 0;  // from the first arrival to the last end
  int64_t swapped_in_bytes = 0, swapped_out_bytes = 0;
  int64_t turns = 0;       // round-robin: grants
  int64_t peak_pages = 0;  // the most pages in memory at once
  std::vector<JobOutcome> jobs;
};

// Requires: check_workload(workload) passed; quantum_ns > 0.
Outcome simulate(const Workload& workload, const Options& options);

// The time of each job with the device to itself.
std::vector<int64_t> alone_times(const Workload& workload);

}  // namespace outsize::share
