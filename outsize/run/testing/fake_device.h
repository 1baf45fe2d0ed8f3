// A device for tests: bytes in vectors, and "ops" whose results are hashes of all that they read,
// of their own number and, for random ops, of the generator. Two executions agree on every byte
// only if every op saw the same bytes and the same generator state in both.
//
//   FakeDevice device(graph, plan);  device.set_entry(contents);  executor->step();
//   device.exit_contents() == program_order(graph, contents)
//
// Faults: an instruction that fails, throws, or is slow. Threads: as Device.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/run/device.h"

namespace outsize::testing {

using Bytes = std::vector<uint8_t>;
using Contents = std::map<StorageId, Bytes>;

// What an op writes, given what it sees. `generator` advances if the op draws.
inline void hash_op(const Graph& graph, OpId id, const std::vector<const uint8_t*>& seen,
                    const std::vector<uint8_t*>& written, uint64_t& generator) {
  const Op& op = graph.op(id);
  uint64_t hash = 0x1000 + static_cast<uint64_t>(id.value);
  const auto mix = [&](uint64_t x) { hash = Random(hash ^ x).next(); };
  size_t at = 0;
  for (const auto* list : {&op.reads, &op.mutates})
    for (const Access& access : *list) {
      for (int64_t b = 0; b < access.bytes.size(); ++b) mix(seen[at][b]);
      ++at;
    }
  if (op.uses_rng) mix(generator = Random(generator).next());
  at = 0;
  for (const auto* list : {&op.makes, &op.mutates})
    for (const Access& access : *list) {
      for (int64_t b = 0; b < access.bytes.size(); ++b) {
        mix(static_cast<uint64_t>(b));
        written[at][b] = static_cast<uint8_t>(hash);
      }
      ++at;
    }
}

// The step by its graph alone: each storage in a place of its own, ops one after the other.
inline Contents program_order(const Graph& graph, Contents contents, uint64_t generator) {
  for (size_t s = 0; s < graph.storages.size(); ++s)
    contents[StorageId{static_cast<int64_t>(s)}].resize(
        static_cast<size_t>(graph.storages[s].bytes));
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    std::vector<const uint8_t*> seen;
    std::vector<uint8_t*> written;
    const auto at = [&](const Access& a) { return contents[a.storage].data() + a.bytes.begin; };
    for (const Access& a : op.reads) seen.push_back(at(a));
    for (const Access& a : op.mutates) seen.push_back(at(a));
    for (const Access& a : op.makes) written.push_back(at(a));
    for (const Access& a : op.mutates) written.push_back(at(a));
    hash_op(graph, OpId{static_cast<int64_t>(i)}, seen, written, generator);
  }
  return contents;
}

class FakeDevice : public Device {
 public:
  enum class Fault { kNone, kError, kException, kStrangeException };

  FakeDevice(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {
    for (int t = 0; t < kTiers; ++t)
      tiers_[static_cast<size_t>(t)].assign(
          static_cast<size_t>(plan.budgets.of(static_cast<Tier>(t))), 0xEE);
  }

  void set_entry(const Contents& contents) {
    for (const BorderItem& item : plan_.entry) set(item, contents);
  }
  // Of what is there at entry, all but the homes.
  void set_batches(const Contents& contents) {
    for (const BorderItem& item : plan_.entry)
      if (!item.home) set(item, contents);
  }
  Contents exit_contents() {
    Contents contents;
    for (const BorderItem& item : plan_.exit) {
      const Residency& r = plan_.residency(item.residency);
      Bytes& bytes = contents[r.part.storage];
      bytes.resize(static_cast<size_t>(graph_.storage(r.part.storage).bytes));
      std::memcpy(bytes.data() + r.part.bytes.begin, at(r.tier, r.address),
                  static_cast<size_t>(r.part.bytes.size()));
    }
    return contents;
  }

  Bytes& tier(Tier tier) { return tiers_[static_cast<size_t>(tier)]; }

  Status begin_step() override {
    ++begins;
    return Done{};
  }
  Status end_step() override {
    ++ends;
    return Done{};
  }
  Status run_op(const RunCall& call) override {
    const Op& op = graph_.op(call.op);
    if (Status failed = maybe_fail(call.instruction); !failed.ok()) return failed;
    std::vector<const uint8_t*> seen;
    std::vector<uint8_t*> written;
    const size_t reads = op.reads.size(), makes = op.makes.size();
    for (size_t i = 0; i < call.addresses.size(); ++i) {
      uint8_t* pointer = at(Tier::kDevice, call.addresses[i]);
      if (i < reads || i >= reads + makes) seen.push_back(pointer);
      if (i >= reads) written.push_back(pointer);
    }
    if (!call.workspace.empty())
      std::memset(at(Tier::kDevice, call.workspace.begin), 0xDD,
                  static_cast<size_t>(call.workspace.size()));
    hash_op(graph_, call.op, seen, written, generator);
    if (call.rerun) rerun_ops.push_back(call.op);
    return Done{};
  }
  Status copy(const CopyCall& call) override {
    if (Status failed = maybe_fail(call.instruction); !failed.ok()) return failed;
    std::memcpy(at(call.to, call.to_address), at(call.from, call.from_address),
                static_cast<size_t>(call.bytes));
    moved[static_cast<size_t>(call.from)][static_cast<size_t>(call.to)] += call.bytes;
    return Done{};
  }
  Status save_generator(OpId op) override {
    saved_[op] = generator;
    return Done{};
  }
  Status rewind_generator(OpId op) override {
    if (!saved_.contains(op)) return device_error("no generator state of op {}", op.value);
    aside_ = generator;
    generator = saved_.at(op);
    return Done{};
  }
  Status resume_generator() override {
    generator = aside_;
    return Done{};
  }

  uint64_t generator = 77;
  InstructionId fault_at;
  Fault fault = Fault::kNone;
  int64_t begins = 0, ends = 0;
  // Bytes really copied, from tier to tier, and the ops run again; of all steps.
  std::array<std::array<std::atomic<int64_t>, kTiers>, kTiers> moved{};
  std::vector<OpId> rerun_ops;

 private:
  uint8_t* at(Tier tier, int64_t address) {
    return tiers_[static_cast<size_t>(tier)].data() + address;
  }
  void set(const BorderItem& item, const Contents& contents) {
    const Residency& r = plan_.residency(item.residency);
    std::memcpy(at(r.tier, r.address), contents.at(r.part.storage).data() + r.part.bytes.begin,
                static_cast<size_t>(r.part.bytes.size()));
  }
  Status maybe_fail(InstructionId instruction) {
    if (instruction != fault_at) return Done{};
    switch (fault) {
      case Fault::kNone:
        return Done{};
      case Fault::kError:
        return device_error("injected");
      case Fault::kException:
        throw std::runtime_error("thrown");
      case Fault::kStrangeException:
        throw 42;
    }
    return Done{};
  }

  const Graph& graph_;
  const Plan& plan_;
  std::array<Bytes, kTiers> tiers_;
  std::map<OpId, uint64_t> saved_;
  uint64_t aside_ = 0;
};

}  // namespace outsize::testing
