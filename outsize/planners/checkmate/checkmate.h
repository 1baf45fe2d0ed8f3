// Checkmate (Jain et al., MLSys'20): recomputation as an integer program over stages, solved by
// HiGHS; proved where it proves, and rounded from its relaxation where there is no time for that.
//
//   A 40 B by op0 (10 ns), B 40 B by op1, both read by op3; op2 in between needs 60 B for itself
//   at 110 B: A or B is not saved into op2's stage, and runs again in op3's, before it
//
// Three forms, each better than the one before, or not taken: a greedy one (ours, so that there is
// a plan at once and one at the least budget it names); the relaxation's S, rounded at a few
// thresholds, with the runs that these saves ask for (section 5); the integer program. Work: a unit
// each for the first two, then branch-and-bound nodes; the same work gives the same plan.
// A unit stands for 2000 simplex iterations of the relaxation; where that does not end within the
// work left, the integer program, which begins with it, is not tried.
#pragma once

#include <optional>

#include "outsize/base/deadline.h"
#include "outsize/planners/checkmate/stages.h"

namespace outsize::planning {

// Ops of a step beyond which the program (a variable per op and stage) is refused.
inline constexpr int32_t kCheckmateMostOps = 150;

struct CheckmateRules {
  bool free = true;        // what a stage needs no more is let go within it
  bool thresholds = true;  // off: the relaxation is rounded at one half alone
};

// Each: the schedule with the least time of reruns whose steps hold no more than `capacity`; none
// where it finds none.
std::optional<Staged> checkmate_greedy(const Case& c, const Stages& stages, int64_t capacity);
std::optional<Staged> checkmate_rounded(const Case& c, const Stages& stages, int64_t capacity,
                                        double seconds, int32_t iterations = -1,
                                        const CheckmateRules& rules = {});
struct CheckmateSolved {
  std::optional<Staged> staged;
  bool proved = false;
  int64_t bound_ns = 0;  // of the reruns
};
// Spends the nodes.
CheckmateSolved checkmate_solved(const Case& c, const Stages& stages, int64_t capacity,
                                 Deadline& deadline, const CheckmateRules& rules = {});

}  // namespace outsize::planning
