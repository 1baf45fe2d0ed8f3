#include "outsize/planners/dtr_costs.h"

#include <gtest/gtest.h>

#include <utility>

namespace outsize::planning {
namespace {

// op0 makes A (5 ns), op1 makes B from A (3 ns), op2 makes C from B (2 ns).
DtrCosts chain(DtrNeighbourhood neighbourhood) {
  DtrCosts costs(3, neighbourhood);
  costs.written(0, 5, {});
  costs.written(1, 3, {0});
  costs.written(2, 2, {1});
  return costs;
}

TEST(DtrCosts, CountsTheEvictedNeighbourhood) {
  const std::pair<DtrNeighbourhood, double> expected[] = {{DtrNeighbourhood::kNone, 3},
                                                          {DtrNeighbourhood::kAncestors, 3 + 5},
                                                          {DtrNeighbourhood::kEvicted, 3 + 5 + 2},
                                                          {DtrNeighbourhood::kClasses, 3 + 5 + 2}};
  for (const auto& [neighbourhood, cost] : expected) {
    DtrCosts costs = chain(neighbourhood);
    EXPECT_EQ(costs.cost(1), 3) << "nothing is evicted";
    costs.evicted(0);
    costs.evicted(2);
    EXPECT_EQ(costs.cost(1), cost);
    costs.remade(0);
    costs.remade(2);
    EXPECT_EQ(costs.cost(1), 3) << "all is there again";
  }
}

TEST(DtrCosts, ClassesStayJoinedWhenAPartIsMadeAgain) {
  // B was between A and C: without it they still count as one, and each costs the other's part.
  for (const auto neighbourhood : {DtrNeighbourhood::kClasses, DtrNeighbourhood::kEvicted}) {
    DtrCosts costs(4, neighbourhood);
    costs.written(0, 5, {});
    costs.written(1, 3, {0});
    costs.written(2, 2, {1});
    costs.written(3, 1, {2});
    for (int32_t part : {0, 1, 2}) costs.evicted(part);
    EXPECT_EQ(costs.cost(3), 1 + 2 + 3 + 5);
    costs.remade(1);
    EXPECT_EQ(costs.cost(3), neighbourhood == DtrNeighbourhood::kClasses ? 1 + 2 + 5 : 1 + 2);
  }
}

}  // namespace
}  // namespace outsize::planning
