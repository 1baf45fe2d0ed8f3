// Solving: from a problem to a lowered plan that fits, for one set of prices; and the least budget
// at which that works. The planners are loops over these.
//
//   choose (capacity = budget) → sequence → place: 1040 B for a budget of 1000 (fragmentation)
//   choose (capacity = 960)    → sequence → place:  992 B, fits → lower
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/planners/choose.h"
#include "outsize/planners/place.h"
#include "outsize/planners/sequence.h"

namespace outsize::planning {

// The problem's graph cut into parts, its settled homes, an order.
struct Case {
  const Problem* problem = nullptr;
  Parts parts;
  std::vector<OpId> order;
  std::vector<int8_t> homes;  // per part: 0 free, 1 device, 2 host
};
Case case_of(const Problem& problem);

// Whether plans may copy to the tier below and back, and can.
bool can_swap(const Problem& problem);

struct Solution {
  Program program;
  Plan plan;             // lowered
  double cost = 0;       // by the prices
  int64_t capacity = 0;  // that the choice was made for
};

struct Trouble {
  std::optional<Shortfall> shortfall;  // by the choice
  int64_t height = 0;                  // by the placing, on `tier`
  Tier tier = Tier::kDevice;
  std::vector<Interval> crowded;  // ranks at which something lies above the device's budget
};

// Begins and ends on the host what has its settled home there.
void settle_at_homes(const Case& c, Program& program);
// Nothing moved, nothing recomputed but what settled homes ask for.
Program plain_program(const Case& c);

// For Program::draft_drop: a run costs its op's time, whether its working set fits or not; holding
// what it reads costs nothing.
Program::RunPrice run_times(const Case& c);
int64_t held_for_nothing(int32_t from, int32_t to, int64_t bytes);

// How a program is written out.
struct Style {
  CopyStyle copies = CopyStyle::kBesideOps;
  double slack = 1.0;  // write-behind: copies are planned as if they took this much longer
};

// Writes out, places and lowers one program; tells what is too high where it doesn't fit.
std::optional<Plan> write_plan(const Case& c, const Chooser& chooser, const Program& program,
                               const Style& style, Effort effort, Trouble& trouble);

// Lowers a sequence with addresses; tells which tier is too full where it doesn't fit.
std::optional<Plan> lower_placed(const Case& c, Sequence sequence, const Placement& placement,
                                 Trouble& trouble);

struct SolveOptions {
  Style style;
  const Program* start = nullptr;  // its decisions stay; else the plain program
  std::optional<double> beat;      // gives up on a choice that does not cost less
};
// Chooses and writes, lowering the capacity while fragmentation makes it overflow the budget.
std::optional<Solution> solve(const Case& c, const Prices& prices, ChooseParams params,
                              const SolveOptions& options, Random& random, Trouble& trouble);

}  // namespace outsize::planning
