#include "outsize/planners/checkmate/checkmate.h"

#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"
#include "outsize/planners/checkmate/oracles.h"
#include "outsize/planners/checkmate/stage_program.h"

namespace outsize::planning {
namespace {

struct Fixture : TestCase {
  Fixture(Graph g, const std::vector<int64_t>& ns) : TestCase(std::move(g), 1, kPlenty, 0) {
    for (size_t i = 0; i < ns.size(); ++i) profile.ops[i].ns = ns[i];
    refresh();
  }
  void refresh() { stages = stages_of(c); }

  // Ops in the order in which they run; reruns with a "+". Empty where there is no schedule.
  std::string runs(const std::optional<Staged>& staged) const {
    return staged ? ops_of(decision_of(c, stages, *staged).program) : "";
  }
  CheckmateSolved solved(int64_t capacity, const CheckmateRules& rules = {}) const {
    Deadline nodes = Deadline::after_work(100'000);
    return checkmate_solved(c, stages, capacity, nodes, rules);
  }
  int64_t compute() const {
    int64_t sum = 0;
    for (const OpCost& cost : profile.ops) sum += cost.ns;
    return sum;
  }

  Stages stages;
};

// The example of stages.h.
Graph example() {
  GraphBuilder b;
  b.activation("A", 4).activation("B", 4).output("y", 1).output("z", 1);
  b.op("op0").makes("A");
  b.op("op1").reads("A").makes("B");
  b.op("op2").reads("B").makes("y");
  b.op("op3").reads("A").makes("z");
  return b.build();
}

TEST(Checkmate, WhatIsNotSavedRunsAgain) {
  Fixture f(example(), {5, 1, 1, 1});
  Saved saved = save_everything(f.stages);
  EXPECT_EQ(f.runs(completed(f.stages, saved)), "op0 op1 op2 op3");
  saved[2][0] = saved[3][0] = 0;  // A into stages 2 and 3
  const Staged staged = completed(f.stages, saved);
  EXPECT_EQ(f.runs(staged), "op0 op1 op2 +op0 op3");
  EXPECT_EQ(staged.rerun_ns, 5);
  EXPECT_EQ(f.stages.values[0].last_stage, 3);
  EXPECT_EQ(f.stages.nodes[0].last_rerun, 3);
  // Read for the last time in stage 2, but y, which must be there at the end, is made from it.
  EXPECT_EQ(f.stages.values[1].last_stage, 3);
}

// What can't run again is saved from its maker on, whatever was asked for.
TEST(Checkmate, SavesWhatCanNotBeMadeAgain) {
  Graph graph = example();
  graph.ops[0].collective = true;
  Fixture f(graph, {5, 1, 1, 1});
  Saved saved = save_everything(f.stages);
  for (std::vector<char>& stage : saved) stage[0] = 0;
  const Staged staged = completed(f.stages, saved);
  EXPECT_EQ(f.runs(staged), "op0 op1 op2 op3");
  EXPECT_TRUE(staged.saved[1][0] && staged.saved[2][0] && staged.saved[3][0]);
}

// An op that reads a parameter can't run again once the parameter has changed.
TEST(Checkmate, RunsNothingAgainOnChangedContent) {
  GraphBuilder b;
  b.parameter("w", 1).activation("A", 4).output("y", 1).output("z", 1);
  b.op("a").reads("w").makes("A");
  b.op("y").makes("y");
  b.op("step").mutates("w");
  b.op("z").reads("A").makes("z");
  Fixture f(b.build(), {1, 1, 1, 1});
  EXPECT_EQ(f.stages.nodes[0].last_rerun, 2);
  EXPECT_EQ(f.stages.values[0].last_stage, 3);
  // w 1 B is there throughout, as it is no value.
  EXPECT_EQ(f.stages.beside_op, (std::vector<int64_t>{1, 1, 1, 1}));
}

// A (10 ns) and B (1 ns), 40 B each; work needs 60 B for itself and makes C, 1 B; end reads all.
// Held at `work`: 40 + 40 + 1 + 60 = 141; without one of the two 101. At `end`: 40 + 40 + 1 + 1.
TEST(Checkmate, RunsTheCheaperOneAgain) {
  GraphBuilder b;
  b.activation("A", 40).activation("B", 40).activation("C", 1).output("y", 1);
  b.op("a").makes("A");
  b.op("b").makes("B");
  b.op("work").makes("C");
  b.op("end").reads("A", "B").reads("C").makes("y");
  Fixture f(b.build(), {10, 1, 1, 1});
  f.profile.ops[2].workspace_bytes = 60;
  f.refresh();
  EXPECT_EQ(f.runs(f.solved(141).staged), "a b work end");
  const CheckmateSolved solved = f.solved(101);
  EXPECT_TRUE(solved.proved);
  EXPECT_EQ(solved.bound_ns, 1);
  EXPECT_EQ(f.runs(solved.staged), "a b work +b end");
  // Neither held at `work`: 61, and both made again: 82 at `end` is the floor.
  EXPECT_EQ(f.runs(f.solved(82).staged), "a b work +a +b end");
  const CheckmateSolved none = f.solved(81);
  EXPECT_TRUE(none.proved);
  EXPECT_FALSE(none.staged);
}

// A -> B, 10 B each; L is 15 B; y, z stay. B is let go for L (with it 25), and made again for z
// from A, which is let go again: 10 + 10 + 1 while B is made, then 10 + 1 + 1. Held to the stage's
// end, A is still there then: 22.
Graph made_again_through_a() {
  GraphBuilder b;
  b.activation("A", 10).activation("B", 10).activation("L", 15).output("y", 1).output("z", 1);
  b.op("a").makes("A");
  b.op("b").reads("A").makes("B");
  b.op("l").makes("L");
  b.op("y").reads("L").makes("y");
  b.op("z").reads("B").makes("z");
  return b.build();
}

TEST(Checkmate, LetsGoWithinAStage) {
  Fixture f(made_again_through_a(), {1, 1, 1, 1, 1});
  CheckmateRules held;
  held.free = false;
  EXPECT_EQ(f.runs(f.solved(21).staged), "a b l y +a +b z");
  EXPECT_FALSE(f.solved(21, held).staged);
  EXPECT_TRUE(f.solved(21, held).proved);
  EXPECT_EQ(f.runs(f.solved(22, held).staged), "a b l y +a +b z");
}

// Steps of about ten ops, each with one output, and what is there at entry.
Graph tiny_step(Random& random) {
  GraphBuilder b;
  b.parameter("x", 1 + random.below(3));
  const auto n = static_cast<int>(5 + random.below(4));
  std::vector<std::string> made{"x"};
  for (int i = 0; i < n; ++i) {
    const std::string name = "v" + std::to_string(i);
    if (i == n - 1)
      b.output(name, 1);
    else
      b.activation(name, 1 + random.below(8));
    auto op = b.op("op" + std::to_string(i));
    op.reads(made[static_cast<size_t>(random.below(static_cast<int64_t>(made.size())))]);
    if (made.size() > 1) op.reads(made.back());
    if (i > 2 && random.chance(0.6)) op.reads(made[static_cast<size_t>(1 + random.below(2))]);
    op.makes(name);
    made.push_back(name);
  }
  return b.build();
}

TEST(Checkmate, IsTheOptimumOfTinySteps) {
  int fewer = 0, reruns = 0, infeasible = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    Random random(seed);
    Fixture f(tiny_step(random), {});
    for (OpCost& cost : f.profile.ops) {
      cost.ns = 1 + random.below(9);
      cost.workspace_bytes = random.below(3);
    }
    f.refresh();
    const int64_t floor = f.floor();
    for (int64_t capacity = floor; capacity <= f.peak(); capacity += 2) {
      const auto least = least_staged_ns(f.stages, capacity);
      const CheckmateSolved solved = f.solved(capacity);
      ASSERT_TRUE(solved.proved) << seed;
      ASSERT_EQ(solved.staged.has_value(), least.has_value()) << seed << " at " << capacity;
      infeasible += !least;
      if (!least) continue;
      EXPECT_EQ(f.compute() + solved.staged->rerun_ns, *least) << seed << " at " << capacity;
      EXPECT_EQ(solved.bound_ns, solved.staged->rerun_ns);
      reruns += solved.staged->rerun_ns > 0;
      // Without stages nothing is lost but schedules that run one op twice for the same stage.
      fewer += *least_staged_ns(f.stages, capacity, false) < *least;
    }
  }
  EXPECT_GT(reruns, 20);
  EXPECT_LT(fewer, reruns);
  RecordProperty("infeasible", infeasible);
}

TEST(Checkmate, RoundingAndGreedyFitAndAreNoBetter) {
  int rounded_ones = 0, helped = 0;
  CheckmateRules half;
  half.thresholds = false;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    Random random(seed);
    Fixture f(tiny_step(random), {});
    for (int64_t capacity = f.floor(); capacity <= f.peak(); capacity += 3) {
      const CheckmateSolved solved = f.solved(capacity);
      const auto all = checkmate_rounded(f.c, f.stages, capacity, 10);
      const auto one = checkmate_rounded(f.c, f.stages, capacity, 10, -1, half);
      for (const auto& staged : {all, one, checkmate_greedy(f.c, f.stages, capacity)}) {
        if (!staged) continue;
        ASSERT_TRUE(solved.staged) << seed;
        EXPECT_GE(staged->rerun_ns, solved.staged->rerun_ns) << seed;
        const Decision d = decision_of(f.c, f.stages, *staged);
        EXPECT_LE(peak_of(f.c, d.program, d.moves), capacity) << seed;
      }
      EXPECT_TRUE(all || !one);
      rounded_ones += all.has_value();
      helped += all && (!one || all->rerun_ns < one->rerun_ns);
    }
  }
  EXPECT_GT(rounded_ones, 20);
  EXPECT_GT(helped, 0);
}

// The chain of oracles.h: n layers, sizes all `bytes`, or up to three times that.
Chain chain_of(Random& random, int32_t n, int64_t bytes, bool equal) {
  Chain chain;
  for (int32_t l = 0; l <= n; ++l) {
    chain.a.push_back(equal ? bytes : bytes * (1 + random.below(3)));
    chain.g.push_back(1);
    chain.forward.push_back(1 + random.below(9));
    chain.backward.push_back(2 + random.below(9));
  }
  return chain;
}

// By hand, equal times: f 1 ns, b 2 ns, a 4 B, g 1 B, four layers. All a kept: 20 + 1 at b4, whose
// step is 4 + 8. Below that: a_2 alone kept beside a_0; f2 and f4 (from a_3 ...) run again as
// needed.
TEST(Rotor, FourLayersByHand) {
  Chain chain{{4, 4, 4, 4, 4}, {1, 1, 1, 1, 1}, {0, 1, 1, 1, 1}, {0, 2, 2, 2, 2}};
  EXPECT_EQ(Rotor(chain, 21).ns(), 12);
  // One of a_1, a_2, a_3 away, and made again by one run of its layer: 13. It must be away at b4
  // (a_0, two of the three, a_3, a_4, g_3), so it is a_1 or a_2: 17 B. 16 are too few.
  EXPECT_EQ(Rotor(chain, 17).ns(), 13);
  // a_0, a_3, a_4, g_3: 13 B, and a_1, a_2 are made again: f1 f2 for b3, f1 for b2.
  EXPECT_EQ(Rotor(chain, 13).ns(), 15);
  EXPECT_EQ(Rotor(chain, 12).ns(), std::nullopt);
}

TEST(Rotor, IsMetByCheckmateAndNotBeaten) {
  int proved = 0, recomputed = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Random random(seed);
    const Chain chain = chain_of(random, static_cast<int32_t>(4 + random.below(3)), 4, true);
    Fixture f(chain.graph(), chain.times());
    f.work = 30;
    f.problem.allow.swap = false;
    for (int64_t capacity = f.floor(); capacity <= f.peak(); capacity += 4) {
      const auto least = Rotor(chain, capacity).ns();
      const CheckmateSolved solved = f.solved(capacity);
      ASSERT_TRUE(solved.proved);
      ASSERT_EQ(least.has_value(), solved.staged.has_value()) << seed << " at " << capacity;
      if (!least) continue;
      ++proved;
      recomputed += solved.staged->rerun_ns > 0;
      EXPECT_EQ(f.compute() + solved.staged->rerun_ns, *least) << seed << " at " << capacity;
      for (const char* name : {"outsize", "checkmate", "dtr"}) {
        const Result<Planned> planned = f.plan(name, capacity, 0);
        if (!planned.ok()) continue;
        EXPECT_GE(planned->step_ns, *least) << name << " " << seed;
      }
    }
  }
  EXPECT_GT(proved, 8);
  EXPECT_GT(recomputed, 4);
}

