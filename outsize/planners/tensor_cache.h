// A tensor cache in front of the host: what a step needs is on the device; where room is short,
// what was used least recently leaves, and comes back when it is asked for.
//
//   capacity 2 tensors    op0 makes A   op1 makes B   op2 makes C      op3 reads A
//                                                     A leaves first   B leaves, A comes back first
//
// SuperNeurons' tensor cache and Capuchin's passive mode. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/solve.h"
#include "outsize/planners/training.h"

namespace outsize::planning {

struct CacheStay {
  Gap gap;
  int32_t release = 0;  // the rank that asked for the room; its step waits for the copy out
  int32_t arrive = 0;   // the rank before which it comes back
};

struct CacheRun {
  std::vector<CacheStay> away;
  std::optional<Shortfall> shortfall;  // the step that even an empty cache has no room for
};

// `usage`: per rank, as usage_of counts it. At each rank in `fetch_at` (ascending), what is needed
// up to the next of them comes back where there is room. Gaps that are away already are left alone.
CacheRun run_cache(const Case& c, const Program& program, std::vector<int64_t> usage,
                   int64_t capacity, const std::vector<int32_t>& fetch_at = {});

// Gives the stays' moves their times. Requires: the gaps are marked, `moves` as moves_of has them.
void time_stays(const std::vector<CacheStay>& stays, std::vector<Move>& moves);

}  // namespace outsize::planning
