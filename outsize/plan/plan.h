// The plan: what happens when, and where every byte lies. Planners write it; the checker, the
// simulator, the executor and the reports read it; nothing is decided after it.
//
//   device  ┌ r0: A at 0 ┐            ┌ r2: A at 64 ┐        r0 and r2 are two stays of one
//   storage, host           └ r1: A at 0 ──────┘                      r1 its copy on the host
//   between them
//
//   compute:  #0 Run(op0 → r0)                #3 Run(op1)   #5 Run(op2 reads r2)
//   out:            #1 Copy(r0 → r1) after #0
//   in:                                   #4 Copy(r1 → r2) after #1, #3
//
// A *residency* is one unbroken stay of a part on one tier, at one address. Instructions stand in
// one list; the instructions of one stream run in that list's order, and an instruction starts when
// the one before it in its stream and all those it waits for have ended. The list itself is one
// legal sequential execution. A residency needs no allocation or freeing instruction: it is there
// from the first instruction that writes it (or from entry) to the last that touches it (or to
// exit).
#pragma once

#include <string>
#include <vector>

#include "outsize/base/ids.h"
#include "outsize/base/interval.h"
#include "outsize/base/names.h"
#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

enum class Tier { kDevice, kHost, kDisk };
inline constexpr int kTiers = 3;
inline constexpr EnumNames<Tier, 3> kTierNames{
    {{{Tier::kDevice, "device"}, {Tier::kHost, "host"}, {Tier::kDisk, "disk"}}}};

enum class Stream { kCompute, kOut, kIn, kWrite, kRead };
inline constexpr int kStreams = 5;
inline constexpr EnumNames<Stream, 5> kStreamNames{{{{Stream::kCompute, "compute"},
                                                     {Stream::kOut, "out"},
                                                     {Stream::kIn, "in"},
                                                     {Stream::kWrite, "write"},
                                                     {Stream::kRead, "read"}}}};

struct Budgets {
  int64_t device = 0;  // the most bytes each tier may hold at any moment, everything counted
  int64_t host = 0;
  int64_t disk = 0;
  int64_t of(Tier tier) const {
    return tier == Tier::kDevice ? device : tier == Tier::kHost ? host : disk;
  }
  bool operator==(const Budgets&) const = default;
};

// A byte range of a storage: what a residency holds and a copy moves.
using Part = Access;

struct Residency {
  Tier tier = Tier::kDevice;
  Part part;
  int64_t address = 0;  // of part.bytes.begin, from the start of the tier's arena
  Interval range() const { return {address, address + part.bytes.size()}; }
  bool operator==(const Residency&) const = default;
};

enum class InstructionKind { kRun, kRerun, kCopy };
inline constexpr EnumNames<InstructionKind, 3> kInstructionKindNames{
    {{{InstructionKind::kRun, "run"},
      {InstructionKind::kRerun, "rerun"},
      {InstructionKind::kCopy, "copy"}}}};

struct Instruction {
  Stream stream = Stream::kCompute;
  InstructionKind kind = InstructionKind::kRun;
  // Run and Rerun (recompute; restores the generator state that the op's Run saw), compute stream
  // only.
  OpId op;
  std::vector<ResidencyId> operands;  // one per access of the op: reads, then makes, then mutates
  Interval workspace;                 // device range for the op's temporaries; empty if it has none
  // Copy: the bytes `bytes` of the storage that both residencies hold. A copy belongs to the stream
  // of its direction (device->host out, host->device in, to disk write, from disk read) or to
  // compute.
  ResidencyId from, to;
  Interval bytes;
  // Instructions of other streams that must have ended; ascending, each earlier in the list.
  std::vector<InstructionId> waits;
  bool operator==(const Instruction&) const = default;
};

// What lies where between two steps. `home`: this residency is the storage's home (exactly one per
// persistent storage at a border); otherwise a batch handed in, an output handed out, or a carried
// copy of a persistent storage whose home is elsewhere.
struct BorderItem {
  ResidencyId residency;
  bool home = false;
  bool operator==(const BorderItem&) const = default;
};

struct Plan {
  std::string planner;
  Budgets budgets;
  std::vector<Residency> residencies;
  std::vector<Instruction> instructions;
  std::vector<BorderItem> entry;
  std::vector<BorderItem> exit;

  const Residency& residency(ResidencyId id) const { return residencies[id.index()]; }
  const Instruction& instruction(InstructionId id) const { return instructions[id.index()]; }
  bool operator==(const Plan&) const = default;
};

// Which op accesses an instruction's operands stand for: reads, makes, mutates, in that order.
struct OperandAccess {
  Access access;
  bool reads = false;
  bool writes = false;
};
std::vector<OperandAccess> accesses_of(const Op& op);

// Bytes and counts that can be read off a plan without running it.
struct PlanStatistics {
  int64_t moved_out = 0, moved_in = 0, moved_write = 0, moved_read = 0;  // bytes
  int64_t reruns = 0;
  int64_t copies = 0;
  int64_t extent[kTiers] = {0, 0, 0};  // one past the highest address used, per tier
  bool operator==(const PlanStatistics&) const = default;
};
PlanStatistics statistics_of(const Plan& plan);

}  // namespace outsize
