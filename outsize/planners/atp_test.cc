#include "outsize/planners/atp.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"
#include "outsize/graph/generate.h"
#include "outsize/planners/planner.h"
#include "outsize/profile/generate_costs.h"

namespace outsize::planning {
namespace {

struct AtpCase {
  Graph graph;
  Profile profile;
  Machine machine = unit_machine();
  Freedoms allow;
  int64_t work = 40;

  int64_t peak() const { return liveness_of(graph, workspaces_of(profile)).peak_bytes; }
  Result<Planned> plan(int64_t device, const AtpParams& params = {}) const {
    Deadline deadline = Deadline::after_work(work);
    Problem problem;
    problem.graph = &graph;
    problem.profile = &profile;
    problem.machine = &machine;
    problem.budgets = {device, int64_t{1} << 40, 0};
    problem.allow = allow;
    problem.deadline = &deadline;
    const bool all = params.model && params.streams && params.pool && params.search;
    if (all) return run_planner("atp", problem);
    Search search(problem);
    const Status status = plan_atp_with(search, params);
    if (!search.best()) return status.error();
    Planned out;
    out.step_ns = search.best_ns();
    out.statistics = statistics_of(*search.best());
    return out;
  }
};

// f makes a (40 B), g, h and i make something small, one from the other; k reads a and the last.
AtpCase gap_case(int64_t f_ns) {
  GraphBuilder b;
  b.input("x", 1).activation("a", 40).activation("c", 1).activation("d", 1).activation("e", 1);
  b.output("y", 1);
  b.op("f").reads("x").makes("a").phase("forward");
  b.op("g").reads("x").makes("c").phase("forward");
  b.op("h").reads("c").makes("d").phase("forward");
  b.op("i").reads("d").makes("e").phase("backward");
  b.op("k").reads("a", "e").makes("y").phase("backward");
  AtpCase s;
  s.graph = b.build();
  s.profile = equal_costs(s.graph, 10);
  s.profile.ops[0].ns = f_ns;
  // Something else wants 30 B while h runs.
  s.profile.ops[2].workspace_bytes = 30;
  return s;
}

TEST(Atp, TakesTheCheaperWay) {
  // Away over h, a either costs f again, 10 or 500 ns, or 40 ns out and 40 ns in: out beside g,
  // which hides 10 of them, then h, then in beside i, which hides 10, then k.
  const Result<Planned> remade = gap_case(10).plan(60);
  ASSERT_TRUE(remade.ok()) << remade.error().message;
  EXPECT_EQ(remade->step_ns, 60);
  EXPECT_EQ(remade->statistics.reruns, 1);
  EXPECT_EQ(remade->statistics.copies, 0);
  const Result<Planned> swapped = gap_case(500).plan(60);
  ASSERT_TRUE(swapped.ok()) << swapped.error().message;
  EXPECT_EQ(swapped->step_ns, 500 + 40 + 10 + 40 + 10);
  EXPECT_EQ(swapped->statistics.moved_out, 40);
}

TEST(Atp, KeepsToWhatIsAllowed) {
  AtpCase s = gap_case(10);
  s.allow.recompute = false;
  ASSERT_TRUE(s.plan(60).ok());
  EXPECT_EQ(s.plan(60)->statistics.reruns, 0);
  s.allow.swap = false;
  const Result<Planned> neither = s.plan(60);
  ASSERT_FALSE(neither.ok());
  EXPECT_EQ(neither.error().kind, ErrorKind::kInfeasible);
  s.allow.recompute = true;
  ASSERT_TRUE(s.plan(60).ok());
  EXPECT_EQ(s.plan(60)->statistics.copies, 0);
}

TEST(Atp, AimsAtTheModelsBytes) {
  // 12 B too many at h.
  AtpCase s = gap_case(10);
  Deadline deadline = Deadline::after_work(1);
  Problem problem;
  problem.graph = &s.graph;
  problem.profile = &s.profile;
  problem.machine = &s.machine;
  problem.budgets = {60, 1000, 0};
  problem.deadline = &deadline;
  const Case c = case_of(problem);
  const StepShape shape = shape_of(s.graph, s.profile, 1);
  EXPECT_EQ(shape.peak_bytes, 72);  // at h: a 40, c 1, d 1, the workspace 30
  const AtpTarget target = atp_target(c, shape);
  EXPECT_EQ(target.swap_bytes + target.recompute_bytes, 12) << "all that must go";
}

AtpCase transformer_case() {
  AtpCase s;
  s.graph = transformer_graph(
      {.layers = 3, .batch = 8, .sequence = 64, .hidden = 64, .heads = 4, .vocabulary = 100});
  s.profile = byte_costs(s.graph, 2);
  return s;
}

TEST(Atp, EachRuleMakesTheStepFaster) {
  const AtpCase s = transformer_case();
  const int64_t budget = s.peak() * 3 / 4;
  const auto ns = [&](const AtpParams& params) {
    const Result<Planned> planned = s.plan(budget, params);
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
  const AtpCase s = transformer_case();
  const Result<Planned> none = s.plan(s.peak() / 20);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::kInfeasible);
  const std::string& message = none.error().message;
  const size_t at = message.rfind('(');
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t least = std::stoll(message.substr(at + 1));
  EXPECT_TRUE(s.plan(least).ok());
  EXPECT_LT(least, s.peak() / 2);
}

TEST(Atp, SamePlanForTheSameWork) {
  const AtpCase s = transformer_case();
  const Result<Planned> one = s.plan(s.peak() / 2), other = s.plan(s.peak() / 2);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->plan, other->plan);
}

TEST(Atp, PlansRandomSteps) {
  int copies = 0, reruns = 0, plans = 0;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    AtpCase s;
    s.graph = random_graph(seed, 40);
    s.profile = random_costs(s.graph, seed);
    s.work = 8;
    for (const int64_t percent : {60, 80, 95}) {
      const Result<Planned> planned = s.plan(s.peak() * percent / 100);
      if (!planned.ok()) {
        EXPECT_EQ(planned.error().kind, ErrorKind::kInfeasible) << planned.error().message;
        continue;
      }
      ++plans;
      copies += static_cast<int>(planned->statistics.copies);
      reruns += static_cast<int>(planned->statistics.reruns);
    }
  }
  EXPECT_GT(plans, 8);
  EXPECT_GT(copies, 8);
  EXPECT_GT(reruns, 8);
}

}  // namespace
}  // namespace outsize::planning
