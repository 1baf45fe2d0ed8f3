// Parts: the pieces of storages that a planner decides about, and who touches each in program
// order.
//
//   storage 7 [0,200): op0 makes [0,100), op1 makes [100,200), op2 reads [0,100), op3 reads
//   [100,200) no access crosses byte 100, so it is two parts; were there an op reading [0,200), it
//   would be one.
//
// A part's *version* n is its content after n of its writers have run; version 0 is what it holds
// at entry, or nothing. Storages that cross the border are one part each. Plain values; pure
// functions.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"

namespace outsize::planning {

struct PartUse {
  OpId op;
  bool reads = false;
  bool writes = false;
  int32_t before = 0;  // version needed, `after` of the use before
  int32_t after = 0;   // before + writes
  bool operator==(const PartUse&) const = default;
};

struct PartInfo {
  Access where;
  bool entry = false;
  bool exit = false;
  bool persistent = false;
  std::vector<PartUse> uses;  // program order, one per op
  std::vector<OpId> writers;  // writers[n - 1] makes version n
  // written[n]: the bytes that hold content at version n, disjoint, ascending, not adjacent.
  std::vector<std::vector<Interval>> written;
  int64_t bytes() const { return where.bytes.size(); }
  bool operator==(const PartInfo&) const = default;
};

struct Parts {
  std::vector<PartInfo> parts;              // by storage, then by first byte
  std::vector<std::vector<int32_t>> of_op;  // per op, per access (reads, makes, mutates): its part
  std::vector<std::vector<OperandAccess>> accesses;  // per op
  std::vector<std::vector<PartUse>> use_of_op;       // per op, per access: how it uses that part
  std::vector<bool> rerunnable;                      // per op: may be run again
  const PartInfo& operator[](int32_t part) const { return parts[static_cast<size_t>(part)]; }
};

// An op may be run again unless it is collective, hands numbers to the host, or changes in place
// something that was there at entry (its earlier content is gone by then).
Parts parts_of(const Graph& graph);

}  // namespace outsize::planning
