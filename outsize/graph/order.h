// Which orders of a graph's ops compute the same step: dependencies, the test of an order, random
// ones.
//
//   op0 makes A; op1 reads A; op2 mutates A; op3 reads A
//   dependencies_of: {}, {0}, {0, 1}, {2}      (read after write; write after write and after read)
//
// An op depends on earlier ops that touch a byte it touches, one of the two writing; on the op
// before it in the RNG chain and in the collective chain; and on the ops that give the scalars it
// takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

// Per op, the ops that must come before it, ascending, each once. Chains are followed one step
// back: not the transitive closure, but any order that keeps these is legal, and any legal order
// keeps these. Requires: check_graph passes.
std::vector<std::vector<OpId>> dependencies_of(const Graph& graph);

// The first thing wrong with `order` as an order of all the graph's ops, or Done.
Status check_order(const Graph& graph, std::span<const OpId> order);
bool is_legal_order(const Graph& graph, std::span<const OpId> order);

// 0, 1, 2, ...
std::vector<OpId> program_order(const Graph& graph);
// At each place one of the ops that may come next, all equally likely.
std::vector<OpId> random_topological_order(const Graph& graph, uint64_t seed);
// The same step with its ops listed in `order`. Requires: is_legal_order.
Graph reordered(const Graph& graph, std::span<const OpId> order);

}  // namespace outsize
