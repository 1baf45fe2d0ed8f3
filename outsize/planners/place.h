// Placing: addresses for a sequence's residencies and workspaces on every tier, by the packer.
//
//   homes lie together from address 0 (or where the border has them), all step long; what comes and
//   goes is packed into the rest:   device │homes│ A ... │ B │ workspace │            ≤ budget
//
// The packer's time is the index into the sequence, so bytes are shared only by what follows each
// other there; lower() turns each sharing across streams into a wait. Pure function.
#pragma once

#include <cstdint>

#include "outsize/planners/sequence.h"

namespace outsize::planning {

struct Placement {
  int64_t height[kTiers] = {0, 0, 0};  // one past the highest byte used
  int64_t lowest[kTiers] = {0, 0, 0};  // no packing is lower
  bool fits = false;
};

enum class Effort { kQuick, kThorough };

// Sets the addresses in `sequence.plan`.
Placement place(const Problem& problem, Sequence& sequence, Effort effort);

}  // namespace outsize::planning
