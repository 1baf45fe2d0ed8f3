// What the plan checker knows of the tiers' bytes while it walks a plan's list: what lies at each
// address, and which instructions have touched it.
//
//   device  [0, 64) storage 3 [0, 64) as op 5 left it, written by instruction 7, read since by 9
//   (out)
//
// A residency is only a name for a range of addresses; this is the truth. A value type.
#pragma once

#include <array>
#include <cstdint>

#include "outsize/plan/check_ranges.h"
#include "outsize/plan/plan.h"

namespace outsize {

// What a piece of addresses holds: bytes of `storage`, the one at address x being byte x + shift.
struct Content {
  int32_t storage = -1;
  int64_t shift = 0;
  int32_t version = 0;
};

// Who touched a piece of addresses: indices of instructions, -1 for none.
struct Touched {
  int32_t writer = -1;                                           // the last one
  std::array<int32_t, kStreams> readers = {-1, -1, -1, -1, -1};  // the last one since, per stream
};

struct TierMemory {
  RangeMap<Content> contents;
  RangeMap<Touched> touched;
};

// For each instruction, the last instruction of each stream that has certainly ended before it
// starts.
class HappensBefore {
 public:
  // Requires: waits point backwards.
  explicit HappensBefore(const std::vector<Instruction>& instructions);
  // Whether `earlier` ends before `later` starts, whatever the timing.
  bool ordered(int32_t earlier, int32_t later) const {
    const auto stream = static_cast<size_t>(stream_[static_cast<size_t>(earlier)]);
    return clock_[static_cast<size_t>(later)][stream] >= earlier;
  }

 private:
  std::vector<Stream> stream_;
  std::vector<std::array<int32_t, kStreams>> clock_;
};

}  // namespace outsize
