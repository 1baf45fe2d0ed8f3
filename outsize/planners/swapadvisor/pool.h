// The memory pool of SwapAdvisor (ASPLOS'20, sections 3 and 4.1): size classes, each with so many
// equal objects; a tensor lies in an object of its size's class, so room is short when the class is
// full, not when the device is.
//
//   device │ 4 MiB │ 4 MiB │1│1│1│1│ scratch │ home │        classes {1 MiB: 4, 4 MiB: 2}
//
// Beside the objects lie the workspaces of the ops, in one region as large as the largest, and what
// has a settled address. Plain values; pure functions.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/swapadvisor/genes.h"
#include "outsize/planners/swapadvisor/scan.h"

namespace outsize::planning::swapadvisor {

struct Pool {
  PoolLimits limits;
  std::vector<int32_t> size_of_part;  // position in limits.sizes; -1: not in the pool
  int64_t scratch_bytes = 0;
  int64_t alignment = 1;
  std::vector<Interval> taken;  // settled or reserved device ranges, ascending
};

Pool pool_of(const Case& c);

// Device bytes that the tightest classes need, all counted: no budget below does.
int64_t least_bytes(const Pool& pool);

Rooms rooms_of(const Pool& pool, const Classes& classes, const Counts& counts);

struct Layout {
  std::vector<std::vector<int64_t>> objects;  // address, per class, per object
  int64_t scratch = 0;
  int64_t height = 0;
};
// None where the objects don't fit beside what is taken.
std::optional<Layout> lay_out(const Pool& pool, const Classes& classes, const Counts& counts,
                              int64_t budget);

// The realising seam's placer: residencies on the device by `objects` (Swaps::objects), those below
// in ranges that were given up by others of the same size, or in new ones. All must outlive it.
Placer pool_placer(const Case& c, const Rooms& rooms, const Layout& layout,
                   const std::vector<std::vector<int64_t>>& objects);

}  // namespace outsize::planning::swapadvisor
