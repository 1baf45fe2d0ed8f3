// `tflms`: TensorFlow Large Model Support (Le et al., 2018): a graph rewritten, with no costs
// known, so that what the forward pass leaves for the backward pass lies on the host in between.
//
//   order    10         11   15           18   20           25      numbers: the longest way there
//            f1 ──────► f4   fj ────────► f3   fi ────────► f2
//             └► out ─────────└► in ───────┘    └► in ───────┘
//
// An edge from a forward op to a backward op becomes copy out, copy in; copies out of one tensor
// are one; a copy in starts when a control op has run: one that the reader can be reached from, and
// as many orders before it as the lower bound says (direct order), or a backward op found by
// following the forward pass from the maker (chain rule). How many tensors, which bound and which
// strategy is found by trying (section 5.2). Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "outsize/planners/realise.h"
#include "outsize/planners/search.h"
#include "outsize/planners/training.h"

namespace outsize::planning {

enum class TflmsControl { kChainRule, kDirectOrder };

// All of these affect the result.
struct TflmsRules {
  TflmsControl control = TflmsControl::kChainRule;
  int32_t lower = 1;  // bounds of how many orders ahead the control op is sought
  int32_t upper = 10'000;
  bool swap_in = true;   // ops that bring in (4.2.1); off: the reader waits (equation 2)
  bool fuse_out = true;  // one copy out for all readers (4.2.2)
  bool fuse_in = false;  // readers at most `fuse_distance` orders apart share a copy in (4.2.3)
  int32_t fuse_distance = 10;
  int32_t branches = -1;  // forward edges over more orders than this are rewritten; -1: none
};

// The ops as a graph of tensors: who needs what whom makes.
struct TflmsOrder {
  std::vector<std::vector<int32_t>> before, after;  // per op: makers, readers; ascending
  std::vector<int32_t> order;                       // per op: 1 + the greatest of its makers'
};
TflmsOrder tflms_order(const Case& c);

struct TflmsSwapIn {
  Gap gap;
  std::optional<int32_t> control;  // the op that starts it
};
struct TflmsTensor {
  int32_t part = 0;
  std::vector<TflmsSwapIn> swap_ins;
};
// What can be rewritten, breadth first from the inputs on.
std::vector<TflmsTensor> tflms_tensors(const Case& c, const TflmsOrder& order,
                                       const TflmsRules& rules);

// The first `count` of the tensors rewritten; `capacity` is for what has no control op.
Decision decide_tflms(const Case& c, const std::vector<TflmsTensor>& tensors, size_t count,
                      int64_t capacity, const TflmsRules& rules);

Status plan_tflms(Search& search);

}  // namespace outsize::planning
