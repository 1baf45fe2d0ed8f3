#include "outsize/planners/dtr.h"

#include <gtest/gtest.h>

#include <cmath>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

constexpr const char* kNames[] = {"dtr", "dtr-eq-class", "dtr-msps", "dtr-lru"};

struct Fixture : TestCase {
  Fixture(Graph g, const std::vector<int64_t>& ns) : TestCase(std::move(g), 1, 1 << 20, 0) {
    for (size_t i = 0; i < ns.size(); ++i) profile.ops[i].ns = ns[i];
  }
  // Ops in the order in which they run; reruns with a "+". Empty where there is no way.
  std::string runs(const DtrParams& params, int64_t capacity) const {
    Trouble trouble;
    std::optional<Decision> d = decide_dtr(c, params, capacity, trouble);
    if (!d) return "";
    for (int64_t used : usage_of(c, d->program, d->moves)) EXPECT_LE(used, capacity);
    return ops_of(d->program);
  }
};

// The example of dtr.h.
Graph example() {
  GraphBuilder b;
  b.activation("A", 4).activation("B", 4).activation("C", 4).output("y", 1);
  b.op("a").makes("A");
  b.op("b").reads("A").makes("B");
  b.op("c").reads("B").makes("C");
  b.op("y").reads("A").reads("C").makes("y");
  return b.build();
}

TEST(Dtr, EvictsWhatDoesNotFitAndMakesItAgain) {
  Fixture f(example(), {1, 9, 1, 1});
  EXPECT_EQ(f.runs(h_dtr(), 12), "a b c y");
  EXPECT_EQ(f.runs(h_dtr(), 11), "a b c +a y");
}

TEST(Dtr, NamesTheOpThatDoesNotFit) {
  Fixture f(example(), {});
  Trouble trouble;
  EXPECT_FALSE(decide_dtr(f.c, h_dtr(), 7, trouble));  // b reads A and makes B: 8
  ASSERT_TRUE(trouble.shortfall);
  EXPECT_EQ(trouble.shortfall->op, OpId(1));
  EXPECT_EQ(trouble.shortfall->needed, 8);
}

// The paper's chain (section 3): N layers forward, then N back, each backward op reading its
// layer's input. Figure 2 evicts along the chain and makes gaps again from the checkpoint before.
// Unit sizes and costs: with h_DTR at 2 sqrt(N) tensors the reruns stay O(N) (theorem 3.1).
TEST(Dtr, LinearNetInRootMemoryStaysLinear) {
  for (int n : {16, 36, 64, 100}) {
    GraphBuilder b;
    for (int i = 0; i <= n; ++i) b.activation("f" + std::to_string(i), 1);
    for (int i = n; i > 0; --i) b.activation("g" + std::to_string(i), 1);
    b.output("g0", 1);
    b.op("f").makes("f0");
    for (int i = 1; i <= n; ++i)
      b.op("f").reads("f" + std::to_string(i - 1)).makes("f" + std::to_string(i));
    b.op("g").reads("f" + std::to_string(n)).makes("g" + std::to_string(n));
    for (int i = n - 1; i >= 0; --i)
      b.op("g")
          .reads("f" + std::to_string(i))
          .reads("g" + std::to_string(i + 1))
          .makes("g" + std::to_string(i));
    Fixture f(b.build(), {});
    const auto root = static_cast<int64_t>(std::lround(std::sqrt(n)));
    Trouble trouble;
    std::optional<Decision> d = decide_dtr(f.c, h_dtr(), 2 * root + 2, trouble);
    ASSERT_TRUE(d) << n;
    const auto ops = static_cast<double>(f.graph.ops.size());
    EXPECT_GT(d->program.size(), f.graph.ops.size());
    EXPECT_LE(static_cast<double>(d->program.size()), 2 * ops) << n;
  }
}

// Two candidates, P and Q, when `last` asks for room; both are read again at the end.
Graph choice(int64_t p, int64_t q) {
  GraphBuilder b;
  b.activation("P", p).activation("Q", q).activation("L", 10).output("y", 1);
  b.op("p").makes("P");
  b.op("q").makes("Q");
  b.op("last").makes("L");
  b.op("use").reads("L").makes("y");
  b.output("z", 1);
  b.op("end").reads("P").reads("Q").makes("z");
  return b.build();
}

