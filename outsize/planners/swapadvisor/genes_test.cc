#include "outsize/planners/swapadvisor/genes.h"

#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/graph/order.h"

namespace outsize::planning::swapadvisor {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::vector<OpId> ops(std::initializer_list<int> ids) {
  std::vector<OpId> out;
  for (int id : ids) out.emplace_back(id);
  return out;
}

TEST(Genes, AScheduleTakesItsHeadFromOneParentAndTheRestInTheOthersOrder) {
  // Section 5.2: the first CR = 2 of one parent, then what is left as the other has it.
  EXPECT_EQ(cross_schedules(ops({2, 0, 1, 3}), ops({0, 1, 3, 2}), 2), ops({2, 0, 1, 3}));
  EXPECT_EQ(cross_schedules(ops({0, 1, 3, 2}), ops({2, 0, 1, 3}), 1), ops({0, 2, 1, 3}));
}

TEST(Genes, SchedulesStayLegal) {
  Random random(5);
  int changed = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Graph graph = random_graph(seed, 30);
    auto before = dependencies_of(graph);
    std::vector<OpId> a = random_topological_order(graph, 1), b = program_order(graph);
    for (size_t cut = 0; cut <= a.size(); cut += 7)
      EXPECT_TRUE(is_legal_order(graph, cross_schedules(a, b, cut)));
    EXPECT_EQ(mutate_schedule(a, before, 0.0, random), a);
    std::vector<OpId> child = mutate_schedule(a, before, 0.1, random);
    EXPECT_TRUE(is_legal_order(graph, child));
    changed += child != a;
  }
  EXPECT_GT(changed, 10);
}

TEST(Genes, RepairsClassesAsThePaperDoes) {
  // Section 5.3, classes from 1 there: [1,2,1,1] becomes [1,2,2,2].
  EXPECT_EQ(repaired_classes({0, 1, 0, 0}), (Classes{0, 1, 1, 1}));
  EXPECT_EQ(cross_classes({0, 1, 2, 3}, {0, 0, 0, 0}, 2), (Classes{0, 1, 1, 1}));
  EXPECT_EQ(cross_classes({0, 0, 0, 0}, {0, 1, 2, 3}, 2), (Classes{0, 0, 1, 2}));
}

TEST(Genes, AMutatedClassTakesItsTailAlong) {
  Random random(1);
  EXPECT_EQ(mutate_classes({0, 0, 1, 1}, 0.0, random), (Classes{0, 0, 1, 1}));
  // Every entry flips: joined where it was apart, apart where it was joined.
  EXPECT_EQ(mutate_classes({0, 0, 1, 1}, 1.0, random), (Classes{0, 1, 1, 2}));
}

TEST(Genes, AveragesAndRepairsCountsAsThePaperDoes) {
  // Section 5.3: per size 8, 1, 4, 4 in the classes [1,2,2,2] is 8 and (1 + 4 + 4) / 3 = 3.
  Counts crossed = cross_counts({8, 1}, {0, 1, 1, 1}, {4}, {0, 0, 0, 0}, {0, 1, 1, 1}, 2);
  EXPECT_EQ(crossed, (Counts{8, 3}));
  // Objects of 1 and 4 MiB: 20 MiB for 12. Each class gives 4 MiB: 4 objects of 1, 1 of 4.
  PoolLimits limits{{1 * kMiB, 2 * kMiB, 3 * kMiB, 4 * kMiB}, 12 * kMiB, {}, {9, 9, 9, 9}};
  EXPECT_EQ(repaired_counts(crossed, {0, 1, 1, 1}, limits, {1, 1}), (Counts{4, 2}));
  // A class that can give up nothing more leaves it to the other: 8 MiB of 4 MiB objects.
  EXPECT_EQ(repaired_counts(crossed, {0, 1, 1, 1}, limits, {8, 1}), (Counts{8, 1}));
}

TEST(Genes, MutatedCountsStayNearAndPositive) {
  Random random(3);
  EXPECT_EQ(mutate_counts({7, 1}, 0.0, random), (Counts{7, 1}));
  int64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    int64_t count = mutate_counts({30}, 1.0, random)[0];
    EXPECT_GE(count, 1);
    sum += count;
  }
  EXPECT_NEAR(static_cast<double>(sum) / 1000, 30, 1.5);
}

TEST(Genes, FindsTheTightestClasses) {
  // op0 holds sizes 1 and 100, op1 two of 60. Apart: 1 + 2 * 60 + 100 = 221. The larger two
  // together: 1 + 2 * 100 = 201. All in one: 2 * 100 = 200.
  PoolLimits limits{{1, 60, 100}, 1000, {{0, 2}, {1, 1}}, {1, 2, 1}};
  EXPECT_EQ(tightest_classes(limits), (Classes{0, 0, 0}));
  // With op0 holding two of size 1 and one of 100, one class would need three of 100.
  limits.together[0] = {0, 0, 2};
  EXPECT_EQ(tightest_classes(limits), (Classes{0, 1, 1}));
  EXPECT_EQ(least_counts({0, 1, 1}, limits), (Counts{2, 2}));
}

TEST(Genes, TheTightestClassesAreTightest) {
  Random random(9);
  for (int round = 0; round < 40; ++round) {
    size_t n = static_cast<size_t>(random.between(1, 8));
    PoolLimits limits;
    for (size_t i = 0; i < n; ++i)
      limits.sizes.push_back((i ? limits.sizes.back() : 0) + random.between(1, 50));
    for (int op = 0; op < 6; ++op) {
      std::vector<int32_t> sizes;
      for (int64_t k = random.between(1, 5); k > 0; --k)
        sizes.push_back(static_cast<int32_t>(random.below(static_cast<int64_t>(n))));
      limits.together.push_back(sizes);
    }
    int64_t best = -1;
    for (uint32_t bits = 0; bits < (1u << (n - 1)); ++bits) {
      Classes classes{0};
      for (size_t i = 1; i < n; ++i)
        classes.push_back(classes.back() + static_cast<int32_t>((bits >> (i - 1)) & 1u));
      int64_t bytes = pool_bytes(least_counts(classes, limits), classes, limits.sizes);
      if (best < 0 || bytes < best) best = bytes;
    }
    Classes found = tightest_classes(limits);
    EXPECT_EQ(pool_bytes(least_counts(found, limits), found, limits.sizes), best) << round;
  }
}

TEST(Genes, FillsWhatIsFree) {
  Random random(2);
  PoolLimits limits{{10, 100}, 1000, {}, {3, 20}};
  Counts filled = filled_counts({1, 1}, {0, 1}, limits, random);
  EXPECT_LE(filled[0], 3);  // no more than there are tensors
  EXPECT_GT(pool_bytes(filled, {0, 1}, limits.sizes), 900);
  EXPECT_LE(pool_bytes(filled, {0, 1}, limits.sizes), 1000);
}

TEST(Genes, SelectionLeansToTheFaster) {
  // Weights e^0 = 1 and e^-1: the first of two is drawn first in 1 / (1 + 1/e) = 73 % of cases.
  Random random(4);
  int first = 0;
  for (int i = 0; i < 2000; ++i) first += select_softmax({100, 200}, 100, 1, random)[0] == 0;
  EXPECT_NEAR(first / 2000.0, 0.731, 0.03);
  EXPECT_EQ(select_softmax({5, 6, 7}, 5, 9, random).size(), 3u);
}

}  // namespace
}  // namespace outsize::planning::swapadvisor
