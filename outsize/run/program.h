// A plan made ready to run: per stream a flat list of what to call and what to wait for, so that
// the executor looks nothing up while a step runs.
//
//   plan:     #0 compute Run   #1 out Copy after #0   #2 compute Run   #3 in Copy after #1, #2
//   program:  compute {#0, #2}   out {#1: compute >= 1}   in {#3: compute >= 2, out >= 1}
//
// A wait for an instruction becomes "that stream has completed at least so many"; waits that an
// earlier instruction of the same stream already had are left out. A plain value; refers to no
// other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/run/device.h"

namespace outsize {

// Until `stream` has completed `count` instructions.
struct WaitFor {
  Stream stream = Stream::kCompute;
  int64_t count = 0;
  bool operator==(const WaitFor&) const = default;
};

// A byte range that an instruction touches.
struct Touch {
  Tier tier = Tier::kDevice;
  Interval range;
  bool writes = false;
  StorageId storage;  // invalid: a workspace
  bool operator==(const Touch&) const = default;
};

struct ProgramStep {
  InstructionId instruction;
  InstructionKind kind = InstructionKind::kRun;
  OpId op;
  bool saves_generator = false;    // a Run whose generator state a Rerun needs
  bool rewinds_generator = false;  // a Rerun of an op that draws
  std::vector<int64_t> addresses;  // RunCall::addresses
  Interval workspace;
  CopyCall copy;
  std::vector<WaitFor> waits;  // at most one per stream
};

struct Program {
  std::array<std::vector<ProgramStep>, kStreams> streams;
  int64_t instructions = 0;
  std::vector<ProgramStep>& of(Stream stream) { return streams[static_cast<size_t>(stream)]; }
  const std::vector<ProgramStep>& of(Stream stream) const {
    return streams[static_cast<size_t>(stream)];
  }
};

// kIllegal if ids are out of range or operands don't fit: what would be undefined to run. Whether
// the plan is right is the checker's business.
Result<Program> program_of(const Graph& graph, const Plan& plan);

// What an instruction touches; ranges may be empty.
std::vector<Touch> touches_of(const Graph& graph, const Plan& plan, InstructionId id);

// "instruction 17 (run of op 3 aten.mm.default, transformer.h.0.mlp, train.py:12)",
// "instruction 4 (out copy of storage 9 [0, 64), device to host)".
std::string describe_instruction(const Graph& graph, const Plan& plan, InstructionId id);

}  // namespace outsize
