// What a placement policy costs, without making a plan of it (HOME, section 3.4, algorithm 2).
//
//   stages   FWD1  FWD2  FWD3  FWD4 | BWD4  BWD3 ...     tensor 2 is read by FWD3 and BWD3
//   tensor 2 swapped:      out beside FWD4, and on;  in beside BWD4, the stage before its reader
//   its overhead: what of the copy in BWD4 doesn't hide, and what of the copy out a stage that
//   needed its room had to wait for
//
// A stage is an op, a feature map a tensor that the forward pass leaves for the backward pass.
// Times are the profile's; one pass over the stages. Pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "outsize/planners/lineage.h"
#include "outsize/planners/realise.h"

namespace outsize::planning::home {

enum class Action : int8_t { kKeep = 0, kSwap = 1, kRecompute = 2 };
using Policy = std::vector<Action>;  // per tensor

struct Tensor {
  Gap gap;  // of the plain program, from the forward pass to the backward pass
  int64_t bytes = 0;
  int64_t out_ns = 0, in_ns = 0;
  bool remakable = false;
  int64_t remake_ns = 0;        // of the ops from its sources to it
  std::vector<size_t> sources;  // tensors
  int32_t last = 0;             // rank of its last touch
};

// A step, as far as policies are concerned.
struct Stages {
  std::vector<Tensor> tensors;
  std::vector<int64_t> ns;     // per rank
  std::vector<int64_t> bytes;  // per rank: on the device with all tensors away in their gaps
  std::vector<std::vector<size_t>> leave, enter;  // per rank: tensors whose gap begins after it;
                                                  // ends there
};
Stages stages_of(const Case& c, int64_t capacity);

struct Score {
  int64_t excess = 0;  // bytes over the capacity that no wait frees, all stages together
  int64_t ns = 0;      // of the step
  auto operator<=>(const Score&) const = default;
};

// All of these affect the result; each is a rule of the paper's, off for ablations.
struct Rules {
  bool prefetch = true;      // copies in run beside the stage before; off: they are waited for
  bool asynchronous = true;  // copies out beside the stages that follow; off: they are waited for
  bool seeds = true;         // ours: among the first particles all kept, all swapped, all remade
  bool global = true;        // particles follow the best of the last iteration
  bool historical = true;    // and their own best
  int64_t particles = 500;
  int64_t iterations = 500;
};

// Requires: an action per tensor, kRecompute only where remakable. Stops counting where the score
// is worse than `limit` for certain.
Score evaluate(const Stages& stages, const Policy& policy, int64_t capacity,
               const Rules& rules = {},
               const Score& limit = {std::numeric_limits<int64_t>::max(), 0});

}  // namespace outsize::planning::home
