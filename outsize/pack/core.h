// The core of an instance: what is live in its fullest sections, searched exactly; everyone else is
// put into what the core leaves free.
//
//   load   ▁▂▃█▇▃▂▁    sections at or above a share of the most live: the core's
//             ^^       who lives in none of them is filled in afterwards
//
// If a fill ends above the capacity, the sections where that happened join the core and it is
// searched again. So a proof that the core cannot be packed is one for the whole, and an instance
// of many thousands is often settled by a few hundred. Internal to outsize/pack.
#pragma once

#include <memory>
#include <vector>

#include "outsize/pack/place.h"
#include "outsize/pack/skyline_search.h"

namespace outsize::packing {

// One capacity; turn after turn. The instance must outlive it. Not thread-safe.
class CoreSearch {
 public:
  using Outcome = SkylineSearch::Outcome;

  // Whether it can take the instance: no fixed offsets, no gaps, one alignment for all.
  static bool applies(const Instance& instance);

  // Requires: applies(instance).
  CoreSearch(const Instance& instance, int64_t capacity, uint64_t seed);

  // Searches on until `most_work` more is done or the deadline is reached; kFound and kNone stay.
  // kNone is a proof only where proves().
  Outcome turn(int64_t most_work, Deadline& deadline);

  int64_t capacity() const { return capacity_; }
  // Where sizes had to be rounded up to the alignment, a failure proves nothing.
  bool proves() const { return proves_; }
  // After kFound: an offset for each buffer.
  const std::vector<int64_t>& offsets() const { return offsets_; }

 private:
  // Sections of time that no other one contains: whoever is live in the other is live in it.
  struct Sections {
    std::vector<int64_t> begin;         // time
    std::vector<int64_t> load;          // bytes live
    std::vector<uint32_t> first, last;  // per buffer: the sections [first, last)
  };

  void choose_sections();
  void make_core();
  bool fill(Deadline& deadline);
  void choose_fullest(uint32_t b);

  const Instance& instance_;
  const int64_t capacity_;
  const uint64_t seed_;
  int64_t alignment_ = 1;
  bool proves_ = true;
  Sections sections_;
  std::vector<char> chosen_;       // per section
  std::vector<uint32_t> members_;  // buffers of the core
  std::unique_ptr<SkylineSearch> search_;
  uint64_t restarts_ = 0;
  int64_t run_length_ = 0;
  Outcome outcome_ = Outcome::kStopped;
  std::vector<int64_t> offsets_;
};

}  // namespace outsize::packing
