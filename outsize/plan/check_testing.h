// Graphs and plans written by hand, for tests of the checker and the simulator.
//
//   PlanMaker m;
//   auto x = m.storage(8, "x", kEntry), y = m.storage(8, "y", kExit);
//   m.op("f", {x}, {y});
//   auto rx = m.on(Tier::kDevice, x, 0), ry = m.on(Tier::kDevice, y, 8);
//   m.enter(rx);  m.run(0, {rx, ry});  m.leave(ry);
//   check_plan(m.graph, {}, m.plan, m.plan.budgets, 1).ok()
//
// Ids count from 0 in the order of the calls. Not for use outside tests.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"

namespace outsize {

// Flags of PlanMaker::storage.
inline constexpr int kEntry = 1;
inline constexpr int kExit = 2;
inline constexpr int kPersistent = 4;

class PlanMaker {
 public:
  Graph graph;
  Plan plan;

  PlanMaker() { plan.budgets = {1000, 1000, 1000}; }

  StorageId storage(int64_t bytes, std::string name, int flags = 0) {
    Storage s;
    s.bytes = bytes;
    s.name = std::move(name);
    s.entry = (flags & kEntry) != 0;
    s.exit = (flags & kExit) != 0;
    s.persistent = (flags & kPersistent) != 0;
    graph.storages.push_back(s);
    return StorageId{static_cast<int64_t>(graph.storages.size()) - 1};
  }

  // An access in an op: a storage, whole, or bytes of it.
  struct Touches {
    Touches(StorageId s) : storage(s) {}  // NOLINT: implicit on purpose
    Touches(StorageId s, int64_t begin, int64_t end) : storage(s), bytes{begin, end}, part(true) {}
    StorageId storage;
    Interval bytes;
    bool part = false;
  };

  OpId op(std::string name, std::vector<Touches> reads, std::vector<Touches> makes = {},
          std::vector<Touches> mutates = {}) {
    Op o;
    o.name = std::move(name);
    o.reads = accesses(reads);
    o.makes = accesses(makes);
    o.mutates = accesses(mutates);
    graph.ops.push_back(o);
    return OpId{static_cast<int64_t>(graph.ops.size()) - 1};
  }

  // A residency of a whole storage, or of bytes of it.
  ResidencyId on(Tier tier, Touches touches, int64_t address) {
    plan.residencies.push_back({tier, accesses({touches}).front(), address});
    return ResidencyId{static_cast<int64_t>(plan.residencies.size()) - 1};
  }

  InstructionId run(int64_t op_index, std::vector<ResidencyId> operands,
                    std::vector<int64_t> waits = {}, Interval workspace = {}) {
    Instruction i;
    i.op = OpId{op_index};
    i.operands = std::move(operands);
    i.workspace = workspace;
    return add(i, waits);
  }
  InstructionId rerun(int64_t op_index, std::vector<ResidencyId> operands,
                      std::vector<int64_t> waits = {}, Interval workspace = {}) {
    const InstructionId id = run(op_index, std::move(operands), std::move(waits), workspace);
    plan.instructions.back().kind = InstructionKind::kRerun;
    return id;
  }
  // Of all bytes that `to` holds, or of `bytes`.
  InstructionId copy(Stream stream, ResidencyId from, ResidencyId to,
                     std::vector<int64_t> waits = {}, Interval bytes = {}) {
    Instruction i;
    i.stream = stream;
    i.kind = InstructionKind::kCopy;
    i.from = from;
    i.to = to;
    i.bytes = bytes.empty() ? plan.residency(to).part.bytes : bytes;
    return add(i, waits);
  }

  void enter(ResidencyId residency, bool home = false) { plan.entry.push_back({residency, home}); }
  void leave(ResidencyId residency, bool home = false) { plan.exit.push_back({residency, home}); }

 private:
  std::vector<Access> accesses(const std::vector<Touches>& touches) const {
    std::vector<Access> result;
    for (const Touches& t : touches)
      result.push_back({t.storage, t.part ? t.bytes : Interval{0, graph.storage(t.storage).bytes}});
    return result;
  }
  InstructionId add(Instruction instruction, const std::vector<int64_t>& waits) {
    for (const int64_t wait : waits) instruction.waits.push_back(InstructionId{wait});
    plan.instructions.push_back(std::move(instruction));
    return InstructionId{static_cast<int64_t>(plan.instructions.size()) - 1};
  }
};

}  // namespace outsize
