// The plan checker against the oracle of check_testing_oracle.h, on small random edits of legal
// plans.
//
//   random graph -> a sequential plan with swaps and reruns -> waits pruned while the checker
//   allows
//   -> edits -> the checker and the oracle must agree on each
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/plan/check.h"
#include "outsize/plan/check_testing.h"
#include "outsize/plan/check_testing_generator.h"
#include "outsize/plan/check_testing_oracle.h"

namespace outsize {
namespace {

Violation checked(const PlanMaker& m) { return check_plan(m.graph, {}, m.plan, m.plan.budgets, 1); }

// Every instruction waits for the last one before it in each other stream; then waits are dropped,
// or moved to the instruction before in that stream, while the plan stays legal.
void add_and_prune_waits(PlanMaker& m, Random& random) {
  std::array<int32_t, kStreams> last;
  last.fill(-1);
  std::vector<int32_t> previous;  // per instruction: the one before in its stream
  for (size_t i = 0; i < m.plan.instructions.size(); ++i) {
    Instruction& instruction = m.plan.instructions[i];
    const auto own = static_cast<size_t>(instruction.stream);
    previous.push_back(last[own]);
    for (size_t s = 0; s < kStreams; ++s)
      if (s != own && last[s] >= 0) instruction.waits.push_back(InstructionId{last[s]});
    std::sort(instruction.waits.begin(), instruction.waits.end());
    last[own] = static_cast<int32_t>(i);
  }
  for (size_t tries = 6 * m.plan.instructions.size(); tries > 0; --tries) {
    auto& waits = m.plan
                      .instructions[static_cast<size_t>(
                          random.below(static_cast<int64_t>(m.plan.instructions.size())))]
                      .waits;
    if (waits.empty()) continue;
    const auto kept = waits;
    const auto at = waits.begin() + random.below(static_cast<int64_t>(waits.size()));
    const int32_t before = previous[at->index()];
    if (before < 0 || random.chance(0.5))
      waits.erase(at);
    else
      *at = InstructionId{before};
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
    if (!checked(m).ok()) waits = kept;
  }
}

// --- edits ---

// Puts the instructions in the order `order` (old ids; some may be left out) and renames the waits.
void reorder(Plan& plan, const std::vector<size_t>& order) {
  std::vector<int32_t> new_id(plan.instructions.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) new_id[order[i]] = static_cast<int32_t>(i);
  std::vector<Instruction> instructions;
  for (const size_t old : order) {
    Instruction instruction = plan.instructions[old];
    std::vector<InstructionId> waits;
    for (const InstructionId wait : instruction.waits)
      if (new_id[wait.index()] >= 0) waits.push_back(InstructionId{new_id[wait.index()]});
    std::sort(waits.begin(), waits.end());
    instruction.waits = waits;
    instructions.push_back(instruction);
  }
  plan.instructions = instructions;
}

void edit(PlanMaker& m, Random& random) {
  Plan& plan = m.plan;
  const auto count = static_cast<int64_t>(plan.instructions.size());
  const auto at = static_cast<size_t>(random.below(count));
  Instruction& instruction = plan.instructions[at];
  const bool copies = instruction.kind == InstructionKind::kCopy;
  const auto any_of = [&](StorageId storage) {
    std::vector<ResidencyId> same;
    for (size_t r = 0; r < plan.residencies.size(); ++r)
      if (plan.residencies[r].part.storage == storage)
        same.push_back(ResidencyId{static_cast<int64_t>(r)});
    return same[static_cast<size_t>(random.below(static_cast<int64_t>(same.size())))];
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < plan.instructions.size(); ++i) order.push_back(i);
  switch (random.below(10)) {
    case 0:
    case 1:
      if (!instruction.waits.empty())
        instruction.waits.erase(instruction.waits.begin() +
                                random.below(static_cast<int64_t>(instruction.waits.size())));
      break;
    case 2: {
      Residency& moved = plan.residencies[static_cast<size_t>(
          random.below(static_cast<int64_t>(plan.residencies.size())))];
      moved.address = std::clamp<int64_t>(moved.address + random.between(-6, 7), 0,
                                          kTierBytes - moved.part.bytes.size());
      break;
    }
    case 3: {
      const auto other = static_cast<size_t>(random.below(count));
      std::swap(order[at], order[random.chance(0.5) ? other : (at + 1) % order.size()]);
      reorder(plan, order);
      break;
    }
    case 4:
      if (copies)
        (random.chance(0.5) ? instruction.from : instruction.to) =
            any_of(plan.residency(instruction.from).part.storage);
      else if (!instruction.operands.empty()) {
        ResidencyId& operand = instruction.operands[static_cast<size_t>(
            random.below(static_cast<int64_t>(instruction.operands.size())))];
        operand = any_of(plan.residency(operand).part.storage);
      }
      break;
    case 5:
      if (copies)
        (random.chance(0.5) ? instruction.bytes.begin : instruction.bytes.end) =
            random.below(plan.residency(instruction.to).part.bytes.end + 1);
      if (instruction.bytes.begin > instruction.bytes.end)
        std::swap(instruction.bytes.begin, instruction.bytes.end);
      break;
    case 6:
      order.erase(order.begin() + static_cast<int64_t>(at));
      reorder(plan, order);
      break;
    case 7:
      if (copies)
        instruction.stream = Stream::kCompute;
      else
        instruction.workspace = {random.below(10), 10 + random.below(6)};
      break;
    case 8:
      if (!copies && random.chance(0.3))
        instruction.kind = instruction.kind == InstructionKind::kRun ? InstructionKind::kRerun
                                                                     : InstructionKind::kRun;
      else
        instruction.waits.clear();
      break;
    default: {
      auto& border = random.chance(0.5) ? plan.entry : plan.exit;
      if (border.empty()) break;
      const auto item = static_cast<size_t>(random.below(static_cast<int64_t>(border.size())));
      if (random.chance(0.3))
        border[item].home = !border[item].home;
      else if (random.chance(0.4))
        border.erase(border.begin() + static_cast<int64_t>(item));
      else
        border[item].residency = any_of(plan.residency(border[item].residency).part.storage);
    }
  }
}

// Kinds that the checker must not cry without harm. The others are rules of form: the oracle does
// not know them (a wait may point forward and yet end; an op handed bytes at two places may yet do
// well).
bool must_be_harm(ViolationKind kind) {
  switch (kind) {
    case ViolationKind::kRace:
    case ViolationKind::kStale:
    case ViolationKind::kMissingOp:
    case ViolationKind::kOrder:
    case ViolationKind::kEntry:
    case ViolationKind::kExit:
      return true;
    default:
      return false;
  }
}

TEST(PlanMutation, CheckerAgreesWithTheOracle) {
#ifdef OUTSIZE_SANITIZED
  constexpr uint64_t kPlans = 100;
#else
  constexpr uint64_t kPlans = 1000;
#endif
  constexpr int kEdits = 20;
  std::map<std::string, int> seen;  // verdicts of the checker
  int copies = 0, reruns = 0, plans = 0;
  for (uint64_t seed = 1; plans < static_cast<int>(kPlans); ++seed) {
    ASSERT_LT(seed, 20 * kPlans) << "the generator gives up too often";
    Random random(seed);
    std::optional<PlanMaker> legal = Generator(random).make();
    if (!legal || legal->plan.instructions.size() > 20) continue;
    ++plans;
    add_and_prune_waits(*legal, random);
    const Violation base = checked(*legal);
    ASSERT_TRUE(base.ok()) << "seed " << seed << ": " << base.where << ": " << base.witness;
    const auto base_harm = Oracle(legal->graph, legal->plan).find_harm(random);
    ASSERT_FALSE(base_harm) << "seed " << seed << ": " << *base_harm;
    for (const Instruction& instruction : legal->plan.instructions) {
      copies += instruction.kind == InstructionKind::kCopy;
      reruns += instruction.kind == InstructionKind::kRerun;
    }
    for (int round = 0; round < kEdits; ++round) {
      PlanMaker edited = *legal;
      for (int64_t edits = random.between(1, 3); edits > 0; --edits)
        if (!edited.plan.instructions.empty()) edit(edited, random);
      const Violation violation = checked(edited);
      const auto harm = Oracle(edited.graph, edited.plan).find_harm(random);
      ++seen[std::string(kViolationKindNames.name(violation.kind))];
      const std::string where =
          fmt::format("seed {} round {}: {}: {}: {}", seed, round,
                      kViolationKindNames.name(violation.kind), violation.where, violation.witness);
      ASSERT_FALSE(harm && violation.ok()) << where << "the checker passes what harms: " << *harm;
      ASSERT_TRUE(harm || !must_be_harm(violation.kind)) << where << ": does no harm";
    }
  }
  // The cases are worth something only if they are of all kinds.
  for (const char* kind :
       {"none", "race", "stale", "missing op", "order", "entry", "exit", "deadlock", "malformed"}) {
    RecordProperty(std::string("verdict_") + kind, seen[kind]);
    EXPECT_GT(seen[kind], static_cast<int>(kPlans / 40)) << kind;
  }
  EXPECT_GT(copies, plans);
  EXPECT_GT(reruns, plans / 20);
}

}  // namespace
}  // namespace outsize
