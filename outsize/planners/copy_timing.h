// Times for swapped gaps, for planners that send each tensor away after one access and decide
// themselves when it comes back.
//
//   A leaves after op0, B after op1; copies take two ops     op    0  1  2  3  4
//   by the lane:                                             A        ├─out─┤
//                                                            B           wait ├─out─┤
//   room is short at op 3: it waits for A's copy out, and for B's where that is not enough
//
// Pure functions.
#pragma once

#include <vector>

#include "outsize/planners/realise.h"

namespace outsize::planning {

// Of `moves`, those of activations between two touches, by when they leave.
std::vector<Move*> leaving_activations(const Program& program, std::vector<Move>& moves);

// Copies out start at the end of the gap's first step, one after the other; bytes are held until
// they have ended. `decoupled`: off, the step that follows waits.
void leave_in_turn(const Case& c, const Program& program, const std::vector<Move*>& leaving,
                   bool decoupled);

// Where `capacity` is exceeded, steps wait for the copies out under way, the first one first; if
// that is not enough and `delay`, copies in start later, those wanted last first.
void make_room(const Case& c, const Program& program, const std::vector<Move>& moves,
               const std::vector<Move*>& leaving, int64_t capacity, bool delay);

// Copies in start when the step before their arrival has ended.
void settle_arrivals(const std::vector<Move*>& leaving);

}  // namespace outsize::planning
