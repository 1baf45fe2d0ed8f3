// What planners from the literature ask of a training step, beside where its forward pass ends
// (forward_ops): which of its ops are convolutions or other heavy work, and which gaps its
// activations have. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/graph/forward.h"
#include "outsize/planners/schedule.h"

namespace outsize::planning {

// By name, forward or backward.
bool is_convolution(const Op& op);
// Convolutions, matrix products, attention and recurrent cells: what is dear to run again.
bool is_heavy(const Op& op);

// A stretch in which an activation (or a batch handed in) is not touched, but will be read after.
struct Gap {
  int32_t instance = 0;
  int32_t touch = 0;  // the one before the gap
  int32_t from = 0;   // its rank
  int32_t to = 0;     // rank of the next touch, at least two later
  bool operator==(const Gap&) const = default;
};
// By instance, then by touch.
std::vector<Gap> activation_gaps(const Program& program);
// Of those, the one of each instance that spans the border from forward to backward pass; `forward`
// is the rank of the first backward step.
std::vector<Gap> stashed_gaps(const Program& program, int32_t forward);

// Its content leaves the device for the gap. Requires: no drop has changed the instance since.
void mark_away(Program& program, const Gap& gap);
// The move of a gap. Requires: `moves` as moves_of has them. Null where there is none.
Move* move_of(std::vector<Move>& moves, const Gap& gap);

}  // namespace outsize::planning
