// Where proofs run ops: memory for every storage of a small graph, filled with operands, and one op
// called on it.
//
//   Ground ground;  ground.lay_out(graph);
//   ground.poison();  fill_operands(graph, ground, 7);
//   run_op(graph, OpId{0}, ground);      // what it makes now lies at ground.storage(id)
//
// Threads: one owner.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/torch/measure_operands.h"

namespace outsize {

class Ground {
 public:
  Status lay_out(const Graph& graph);
  std::byte* at(const Access& access) const { return storage(access.storage) + access.bytes.begin; }
  std::byte* storage(StorageId id) const { return block_.base() + offsets_[id.index()]; }
  // Another value than any result's, so that what nobody wrote is seen.
  void poison() const;

 private:
  TouchedBlock block_{"proof"};
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0;
};

// Numbers of many sizes for pointwise ops, in a tensor of one dimension: floats from -8 to 8, half
// of them below 1/16; integers from 1 to 100, which any op can divide by; bools of both kinds.
at::Tensor varied_numbers(c10::ScalarType type, int64_t count, uint64_t seed);

// Fills the storages that are there at entry with operands for the graph's first op.
void fill_operands(const Graph& graph, const Ground& ground, uint64_t seed);

// Runs one op of the graph on the ground; what it makes is put in its place there.
Status run_op(const Graph& graph, OpId id, const Ground& ground);

}  // namespace outsize
