// Local search over placement orders, from a packing that is already there. Internal to
// outsize/pack.
#pragma once

#include "outsize/pack/place.h"

namespace outsize::packing {

struct Found {
  std::vector<int64_t> offsets;
  int64_t height = 0;
};

// Improves `best` until its height is at most `goal`, `most_work` is done or `deadline` is reached.
// Never returns a higher packing. Work is added to the deadline.
Found improve_order(const Instance& instance, Found best, int64_t goal, uint64_t seed,
                    int64_t most_work, Deadline& deadline);

}  // namespace outsize::packing
