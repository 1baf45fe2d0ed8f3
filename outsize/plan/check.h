// The plan checker: proves that a plan is legal for every timing of its streams, or returns the
// first violation with a witness. It shares no code with the planners or with `lower`.
//
// From stream order and waits it builds happens-before (vector clocks, one entry per stream) and
// proves
//   (a) waits point backwards in the list: no deadlock;
//   (b) no race: two instructions that touch one byte of a tier, one of them writing, are ordered;
//   (c) every read gets the content that program order gives it: a byte's content is named by the
//   op
//       that wrote it last in program order (or "entry"); every op is run exactly once, reruns come
//       after their run, RNG and collective ops run in program order;
//   (d) entry and exit hold what the graph asks for, one home per persistent storage;
//   (e) every residency and workspace lies inside its tier's budget, on the machine's alignment.
#pragma once

#include <string>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"

namespace outsize {

enum class ViolationKind {
  kNone,
  kMalformed,  // ids out of range, operands that don't fit the op, a copy between wrong parts
  kDeadlock,   // a wait that points forward or at its own stream's future
  kRace,       // unordered accesses to one byte, one a write
  kStale,      // a read of bytes that hold another version, or nothing
  kMissingOp,  // an op not run, run twice, or rerun before it ran
  kOrder,      // RNG or collective ops out of program order
  kEntry,      // a storage with entry content has no (or a wrong) entry residency
  kExit,       // exit content missing, stale, or without its home
  kBudget,     // an address outside the tier's budget
  kAlignment,
  kWorkspace,  // a run whose workspace is smaller than the op needs
  kStream,     // an instruction in a stream it does not belong to
};
inline constexpr EnumNames<ViolationKind, 13> kViolationKindNames{
    {{{ViolationKind::kNone, "none"},
      {ViolationKind::kMalformed, "malformed"},
      {ViolationKind::kDeadlock, "deadlock"},
      {ViolationKind::kRace, "race"},
      {ViolationKind::kStale, "stale"},
      {ViolationKind::kMissingOp, "missing op"},
      {ViolationKind::kOrder, "order"},
      {ViolationKind::kEntry, "entry"},
      {ViolationKind::kExit, "exit"},
      {ViolationKind::kBudget, "budget"},
      {ViolationKind::kAlignment, "alignment"},
      {ViolationKind::kWorkspace, "workspace"},
      {ViolationKind::kStream, "stream"}}}};

struct Violation {
  ViolationKind kind = ViolationKind::kNone;
  std::string where;    // "instruction 17 (run aten.mm.default)"
  std::string witness;  // "and instruction 12 (copy out of storage 3) both touch device [64, 128)"
  bool ok() const { return kind == ViolationKind::kNone; }
  bool operator==(const Violation&) const = default;
};

// `workspace_bytes[op]`: what each op needs beside its operands (workspaces_of(profile)); {} for
// none. `alignment`: of device addresses, in bytes.
Violation check_plan(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                     const Plan& plan, const Budgets& budgets, int64_t alignment);

}  // namespace outsize
