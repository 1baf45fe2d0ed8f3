#include "outsize/planners/atp.h"

#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

Result<Planned> plan_at(const Setting& s, int64_t device, const AtpParams& params = {}) {
  const bool all = params.model && params.streams && params.pool && params.search;
  if (all) return s.plan("atp", device);
  Deadline deadline = Deadline::after_work(s.work);
  const Problem problem = s.ready(deadline, device);
  Search search(problem);
  const Status status = plan_atp_with(search, params);
  if (!search.best()) return status.error();
  Planned out;
  out.step_ns = search.best_ns();
  out.statistics = statistics_of(*search.best());
  return out;
}

Setting gap_setting(int64_t f_ns) {
  Setting s(gap_graph(), 10);
  s.work = 40;
  s.profile.ops[0].ns = f_ns;
  // Something else wants 30 B while h runs.
  s.profile.ops[2].workspace_bytes = 30;
  return s;
}

TEST(Atp, TakesTheCheaperWay) {
  // Away over h, a either costs f again, 10 or 500 ns, or 40 ns out and 40 ns in: out beside g,
  // which hides 10 of them, then h, then in beside i, which hides 10, then k.
  const Result<Planned> remade = plan_at(gap_setting(10), 60);
  ASSERT_TRUE(remade.ok()) << remade.error().message;
  EXPECT_EQ(remade->step_ns, 60);
  EXPECT_EQ(remade->statistics.reruns, 1);
  EXPECT_EQ(remade->statistics.copies, 0);
  const Result<Planned> swapped = plan_at(gap_setting(500), 60);
  ASSERT_TRUE(swapped.ok()) << swapped.error().message;
  EXPECT_EQ(swapped->step_ns, 500 + 40 + 10 + 40 + 10);
  EXPECT_EQ(swapped->statistics.moved_out, 40);
}

TEST(Atp, KeepsToWhatIsAllowed) {
  Setting s = gap_setting(10);
  s.problem.allow.recompute = false;
  ASSERT_TRUE(plan_at(s, 60).ok());
  EXPECT_EQ(plan_at(s, 60)->statistics.reruns, 0);
  s.problem.allow.swap = false;
  const Result<Planned> neither = plan_at(s, 60);
  ASSERT_FALSE(neither.ok());
  EXPECT_EQ(neither.error().kind, ErrorKind::kInfeasible);
  s.problem.allow.recompute = true;
  ASSERT_TRUE(plan_at(s, 60).ok());
  EXPECT_EQ(plan_at(s, 60)->statistics.copies, 0);
}

TEST(Atp, AimsAtTheModelsBytes) {
  // 12 B too many at h.
  const TestCase t(gap_setting(10), 60, 1000);
  const StepShape shape = shape_of(t.graph, t.profile, 1);
  EXPECT_EQ(shape.peak_bytes, 72);  // at h: a 40, c 1, d 1, the workspace 30
  const AtpTarget target = atp_target(t.c, shape);
  EXPECT_EQ(target.swap_bytes + target.recompute_bytes, 12) << "all that must go";
}

Setting transformer_setting() {
  const Graph graph = transformer_graph(
      {.layers = 3, .batch = 8, .sequence = 64, .hidden = 64, .heads = 4, .vocabulary = 100});
  Setting s(graph, byte_costs(graph, 2));
  s.work = 40;
  return s;
}

TEST(Atp, EachRuleMakesTheStepFaster) {
  const Setting s = transformer_setting();
  const int64_t budget = s.peak() * 3 / 4;
  const auto ns = [&](const AtpParams& params) {
    const Result<Planned> planned = plan_at(s, budget, params);
    EXPECT_TRUE(planned.ok());
    return planned.ok() ? planned->step_ns : 0;
  };
  const int64_t full = ns({}), first = ns({.search = false});
  EXPECT_GT(ns({.streams = false}), full);
  EXPECT_GT(ns({.pool = false}), full);
  EXPECT_GT(first, full);
  // The search makes up for some of it.
  EXPECT_GT(ns({.model = false, .search = false}), first);
}

TEST(Atp, SaysTheLeastBudgetAndThatWorks) {
  const Setting s = transformer_setting();
  const int64_t least = least_named(plan_at(s, s.peak() / 20));
  EXPECT_TRUE(plan_at(s, least).ok());
  EXPECT_LT(least, s.peak() / 2);
}

TEST(Atp, SamePlanForTheSameWork) {
  const Setting s = transformer_setting();
  const Result<Planned> one = plan_at(s, s.peak() / 2), other = plan_at(s, s.peak() / 2);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->plan, other->plan);
}

TEST(Atp, PlansRandomSteps) {
  Tally tally;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    const Graph graph = random_graph(seed, 40);
    Setting s(graph, random_costs(graph, seed));
    s.work = 8;
    for (const int64_t percent : {60, 80, 95}) {
      tally.add(plan_at(s, s.peak() * percent / 100));
    }
  }
  EXPECT_GT(tally.plans, 8);
  EXPECT_GT(tally.copies, 8);
  EXPECT_GT(tally.reruns, 8);
}

}  // namespace
}  // namespace outsize::planning
