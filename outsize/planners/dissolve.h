// Dissolving: what to do where bytes would do but addresses don't. Near the floor an op's operands
// must lie next to one another, and whatever stays from step to step is in their way. What leaves
// the device between its touches may come back anywhere:
//
//   step 4   │A      │B   │          step 4   │A      │B   │
//   step 5   │A      │  C  too high  step 5   │C             │   A was not touched at step 5: away
//   step 6   │A      │D   │          step 6   │A      │D   │
//
// A program whose every gap is away packs each step by itself, so it fits wherever a plan with
// swaps can. Pure functions.
#pragma once

#include "outsize/planners/solve.h"

namespace outsize::planning {

// Makes all that lies untouched on the device at the ranks [ranks.begin, ranks.end) away there,
// where `chooser` may move it. Whether anything changed.
bool dissolve(const Chooser& chooser, Program& program, Interval ranks);

// The plain program with all away that may be.
Program all_away(const Case& c, const Chooser& chooser);

// The program's plan with its copies beside the ops, dissolved where its addresses don't fit; none,
// and `trouble`, where that doesn't help.
std::optional<Solution> solve_dissolving(const Case& c, Chooser& chooser, Program program,
                                         Trouble& trouble);

}  // namespace outsize::planning
