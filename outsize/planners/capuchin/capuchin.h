// `capuchin`: swaps what its access times hide, makes again what is cheap (Peng et al., ASPLOS
// 2020).
//
//   forward  a1  a2  a3 | backward      a1 leaves after its last access in the forward pass and
//            └─ out ─┘  │  └─ in ─┘     starts back just early enough; a2, cheap, is run again when
//                                       it is asked for
//
// The first step is played as if memory had no end; from its access times `policy.h` chooses what
// leaves and how it comes back. What that leaves short is sent away on demand, least recently used
// first (the passive mode). Then the step is played again and again, and a copy in that an access
// had to wait for starts 5 % of its length earlier in the next. Parameters, gradients that stay and
// optimizer state stay on the device. Pure functions but for the search object.
#pragma once

#include <vector>

#include "outsize/planners/capuchin/policy.h"
#include "outsize/planners/search.h"

namespace outsize::planning::capuchin {

// What steps have taught: ns by which each part's copy in starts before it must.
struct Feedback {
  std::vector<int64_t> earlier_ns;
  std::vector<int32_t> swapped;  // by decide: the parts that it applies to, ascending
};

// Requires: `feedback.earlier_ns` has an entry per part.
std::optional<Decision> decide(const Case& c, int64_t capacity, const Rules& rules,
                               Feedback& feedback, Trouble& trouble);

Status plan_with(Search& search, const Rules& rules);

}  // namespace outsize::planning::capuchin
