// Costs made up for graphs made up: what tests and benches plan with. All pass check_profile.
//
//   Graph graph = random_graph(seed, 20);   Profile profile = random_costs(graph, seed);
#pragma once

#include <cstdint>

#include "outsize/graph/graph.h"
#include "outsize/profile/profile.h"

namespace outsize {

struct RandomCostOptions {
  int64_t longest_ns = 100;        // 1 .. longest_ns each
  int64_t largest_workspace = 16;  // of those ops that have one, 1 .. this, in unit_bytes
  int64_t unit_bytes = 1;
  double workspace = 0.3;  // chance that an op has one
};
Profile random_costs(const Graph& graph, uint64_t seed, const RandomCostOptions& options = {});

// Every op takes `ns` and no workspace.
Profile equal_costs(const Graph& graph, int64_t ns);

// As if memory were all that mattered: an op takes 1 ns and one more per `bytes_per_ns` of the
// bytes it touches. No workspace.
Profile byte_costs(const Graph& graph, int64_t bytes_per_ns);

}  // namespace outsize
