// The schedule: where among a program's steps the bytes of a swapped gap leave and arrive again.
//
//   gap after step 3, next touch at step 9:     step  3  4  5  6  7  8  9
//   beside the ops: leave before 4, arrive before 9      ├─ away ────────┤
//   write-behind:   the copy out, begun as soon as A was written, has ended by step 5;
//                   the copy in takes as long as steps 7 and 8:      ├─ away ─┤
//
// Copies out go in the order in which their room is wanted, from when their bytes are written;
// copies in as late as still brings each in time. Where memory is short they leave earlier (the
// step then waits for the copy) or arrive later. Pure functions.
#pragma once

#include <vector>

#include "outsize/planners/choose.h"

namespace outsize::planning {

enum class CopyStyle {
  kBesideOps,    // in the compute stream, directly around the steps they serve
  kWriteBehind,  // on the streams of the links
};

// One gap in which an instance is away. Ranks; the end of the program is one past the last.
struct Move {
  int32_t instance = -1;
  int32_t touch = -1;        // the gap follows this touch; -1: from entry
  int32_t from = -1;         // rank of that touch; -1
  int32_t to = 0;            // rank of the next touch; end of the program if there is none
  int32_t release = 0;       // its bytes are given up before this rank
  int32_t arrive = 0;        // and taken again before this one (== to for a gap that lasts to exit)
  bool returns = true;       // the next touch needs the content
  Tier below = Tier::kHost;  // where it is while it is away
  // For planners with a timing of their own, by rank; kAnyTime: as the streams and the bytes allow.
  // A copy begins when the step at `after` has ended, and the step at `by` waits until it has.
  static constexpr int32_t kAnyTime = -1;
  int32_t out_after = kAnyTime;  // < release
  int32_t out_by = kAnyTime;     // >= release
  int32_t in_after = kAnyTime;   // < arrive
  int32_t in_by = kAnyTime;      // >= arrive
  bool copy_clean = false;       // copied out even where the tier below holds the same content
};

// The gaps in which the program has something away, by instance, then by touch; none without a step
// in it. Each is away from right after its first step to right before its last one.
std::vector<Move> moves_of(const Program& program);

// The same, with times as `style` says. `slack`: copies are planned as if they took this much
// longer.
std::vector<Move> schedule_moves(const Problem& problem, const Chooser& chooser,
                                 const Program& program, CopyStyle style, double slack);

}  // namespace outsize::planning