// Where sizes differ, a checkpoint may be better let go early: rotor's schedules, which never do,
// are some of Checkmate's.
TEST(Rotor, IsNoBetterWhereSizesDiffer) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    const Chain chain = chain_of(random, static_cast<int32_t>(4 + random.below(3)), 3, false);
    Fixture f(chain.graph(), chain.times());
    for (int64_t capacity = f.floor(); capacity <= f.peak(); capacity += 3) {
      const auto rotor = Rotor(chain, capacity).ns();
      if (!rotor) continue;
      const CheckmateSolved solved = f.solved(capacity);
      ASSERT_TRUE(solved.proved && solved.staged) << seed << " at " << capacity;
      EXPECT_LE(f.compute() + solved.staged->rerun_ns, *rotor) << seed << " at " << capacity;
      ++compared;
    }
  }
  EXPECT_GT(compared, 15);
}

TEST(Checkmate, PlansPassTheChecker) {
  int planned = 0, reruns = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Graph graph = random_graph(seed, 60);
    Setting s(graph, random_costs(graph, seed));
    s.work = 20;
    for (int64_t percent : {100, 80, 60}) {
      const Result<Planned> made = s.plan("checkmate", s.peak() * percent / 100 + 1, 0);
      if (!made.ok()) {
        EXPECT_EQ(made.error().kind, ErrorKind::kInfeasible) << made.error().message;
        continue;
      }
      ++planned;
      reruns += made->statistics.reruns > 0;
      EXPECT_EQ(made->statistics.copies, 0);
    }
  }
  EXPECT_GT(planned, 4);
  EXPECT_GT(reruns, 0);
}

