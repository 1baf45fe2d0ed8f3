// `superneurons`: liveness, a tensor cache and cost-aware recomputation (Wang et al., PPoPP 2018).
//
//   forward   conv1  relu1  pool1  conv2  relu2 | relu2'  conv2'  pool1'  relu1'  conv1'
//   segments         [relu1  pool1]       [relu2]     what cheap layers make is not kept but made
//                                                    again from the checkpoint before it
//   cache     what is kept leaves only where room is short, least recently used first, and comes
//             back while the last heavy layer before the one that needs it runs backward
//
// Liveness (3.2) is in every program. A segment is made again once and kept (speed-centric) if that
// needs no more than the largest layer does, else for each backward op anew (memory-centric, 3.4).
// Pure functions.
#pragma once

#include "outsize/planners/realise.h"
#include "outsize/planners/search.h"

namespace outsize::planning {

enum class Remake { kCostAware, kSpeed, kMemory };

struct SuperneuronsRules {
  bool recompute = true;
  Remake remake = Remake::kCostAware;
  bool offload = true;   // the host may be used
  bool cache = true;     // only where room is short; else every heavy layer's output leaves at once
  bool prefetch = true;  // at the heavy layer before; else when it is asked for
};

std::optional<Decision> decide_superneurons(const Case& c, int64_t capacity,
                                            const SuperneuronsRules& rules, Trouble& trouble);
Status plan_superneurons(Search& search);

}  // namespace outsize::planning
