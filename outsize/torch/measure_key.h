// What makes two ops the same to measure: name, arguments, and the geometry of their operands and
// results, with storages numbered by first appearance in the op.
//
//   aten.mm.default(v3, v7), v3 = float32 [2, 4] on storage 5:
//   "aten.mm.default(t0:float32[2,4]/[4,1]+0, …"
//
// Pure functions of the graph.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "outsize/graph/graph.h"

namespace outsize {

// An operand as measuring lays it out: one storage that the op touches, and the range it touches of
// it.
struct LocalStorage {
  StorageId storage;
  Interval hull;  // of all accesses
  std::string
      dtype;  // of the first value on it among arguments and results; empty if there is none
  bool read = false;  // content is needed: read or mutated
};

// Storages in the order of first appearance in reads, makes, mutates.
std::vector<LocalStorage> local_storages(const Graph& graph, OpId op);

// `given`: storages whose real content the caller has.
std::string measure_key(const Graph& graph, OpId op, const std::set<StorageId>& given);

}  // namespace outsize
