// Graphs made up for tests and benches: same arguments, same graph, everywhere. All pass
// check_graph.
//
//   chain_graph(2, 10):    x ─f0─► a0 ─f1─► a1 ─loss─► loss          w0, w1 parameters of 10 B each
//                          g1 ◄─loss_backward;  b1: g1 ─► g0, dw1;  b0: g0 ─► dw0;  u0, u1: w -= dw
//
// What ops cost is made up beside it, in profile/generate_costs.h.
#pragma once

#include <cstdint>

#include "outsize/graph/graph.h"

namespace outsize {

// `layers` forward ops, the loss and its gradient, `layers` backward ops and `layers` updates,
// every storage of `bytes`. Backward i reads g_i, w_i and its layer's input, and makes g_(i-1) and
// dw_i. Requires: layers >= 1, bytes >= 1.
Graph chain_graph(int layers, int64_t bytes);

struct RandomGraphOptions {
  int64_t unit_bytes = 1;      // sizes and the borders of parts are multiples of this
  int64_t largest_units = 64;  // sizes are 0 (seldom) or 1 .. largest_units
  double mutates = 0.25;       // chance that an op changes something in place
  double parts = 0.2;  // that a storage is made in parts, by several ops; that a read is partial
  double rng = 0.1;
  double collective = 0.05;
};
// `ops` ops that read what is there, make storages, and change some in place; with parameters,
// optimizer state made in this step, gradients dropped by it, inputs (some handed on), outputs and
// activations. Requires: ops >= 1.
Graph random_graph(uint64_t seed, int ops, const RandomGraphOptions& options = {});

// A U-Net's training step: `levels` down (halving size, doubling channels), a bottom, `levels` up
// with skips, then SGD with momentum. `image_bytes`: the first level's activations. Requires:
// levels >= 1, image_bytes >= 4^levels.
Graph unet_graph(int levels, int64_t image_bytes);

struct TransformerSize {
  int layers = 2;
  int64_t batch = 2;
  int64_t sequence = 64;
  int64_t hidden = 128;
  int64_t heads = 4;
  int64_t vocabulary = 1000;
  int64_t element_bytes = 4;
};
// A decoder's training step with Adam: per layer norm, qkv, attention with its softmax and dropout
// kept, projection, norm and MLP, both with residuals; logits and log-softmax at the end.
Graph transformer_graph(const TransformerSize& size);

}  // namespace outsize
