// Says by trial whether a tiny plan is legal, knowing nothing of happens-before: it carries the
// plan out, byte by byte, in interleavings of its streams.
//
//   std::optional<std::string> harm = Oracle(graph, plan).find_harm(random);  // nothing: legal
//
// Each instruction opens and closes apart. All states that the streams can reach are searched for
// one in which two open instructions touch a byte, one of them writing; then several random
// interleavings are run with bytes that carry their storage, offset and version. Graph and plan
// must outlive it; ids must be in range and addresses below 4 * kTierBytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/plan/check_testing_lanes.h"
#include "outsize/plan/plan.h"

namespace outsize {

inline constexpr int64_t kTierBytes = 28;  // every budget

inline constexpr int64_t kCells = 4 * kTierBytes;  // per tier, so that edits stay inside
inline constexpr int kNothing = -2;
inline constexpr int kEntryContent = -1;

// What a byte of a tier holds: byte `byte` of `storage` as op `version` left it.
struct Cell {
  int storage = -1;
  int64_t byte = 0;
  int version = kNothing;
  bool operator==(const Cell&) const = default;
};

// One byte that an instruction touches. A workspace's has storage -1.
struct ByteTouch {
  int64_t cell = 0;
  int storage = -1;
  int64_t byte = 0;
  bool reads = false;
  bool writes = false;
};

class Oracle {
 public:
  Oracle(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan), lanes_(plan) {
    for (const Instruction& instruction : plan.instructions)
      touches_.push_back(touches_of(instruction));
    run_program();
  }

  // Why the plan is illegal; nothing if no way to run it goes wrong.
  std::optional<std::string> find_harm(Random& random) {
    for (size_t i = 0; i < touches_.size(); ++i)
      if (meets_itself(i)) return "an instruction touches a byte as two things";
    if (auto harm = find_overlap()) return harm;
    // Nothing overlaps, so all interleavings must come out alike.
    const auto first = run(random, true);
    for (int round = 0; round < 3; ++round) {
      const auto other = run(random, false);
      EXPECT_EQ(first.has_value(), other.has_value()) << first.value_or("") << other.value_or("");
    }
    return first;
  }

 private:
  static int64_t cell_of(const Residency& residency, int64_t byte) {
    return static_cast<int64_t>(residency.tier) * kCells + residency.address + byte -
           residency.part.bytes.begin;
  }

  std::vector<ByteTouch> touches_of(const Instruction& instruction) const {
    std::vector<ByteTouch> all;
    const auto add = [&](ResidencyId id, Interval bytes, bool reads, bool writes) {
      const Residency& residency = plan_.residency(id);
      for (int64_t b = bytes.begin; b < bytes.end; ++b)
        all.push_back({cell_of(residency, b), residency.part.storage.value, b, reads, writes});
    };
    if (instruction.kind == InstructionKind::kCopy) {
      add(instruction.from, instruction.bytes, true, false);
      add(instruction.to, instruction.bytes, false, true);
      return all;
    }
    const auto accesses = accesses_of(graph_.op(instruction.op));
    for (size_t k = 0; k < accesses.size(); ++k)
      add(instruction.operands[k], accesses[k].access.bytes, accesses[k].reads, accesses[k].writes);
    for (int64_t b = instruction.workspace.begin; b < instruction.workspace.end; ++b)
      all.push_back({b, -1, 0, false, true});
    return all;
  }

  // Versions before each op and at the end, by running the program on plain arrays.
  void run_program() {
    std::vector<std::vector<int>> now;
    for (const Storage& s : graph_.storages)
      now.push_back(
          std::vector<int>(static_cast<size_t>(s.bytes), s.entry ? kEntryContent : kNothing));
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      before_.push_back(now);
      for (const OperandAccess& a : accesses_of(graph_.ops[i]))
        for (int64_t b = a.access.bytes.begin; a.writes && b < a.access.bytes.end; ++b)
          now[a.access.storage.index()][static_cast<size_t>(b)] = static_cast<int>(i);
    }
    last_ = now;
  }

  bool meets_itself(size_t i) const {
    const bool copies = plan_.instructions[i].kind == InstructionKind::kCopy;
    for (const ByteTouch& x : touches_[i])
      for (const ByteTouch& y : touches_[i])
        if (&x != &y && x.cell == y.cell && (x.writes || y.writes) &&
            (copies || x.storage != y.storage || x.byte != y.byte || x.storage < 0))
          return true;
    return false;
  }

  bool conflict(int i, int k) const {
    for (const ByteTouch& x : touches_[static_cast<size_t>(i)])
      for (const ByteTouch& y : touches_[static_cast<size_t>(k)])
        if (x.cell == y.cell && (x.writes || y.writes)) return true;
    return false;
  }

  std::optional<std::string> find_overlap() const {
    std::map<std::pair<int, int>, bool> known;
    return lanes_.search([&](int i, int k) {
      const auto [it, is_new] = known.try_emplace({i, k}, false);
      if (is_new) it->second = conflict(i, k);
      return it->second;
    });
  }

