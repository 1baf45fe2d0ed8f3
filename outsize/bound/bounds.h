// Lower bounds on the time of one step: no plan beats them, however clever. A plan's gap is its
// time over the best bound that holds for what its planner may do.
//
//   unit machine, budget 100; w (100, persists) and v (100, persists) are each read by one op of 10
//   ns: compute 20; of the 200 bytes 100 at most lie on the device at the border, so 100 come in:
//   100 ns
//
// docs/bounds.md says what each bound means and proves it. What they share: plans repeat (what lies
// where at the end of a step is what lay there at its beginning), ops run whole, and copies share
// the links as in outsize/simulate. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outsize/base/names.h"
#include "outsize/bound/floor.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/machine.h"
#include "outsize/profile/profile.h"

namespace outsize {

enum class HoldsFor { kAnyOrder, kThisOrder, kNoRecompute, kNoSwap };
// The last two: in this order, and where the plan does not recompute (not swap).
inline constexpr EnumNames<HoldsFor, 4> kHoldsForNames{{{{HoldsFor::kAnyOrder, "any order"},
                                                         {HoldsFor::kThisOrder, "this order"},
                                                         {HoldsFor::kNoRecompute, "no recompute"},
                                                         {HoldsFor::kNoSwap, "no swap"}}}};

struct Bound {
  std::string name;  // "compute", "link", "disk link", "swap", "recompute", "swap and recompute"
  HoldsFor holds_for = HoldsFor::kAnyOrder;
  int64_t ns = 0;
  bool operator==(const Bound&) const = default;
};

// What the planner may do, and how finely to look.
struct BoundOptions {
  Budgets budgets;
  bool swap = true;
  bool recompute = true;
  bool reorder = true;
  // Of the linear programs. 1,500 takes about a second at 10,000 ops; more than there are ops: one
  // slot per op, the sharpest, several times slower above 3,000 ops.
  int64_t most_slots = 1500;
  double seconds = 60;  // of each linear program; a cut one still gives a (lower) bound
  // Of the simplex method, likewise; the same limit gives the same bound on any machine. < 0: none.
  int32_t most_iterations = -1;
};

struct Bounds {
  Floor floor;
  int64_t peak_program_order = 0;
  int64_t compute_ns = 0;
  std::vector<Bound> bounds;  // in the order of the names above, those that apply
  // No plan of whole ops exists at this budget; bounds then has "compute" alone. Empty if not
  // known.
  std::string infeasible;
  // The best bound that holds for every plan that the options allow.
  int64_t best_ns = 0;
};

Bounds bounds_of(const Graph& graph, const Profile& profile, const Machine& machine,
                 const BoundOptions& options);

// The best bound for plans that run the ops in `order` (a legal one, of all of them), as good as a
// second or two at 10,000 ops allow: the linear programs with few slots and a limit on iterations.
// The same on any machine. `options` says what the plans may do beside reordering, and the budgets;
// its limits are not looked at.
Bound bound_in_order(const Graph& graph, const Profile& profile, const Machine& machine,
                     const std::vector<OpId>& order, const BoundOptions& options);

}  // namespace outsize
