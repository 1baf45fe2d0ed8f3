// `atp`: swaps and recomputes activations so that a step at its batch is as fast as the throughput
// model says it can be. What the paper leaves open is settled as docs/papers.md says.
//
//   budget 800 of 1000: the model asks for 100 B swapped and 100 B recomputed. Swapped are, until
//   the 100 B are met, the tensors with the longest time between their copies; recomputed, those
//   that give most bytes per nanosecond. Then a search changes the fate of single tensors and keeps
//   what the simulator finds no slower.
//
// Streams: copies out and in have a stream each, beside compute. Pool: a copy out starts as soon as
// its tensor is written and its bytes are taken from it when someone needs them; a copy in starts
// as late as still brings it in time, and not before the pool has room. Parameters, gradients and
// optimizer state stay on the device. Pure functions but for the search object.
#pragma once

#include <optional>
#include <vector>

#include "outsize/bound/throughput.h"
#include "outsize/planners/realise.h"
#include "outsize/planners/search.h"

namespace outsize::planning {

// All of these affect the result; each is a rule of the method, off for ablations.
struct AtpParams {
  bool model = true;    // aim at the model's bytes; off: each tensor goes the way that costs less
  bool streams = true;  // off: copies in the compute stream
  bool pool = true;     // off: a tensor leaves and comes back right at the ops that use it
  bool search = true;   // off: the first choice stands
};

// What becomes of a part, by the search's wish.
enum class AtpWish : int8_t { kByModel, kKeep, kSwap, kRecompute };

struct AtpTarget {
  int64_t swap_bytes = 0;
  int64_t recompute_bytes = 0;
};
// Of the step of `c` in its budget. Recomputed bytes are those of the model, swapped ones the rest.
AtpTarget atp_target(const Case& c, const StepShape& shape);

// `shape`: of the case's graph. `wishes`: per part, or empty. A part that is wished to be kept goes
// only where nothing else can.
std::optional<Decision> decide_atp(const Case& c, const StepShape& shape, const AtpTarget& target,
                                   const std::vector<AtpWish>& wishes, int64_t capacity,
                                   const AtpParams& params, Trouble& trouble);

Status plan_atp_with(Search& search, const AtpParams& params);

}  // namespace outsize::planning
