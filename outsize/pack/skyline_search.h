// Exact search over skylines: a packing within a capacity, or the proof that there is none.
//
//   capacity 8                     floors        what may come next
//   8 ┤   ┌b1─────┐                4 4 0   b0 placed at 0: section 2 is the valley, floor 0, and
//   4 ┤b0─┴──┬b2──┴┐                       only b2 [2, 4) can rest on it; where none may, the
//   0 └──0──1──2──3──                      section is left empty up to the next possible height
//
// Time is cut into sections in which nobody begins or ends. A section's floor is the lowest byte
// that those still waiting can have there; its slack is what would stay empty if they were all
// stacked on it. Any packing can be pushed down until everyone rests on someone or on 0, so in a
// valley (a stretch of equal floors between higher ones) the first section is either covered by one
// who rests on that floor, inside the valley, or stays empty for a while, which costs slack. The
// section with the fewest such choices is decided first. Stretches of time that no waiting buffer
// ties together are solved apart, and every stretch that has failed is remembered by who waits in
// it and by its floors: it fails again whatever lies elsewhere. Internal to outsize/pack.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "outsize/base/deadline.h"

namespace outsize::packing {

// One who waits: in the sections [begin, end), of `size` bytes.
struct SkylineItem {
  uint32_t begin = 0, end = 0;
  int64_t size = 0;
};

// One capacity. What a turn has learned stays for the next one. Not thread-safe.
class SkylineSearch {
 public:
  enum class Outcome { kFound, kNone, kStopped };

  // Requires: begin < end and size > 0 of each item; bytes in a section within 2^62.
  SkylineSearch(const std::vector<SkylineItem>& items, int64_t capacity);
  ~SkylineSearch();
  SkylineSearch(const SkylineSearch&) = delete;
  SkylineSearch& operator=(const SkylineSearch&) = delete;

  // Starts again from nothing placed, with another order of choices for each `seed`, and stops
  // when `most_work` is done or the deadline is reached. Work is counted in nodes, and one more
  // per 64 sections looked at. Work is added to the deadline.
  Outcome run(uint64_t seed, int64_t most_work, Deadline& deadline);

  // After kFound: an offset for each item.
  const std::vector<int64_t>& offsets() const;
  // Work done in all turns.
  int64_t work() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outsize::packing
