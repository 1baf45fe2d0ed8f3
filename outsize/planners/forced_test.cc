#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

TEST(SwapEverything, MovesWhatIsNotTouchedThoughThereIsRoom) {
  const Result<Planned> planned = Setting(gap_graph(), 10).plan("swap-everything", 1000);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  // Out: a, and y at the end. In: x before f, a before k. c, d and e are read by the very next op;
  // x stays from f to g.
  EXPECT_EQ(planned->statistics.moved_out, 41);
  EXPECT_EQ(planned->statistics.moved_in, 41);
  EXPECT_EQ(planned->statistics.reruns, 0);
}

TEST(SwapEverything, SaysThatThereIsNowhereToSwapTo) {
  Setting s(gap_graph(), 10);
  const Result<Planned> no_host = s.plan("swap-everything", 1000, 0);
  ASSERT_FALSE(no_host.ok());
  EXPECT_NE(no_host.error().message.find("nowhere to swap to"), std::string::npos);
  s.problem.allow.swap = false;
  EXPECT_FALSE(s.plan("swap-everything", 1000).ok());
}

TEST(RecomputeEverything, RunsAgainWhatItCan) {
  const Result<Planned> planned = Setting(gap_graph(), 10).plan("recompute-everything", 1000);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  // f just before k; and i, as f now stands between it and k.
  EXPECT_EQ(planned->statistics.reruns, 2);
  EXPECT_EQ(planned->statistics.copies, 0);
  EXPECT_EQ(planned->step_ns, 70);
}

TEST(Forced, PlansAtEveryBudgetFromTheFloorOn) {
  RandomGraphOptions options;
  options.largest_units = 1000;
  options.parts = 0;
  int copies = 0, reruns = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Graph graph = random_graph(seed, 40, options);
    Setting s(graph, random_costs(graph, seed));
    s.work = 10;
    const int64_t floor = s.floor();
    for (const char* name : {"swap-everything", "recompute-everything"})
      for (const int64_t budget : {floor + floor / 20, 2 * floor}) {
        const Result<Planned> planned = s.plan(name, budget);
        ASSERT_TRUE(planned.ok()) << seed << ' ' << name << ": " << planned.error().message;
        copies += static_cast<int>(planned->statistics.copies);
        reruns += static_cast<int>(planned->statistics.reruns);
      }
  }
  EXPECT_GT(copies, 1000);
  EXPECT_GT(reruns, 100);
}

}  // namespace
}  // namespace outsize::planning