TEST(Checkmate, TheSameWorkGivesTheSamePlan) {
  Random random(3);
  Chain chain = chain_of(random, 9, 4, false);
  Setting s(chain.graph(), 3);
  s.work = 6;
  const Result<Planned> one = s.plan("checkmate", s.peak() * 7 / 10, 0);
  const Result<Planned> two = s.plan("checkmate", s.peak() * 7 / 10, 0);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->plan, two->plan);
  EXPECT_GT(one->statistics.reruns, 0);
}

TEST(Checkmate, NamesABudgetThatWorks) {
  Random random(1);
  Setting s(chain_of(random, 10, 10, true).graph(), 3);
  s.work = 1;  // the greedy form alone: what it names, it must find
  expect_least_budget_works(s, "checkmate");
}

TEST(Checkmate, SaysWhatItIsNotFor) {
  Random random(1);
  const Chain chain = chain_of(random, kCheckmateMostOps / 2 + 1, 4, true);
  Setting large(chain.graph(), 1);
  const Result<Planned> refused = large.plan("checkmate", large.peak(), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(refused.error().message.find("has 152 ops"), std::string::npos);
  EXPECT_NE(refused.error().message.find("at most 150"), std::string::npos);

  Setting s(example(), 1);
  s.problem.allow.recompute = false;
  EXPECT_EQ(s.plan("checkmate", 100, 0).error().kind, ErrorKind::kBadInput);
}

}  // namespace
}  // namespace outsize::planning
