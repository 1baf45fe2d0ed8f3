// `vdnn`: virtualized DNN (Rhu et al., MICRO 2016): what the forward pass leaves for the backward
// pass is sent to the host layer by layer and fetched back one layer ahead. A layer is an op here.
//
//   forward       conv1    conv2    conv3     |  conv3'   conv2'   conv1'
//   copies          x0 ->    x1 ->    x2 ->      <- x1    <- x0           (conv3' needs x2: on
//   demand)
//
// What a layer reads leaves while the last layer that reads it runs, and the next layer waits until
// it has left (section 3.2). While a layer's backward op runs, the input of the nearest earlier
// layer that has one away comes back, and the next op waits for it; the search for that layer ends
// at the first convolution, so that nothing comes back too early (figure 10). Pure functions.
#pragma once

#include "outsize/planners/realise.h"
#include "outsize/planners/search.h"

namespace outsize::planning {

struct VdnnRules {
  bool all = true;       // inputs of all layers; else of those that a convolution reads
  bool wait = true;      // layers wait for the copies that run beside them
  bool prefetch = true;  // one layer ahead; else when they are asked for
  bool window = true;    // the search for what to fetch ends at a convolution
};

// Static: the paper's policies don't look at the memory there is.
Decision decide_vdnn(const Case& c, const VdnnRules& rules = {});

// vDNN_dyn without its choice of algorithms, which a graph has made: nothing away where the step
// fits, else the faster of the two policies. And each policy alone.
Status plan_vdnn(Search& search);
Status plan_vdnn_all(Search& search);
Status plan_vdnn_conv(Search& search);

}  // namespace outsize::planning
