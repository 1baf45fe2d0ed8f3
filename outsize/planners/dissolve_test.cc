#include "outsize/planners/dissolve.h"

#include <gtest/gtest.h>

#include "outsize/bound/floor.h"
#include "outsize/graph/builder.h"
#include "outsize/graph/generate.h"
#include "outsize/profile/generate_costs.h"

namespace outsize::planning {
namespace {

// op0 makes A; op1 makes c, op2 d from c, op3 e from d; op4 reads A and e.
struct Fixture {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Deadline deadline = Deadline::after_work(10);
  Problem problem;
  Case c;
  int32_t a = 0;

  Fixture() {
    GraphBuilder b;
    b.input("x", 1).activation("A", 40).activation("c", 1).activation("d", 1).activation("e", 1);
    b.output("y", 1);
    b.op("f").reads("x").makes("A");
    b.op("g").reads("x").makes("c");
    b.op("h").reads("c").makes("d");
    b.op("i").reads("d").makes("e");
    b.op("k").reads("A", "e").makes("y");
    graph = b.build();
    profile = equal_costs(graph, 10);
    problem.graph = &graph;
    problem.profile = &profile;
    problem.machine = &machine;
    problem.budgets = {50, 1000, 0};
    problem.deadline = &deadline;
    c = case_of(problem);
    for (size_t p = 0; p < c.parts.parts.size(); ++p)
      if (c.parts.parts[p].where.storage == StorageId(1)) a = static_cast<int32_t>(p);
  }
  bool away_after_dissolving(Interval ranks, bool swap = true) {
    ChooseParams params;
    params.capacity = 50;
    params.swap = swap;
    Chooser chooser(problem, Prices{}, params);
    Program program = plain_program(c);
    dissolve(chooser, program, ranks);
    return program.instance(a).touches[0].away;
  }
};

TEST(Dissolve, TakesAwayWhatLiesUntouchedAtTheRanks) {
  Fixture f;
  EXPECT_TRUE(f.away_after_dissolving({1, 2}));
  EXPECT_TRUE(f.away_after_dissolving({3, 4}));
  EXPECT_FALSE(f.away_after_dissolving({0, 1}));  // made there
  EXPECT_FALSE(f.away_after_dissolving({4, 5}));  // read there
  EXPECT_FALSE(f.away_after_dissolving({1, 2}, false));
}

Result<Planned> plan_at(const Graph& graph, const Profile& profile, int64_t device) {
  Deadline deadline = Deadline::after_work(1);
  const Machine machine = unit_machine();
  Problem problem;
  problem.graph = &graph;
  problem.profile = &profile;
  problem.machine = &machine;
  problem.budgets = {device, int64_t{1} << 40, 0};
  problem.deadline = &deadline;
  return run_planner("outsize", problem);
}

TEST(Dissolve, EveryRandomGraphHasAPlanTwoPercentAboveItsFloor) {
  RandomGraphOptions options;
  options.largest_units = 1000;  // so that two percent are more than a unit
  options.parts = 0;             // of a persistent storage all is there or nothing
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Graph graph = random_graph(seed, 50, options);
    const Profile profile = random_costs(graph, seed);
    const int64_t floor = floor_of(graph, workspaces_of(profile)).bytes;
    const Result<Planned> planned = plan_at(graph, profile, floor + floor / 50);
    EXPECT_TRUE(planned.ok()) << "seed " << seed << ": " << planned.error().message;
  }
}

TEST(Dissolve, TransformersAndUNetsHavePlansTwoPercentAboveTheirFloors) {
  for (const Graph& graph : {transformer_graph({}), unet_graph(4, 1 << 20)}) {
    const Profile profile = equal_costs(graph, 1000);
    const int64_t floor = floor_of(graph, workspaces_of(profile)).bytes;
    const Result<Planned> planned = plan_at(graph, profile, floor + floor / 50);
    EXPECT_TRUE(planned.ok()) << planned.error().message;
  }
}

}  // namespace
}  // namespace outsize::planning
