// The packing validator: looks at every pair of buffers and says which two share a byte at one
// moment, and where. It shares no code with the packer.
//
//   b0 [0,2) 4 B at 0, b1 [1,3) 4 B at 2  ->  overlap: 0 and 1 at time 1, bytes [2, 4)
#pragma once

#include <string>
#include <vector>

#include "outsize/pack/pack.h"

namespace outsize {

enum class PackingFault {
  kNone,
  kCount,      // not one offset per buffer
  kNegative,   // an offset below 0
  kAlignment,  // a free buffer off its alignment
  kMoved,      // a fixed buffer elsewhere than it must lie
  kCapacity,   // a buffer that ends above the capacity
  kOverlap,
  kHeight,  // the height said is not one past the highest byte
};

struct PackingCheck {
  PackingFault fault = PackingFault::kNone;
  size_t first = 0;     // position of the buffer at fault
  size_t second = 0;    // of the other one, for kOverlap
  int64_t time = 0;     // kOverlap: the first moment both are there
  Interval bytes;       // kOverlap: what they share then
  std::string message;  // all of it in words; empty if nothing is wrong
  bool ok() const { return fault == PackingFault::kNone; }
};

// `capacity` 0: unlimited. `height` < 0: not checked. O(n^2).
PackingCheck validate_packing(const std::vector<Buffer>& buffers,
                              const std::vector<int64_t>& offsets, int64_t capacity,
                              int64_t height);

}  // namespace outsize
