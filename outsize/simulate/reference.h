// A slow second simulator, written only to be plainly right: at every event it looks at every
// instruction and every residency anew. It keeps the rules of simulate.h and must give equal
// results.
//
//   simulate_reference(graph, profile, machine, plan) == simulate(graph, profile, machine, plan)
//
// For tests. Cost: instructions squared and more.
#pragma once

#include "outsize/simulate/simulate.h"

namespace outsize {

Result<Simulation> simulate_reference(const Graph& graph, const Profile& profile,
                                      const Machine& machine, const Plan& plan);

}  // namespace outsize
