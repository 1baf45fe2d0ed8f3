// One op of a graph as a call that PyTorch's dispatcher takes. Prepared once per op (schema found,
// arguments decoded), bound once per place where its operands lie (tensors made), then called
// often.
//
//   Result<OpCall> add = OpCall::prepare(graph, OpId{3});       // aten.add.Tensor(x, y, alpha=lr)
//   Result<BoundOp> at = add->bind({px, pout});                  // a pointer per access of the op
//   PlannedCall planned({...});
//   Result<std::vector<c10::IValue>> out = add->invoke(*at, scalars);   // lr filled in from the
//   table Status ok = add->check_results(*at, *out, &scalars);          // at pout, sizes, strides,
//   dtype out->clear();  planned.finish();
//
// Calls run below autograd and autocast, outside dispatch modes, on the calling thread.
// Ownership: the graph must outlive the OpCall; a BoundOp belongs to the OpCall that made it and
// holds no memory but its tensors' headers: the operands' bytes must outlive it. Not thread-safe.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/torch/arguments.h"
#include "outsize/torch/scalars.h"

namespace outsize {

// An op with its operands at given addresses: the stack to copy for each call.
struct BoundOp {
  std::vector<c10::IValue> stack;
  std::vector<std::byte*> addresses;  // per access of the op: of the access's first byte
};

class OpCall {
 public:
  // Finds the schema and checks every argument against its type. kBadInput names the op, the
  // argument, the type wanted and what was there.
  static Result<OpCall> prepare(const Graph& graph, OpId op);

  // `addresses`: per access (reads, makes, mutates), where its first byte lies. Tensors are made
  // for the values among the arguments. kBadInput if a value lies in no access of the op.
  Result<BoundOp> bind(std::span<std::byte* const> addresses) const;

  // Calls the kernel. Allocates as the kernel does, and nothing else: the caller sets the
  // allocator's mode. An exception of the kernel comes back as kDevice, with its text and the op's
  // place in the user's program. Requires: `fill_scalars` was called since the table changed, if
  // the op takes scalars.
  Result<std::vector<c10::IValue>> invoke(const BoundOp& bound) const;

  // Fills the table's values into the bound stack; to be called before planned mode begins, as
  // numbers given for tensor arguments become small tensors. kInternal if a scalar is not known
  // yet.
  Status fill_scalars(BoundOp& bound, const ScalarTable& scalars) const;
  bool takes_scalars() const { return !slots_.empty(); }

  // Each returned tensor against the graph's value (place, sizes, strides, dtype, conj and neg
  // bits); numbers go into the table. kDevice names the result that differs.
  Status check_results(const BoundOp& bound, const std::vector<c10::IValue>& results,
                       ScalarTable* scalars) const;

  const std::string& name() const;
  const c10::FunctionSchema& schema() const { return handle_.schema(); }

 private:
  OpCall(const Graph& graph, OpId op, c10::OperatorHandle handle)
      : graph_(&graph), op_(op), handle_(std::move(handle)) {}

  // Where a value's storage's first byte lies (or would lie, if only a part of it is there), and
  // the access that says so; no access for a value without elements that none names.
  struct Place {
    std::byte* base = nullptr;
    std::optional<size_t> access;
  };
  Result<Place> place_of(ValueId value, std::span<std::byte* const> addresses) const;
  Status check_result(const BoundOp& bound, const Argument& wanted, const c10::IValue& had,
                      const std::string& where, ScalarTable* scalars) const;

  const Graph* graph_;
  OpId op_;
  c10::OperatorHandle handle_;
  std::vector<OperandAccess> accesses_;
  std::vector<c10::IValue> constants_;  // per argument: decoded, or none where bind makes it
  std::vector<size_t> tensor_args_;     // arguments that bind makes, ascending
  std::vector<ScalarSlot> slots_;
};

// "op 17 aten.mm.default (transformer.h.0.mlp, train.py:12)".
std::string describe_op(const Graph& graph, OpId op);

}  // namespace outsize
