// Lineage: what a tensor is made again from, for planners that weigh recomputation tensor by tensor
// before they change the program.
//
//   A -> B -> C -> D, each by one op; A and D are candidates, B and C are gone when D is asked for
//   D's lineage: sources {A}, the time of three ops
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "outsize/planners/solve.h"
#include "outsize/planners/training.h"

namespace outsize::planning {

struct Lineage {
  std::set<int32_t> sources;  // candidates (parts) that making it again starts from
  int64_t run_ns = 0;         // of the ops from those to it
};

// For the tensor of each gap, at the gap's end; none where it can't be made again by then. Tensors
// of the other gaps are candidates: they count as there. Of the rest, what is not touched then or
// later is made again too. Requires: gaps of the plain program.
std::vector<std::optional<Lineage>> lineages_of(const Case& c, const std::vector<Gap>& gaps);

// The touch of an instance by a step. Steps of the plain program keep the number of their rank.
size_t touch_at(const Program& program, int32_t instance, int32_t step);

// How the content of the gap that follows the touch by step `from` would be made again from what is
// there, nothing being kept for it; none where it can't be.
std::optional<Program::Draft> draft_remake(const Case& c, const Program& program, int32_t instance,
                                           int32_t from);

}  // namespace outsize::planning