TEST(Dtr, EachRuleOfItsScoreCounts) {
  // At `last` the clock, which starts at 1, is at 1 + p + q; P was touched at 1 + p, Q at 1 + p + q
  // (so Q's staleness is 0 and it is never the first choice while staleness counts).
  DtrParams no_staleness = h_dtr(), no_cost = no_staleness, no_bytes = no_staleness;
  no_staleness.staleness = false;
  {
    Fixture f(choice(10, 10), {5, 1, 1, 1, 1});  // by staleness P, by cost Q
    EXPECT_EQ(f.runs(h_dtr(), 22), "p q last use +p end");
    EXPECT_EQ(f.runs(no_staleness, 22), "p q last use +q end");
  }
  no_cost = no_bytes = no_staleness;
  no_cost.cost = false;
  no_bytes.bytes = false;
  {
    // P 10 B for 10 ns, Q 12 B for 1000 ns: 1.0 against 83.3; without cost Q has more bytes.
    Fixture f(choice(10, 12), {10, 1000, 1, 1, 1});
    EXPECT_EQ(f.runs(no_staleness, 24), "p q last use +p end");
    EXPECT_EQ(f.runs(no_cost, 24), "p q last use +q end");
  }
  {
    // P 10 B for 10 ns, Q 20 B for 12 ns: 1.0 against 0.6; without bytes 10 against 12.
    Fixture f(choice(10, 20), {10, 12, 1, 1, 1});
    EXPECT_EQ(f.runs(no_staleness, 32), "p q last use +q end");
    EXPECT_EQ(f.runs(no_bytes, 32), "p q last use +p end");
  }
}

// A -> B -> (B read late); P stands alone. With A gone (no reader left), B costs A as well.
TEST(Dtr, CountsWhatIsEvictedAround) {
  GraphBuilder b;
  b.activation("A", 1).activation("B", 10).activation("P", 10).activation("L", 10);
  b.output("y", 1).output("z", 1);
  b.op("a").makes("A");
  b.op("b").reads("A").makes("B");
  b.op("p").makes("P");
  b.op("last").makes("L");
  b.op("use").reads("L").makes("y");
  b.op("end").reads("P").reads("B").makes("z");
  Fixture f(b.build(), {50, 3, 4, 1, 1, 1});
  DtrParams whole = h_dtr(), own = whole;
  whole.staleness = own.staleness = false;
  own.neighbourhood = DtrNeighbourhood::kNone;
  EXPECT_EQ(f.runs(whole, 22), "a b p last use +p end");              // 4 against 3 + 50
  EXPECT_EQ(f.runs(own, 22), "a b p last use +a +b end +last +use");  // 4 against 3; y goes too
  EXPECT_EQ(f.runs(h_msps(), 22), "a b p last use +p end");           // A is an ancestor
  DtrParams classes = h_dtr_eq_class();
  classes.staleness = false;
  EXPECT_EQ(f.runs(classes, 22), "a b p last use +p end");
}

TEST(Dtr, LetsGoOfWhatNobodyReads) {
  DtrParams lazy = h_dtr();
  lazy.eager = false;
  GraphBuilder b;
  b.activation("P", 10).activation("D", 10).activation("L", 10).output("y", 1).output("z", 1);
  b.op("p").makes("P");
  b.op("d").makes("D");
  b.op("e").reads("D").makes("y");
  b.op("last").makes("L");
  b.op("end").reads("P").reads("L").makes("z");
  Fixture g(b.build(), {1, 100, 1, 1, 1});
  EXPECT_EQ(g.runs(h_dtr(), 22), "p d e last end");
  // D is dear, and dead, and still there: P goes for L; then y goes for P, and is made again.
  EXPECT_EQ(g.runs(lazy, 22), "p d e last +p end +d +e");
}

TEST(Dtr, PlansPassTheChecker) {
  int planned = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Fixture f(random_graph(seed, 60), {});
    f.profile = random_costs(f.graph, seed);
    const std::vector<int64_t> workspaces = workspaces_of(f.profile);
    const int64_t peak = f.peak();
    f.problem.budgets = {2 * peak, 0, 0};  // addresses are the packer's matter
    for (DtrParams params : {h_dtr(), h_dtr_eq_class(), h_msps(), h_lru()})
      for (int64_t percent : {90, 70}) {
        Trouble trouble;
        std::optional<Decision> d = decide_dtr(f.c, params, peak * percent / 100, trouble);
        if (!d) continue;
        std::optional<Plan> plan = realise(f.c, *d, trouble);
        if (!plan) continue;
        ++planned;
        Violation v = check_plan(f.graph, workspaces, *plan, f.problem.budgets, 1);
        EXPECT_TRUE(v.ok()) << seed << " at " << v.where << ": " << v.witness;
      }
  }
  EXPECT_GT(planned, 60);
}

TEST(Dtr, SaysWhatItWouldNeed) {
  Fixture f(example(), {});
  f.problem.budgets = {7, 0, 0};
  for (const char* name : kNames) {
    Result<Planned> planned = f.plan(name);
    ASSERT_FALSE(planned.ok());
    EXPECT_NE(planned.error().message.find(std::string("planner ") + name), std::string::npos);
    EXPECT_NE(planned.error().message.find("this planner needs"), std::string::npos)
        << planned.error().message;
  }
  f.problem.allow.recompute = false;
  Result<Planned> planned = f.plan("dtr");
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.error().kind, ErrorKind::kBadInput);
}

}  // namespace
}  // namespace outsize::planning
