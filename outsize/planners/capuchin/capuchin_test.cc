#include "outsize/planners/capuchin/capuchin.h"

#include <algorithm>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning::capuchin {
namespace {

std::set<int32_t> set_of(std::initializer_list<int32_t> parts) { return parts; }

// The paper's T1 -> T2 -> T3 -> T4, of which T1, T2 and T4 are candidates; 10 ns an op.
std::vector<Remake> papers_example() {
  return {{1, 10, {}, 10, 0}, {2, 40, {1}, 10, 0}, {4, 40, {2}, 20, 0}};
}

TEST(CapuchinRemakes, AChoiceChangesWhatTheOthersCost) {
  Remakes remakes(papers_example());
  EXPECT_EQ(remakes.best()->tensor, 2);  // 4 bytes per ns, T4 gives 2
  remakes.choose(2);
  EXPECT_EQ(remakes.find(4)->sources, set_of({1}));  // T2's source
  EXPECT_EQ(remakes.find(4)->run_ns, 30);
  EXPECT_EQ(remakes.find(1)->cost_ns(), 20);  // itself, and again for T2
  remakes.choose(4);
  remakes.choose(1);
  EXPECT_EQ(remakes.best(), nullptr);

  Remakes unchanged(papers_example(), false);
  unchanged.choose(2);
  EXPECT_EQ(unchanged.find(4)->run_ns, 20);
  EXPECT_EQ(unchanged.find(1)->cost_ns(), 10);
}

TEST(CapuchinRemakes, RepetitionsCountForEachThatStartsThere) {
  Remakes remakes(
      {{1, 10, {}, 10, 0}, {2, 10, {1}, 10, 0}, {3, 10, {2}, 10, 0}, {4, 10, {2}, 5, 0}});
  remakes.choose(3);
  EXPECT_EQ(remakes.find(2)->extra_ns, 10);
  remakes.choose(4);
  remakes.choose(2);  // now 3 and 4 start from T1, as T2 does: it would be made three times more
  EXPECT_EQ(remakes.find(1)->extra_ns, 30);
}

// t1 to t4 (10 B each), one made from the other; `big` wants 50 B more. Then t4, t2, t1 are read
// again, and t3 before or after t4. Parts 0 to 4: x, t1 ... t4.
Graph lineage_graph(bool t3_is_there) {
  GraphBuilder b;
  b.input("x", 1);
  for (const char* t : {"t1", "t2", "t3", "t4"}) b.activation(t, 10);
  for (const char* y : {"p", "q", "r", "s", "u"}) b.activation(y, 1);
  b.op("f1").reads("x").makes("t1").phase("forward");
  b.op("f2").reads("t1").makes("t2").phase("forward");
  b.op("f3").reads("t2").makes("t3").phase("forward");
  b.op("f4").reads("t3").makes("t4").phase("forward");
  b.op("idle").reads("x").makes("p").phase("forward");
  b.op("big").reads("t3", "x").makes("q").phase("backward");
  b.op("b4").reads("t4").makes("r").phase("backward");
  if (t3_is_there) b.op("b3").reads("t3").makes("u").phase("backward");
  b.op("b2").reads("t2", "x").makes("s").phase("backward");
  if (!t3_is_there) b.op("b3").reads("s").makes("u").phase("backward");
  b.op("b1").reads("t1", "x").mutates("s").phase("backward");
  return b.build();
}

struct LineageCase : TestCase {
  explicit LineageCase(bool t3_is_there)
      : TestCase(
            [&] {
              Setting s(lineage_graph(t3_is_there), 10);
              s.profile.ops[5].workspace_bytes = 50;
              return s;
            }(),
            60) {}
};

TEST(CapuchinPolicy, StartsFromWhatIsThere) {
  for (bool there : {false, true}) {
    LineageCase t(there);
    const std::vector<Pair> pairs = pairs_of(t.c, 60);
    ASSERT_EQ(pairs.size(), 3u);  // t1, t2, t4; t3 and x are read by `big` itself
    const std::vector<Remake> remakes = remakes_of(t.c, pairs);
    ASSERT_EQ(remakes.size(), 3u);
    // b4 is later than t3's last access: t4 starts from t2. With b3 after it, from t3.
    const Remake& t4 = remakes.back();
    EXPECT_EQ(t4.tensor, 4);
    EXPECT_EQ(t4.sources, there ? set_of({}) : set_of({2}));
    EXPECT_EQ(t4.run_ns, there ? 10 : 20);
  }
}

TEST(CapuchinPolicy, FreeTimeIsWhatCopiesLeave) {
  LineageCase t(false);
  const std::vector<Pair> pairs = pairs_of(t.c, 60);
  // t1 leaves when f2 has ended, at 20, and is read by b1 from 90: 70 less two copies of 10.
  EXPECT_EQ(pairs[0].free_ns(), 50);
  EXPECT_EQ(pairs[1].free_ns(), 70 - 30 - 20);  // t2, by f3 and b2
}

Pair pair_of(int64_t leaves, int64_t back, int64_t copy_ns) {
  Pair p;
  p.leaves = leaves, p.back = back, p.out_ns = p.in_ns = copy_ns;
  return p;
}

TEST(CapuchinPolicy, ACopyWaitsForTheOneBeforeIt) {
  const std::vector<Pair> both{pair_of(10, 90, 20), pair_of(20, 80, 20)};
  EXPECT_EQ(exposed_ns({both[0]}), 0);
  EXPECT_EQ(exposed_ns({both[1]}), 0);
  // Out 10-30-50; in 70-90 and 50-70: just so. A third, out 50-70, in 30-50, is 40 late.
  EXPECT_EQ(exposed_ns(both), 0);
  std::vector<Pair> three = both;
  three.push_back(pair_of(30, 70, 20));
  EXPECT_EQ(exposed_ns(three), 40);
}

// A chain of convolutions: conv_i' needs a_(i-1), so a_0 has the longest gap, a_(n-2) the shortest.
struct Chain : TestCase {
  explicit Chain(int64_t device, int n = 8) : TestCase(convolutions(n, 10), 10, device) {
    // Two ops beside each copy.
    machine.out.bytes_per_s = machine.in.bytes_per_s = 500'000'000;
  }
  std::optional<Decision> decided(const Rules& rules = {}) const {
    Trouble trouble;
    Feedback feedback{std::vector<int64_t>(c.parts.parts.size(), 0), {}};
    return decide(c, problem.budgets.device, rules, feedback, trouble);
  }
  int64_t step_ns(const Rules& rules = {}) {
    const std::optional<Decision> decision = decided(rules);
    EXPECT_TRUE(decision);
    return decision ? run(*decision, apart_from_room()).step_ns : 0;
  }
  // Addresses cost no waits but those for room.
  static RealiseOptions apart_from_room() {
    return {CopyStyle::kWriteBehind, Effort::kThorough, {}};
  }
};

std::vector<int32_t> parts_of(const std::vector<Pair>& pairs) {
  std::vector<int32_t> out;
  for (const Pair& p : pairs) out.push_back(p.gap.instance);
  return out;
}

TEST(CapuchinPolicy, SwapsTheLongestFreeTimeFirst) {
  // All kept, conv8' needs a0 to a8, 8 weights and its gradient: 99.
  Chain t(79);
  const Choice by_time = choose(t.c, 79, {});
  EXPECT_EQ(parts_of(by_time.swaps), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(by_time.remakes.empty());
  // With the shortest gaps in front in the order of accesses, other tensors would go.
  GraphBuilder b;
  b.input("x", 10).input("z", 10).activation("p", 1).activation("q", 1).activation("r", 1);
  b.activation("s", 1).output("y", 1);
  b.op("f1").reads("z").makes("p");
  b.op("f2").reads("x").makes("q");
  b.op("big").reads("q").makes("r");
  b.op("g1").reads("r", "p").makes("s");
  b.op("g2").reads("z", "s").mutates("p");
  for (int i = 0; i < 4; ++i) b.op("h").reads("s").mutates("p");
  b.op("g3").reads("x", "p").makes("y");
  Setting s(b.build(), 10);
  s.profile.ops[2].workspace_bytes = 20;
  TestCase two(s, 35);
  EXPECT_EQ(parts_of(choose(two.c, 35, {}).swaps), (std::vector<int32_t>{0}));
  EXPECT_EQ(parts_of(choose(two.c, 35, {.free_time = false}).swaps), (std::vector<int32_t>{1}));
}

TEST(CapuchinPolicy, RemakesOnlyWhereSwapsAreNotHidden) {
  Chain t(39);
  const Choice both = choose(t.c, 39, {});
  EXPECT_FALSE(both.swaps.empty());
  EXPECT_FALSE(both.remakes.empty());
  EXPECT_GT(exposed_ns(choose(t.c, 39, {.recompute = false}).swaps), exposed_ns(both.swaps));
  EXPECT_TRUE(choose(t.c, 39, {.swap = false}).swaps.empty());
  // With a link to itself each copy but the last few would be hidden.
  EXPECT_GT(choose(t.c, 39, {.lanes = false}).swaps.size(), both.swaps.size());
}

TEST(Capuchin, ComesBackJustInTime) {
  Chain t(79);
  const Decision d = *t.decided();
  // conv1' starts at 150, the copy takes 20: from 130 on, at conv3'. a1 is due at 140, and must
  // have come by 130: from 110 on.
  EXPECT_EQ(t.move(d, 0, 0)->arrive, 13);
  EXPECT_EQ(t.move(d, 1, 1)->arrive, 11);
  EXPECT_EQ(t.step_ns(), 160);
  // At the access itself, each takes 20 more.
  EXPECT_EQ(t.move(*t.decided({.in_trigger = false}), 0, 0)->arrive, 15);
  EXPECT_EQ(t.step_ns({.in_trigger = false}), 200);
  // As if it were alone, a1 comes from 120 to 140, and a0 is there at 160.
  EXPECT_EQ(t.step_ns({.lanes = false}), 170);
}

TEST(Capuchin, FeedbackBringsInEarlierWhatWasLate) {
  Chain t(79);
  const auto ns = [&](const Rules& rules) {
    Search search(t.problem);
    EXPECT_TRUE(plan_with(search, rules).ok());
    return search.best_ns();
  };
  EXPECT_EQ(ns({.lanes = false, .feedback = false}), 170);
  EXPECT_EQ(ns({.lanes = false}), 160);
}

TEST(Capuchin, OpsDontWaitForCopiesOut) {
  Chain t(79);
  const Decision d = *t.decided();
  EXPECT_EQ(t.move(d, 0, 0)->release, 3);  // 10 to 30
  EXPECT_EQ(t.step_ns(), 160);
  // conv2 waits for a0, 10 to 30, conv3 for a1.
  EXPECT_EQ(t.step_ns({.decoupled = false}), 200);
}

// t1 to t4 as the paper's: dropped and made again for b4, then b3 and b2. Parts 0 to 4: x, t1 ...
// t4.
Graph collective_graph() {
  GraphBuilder b;
  b.input("x", 10);
  for (const char* t : {"t1", "t2", "t3", "t4"}) b.activation(t, 10);
  for (const char* y : {"p", "q", "r", "s"}) b.activation(y, 1);
  b.op("f1").reads("x").makes("t1").phase("forward");
  b.op("f2").reads("t1").makes("t2").phase("forward");
  b.op("f3").reads("t2").makes("t3").phase("forward");
  b.op("f4").reads("t3").makes("t4").phase("forward");
  b.op("f5").reads("t4").makes("p").phase("forward");
  b.op("big").reads("p").makes("q").phase("backward");
  b.op("b4").reads("q", "t4").makes("r").phase("backward");
  b.op("b3").reads("r", "t3").makes("s").phase("backward");
  b.op("b2").reads("s", "t2").mutates("p").phase("backward");
  b.op("b1").reads("x", "t1", "p").mutates("s").phase("backward");
  return b.build();
}

TEST(Capuchin, OneRecomputationServesThoseThatFollow) {
  Setting s(collective_graph(), 10);
  s.profile.ops[5].workspace_bytes = 40;
  TestCase t(s, 56);
  const auto reruns = [&](const TestCase& at, const Rules& rules) {
    Trouble trouble;
    Feedback feedback{std::vector<int64_t>(at.c.parts.parts.size(), 0), {}};
    const std::optional<Decision> d =
        decide(at.c, at.problem.budgets.device, rules, feedback, trouble);
    EXPECT_TRUE(d);
    return d ? static_cast<int64_t>(d->program.size()) - 10 : -1;
  };
  const Rules collective{.swap = false}, each{.swap = false, .collective = false};
  // b4 needs t4: f1 to f4, and t1 to t3 are kept. Each for itself: 4 + 3 + 2 + 1.
  EXPECT_EQ(reruns(t, collective), 4);
  EXPECT_EQ(reruns(t, each), 10);
}

TEST(Capuchin, WhatIsLeftIsSentAwayOnDemand) {
  // conv8' alone has a7, a8, its gradient and the weights.
  EXPECT_EQ(least_named(Chain(28).plan("capuchin")), 29);
  Chain t(29);
  EXPECT_TRUE(t.plan("capuchin").ok());
  EXPECT_FALSE(t.decided({.passive = false}));
}

Setting transformer_setting() {
  const Graph graph = transformer_graph(
      {.layers = 4, .batch = 8, .sequence = 64, .hidden = 64, .heads = 4, .vocabulary = 100});
  Setting s(graph, byte_costs(graph, 2));
  s.work = 10;
  s.machine.out.bytes_per_s = s.machine.in.bytes_per_s = 250'000'000;
  return s;
}

int64_t step_ns(const Setting& s, int64_t device, const Rules& rules) {
  Deadline deadline = Deadline::after_work(s.work);
  const Problem problem = s.ready(deadline, device);
  Search search(problem);
  EXPECT_TRUE(plan_with(search, rules).ok());
  return search.best() ? search.best_ns() : 0;
}

TEST(Capuchin, EachRuleMakesTheStepFaster) {
  const Setting s = transformer_setting();
  const auto ns = [&](const Rules& rules) { return step_ns(s, s.peak() * 4 / 10, rules); };
  const int64_t full = ns({});
  EXPECT_GT(ns({.recompute = false}), full);
  EXPECT_GT(ns({.free_time = false}), full);
  EXPECT_GT(ns({.lanes = false}), full);
  EXPECT_GT(ns({.update = false}), full);
  EXPECT_GT(ns({.collective = false}), full);
  EXPECT_GT(ns({.decoupled = false}), full);
  EXPECT_GT(ns({.in_trigger = false}), full);
}

TEST(Capuchin, NothingComesInWhereMemoryIsShort) {
  // What comes in as early as it would like to has no room at conv8'.
  Chain t(39);
  EXPECT_TRUE(t.decided());
  EXPECT_FALSE(t.decided({.outside_peak = false}));
}

TEST(Capuchin, SaysTheLeastBudgetAndThatWorks) {
  expect_least_budget_works(transformer_setting(), "capuchin");
}

TEST(Capuchin, SamePlanAtAnyThreadCount) {
  const Setting s = transformer_setting();
  const Planned planned = same_at_any_thread_count(s, "capuchin", s.peak() / 2);
  EXPECT_GT(planned.statistics.copies, 0);
  EXPECT_GT(planned.statistics.reruns, 0);
}

TEST(Capuchin, KeepsToWhatIsAllowed) {
  expect_keeps_to_what_is_allowed(transformer_setting(), "capuchin");
}

TEST(Capuchin, PlansRandomSteps) {
  for (const bool swap : {true, false}) {
    Tally tally;
    for (uint64_t seed = 1; seed <= 15; ++seed) {
      const Graph graph = random_graph(seed, 40);
      Setting s(graph, random_costs(graph, seed));
      s.work = 4;
      s.problem.allow.swap = swap;
      for (const int64_t percent : {60, 80, 95}) {
        tally.add(s.plan("capuchin", s.peak() * percent / 100));
      }
    }
    EXPECT_GT(tally.plans, 5);
    EXPECT_GT(swap ? tally.copies : tally.reruns, 5);
    EXPECT_EQ(swap ? 0 : tally.copies, 0);
  }
}

}  // namespace
}  // namespace outsize::planning::capuchin
