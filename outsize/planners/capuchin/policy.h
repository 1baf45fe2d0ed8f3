// Capuchin's policy (section 4.5, algorithm 1): which tensors leave between which two of their
// accesses, and how they are there again.
//
//   A is made at 0-10 and read again at 90, a copy takes 20:    out 10-30        in 70-90
//                                                                      └─ free time 40 ─┘
//
//   1. pairs of accesses by their free time, longest first: swapped, while the copies are hidden
//   2. then the next of those left against the tensor with most bytes per second of making again:
//      whichever costs less, until as many bytes are gone as running out of memory would have sent
//
// Pure functions.
#pragma once

#include <vector>

#include "outsize/planners/capuchin/remakes.h"
#include "outsize/planners/realise.h"
#include "outsize/planners/training.h"

namespace outsize::planning::capuchin {

// All of these affect the result; each is a rule of the paper's, off for ablations.
struct Rules {
  bool swap = true;
  bool recompute = true;
  bool free_time = true;     // by free time; off: in the order of the accesses
  bool lanes = true;         // a copy waits for the one before it; off: each has the link alone
  bool update = true;        // a recomputation changes what others cost (algorithm 2)
  bool collective = true;    // what one recomputation makes on its way is kept for the next (5.3)
  bool decoupled = true;     // ops wait for a copy out only where they need its room (5.3)
  bool in_trigger = true;    // copies in start ahead of the access; off: at it
  bool outside_peak = true;  // and not while memory is short
  bool feedback = true;      // and earlier where an access has waited (4.4)
  bool passive = true;       // what is short all the same leaves on demand (4.2)
};

// A tensor's two accesses, one after the other.
struct Pair {
  Gap gap;             // of the plain program, whose instances are the parts
  int64_t bytes = 0;   // on the device
  int64_t leaves = 0;  // ns: the end of the first access, by op times alone
  int64_t back = 0;    // ns: the start of the second
  int64_t out_ns = 0, in_ns = 0;

  // Between the end of the copy out and the latest start of the copy in (equation 1).
  int64_t free_ns() const { return back - in_ns - (leaves + out_ns); }
  bool operator==(const Pair&) const = default;
};

// All pairs between which the step, with everything kept, needs more than `capacity`; by tensor.
std::vector<Pair> pairs_of(const Case& c, int64_t capacity);

// What making each of their tensors again takes at first, in the order of the pairs; only the first
// pair of a tensor counts. Left out is what can't be made again by then.
std::vector<Remake> remakes_of(const Case& c, const std::vector<Pair>& pairs);

struct Choice {
  std::vector<Pair> swaps, remakes;  // as they were chosen
};

// What is chosen so that the step needs no more than `capacity`: as many bytes as leave the device
// where it runs out of memory and nothing is planned (section 4.2), and `more`. What this leaves
// short is left to the passive mode.
Choice choose(const Case& c, int64_t capacity, const Rules& rules, int64_t more = 0);

// How long accesses wait for these swaps if each lane carries one copy at a time: out as soon as
// the lane is free, in as late as is in time.
int64_t exposed_ns(const std::vector<Pair>& swaps);

}  // namespace outsize::planning::capuchin
