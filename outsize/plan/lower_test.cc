#include "outsize/plan/lower.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"
#include "outsize/plan/check.h"

namespace outsize {
namespace {

std::vector<int32_t> waits_of(const Plan& plan, size_t instruction) {
  std::vector<int32_t> out;
  for (InstructionId id : plan.instructions[instruction].waits) out.push_back(id.value);
  return out;
}

struct Case {
  Graph graph;
  Plan plan;
  ResidencyId residency(Tier tier, int64_t storage, int64_t bytes, int64_t address) {
    plan.residencies.push_back({tier, {StorageId(storage), {0, bytes}}, address});
    return ResidencyId(static_cast<int64_t>(plan.residencies.size()) - 1);
  }
  void run(int64_t op, std::vector<ResidencyId> operands, Interval workspace = {}) {
    Instruction i;
    i.op = OpId(op);
    i.operands = std::move(operands);
    i.workspace = workspace;
    plan.instructions.push_back(i);
  }
  void copy(Stream stream, ResidencyId from, ResidencyId to) {
    Instruction i;
    i.stream = stream;
    i.kind = InstructionKind::kCopy;
    i.from = from;
    i.to = to;
    i.bytes = plan.residency(from).part.bytes;
    plan.instructions.push_back(i);
  }
};

// op0 makes A; op1 makes B (over A's place); op2 reads A and B.
Case swap_case() {
  Case c;
  GraphBuilder b;
  b.activation("A", 64).activation("B", 64).output("y", 8);
  b.op("op0").makes("A");
  b.op("op1").makes("B");
  b.op("op2").reads("A", "B").makes("y");
  c.graph = b.build();
  ResidencyId a0 = c.residency(Tier::kDevice, 0, 64, 0);
  ResidencyId ah = c.residency(Tier::kHost, 0, 64, 0);
  ResidencyId b0 = c.residency(Tier::kDevice, 1, 64, 0);
  ResidencyId a1 = c.residency(Tier::kDevice, 0, 64, 64);
  ResidencyId y = c.residency(Tier::kDevice, 2, 8, 128);
  c.run(0, {a0});                // #0
  c.copy(Stream::kOut, a0, ah);  // #1
  c.run(1, {b0});                // #2
  c.copy(Stream::kIn, ah, a1);   // #3
  c.run(2, {a1, b0, y});         // #4
  c.plan.budgets = {192, 64, 0};
  c.plan.exit = {{y, false}};
  return c;
}

TEST(Lower, WaitsForEachConflictOfAnotherStream) {
  Case c = swap_case();
  Plan plan = lower(c.graph, c.plan);
  EXPECT_EQ(waits_of(plan, 0), (std::vector<int32_t>{}));
  EXPECT_EQ(waits_of(plan, 1), (std::vector<int32_t>{0}));  // reads what #0 wrote
  EXPECT_EQ(waits_of(plan, 2), (std::vector<int32_t>{1}));  // writes where #1 reads
  EXPECT_EQ(waits_of(plan, 3), (std::vector<int32_t>{1}));  // reads what #1 wrote
  EXPECT_EQ(waits_of(plan, 4), (std::vector<int32_t>{3}));  // #2 comes before it in its stream
  Violation v = check_plan(c.graph, {}, plan, c.plan.budgets, 1);
  EXPECT_TRUE(v.ok()) << v.where << ": " << v.witness;
}

TEST(Lower, LeavesOutWhatFollowsFromOtherWaits) {
  // #3 brings A in to where #2's workspace was; #2 waited for #1, so #3 needs #2 alone.
  Case c = swap_case();
  c.plan.instructions[2].workspace = {64, 96};
  Plan plan = lower(c.graph, c.plan);
  EXPECT_EQ(waits_of(plan, 3), (std::vector<int32_t>{2}));
  EXPECT_TRUE(check_plan(c.graph, {}, plan, c.plan.budgets, 1).ok());
}

TEST(Lower, EveryWaitIsNeeded) {
  Case c = swap_case();
  Plan plan = lower(c.graph, c.plan);
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    for (size_t w = 0; w < plan.instructions[i].waits.size(); ++w) {
      Plan without = plan;
      without.instructions[i].waits.erase(without.instructions[i].waits.begin() +
                                          static_cast<std::ptrdiff_t>(w));
      EXPECT_FALSE(check_plan(c.graph, {}, without, c.plan.budgets, 1).ok())
          << "instruction " << i << ", wait " << w;
    }
  }
}

TEST(Lower, ReadersOfOneWriterDontWaitForOneAnother) {
  GraphBuilder b;
  b.input("x", 16).output("y", 8);
  b.op("op0").reads("x").makes("y");
  Case c;
  c.graph = b.build();
  ResidencyId x = c.residency(Tier::kDevice, 0, 16, 0);
  ResidencyId y = c.residency(Tier::kDevice, 1, 8, 16);
  ResidencyId h = c.residency(Tier::kHost, 0, 16, 0);
  c.copy(Stream::kOut, x, h);
  c.run(0, {x, y});
  c.plan.entry = {{x, false}};
  c.plan.exit = {{y, false}};
  Plan plan = lower(c.graph, c.plan);
  EXPECT_TRUE(plan.instructions[1].waits.empty());
}

TEST(Lower, DropsEarlierWaits) {
  Case c = swap_case();
  c.plan.instructions[4].waits = {InstructionId(0), InstructionId(1)};
  EXPECT_EQ(waits_of(lower(c.graph, c.plan), 4), (std::vector<int32_t>{3}));
}

}  // namespace
}  // namespace outsize
