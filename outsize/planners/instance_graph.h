// A program as a graph of its own: one op per step, one storage per instance, each touched as a
// whole. What bounds and linear programs say of that graph they say of the program: with its reruns
// as ops like any other, in its order.
//
//   op0 makes A, op1 reads A, rerun of op0, op2 reads A       ops 0 1 2 3, storages A (touched at
//                                                             0, 1) and A' (made at 2, read at 3)
//
// Sizes are those on the device, alignment included. Pure function.
#pragma once

#include "outsize/graph/graph.h"
#include "outsize/planners/solve.h"
#include "outsize/profile/profile.h"

namespace outsize::planning {

struct InstanceGraph {
  Graph graph;  // storage i is instance i, op r the step at rank r; values and arguments left out
  Profile profile;  // times and workspaces alone
};

InstanceGraph instance_graph(const Case& c, const Program& program);

}  // namespace outsize::planning