  // One run. `in_order`: as the list has it, as far as that can be had; else at random.
  std::optional<std::string> run(Random& random, bool in_order) const {
    std::vector<Cell> cells(kTiers * kCells);
    if (auto harm = enter(cells)) return harm;
    std::vector<std::vector<Cell>> taken(touches_.size());
    std::vector<char> ran(graph_.ops.size(), 0);
    Lanes::Progress progress = {};
    int last_rng = -1;
    while (!lanes_.is_finished(progress)) {
      std::vector<size_t> able;
      for (size_t s = 0; s < kStreams; ++s)
        if (lanes_.can_step(progress, s)) able.push_back(s);
      if (able.empty()) return "the streams wait for ever";
      size_t s = able[static_cast<size_t>(random.below(static_cast<int64_t>(able.size())))];
      if (in_order)
        s = *std::min_element(able.begin(), able.end(), [&](size_t a, size_t b) {
          return lanes_.at(progress, a) < lanes_.at(progress, b);
        });
      const int i = lanes_.at(progress, s);
      if (progress[s]++ % 2 == 0) {
        if (auto harm = open(i, cells, taken[static_cast<size_t>(i)], ran, last_rng)) return harm;
      } else {
        close(i, taken[static_cast<size_t>(i)], cells);
      }
    }
    if (std::find(ran.begin(), ran.end(), 0) != ran.end()) return "an op has not run";
    return leave(cells);
  }

  std::optional<std::string> open(int i, const std::vector<Cell>& cells, std::vector<Cell>& taken,
                                  std::vector<char>& ran, int& last_rng) const {
    const Instruction& instruction = plan_.instructions[static_cast<size_t>(i)];
    const bool copies = instruction.kind == InstructionKind::kCopy;
    if (!copies) {
      const bool again = ran[instruction.op.index()] != 0;
      if (again != (instruction.kind == InstructionKind::kRerun)) return "an op's turn is wrong";
      ran[instruction.op.index()] = 1;
      if (!again && graph_.op(instruction.op).uses_rng) {
        if (instruction.op.value < last_rng) return "random ops out of order";
        last_rng = instruction.op.value;
      }
    }
    for (const ByteTouch& touch : touches_[static_cast<size_t>(i)]) {
      if (!touch.reads) continue;
      const Cell& had = cells[static_cast<size_t>(touch.cell)];
      if (had.storage != touch.storage || had.byte != touch.byte || had.version == kNothing)
        return "a read finds other bytes or none";
      if (!copies && had.version != before_[instruction.op.index()][static_cast<size_t>(
                                        touch.storage)][static_cast<size_t>(touch.byte)])
        return "a read finds another version";
      taken.push_back(had);
    }
    return std::nullopt;
  }

  void close(int i, const std::vector<Cell>& taken, std::vector<Cell>& cells) const {
    const Instruction& instruction = plan_.instructions[static_cast<size_t>(i)];
    size_t next = 0;
    for (const ByteTouch& touch : touches_[static_cast<size_t>(i)]) {
      if (!touch.writes) continue;
      Cell& cell = cells[static_cast<size_t>(touch.cell)];
      if (instruction.kind == InstructionKind::kCopy)
        cell = taken[next++];
      else
        cell = touch.storage < 0 ? Cell{} : Cell{touch.storage, touch.byte, instruction.op.value};
    }
  }

  std::optional<std::string> enter(std::vector<Cell>& cells) const {
    for (const BorderItem& item : plan_.entry) {
      const Residency& residency = plan_.residency(item.residency);
      for (int64_t b = residency.part.bytes.begin; b < residency.part.bytes.end; ++b) {
        Cell& cell = cells[static_cast<size_t>(cell_of(residency, b))];
        if (cell.version != kNothing) return "two entry contents at one place";
        cell = {residency.part.storage.value, b, kEntryContent};
      }
    }
    return border(plan_.entry, true);
  }

  std::optional<std::string> leave(const std::vector<Cell>& cells) const {
    for (const BorderItem& item : plan_.exit) {
      const Residency& residency = plan_.residency(item.residency);
      const int s = residency.part.storage.value;
      for (int64_t b = residency.part.bytes.begin; b < residency.part.bytes.end; ++b) {
        const int version = last_[static_cast<size_t>(s)][static_cast<size_t>(b)];
        if (version != kNothing &&
            !(cells[static_cast<size_t>(cell_of(residency, b))] == Cell{s, b, version}))
          return "exit content is wrong";
      }
    }
    return border(plan_.exit, false);
  }

  // Byte by byte: listed at all, and in one home, all homes of a storage on one tier.
  std::optional<std::string> border(const std::vector<BorderItem>& items, bool entry) const {
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      const bool crosses = entry ? storage.entry : storage.exit;
      std::vector<int> listed(static_cast<size_t>(storage.bytes)), homes = listed;
      std::set<Tier> tiers;
      for (const BorderItem& item : items) {
        const Residency& residency = plan_.residency(item.residency);
        if (residency.part.storage.index() != s) continue;
        if (!crosses) return "a border lists what does not cross it";
        if (item.home && !storage.persistent) return "a home for what has none";
        if (item.home) tiers.insert(residency.tier);
        for (auto b = static_cast<size_t>(residency.part.bytes.begin);
             b < static_cast<size_t>(residency.part.bytes.end); ++b) {
          ++listed[b];
          homes[b] += item.home ? 1 : 0;
        }
      }
      if (!crosses) continue;
      if (std::count(listed.begin(), listed.end(), 0) > 0) return "a border misses a byte";
      if (!storage.persistent) continue;
      if (tiers.size() > 1) return "homes on two tiers";
      if (std::count(homes.begin(), homes.end(), 1) != storage.bytes) return "not one home";
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<std::vector<ByteTouch>> touches_;  // per instruction
  const Lanes lanes_;
  std::vector<std::vector<std::vector<int>>> before_;  // [op][storage][byte]: version it must read
  std::vector<std::vector<int>> last_;                 // [storage][byte]: version at the end
};

}  // namespace outsize
