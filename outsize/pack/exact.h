// Exact search: a packing within a capacity, or the proof that there is none.
//
//   buffers are placed by rising offset, each on top of what lies under it:
//   b0 [0,2) 4, b1 [1,3) 4, b2 [2,4) 4, capacity 8:  b0 at 0, b2 at 0, b1 at 4
//
// Any packing can be pushed down until each buffer lies on another or on 0 (it is then canonical),
// and its buffers can be placed by rising offset. So it is enough to try, at each step, who comes
// next; and what has been passed over lies no lower than the one placed last. Internal to
// outsize/pack.
#pragma once

#include <optional>
#include <vector>

#include "outsize/pack/place.h"

namespace outsize::packing {

struct ExactResult {
  std::optional<std::vector<int64_t>> offsets;
  bool proved_infeasible = false;
};

// Whether the search can take the instance: no fixed offsets, no gaps, at most 3,000 buffers.
bool exact_applies(const Instance& instance);

// Stops without an answer when `most_work` is done or the deadline is reached. A node is one unit
// of work, and one more for each 32 buffers that wait in it. Requires: exact_applies(instance).
ExactResult search_exact(const Instance& instance, int64_t capacity, int64_t most_work,
                         Deadline& deadline);

}  // namespace outsize::packing
