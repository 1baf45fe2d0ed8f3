// Random small steps and random legal plans for them, to try the executor on: swaps through all
// three tiers, recomputes, copies in the compute stream, addresses used again as soon as they are
// free.
//
//   Case c = random_case(seed);      // c.graph, c.plan
//
// Waits are found byte by byte from who touched each byte last, so nothing here is shared with the
// checker, the lowering or clock mode. Tiers are a few KiB.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/run/program.h"
#include "outsize/run/testing/random_graphs.h"

namespace outsize::testing {

struct Case {
  Graph graph;
  Plan plan;
  std::vector<int64_t> workspaces;
};

class RandomPlanner {
 public:
  RandomPlanner(const Graph& graph, const std::vector<int64_t>& workspaces, Random& random)
      : graph_(graph), workspaces_(workspaces), random_(random), held_(graph.storages.size()) {
    plan_.planner = "random";
    plan_.budgets = {kTierBytes, kTierBytes, kTierBytes};
    for (auto& bytes : taken_) bytes.assign(kTierBytes, false);
    for (auto& bytes : last_) bytes.assign(kTierBytes, Touched{});
  }

  Plan make() {
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      if (!graph_.storages[s].entry) continue;
      const auto tier = static_cast<Tier>(random_.below(kTiers));
      const ResidencyId r = place(StorageId{static_cast<int64_t>(s)}, tier);
      plan_.entry.push_back({r, graph_.storages[s].persistent});
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      run(OpId{static_cast<int64_t>(i)}, InstructionKind::kRun);
      for (int64_t n = random_.below(4); n > 0; --n) disturb();
    }
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      if (!graph_.storages[s].exit) continue;
      const StorageId storage{static_cast<int64_t>(s)};
      if (!anywhere(storage)) bring(storage);
      for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk})
        if (held(storage, tier).valid()) {
          plan_.exit.push_back({held(storage, tier), graph_.storages[s].persistent});
          break;
        }
    }
    return plan_;
  }

 private:
  static constexpr int64_t kTierBytes = 8192;
  struct Touched {
    InstructionId writer;
    std::array<InstructionId, kStreams> readers;
  };

  ResidencyId& held(StorageId s, Tier t) { return held_[s.index()][static_cast<size_t>(t)]; }
  bool anywhere(StorageId s) {
    const auto& all = held_[s.index()];
    return std::any_of(all.begin(), all.end(), [](ResidencyId r) { return r.valid(); });
  }

  Interval take(Tier tier, int64_t bytes) {
    auto& taken = taken_[static_cast<size_t>(tier)];
    for (int64_t at = 0, run = 0; at < kTierBytes; ++at) {
      run = taken[static_cast<size_t>(at)] ? 0 : run + 1;
      if (run < bytes) continue;
      set_taken(tier, {at + 1 - bytes, at + 1}, true);
      return {at + 1 - bytes, at + 1};
    }
    OUTSIZE_CHECK(false, "the random plan needs more than {} bytes", kTierBytes);
  }
  void set_taken(Tier tier, Interval range, bool value) {
    auto& taken = taken_[static_cast<size_t>(tier)];
    std::fill(taken.begin() + range.begin, taken.begin() + range.end, value);
  }
  ResidencyId place(StorageId storage, Tier tier) {
    const Interval range = take(tier, graph_.storage(storage).bytes);
    const ResidencyId id{static_cast<int64_t>(plan_.residencies.size())};
    plan_.residencies.push_back({tier, {storage, {0, range.size()}}, range.begin});
    return held(storage, tier) = id;
  }
  void drop(StorageId storage, Tier tier) {
    set_taken(tier, plan_.residency(held(storage, tier)).range(), false);
    held(storage, tier) = ResidencyId{};
  }

  // Appends, with waits for everything of other streams that touched the same bytes in conflict.
  void append(Instruction instruction) {
    const InstructionId id{static_cast<int64_t>(plan_.instructions.size())};
    plan_.instructions.push_back(instruction);
    std::set<InstructionId> waits;
    const auto own = static_cast<size_t>(instruction.stream);
    const auto wait_for = [&](InstructionId other) {
      if (other.valid() && other != id && plan_.instruction(other).stream != instruction.stream)
        waits.insert(other);
    };
    for (const Touch& touch : touches_of(graph_, plan_, id))
      for (int64_t b = touch.range.begin; b < touch.range.end; ++b) {
        Touched& touched = last_[static_cast<size_t>(touch.tier)][static_cast<size_t>(b)];
        wait_for(touched.writer);
        if (!touch.writes) {
          touched.readers[own] = id;
          continue;
        }
        for (const InstructionId reader : touched.readers) wait_for(reader);
        touched = {id, {}};
      }
    plan_.instructions.back().waits.assign(waits.begin(), waits.end());
  }

  void copy(StorageId storage, Tier from, Tier to) {
    Instruction copy;
    copy.kind = InstructionKind::kCopy;
    copy.stream = to == Tier::kDisk     ? Stream::kWrite
                  : from == Tier::kDisk ? Stream::kRead
                  : random_.chance(0.1) ? Stream::kCompute
                  : to == Tier::kHost   ? Stream::kOut
                                        : Stream::kIn;
    copy.from = held(storage, from);
    copy.to = place(storage, to);
    copy.bytes = {0, graph_.storage(storage).bytes};
    append(copy);
  }

  // Brings a storage to the device, by copies or by running its producer again.
  void bring(StorageId storage) {
    if (held(storage, Tier::kDevice).valid()) return;
    if (!anywhere(storage)) return run(*producer(storage), InstructionKind::kRerun);
    if (!held(storage, Tier::kHost).valid()) copy(storage, Tier::kDisk, Tier::kHost);
    copy(storage, Tier::kHost, Tier::kDevice);
  }

  void run(OpId id, InstructionKind kind) {
    const Op& op = graph_.op(id);
    for (const auto* list : {&op.reads, &op.mutates})
      for (const Access& access : *list) bring(access.storage);
    // A rerun of an op whose outputs are partly here makes them all anew.
    for (const Access& access : op.makes)
      if (held(access.storage, Tier::kDevice).valid()) drop(access.storage, Tier::kDevice);
    Instruction run;
    run.kind = kind;
    run.op = id;
    for (const Access& access : op.reads)
      run.operands.push_back(held(access.storage, Tier::kDevice));
    for (const Access& access : op.makes)
      run.operands.push_back(place(access.storage, Tier::kDevice));
    for (const Access& access : op.mutates) {
      run.operands.push_back(held(access.storage, Tier::kDevice));
      for (const Tier tier : {Tier::kHost, Tier::kDisk})  // those copies are of an older version
        if (held(access.storage, tier).valid()) drop(access.storage, tier);
    }
    const int64_t workspace = workspaces_[id.index()];
    if (workspace > 0) run.workspace = take(Tier::kDevice, workspace);
    append(run);
    if (workspace > 0) set_taken(Tier::kDevice, run.workspace, false);
  }

  std::optional<OpId> producer(StorageId storage) const {
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      for (const Access& access : graph_.ops[i].makes)
        if (access.storage == storage) return OpId{static_cast<int64_t>(i)};
    return std::nullopt;
  }
  // Running the producer again needs inputs that nothing ever changes.
  bool can_recompute(StorageId storage) {
    const std::optional<OpId> made_by = producer(storage);
    if (!made_by || !graph_.op(*made_by).mutates.empty()) return false;
    for (const Access& read : graph_.op(*made_by).reads)
      for (const Op& op : graph_.ops)
        for (const Access& mutated : op.mutates)
          if (mutated.storage == read.storage) return false;
    return true;
  }

  // One random swap out, move to disk, drop for recomputing, or early swap in.
  void disturb() {
    const StorageId s{random_.below(static_cast<int64_t>(graph_.storages.size()))};
    const bool on_device = held(s, Tier::kDevice).valid(), on_host = held(s, Tier::kHost).valid();
    if (!anywhere(s)) return;
    if (on_host && random_.chance(0.4)) {
      if (!held(s, Tier::kDisk).valid()) copy(s, Tier::kHost, Tier::kDisk);
      if (random_.chance(0.7)) drop(s, Tier::kHost);
    } else if (on_device && can_recompute(s) && random_.chance(0.4)) {
      drop(s, Tier::kDevice);
    } else if (on_device) {
      if (!on_host) copy(s, Tier::kDevice, Tier::kHost);
      if (random_.chance(0.8)) drop(s, Tier::kDevice);
    } else {
      bring(s);
    }
  }

  const Graph& graph_;
  const std::vector<int64_t>& workspaces_;
  Random& random_;
  Plan plan_;
  std::vector<std::array<ResidencyId, kTiers>> held_;
  std::array<std::vector<bool>, kTiers> taken_;
  std::array<std::vector<Touched>, kTiers> last_;
};

inline Case random_case(uint64_t seed, int ops = 14) {
  Random random(seed);
  Case c;
  c.graph = random_graph(random, ops);
  for (int i = 0; i < ops; ++i)
    c.workspaces.push_back(random.chance(0.4) ? random.between(1, 40) : 0);
  c.plan = RandomPlanner(c.graph, c.workspaces, random).make();
  return c;
}

}  // namespace outsize::testing
