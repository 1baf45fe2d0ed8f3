// The linear program behind the bounds on swap and recompute: everything that a plan in a given op
// order must satisfy, loosened until it is linear. docs/bounds.md has the rows and their proof.
//
// Per slot (an op, or ops of about equal time together) it holds how long the slot takes, and how
// many bytes have gone out and come in by its end; per gap how many bytes are away, and which part
// is dropped and made again. Internal to outsize/bound. Pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "outsize/bound/gaps.h"
#include "outsize/bound/linear_program.h"
#include "outsize/bound/rates.h"
#include "outsize/graph/graph.h"
#include "outsize/profile/profile.h"

namespace outsize::bounding {

struct StepLimits {
  int64_t device_bytes = 0;
  int64_t away_bytes = -1;  // the most that the tiers below hold; < 0: no limit
  bool swap = true;
  bool recompute = true;
  int64_t most_slots = 1500;
  // Grains below this share of the peak count only while touched: the program gets smaller, and
  // lower.
  double smallest_share = 1e-5;
  double seconds = 60;  // of the solver; where they end, the bound is what was proved by then
  int32_t most_iterations = -1;  // likewise, and the same on any machine; < 0: no limit
  // For planners: what dropping a gap costs beside its maker's run, in ns, or < 0 that it can't be
  // dropped; by storage and the gap's first op. With any, what comes out is no bound.
  std::map<std::pair<StorageId, Moment>, double> surcharges;
};

// What the program's solution does with one gap: shares of the grain's bytes, 0 to 1.
struct GapShare {
  StorageId storage;
  Interval bytes;
  Gap gap;
  double away = 0;
  double dropped = 0;  // and made again before the gap ends
};

// What one byte more on the device costs while `at` runs; nothing at ops that are not named.
struct BytePrice {
  Moment at = 0;
  double ns = 0;
};

struct StepBound {
  LpStatus status = LpStatus::kFailed;
  int64_t ns = 0;       // no plan is faster; from the multipliers alone, rounded down
  double value_ns = 0;  // what the solver says
  size_t slots = 0, columns = 0, rows = 0, entries = 0;
  // Gaps over a moment that is too full, by grain, then time. Where the solver was stopped, of no
  // meaning but as a hint.
  std::vector<GapShare> shares;
  std::vector<BytePrice> prices;  // ascending, above 0
};

// Requires: profile.ops has one entry per op; the rates are >= 0.
StepBound bound_step(const Graph& graph, const Profile& profile, const Rates& rates,
                     const StepLimits& limits);

}  // namespace outsize::bounding
