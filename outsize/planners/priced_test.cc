#include "outsize/planners/priced.h"

#include <gtest/gtest.h>

#include "outsize/planners/case_testing.h"
#include "outsize/planners/instance_graph.h"

namespace outsize::planning {
namespace {

// cat makes A (40 B) of f (10 B), which took 100 ns to make and is not wanted after that. A is read
// at once, and again after B (60 B) has come and gone.
Setting dear_source() {
  GraphBuilder b;
  b.input("x", 1).activation("f", 10).activation("A", 40).activation("c", 1);
  b.activation("B", 60).activation("e", 1).output("y", 1);
  b.op("dear").reads("x").makes("f");
  b.op("cat").reads("f").makes("A");
  b.op("g").reads("A").makes("c");
  b.op("h").reads("c").makes("B");
  b.op("i").reads("B").makes("e");
  b.op("k").reads("A", "e").makes("y");
  Setting s(b.build(), 10);
  s.profile.ops[0].ns = 100;
  s.profile.ops[1].ns = 1;
  return s;
}

std::optional<PricedSolution> choose(bool swap, bool recompute) {
  const TestCase t(dear_source(), 75, 1000);
  Search search(t.problem);
  Prices prices;
  prices.link_out_per_byte = prices.link_in_per_byte = 1;
  ChooseParams params;
  params.capacity = t.problem.budgets.device;
  params.swap = swap;
  params.recompute = recompute;
  params.stay_bytes = 0;
  std::optional<PricedSolution> solution = choose_by_prices(search, prices, params);
  if (solution) {
    EXPECT_EQ(search.best_ns(), solution->ns);
  }
  return solution;
}

int64_t reruns(const Program& program) {
  int64_t count = 0;
  for (int32_t s : program.order()) count += program.step(s).rerun;
  return count;
}

TEST(InstanceGraph, HasRerunsAsOpsAndInstancesAsStorages) {
  const TestCase t(dear_source(), 1000);
  Program program = plain_program(t.c);
  const int32_t a = t.part(2);
  const auto run = [&](OpId op) { return std::optional(t.profile.ops[op.index()].ns); };
  const auto hold = [](int32_t, int32_t, int64_t) { return int64_t{0}; };
  // A is touched by cat, g and k; dropped between g and k, cat runs again right before k.
  program.drop(a, 1, *program.draft_drop(a, 1, run, hold));
  const InstanceGraph step = instance_graph(t.c, program);
  ASSERT_EQ(step.graph.ops.size(), 7u);
  EXPECT_EQ(step.profile.ops[5].ns, 1);
  ASSERT_EQ(step.graph.ops[5].makes.size(), 1u);
  const Access again = step.graph.ops[5].makes[0];
  EXPECT_EQ(again.bytes.size(), 40);
  EXPECT_NE(again.storage, StorageId(a));
  // f is read by cat both times; k reads the second A, g the first.
  EXPECT_EQ(step.graph.ops[5].reads, step.graph.ops[1].reads);
  EXPECT_EQ(step.graph.ops[2].reads[0].storage, StorageId(a));
  EXPECT_EQ(std::count(step.graph.ops[6].reads.begin(), step.graph.ops[6].reads.end(), again), 1);
}

TEST(Priced, KeepsASmallInputRatherThanRunItsMaker) {
  // While h runs, A, B and c take 101 B; f, B and c 71. So f stays, and cat runs twice: 141 + 1.
  const std::optional<PricedSolution> solution = choose(false, true);
  ASSERT_TRUE(solution);
  EXPECT_EQ(solution->ns, 142);
  EXPECT_EQ(reruns(solution->solution.program), 1);
}

TEST(Priced, RecomputesWhereTheLinkIsTooSlow) {
  // Copying A out takes 40 ns, of which g hides 10.
  const std::optional<PricedSolution> solution = choose(true, true);
  ASSERT_TRUE(solution);
  EXPECT_EQ(solution->ns, 142);
}

TEST(Priced, SwapsWhereThatIsAllItMayDo) {
  // cat ends at 101; A's last byte is out at 141, h and i run to 161, A is back at 201; k takes 10.
  const std::optional<PricedSolution> solution = choose(true, false);
  ASSERT_TRUE(solution);
  EXPECT_EQ(solution->ns, 211);
}

TEST(Priced, HasNothingWhereNothingMayBeDone) { EXPECT_FALSE(choose(false, false)); }

}  // namespace
}  // namespace outsize::planning
