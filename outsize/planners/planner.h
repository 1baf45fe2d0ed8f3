// One interface for all planners: a problem in, a plan that fits (or the least budget at which this
// planner could) and statistics out. `run_planner` packs, lowers, checks and simulates what the
// planner decided, so no plan leaves here that the checker has not passed.
//
// Anytime: a planner hands each better plan to `problem.on_better`, and returns the best when the
// deadline is reached. Same inputs, seed and work: same plan, byte for byte, at any thread count.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/deadline.h"
#include "outsize/base/result.h"
#include "outsize/bound/bounds.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize {

// Where a persistent storage must lie at entry and exit, when that is already settled.
struct Home {
  StorageId storage;
  Tier tier = Tier::kDevice;
  int64_t address = 0;
  bool operator==(const Home&) const = default;
};

struct Freedoms {
  bool swap = true;
  bool recompute = true;
  bool reorder = true;
  bool split = true;
};

struct Problem {
  const Graph* graph = nullptr;  // not null, as the next two; all must outlive the call
  const Profile* profile = nullptr;
  const Machine* machine = nullptr;
  Budgets budgets;
  std::vector<Home>
      border;  // settled homes; those of other persistent storages are the planner's choice
  // Ranges that hold something else throughout the step: homes of storages that this graph doesn't
  // touch.
  std::vector<std::pair<Tier, Interval>> reserved;
  Freedoms allow;
  // What stands in the host's place. Planners call the one tier below the device the host, also
  // where it is the disk (a disk budget and no host's), which moves whole blocks of `block` bytes.
  // Set by run_planner.
  Tier far = Tier::kHost;
  int64_t block = 1;
  uint64_t seed = 1;
  int threads = 1;                                                 // affects speed only
  Deadline* deadline = nullptr;                                    // not null
  std::function<void(double seconds, int64_t step_ns)> on_better;  // may be empty
};

struct Planned {
  Plan plan;
  std::string planner;
  int64_t step_ns = 0;     // simulated
  int64_t compute_ns = 0;  // sum of the graph's ops
  int64_t recompute_ns = 0;
  int64_t stall_ns = 0;  // step - compute - recompute: waiting, interference, copies in compute
  // No plan that it holds for can beat it: any at all, or any in this plan's order with the same
  // freedoms.
  int64_t bound_ns = 0;
  HoldsFor bound_holds_for = HoldsFor::kAnyOrder;
  int64_t floor_bytes = 0;
  int64_t peak[kTiers] = {0, 0, 0};
  PlanStatistics statistics;
  double seconds = 0;
  int64_t work = 0;
  double first_plan_seconds = 0;
  std::vector<std::pair<double, int64_t>> history;  // seconds, step_ns
};

// Names known to run_planner, in a fixed order: "keep", "sqrt-n", "outsize", ...; the forced modes
// "swap-everything" and "recompute-everything" among them.
std::vector<std::string> planner_names();
Result<Planned> run_planner(const std::string& name, const Problem& problem);

}  // namespace outsize
