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
  int32_t touch = -1;   // the gap follows this touch; -1: from entry
  int32_t from = -1;    // rank of that touch; -1
  int32_t to = 0;       // rank of the next touch; end of the program if there is none
  int32_t release = 0;  // its bytes are given up before this rank
  int32_t arrive = 0;   // and taken again before this one (== to for a gap that lasts to exit)
  bool returns = true;  // the next touch needs the content
};

// The gaps in which the program has something away, by instance, then by touch; none without a step
// in it. `slack`: copies are planned as if they took this much longer.
std::vector<Move> schedule_moves(const Problem& problem, const Chooser& chooser,
                                 const Program& program, CopyStyle style, double slack);

}  // namespace outsize::planning
