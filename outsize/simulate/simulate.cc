#include "outsize/simulate/simulate.h"

#include <algorithm>
#include <limits>

#include "outsize/simulate/engine.h"
#include "outsize/simulate/work.h"

namespace outsize {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// The life of a residency, in positions of the list of events: bytes from `begin` to `end`. Entry
// content begins at -1, exit content ends never.
struct Life {
  int32_t begin = kNever;
  int32_t first_touch = kNever;  // begins, should nothing ever write it
  int32_t end = -1;
};

// Calls touch(residency, writes) for all that an instruction touches.
template <typename Touch>
void each_residency(const Graph& graph, const Instruction& instruction, Touch&& touch) {
  if (instruction.kind == InstructionKind::kCopy) {
    touch(instruction.from, false);
    touch(instruction.to, true);
    return;
  }
  const size_t reads = graph.op(instruction.op).reads.size();
  for (size_t k = 0; k < instruction.operands.size(); ++k)
    touch(instruction.operands[k], k >= reads);
}

std::vector<Life> lives_of(const Graph& graph, const Plan& plan, const std::vector<Event>& events) {
  std::vector<Life> lives(plan.residencies.size());
  for (const BorderItem& item : plan.entry) lives[item.residency.index()].begin = -1;
  for (size_t e = 0; e < events.size(); ++e) {
    const auto at = static_cast<int32_t>(e);
    const auto& instruction = plan.instructions[static_cast<size_t>(events[e].instruction)];
    each_residency(graph, instruction, [&](ResidencyId id, bool writes) {
      Life& life = lives[id.index()];
      if (!events[e].begins) {
        life.end = at;
        return;
      }
      life.first_touch = std::min(life.first_touch, at);
      if (writes) life.begin = std::min(life.begin, at);
    });
  }
  for (Life& life : lives)
    if (life.begin == kNever) life.begin = life.first_touch;
  for (const BorderItem& item : plan.exit)
    if (lives[item.residency.index()].begin != kNever) lives[item.residency.index()].end = kNever;
  return lives;
}

// How the tiers fill and empty, event by event.
class Levels {
 public:
  Levels(const Plan& plan, const std::vector<Event>& events, const std::vector<Life>& lives)
      : events_(events) {
    for (auto& changes : changes_) changes.assign(events.size() + 1, 0);
    for (size_t r = 0; r < lives.size(); ++r) {
      if (lives[r].begin == kNever) continue;
      const Residency& residency = plan.residencies[r];
      const auto tier = static_cast<size_t>(residency.tier);
      use(tier, residency.range());
      if (lives[r].begin < 0)
        at_entry_[tier] += residency.range().size();
      else
        changes_[tier][slot(lives[r].begin)] += residency.range().size();
      if (lives[r].end != kNever) changes_[tier][slot(lives[r].end)] -= residency.range().size();
    }
    for (size_t e = 0; e < events.size(); ++e) {
      const auto& instruction = plan.instructions[static_cast<size_t>(events[e].instruction)];
      if (instruction.kind == InstructionKind::kCopy || instruction.workspace.empty()) continue;
      const int64_t bytes = instruction.workspace.size();
      constexpr auto kDevice = static_cast<size_t>(Tier::kDevice);
      use(kDevice, instruction.workspace);
      changes_[kDevice][slot(static_cast<int32_t>(e))] += events[e].begins ? bytes : -bytes;
    }
  }

  std::array<TierUse, kTiers> take() {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      if (!used_[tier]) continue;
      int64_t live = at_entry_[tier];
      add_level(tier, 0, live);
      for (size_t i = 0; i < changes_[tier].size(); ++i) {
        if (changes_[tier][i] == 0) continue;
        live += changes_[tier][i];
        add_level(tier, i == 0 ? 0 : events_[i - 1].ns, live);
      }
    }
    return std::move(uses_);
  }

 private:
  // Slot 0 is the moment before the first event, for entry content that nothing touches.
  static size_t slot(int32_t event) { return static_cast<size_t>(event + 1); }

  void use(size_t tier, Interval range) {
    used_[tier] = true;
    uses_[tier].extent = std::max(uses_[tier].extent, range.end);
  }

  void add_level(size_t tier, int64_t ns, int64_t live) {
    uses_[tier].levels.push_back({ns, live});
    uses_[tier].peak_live_bytes = std::max(uses_[tier].peak_live_bytes, live);
  }

  const std::vector<Event>& events_;
  std::array<std::vector<int64_t>, kTiers> changes_;  // after each slot
  std::array<int64_t, kTiers> at_entry_ = {};
  std::array<bool, kTiers> used_ = {};
  std::array<TierUse, kTiers> uses_;
};

void add_moved(const std::vector<Work>& works, Simulation& simulation) {
  for (const Work& work : works) {
    if (work.road == Road::kOut) simulation.moved_out += work.bytes;
    if (work.road == Road::kIn) simulation.moved_in += work.bytes;
    if (work.road == Road::kWrite) simulation.moved_write += work.bytes;
    if (work.road == Road::kRead) simulation.moved_read += work.bytes;
  }
}

}  // namespace

Result<Simulation> simulate(const Graph& graph, const Profile& profile, const Machine& machine,
                            const Plan& plan) {
  const Result<std::vector<Work>> works = works_of(graph, profile, machine, plan);
  if (!works.ok()) return works.error();
  std::vector<Event> events;
  events.reserve(2 * plan.instructions.size());
  const Result<int64_t> step_ns = Engine(machine, plan, *works).run(&events);
  if (!step_ns.ok()) return step_ns.error();

  Simulation simulation;
  simulation.step_ns = *step_ns;
  simulation.spans.resize(plan.instructions.size());
  for (const Event& event : events) {
    Span& span = simulation.spans[static_cast<size_t>(event.instruction)];
    (event.begins ? span.begin_ns : span.end_ns) = event.ns;
  }
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const Instruction& instruction = plan.instructions[i];
    const Span& span = simulation.spans[i];
    simulation.busy_ns[static_cast<size_t>(instruction.stream)] += span.end_ns - span.begin_ns;
    if (instruction.kind == InstructionKind::kRun) simulation.compute_ns += (*works)[i].ns;
    if (instruction.kind == InstructionKind::kRerun) simulation.recompute_ns += (*works)[i].ns;
  }
  simulation.stall_ns = simulation.step_ns - simulation.compute_ns - simulation.recompute_ns;
  add_moved(*works, simulation);
  simulation.tiers = Levels(plan, events, lives_of(graph, plan, events)).take();
  return simulation;
}

Result<int64_t> simulated_ns(const Graph& graph, const Profile& profile, const Machine& machine,
                             const Plan& plan) {
  const Result<std::vector<Work>> works = works_of(graph, profile, machine, plan);
  if (!works.ok()) return works.error();
  return Engine(machine, plan, *works).run(nullptr);
}

}  // namespace outsize
