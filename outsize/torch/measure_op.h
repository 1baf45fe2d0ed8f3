// Measures one op: lays out its operands, calls it a few times, watches what it asks for and what
// it does to its inputs. The work behind measure_profile.
//
//   OpMeasurer measurer(options);
//   Result<MeasuredOp> op = measurer.measure(graph, OpId{17}, entry_tensors);
//
// Requires the allocator's hook in place. One owner thread.
#pragma once

#include <map>
#include <vector>

#include "outsize/torch/allocator.h"
#include "outsize/torch/measure.h"
#include "outsize/torch/measure_cache.h"
#include "outsize/torch/measure_key.h"
#include "outsize/torch/measure_operands.h"
#include "outsize/torch/measure_requests.h"
#include "outsize/torch/op_call.h"

namespace outsize {

class OpMeasurer {
 public:
  explicit OpMeasurer(const MeasureOptions& options);
  Result<MeasuredOp> measure(const Graph& graph, OpId op,
                             const std::map<StorageId, at::Tensor>& entry_tensors);
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Operands {
    std::vector<LocalStorage> storages;
    std::vector<std::byte*> places;     // of each local storage's hull
    std::vector<std::byte*> addresses;  // per access of the op
    int64_t bytes = 0;
  };
  struct RunResult {
    SeenRun requests;
    int64_t ns = 0;
    int64_t spilled = 0;
    int64_t peak_bytes = 0;  // outputs and temporaries
  };

  Result<Operands> lay_out(const Graph& graph, OpId op);
  Status fill(const Graph& graph, const Operands& operands,
              const std::map<StorageId, at::Tensor>& entry_tensors, bool mutated_only, OpId op);
  // One call. `examined`: looks at results and fills findings and made_bytes.
  Result<RunResult> run_once(const Graph& graph, OpId op, const OpCall& call, BoundOp& bound,
                             const Operands& operands, bool in_buffer, MeasuredOp* examined);
  void examine(const Graph& graph, OpId op, const OpCall& call, BoundOp bound,
               const Operands& operands, const std::vector<c10::IValue>& results,
               MeasuredOp& measured);
  Result<int64_t> time_small(const OpCall& call, const BoundOp& bound);

  const MeasureOptions options_;
  TouchedBlock operands_{"operands"};
  TouchedBlock outputs_{"outputs"};
  Numbers numbers_;
  Evictor evictor_;
  int64_t peak_bytes_ = 0;
};

}  // namespace outsize
