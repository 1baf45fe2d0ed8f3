#include <gtest/gtest.h>

#include "outsize/bound/floor.h"
#include "outsize/graph/builder.h"
#include "outsize/graph/generate.h"
#include "outsize/planners/planner.h"
#include "outsize/profile/generate_costs.h"

namespace outsize {
namespace {

struct Setting {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Freedoms allow;

  Result<Planned> plan(const std::string& name, int64_t device, int64_t host = 1 << 30) const {
    Deadline deadline = Deadline::after_work(10);
    Problem problem;
    problem.graph = &graph;
    problem.profile = &profile;
    problem.machine = &machine;
    problem.budgets = {device, host, 0};
    problem.allow = allow;
    problem.deadline = &deadline;
    return run_planner(name, problem);
  }
};

// f makes a (40 B), g, h and i make something small, one from the other; k reads a and the last.
Setting gap_setting() {
  GraphBuilder b;
  b.input("x", 1).activation("a", 40).activation("c", 1).activation("d", 1).activation("e", 1);
  b.output("y", 1);
  b.op("f").reads("x").makes("a");
  b.op("g").reads("x").makes("c");
  b.op("h").reads("c").makes("d");
  b.op("i").reads("d").makes("e");
  b.op("k").reads("a", "e").makes("y");
  Setting s;
  s.graph = b.build();
  s.profile = equal_costs(s.graph, 10);
  return s;
}

TEST(SwapEverything, MovesWhatIsNotTouchedThoughThereIsRoom) {
  const Result<Planned> planned = gap_setting().plan("swap-everything", 1000);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  // Out: a, and y at the end. In: x before f, a before k. c, d and e are read by the very next op;
  // x stays from f to g.
  EXPECT_EQ(planned->statistics.moved_out, 41);
  EXPECT_EQ(planned->statistics.moved_in, 41);
  EXPECT_EQ(planned->statistics.reruns, 0);
}

TEST(SwapEverything, SaysThatThereIsNowhereToSwapTo) {
  Setting s = gap_setting();
  const Result<Planned> no_host = s.plan("swap-everything", 1000, 0);
  ASSERT_FALSE(no_host.ok());
  EXPECT_NE(no_host.error().message.find("nowhere to swap to"), std::string::npos);
  s.allow.swap = false;
  EXPECT_FALSE(s.plan("swap-everything", 1000).ok());
}

TEST(RecomputeEverything, RunsAgainWhatItCan) {
  const Result<Planned> planned = gap_setting().plan("recompute-everything", 1000);
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
    Setting s;
    s.graph = random_graph(seed, 40, options);
    s.profile = random_costs(s.graph, seed);
    const int64_t floor = floor_of(s.graph, workspaces_of(s.profile)).bytes;
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
}  // namespace outsize
