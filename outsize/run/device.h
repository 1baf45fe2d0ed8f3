// What the executor needs of the machinery below it, and nothing more: run this op on operands at
// these addresses, copy these bytes, keep this generator state. The CPU device and the accelerators
// implement it in outsize/torch; tests use a fake one that computes hashes of bytes.
//
// Threads: `run_op`, `save_generator`, `restore_generator` are called by the compute stream's
// thread only; `copy` by whichever thread runs the stream the copy is in, several at once. All are
// synchronous: work is done when they return. (A device with streams of its own, CUDA, answers
// `asynchronous()` and is driven through DeviceStream instead; not part of this header yet.)
#pragma once

#include <cstdint>
#include <span>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"

namespace outsize {

// One Run or Rerun, with where its operands lie.
struct RunCall {
  InstructionId instruction;
  OpId op;
  bool rerun = false;
  // Device address of each access of the op (reads, makes, mutates): of the access's first byte.
  std::span<const int64_t> addresses;  // valid during the call
  Interval workspace;
};

// One Copy: `bytes` bytes between two tier addresses.
struct CopyCall {
  InstructionId instruction;
  Tier from = Tier::kDevice, to = Tier::kHost;
  int64_t from_address = 0, to_address = 0;
  int64_t bytes = 0;
  bool in_compute = false;  // sits in the compute stream: may use all cores
};

class Device {
 public:
  virtual ~Device() = default;
  // Called before the first instruction of each step, by the compute thread.
  virtual Status begin_step() = 0;
  virtual Status run_op(const RunCall& call) = 0;
  virtual Status copy(const CopyCall& call) = 0;
  // Keeps the generator's present state under `op`; puts it back, keeping the present one aside
  // until `resume_generator`. A Rerun of an RNG op is: rewind(op), run_op, resume.
  virtual Status save_generator(OpId op) = 0;
  virtual Status rewind_generator(OpId op) = 0;
  virtual Status resume_generator() = 0;
  // Called after the last instruction has ended or the first error has stopped the streams, unless
  // begin_step failed.
  virtual Status end_step() = 0;
};

}  // namespace outsize
