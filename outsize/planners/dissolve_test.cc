#include "outsize/planners/dissolve.h"

#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

bool away_after_dissolving(const TestCase& t, Interval ranks, bool swap = true) {
  ChooseParams params;
  params.capacity = t.problem.budgets.device;
  params.swap = swap;
  Chooser chooser(t.problem, Prices{}, params);
  Program program = plain_program(t.c);
  dissolve(chooser, program, ranks);
  return program.instance(t.part(1)).touches[0].away;
}

TEST(Dissolve, TakesAwayWhatLiesUntouchedAtTheRanks) {
  const TestCase t(gap_graph(), 10, 50);
  EXPECT_TRUE(away_after_dissolving(t, {1, 2}));
  EXPECT_TRUE(away_after_dissolving(t, {3, 4}));
  EXPECT_FALSE(away_after_dissolving(t, {0, 1}));  // made there
  EXPECT_FALSE(away_after_dissolving(t, {4, 5}));  // read there
  EXPECT_FALSE(away_after_dissolving(t, {1, 2}, false));
}

Result<Planned> plan_above_floor(Graph graph, Profile profile) {
  Setting s(std::move(graph), std::move(profile));
  s.work = 1;
  return s.plan("outsize", s.floor() + s.floor() / 50);
}

TEST(Dissolve, EveryRandomGraphHasAPlanTwoPercentAboveItsFloor) {
  RandomGraphOptions options;
  options.largest_units = 1000;  // so that two percent are more than a unit
  options.parts = 0;             // of a persistent storage all is there or nothing
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Graph graph = random_graph(seed, 50, options);
    const Result<Planned> planned = plan_above_floor(graph, random_costs(graph, seed));
    EXPECT_TRUE(planned.ok()) << "seed " << seed << ": " << planned.error().message;
  }
}

TEST(Dissolve, TransformersAndUNetsHavePlansTwoPercentAboveTheirFloors) {
  for (const Graph& graph : {transformer_graph({}), unet_graph(4, 1 << 20)}) {
    const Result<Planned> planned = plan_above_floor(graph, equal_costs(graph, 1000));
    EXPECT_TRUE(planned.ok()) << planned.error().message;
  }
}

}  // namespace
}  // namespace outsize::planning
