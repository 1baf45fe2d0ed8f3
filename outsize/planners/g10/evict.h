// G10's migrations (section 4.2 to 4.4, algorithm 1): which tensors leave while they are inactive,
// to which tier, and when they are fetched again.
//
//   pressure  ████▓▓▓▓████   capacity ────   the part of ▓ over the capacity, in bytes times time,
//             evict ─┘  └─ fetch             by the time of both copies: the best ratio goes next,
//                                            until nothing is over the capacity
//
// To the SSD, unless its link has nothing left while the copy out would run: then to the host,
// while that has room. Fetched as late as is safe; afterwards each as early as there is room for
// it. Weights have inactive periods too: within the step, and from their last use to the first one
// of the next step. Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/realise.h"

namespace outsize::planning::g10 {

// All of these affect the result; each is a rule of the paper's, off for ablations.
struct Rules {
  bool benefit = true;    // by benefit over cost; off: the largest tensors first
  bool ssd = true;        // the SSD is there
  bool host = true;       // the host is there (for plans with both)
  bool ssd_first = true;  // off: to the host while it has room
  bool prefetch = true;   // off: fetched at the access
  bool eager = true;      // as early as there is room; off: as late as is safe
  bool weights = true;    // parameters and optimizer state migrate too
};

// A stretch of a period: between two touches, or between one and the step's end or start.
struct Stretch {
  int32_t touch = -1;   // the one before it; -1: from entry
  int32_t from = -1;    // its rank
  int32_t to = 0;       // of the next touch; the end of the program if there is none
  bool out = true;      // must be copied out; not so what the tier holds already
  bool in = true;       // must be copied in
  int32_t release = 0;  // its bytes are free from this rank on ...
  int32_t arrive = 0;   // ... to this one
};

struct Migration {
  int32_t part = 0;
  Tier to = Tier::kHost;
  bool whole = false;  // a weight whose home is on that tier from now on
  std::vector<Stretch> stretches;
};

// In the order in which they were chosen.
std::vector<Migration> choose_migrations(const Case& c, int64_t capacity, const Rules& rules);

}  // namespace outsize::planning::g10
