#include <gtest/gtest.h>

#include "outsize/graph/generate.h"
#include "outsize/plan/plan_json.h"
#include "outsize/planners/case_testing.h"
#include "outsize/planners/swapadvisor/pool.h"
#include "outsize/planners/swapadvisor/search.h"

namespace outsize::planning::swapadvisor {
namespace {

struct SwapSetting : Setting {
  SwapSetting(Graph g, Profile p) : Setting(std::move(g), std::move(p)) { work = 400; }
  SwapSetting(Graph g, int64_t ns) : Setting(std::move(g), ns) { work = 400; }
  // The step's time with these rules for the swaps, in program order and with the tightest classes
  // (one object of 100 more bytes each, as long as there is room).
  int64_t time(int64_t device, const SwapRules& swaps, Plan* plan = nullptr) const {
    Deadline deadline = Deadline::after_work(1);
    Problem p = ready(deadline, device);
    Search search(p);
    SearchRules rules;
    rules.schedules = rules.allocations = false;
    rules.swaps = swaps;
    Status status = search_plans(search, rules, "test");
    EXPECT_TRUE(status.ok()) << status.error().message;
    if (!search.best()) return -1;
    Violation v = check_plan(graph, workspaces_of(profile), *search.best(), p.budgets, 1);
    EXPECT_TRUE(v.ok()) << v.where << ": " << v.witness;
    if (plan) *plan = *search.best();
    return search.best_ns();
  }
};

// Every plan has passed the checker inside run_planner.
TEST(SwapAdvisor, RandomGraphsAtManyBudgets) {
  for (const char* name : {"swapadvisor", "odswap"}) {
    int planned_count = 0, moved = 0;
    for (uint64_t seed = 1; seed <= 16; ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", name, seed));
      Graph graph = random_graph(seed, 8 + static_cast<int>(seed) * 2);
      SwapSetting s(graph, random_costs(graph, seed));
      s.work = 48;
      for (int k = 0; k <= 4; ++k) {
        int64_t budget = s.floor() + (3 * s.peak() / 2 - s.floor()) * k / 4;
        Result<Planned> planned = s.plan(name, budget);
        if (!planned.ok()) {
          EXPECT_EQ(planned.error().kind, ErrorKind::kInfeasible) << planned.error().message;
          continue;
        }
        ++planned_count;
        moved += planned->statistics.copies > 0;
        EXPECT_LE(planned->statistics.extent[0], budget);
        EXPECT_EQ(planned->statistics.reruns, 0);
      }
    }
    EXPECT_GT(planned_count, 30) << name;
    EXPECT_GT(moved, 15) << name;
  }
}

TEST(SwapAdvisor, NamesTheLeastBudgetThatDoes) {
  for (const char* name : {"swapadvisor", "odswap"}) {
    SwapSetting s(chain_graph(6, 100), 10);
    int64_t least = least_named(s.plan(name, s.floor() - 1));
    EXPECT_TRUE(s.plan(name, least).ok()) << least;
    EXPECT_FALSE(s.plan(name, least - least / 100 - 1).ok()) << least;
  }
}

TEST(SwapAdvisor, SamePlanAtAnyThreadCount) {
  Graph graph = transformer_graph({.layers = 1});
  SwapSetting s(graph, byte_costs(graph, 4));
  s.work = 300;
  int64_t budget = s.floor() * 2;
  Result<Planned> one = s.plan("swapadvisor", budget);
  ASSERT_TRUE(one.ok()) << one.error().message;
  for (int threads : {3}) {
    s.problem.threads = threads;
    Result<Planned> many = s.plan("swapadvisor", budget);
    ASSERT_TRUE(many.ok());
    EXPECT_EQ(to_json(one->plan), to_json(many->plan)) << threads;
  }
}

TEST(SwapAdvisor, TheIncumbentOutlivesItsGeneration) {
  Graph graph = transformer_graph({.layers = 1});
  SwapSetting s(graph, byte_costs(graph, 4));
  int64_t budget = s.floor() * 2;
  int64_t before = 0;
  for (int64_t work : {16, 160, 400}) {
    s.work = work;
    Result<Planned> planned = s.plan("swapadvisor", budget);
    ASSERT_TRUE(planned.ok());
    if (before > 0) {
      EXPECT_LE(planned->step_ns, before);
    }
    before = planned->step_ns;
    for (size_t i = 1; i < planned->history.size(); ++i)
      EXPECT_LT(planned->history[i].second, planned->history[i - 1].second);
  }
}

TEST(SwapAdvisor, KeepsSettledHomes) {
  Graph graph = chain_graph(6, 100);
  SwapSetting s(graph, 10);
  for (size_t i = 0; i < graph.storages.size(); ++i)
    if (graph.storages[i].name == "w2")
      s.problem.border.push_back({StorageId(static_cast<int64_t>(i)), Tier::kDevice, 130});
    else if (graph.storages[i].name == "w3")
      s.problem.border.push_back({StorageId(static_cast<int64_t>(i)), Tier::kHost, 700});
  ASSERT_EQ(s.problem.border.size(), 2u);
  for (const char* name : {"swapadvisor", "odswap"}) {
    Result<Planned> planned = s.plan(name, 1000);
    ASSERT_TRUE(planned.ok()) << planned.error().message;
    for (const BorderItem& item : planned->plan.entry)
      for (const Home& home : s.problem.border) {
        const Residency& r = planned->plan.residency(item.residency);
        if (r.part.storage != home.storage) continue;
        EXPECT_EQ(r.tier, home.tier);
        EXPECT_EQ(r.address, home.address);
      }
  }
}

// Tensors of 40 B, objects of 40 B, 1 B = 1 ns, 10 ns per op unless said.
GraphBuilder tensors(std::initializer_list<const char*> activations) {
  GraphBuilder b;
  b.storage("x", {40, Role::kParameter, true, true, true, "x"});
  for (const char* name : activations) b.activation(name, 40);
  return b;
}

// A is needed late, B soon; at k one of them must go.
TEST(SwapPlanner, VictimsAreThoseNeededLast) {
  GraphBuilder b = tensors({"A", "B", "C", "D", "E", "F"});
  b.op("a").makes("A");
  b.op("b").makes("B");
  b.op("c").makes("C");
  b.op("d").reads("C").makes("D");
  b.op("e").reads("B", "D").makes("E");
  b.op("f").reads("E").makes("F");
  b.op("z").reads("A", "F").mutates("x");
  SwapSetting s(b.build(), 10);
  SwapRules belady, lru;
  belady.recency = lru.recency = 0;
  lru.belady = false;
  Plan plan;
  // Three objects: A, B, C fill them, D needs one. By next use A leaves (z), and only A.
  s.time(120, belady, &plan);
  EXPECT_EQ(statistics_of(plan).moved_out, 40 + 40);  // A, and x to its home
  EXPECT_LE(s.time(120, belady), s.time(120, lru));
}

// W is read by the first and the last op and never written.
TEST(SwapPlanner, CleanTensorsAreDroppedWithoutACopy) {
  GraphBuilder b = tensors({"A", "B", "C"});
  b.storage("w", {40, Role::kParameter, true, true, true, "w"});
  b.op("a").reads("w").makes("A");
  b.op("b").reads("A").makes("B");
  b.op("c").reads("A", "B").makes("C");
  b.op("z").reads("w", "C").mutates("x");
  SwapSetting s(b.build(), 10);
  SwapRules drop, copy;
  copy.drop_clean = false;
  Plan with, without;
  EXPECT_LE(s.time(120, drop, &with), s.time(120, copy, &without));
  EXPECT_EQ(statistics_of(with).moved_out, 40);          // x alone
  EXPECT_GE(statistics_of(without).moved_out, 40 + 40);  // and w
}

// The first op's weight is there when the step begins, if there is room.
TEST(SwapPlanner, TheDoublePassBeginsWithWhatTheStepEndsWith) {
  Graph graph = chain_graph(3, 40);
  SwapSetting s(graph, 10);
  SwapRules twice, once;
  once.double_pass = false;
  Plan with, without;
  // Room for all: nothing moves in a steady step; else each weight comes and goes each time.
  EXPECT_EQ(s.time(4000, twice, &with), 10 * static_cast<int64_t>(graph.ops.size()));
  EXPECT_EQ(statistics_of(with).copies, 0);
  EXPECT_GT(s.time(4000, once, &without), 10 * static_cast<int64_t>(graph.ops.size()));
  EXPECT_EQ(statistics_of(without).moved_in, 3 * 40);
}

TEST(SwapPlanner, CopiesBeginAsEarlyAsIsSafe) {
  Graph graph = chain_graph(12, 40);
  SwapSetting s(graph, 150);
  SwapRules early, late;
  late.early = false;
  int64_t budget = s.peak() / 2;
  EXPECT_LT(s.time(budget, early), s.time(budget, late));
}

// B was used just before room is short, and is needed last: by next use it would leave, its copy in
// the way. A was used long ago.
TEST(SwapPlanner, SparesWhatWasUsedJustNow) {
  GraphBuilder b = tensors({"A", "B", "C", "D", "E"});
  b.op("a").makes("A");
  b.op("long").reads("x").makes("C");
  b.op("b").reads("C").makes("B");
  b.op("d").reads("C").makes("D");
  b.op("e").reads("D").makes("E");
  b.op("y").reads("A", "E").mutates("x");
  b.op("z").reads("B").mutates("x");
  SwapSetting s(b.build(), 10);
  s.profile.ops[1].ns = 200;
  SwapRules spare, any;
  spare.recency = 1.0;
  any.recency = 0;
  // Five ops of 10 and the long one are 260; three objects of x, A, B, C, D.
  int64_t careful = s.time(160, spare), careless = s.time(160, any);
  EXPECT_LT(careful, careless);
}

// Figure 10: each half of the search alone does no better than both, and one of them does worse.
TEST(SwapAdvisor, BothHalvesOfTheSearchMatter) {
  Graph graph = transformer_graph({.layers = 1});
  SwapSetting s(graph, byte_costs(graph, 4));
  s.work = 300;
  int64_t budget = s.floor() * 2;
  auto time = [&](const char* name) {
    Result<Planned> planned = s.plan(name, budget);
    EXPECT_TRUE(planned.ok()) << planned.error().message;
    return planned.ok() ? planned->step_ns : 0;
  };
  int64_t both = time("swapadvisor"), orders = time("swapadvisor-fixed-classes");
  s.problem.allow.reorder = false;
  int64_t allocations = time("swapadvisor");
  EXPECT_LT(both, allocations);
  EXPECT_LT(both, orders);
}

}  // namespace
}  // namespace outsize::planning::swapadvisor
