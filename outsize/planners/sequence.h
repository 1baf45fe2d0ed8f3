// The sequence: a program's decisions written out as instructions, in an order that is a legal
// sequential run, with a residency for every stay. Addresses come next (place.h), then waits
// (lower.h).
//
//   steps  op0 makes A (away after)   op1   op2 reads A
//   beside the ops:    Run op0, Copy A out, Run op1, Copy A in, Run op2       in the compute stream
//   write-behind:      Run op0, Run op1 | out: Copy A as soon as written; in: Copy A as late as is
//   safe
//
// Where a copy out stands says when the bytes it frees may be used again without a wait; where a
// copy in stands, from when on its bytes are taken. Pure functions.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "outsize/planners/choose.h"
#include "outsize/planners/schedule.h"

namespace outsize::planning {

// A residency's life in instruction indices, and what is settled of its address.
struct Stay {
  Interval life;
  bool home = false;               // whole step, packed with the other homes
  std::optional<int64_t> address;  // given by the border
};

struct Sequence {
  Plan plan;                // no addresses, no waits
  std::vector<Stay> stays;  // per residency
  // Instructions of two streams, the first of which must have ended before the second starts, by
  // the planner's wish alone.
  std::vector<std::pair<InstructionId, InstructionId>> waits;
};

// Requires: `program` as a Chooser leaves it (homes marked by its flags).
Sequence write_sequence(const Problem& problem, const Chooser& chooser, const Program& program,
                        CopyStyle style, double slack = 1.0);
// With the planner's own times.
Sequence write_sequence(const Problem& problem, const Program& program,
                        const std::vector<Move>& moves, CopyStyle style);

// Lowered; the planner's own waits are added to those that the addresses ask for.
Plan lower_sequence(const Graph& graph, Sequence sequence);

}  // namespace outsize::planning
