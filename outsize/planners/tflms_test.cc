#include "outsize/planners/tflms.h"

#include <algorithm>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

// The paper's figure 4. f1 (order 10) makes t1, which f4 (11), f3 (18) and f2 (25) read; every
// order from 11 to 24 has an op on the way to f2, and so those before 18 on the way to f3. Ops are
// in the order of their numbers: g1 ... g9, f1, f4, then g12 ... g17, f3, g19 ... g24, f2. f4 is
// the last of the forward pass.
Graph figure_4() {
  GraphBuilder b;
  b.input("x", 1);
  const auto name = [](int order) { return "y" + std::to_string(order); };
  for (int order = 1; order <= 25; ++order)
    b.activation(order == 10 ? "t1" : name(order), order == 10 ? 10 : 1);
  for (int order = 1; order <= 25; ++order) {
    const std::string maker = order == 11 ? "t1" : name(order - 1);
    auto op = b.op(order == 10   ? "f1"
                   : order == 11 ? "f4"
                   : order == 18 ? "f3"
                   : order == 25 ? "f2"
                                 : "g");
    op.phase(order <= 11 ? "forward" : "backward").makes(order == 10 ? "t1" : name(order));
    op.reads(order == 1 ? "x" : maker);
    if (order == 18 || order == 25) op.reads("t1");
  }
  return b.build();
}

struct Figure4 : TestCase {
  TflmsOrder order;
  Figure4() : TestCase(figure_4(), 10, 1000), order(tflms_order(c)) {}
  // Of t1, the tensor with several copies in.
  TflmsTensor tensor(const TflmsRules& rules) const {
    for (const TflmsTensor& t : tflms_tensors(c, order, rules))
      if (c.parts[t.part].bytes() == 10) return t;
    return {};
  }
};

constexpr TflmsControl kDirect = TflmsControl::kDirectOrder;

TEST(Tflms, OrdersOpsByTheLongestWay) {
  const Figure4 t;
  for (int32_t op = 0; op < 25; ++op) EXPECT_EQ(t.order.order[static_cast<size_t>(op)], op + 1);
}

TEST(Tflms, RewritesFigure4) {
  const Figure4 t;
  // fj (order 15) is three before f3, fi (order 20) five before f2.
  const TflmsTensor three = t.tensor({.control = kDirect, .lower = 3});
  ASSERT_EQ(three.swap_ins.size(), 2u);  // f4 (order 11) reads it on the device
  EXPECT_EQ(*three.swap_ins[0].control + 1, 15);
  const TflmsTensor five = t.tensor({.control = kDirect, .lower = 5});
  EXPECT_EQ(*five.swap_ins[1].control + 1, 20);
}

TEST(Tflms, BoundsWhereTheControlOpIsSought) {
  const Figure4 t;
  // Seven orders before f3 is f4, eight f1 itself, which is too far.
  EXPECT_EQ(t.tensor({.control = kDirect, .lower = 7}).swap_ins.size(), 2u);
  EXPECT_EQ(t.tensor({.control = kDirect, .lower = 8}).swap_ins.size(), 1u);
  EXPECT_EQ(t.tensor({.control = kDirect, .lower = 4, .upper = 3}).swap_ins.size(), 0u);
}

TEST(Tflms, FollowsTheForwardPassToABackwardOp) {
  // conv1 ... conv4, then their backward ops, 4 to 7. a0 is read by conv1 and conv1'. From a0's
  // readers on: conv1's are conv2 and, of the backward pass, conv2', on which conv1' depends.
  TestCase t(convolutions(4, 10), 10, 1000);
  const TflmsOrder order = tflms_order(t.c);
  const auto control = [&](int32_t lower) {
    for (const TflmsTensor& tensor : tflms_tensors(t.c, order, {.lower = lower}))
      if (tensor.part == t.part(0)) return tensor.swap_ins.at(0).control.value_or(-1);
    return -1;
  };
  EXPECT_EQ(control(1), 6);
  EXPECT_EQ(control(2), 5);
  EXPECT_EQ(control(3), 4);
  EXPECT_EQ(control(4), 4);  // conv4 leads to no op of the forward pass, so it ends there
  EXPECT_EQ(control(5), -1);
}

Decision decided(const TestCase& t, const TflmsRules& rules, size_t count = 1000) {
  const std::vector<TflmsTensor> tensors = tflms_tensors(t.c, tflms_order(t.c), rules);
  return decide_tflms(t.c, tensors, std::min(count, tensors.size()), 1000, rules);
}

TEST(Tflms, SwapsInWhenTheControlOpHasRun) {
  TestCase t(convolutions(4, 10), 10, 1000);
  const Decision d = decided(t, {});
  EXPECT_EQ(t.move(d, 0, 0)->arrive, 7);  // when conv2' has run: 60 ns later than it might
  EXPECT_EQ(t.run(d).step_ns, 80 + 30);   // a2, a1 and a0 are waited for
  EXPECT_EQ(t.run(decided(t, {.lower = 2})).step_ns, 80 + 10);  // conv4' is next before conv3'
  // Without an op that brings it in, the reader asks for it.
  EXPECT_EQ(t.move(decided(t, {.swap_in = false}), 0, 0)->arrive, 7);
  EXPECT_EQ(t.run(decided(t, {.swap_in = false})).step_ns, 80 + 30);
}

TEST(Tflms, CopiesOutOnceAndInForEachReader) {
  Figure4 t;
  const TflmsRules rules{.control = kDirect};
  EXPECT_EQ(t.run(decided(t, rules)).moved_out, 10 + t.run(decided(t, rules)).moved_in - 20);
  const int64_t once = t.run(decided(t, rules)).moved_out;
  EXPECT_EQ(t.run(decided(t, {.control = kDirect, .fuse_out = false})).moved_out, once + 10);
  const int64_t twice = t.run(decided(t, rules)).moved_in;
  EXPECT_EQ(t.run(decided(t, {.control = kDirect, .fuse_in = true})).moved_in, twice - 10);
  // f2 is seven orders after f3.
  EXPECT_EQ(t.run(decided(t, {.control = kDirect, .fuse_in = true, .fuse_distance = 6})).moved_in,
            twice);
}

TEST(Tflms, RewritesLongBranchesOfTheForwardPass) {
  GraphBuilder b;
  b.input("x", 1).activation("t", 10);
  for (const char* y : {"p", "q", "r", "s"}) b.activation(y, 1);
  b.op("f").reads("x").makes("t").phase("forward");
  b.op("g").reads("t").makes("p").phase("forward");
  b.op("g").reads("p").makes("q").phase("forward");
  b.op("g").reads("q").makes("r").phase("forward");
  b.op("skip").reads("t", "r").makes("s").phase("forward");
  b.op("skip_backward").reads("s").mutates("r").phase("backward");
  TestCase t(b.build(), 10, 1000);
  EXPECT_EQ(decided(t, {}).moves.size(), 0u);
  EXPECT_EQ(decided(t, {.control = kDirect, .branches = 3}).moves.size(), 1u);  // orders 1 to 5
  EXPECT_EQ(decided(t, {.control = kDirect, .branches = 4}).moves.size(), 0u);
}

TEST(Tflms, TakesTensorsBreadthFirst) {
  TestCase t(convolutions(4, 10), 10, 1000);
  const Decision two = decided(t, {}, 2);
  ASSERT_EQ(two.moves.size(), 2u);
  EXPECT_TRUE(t.move(two, 0, 0) && t.move(two, 1, 1));
}

TEST(Tflms, SwapsNoMoreThanItMust) {
  // All kept, conv8' needs 99.
  const Setting s(convolutions(8, 10), 10);
  EXPECT_EQ(s.plan("tflms", 99)->statistics.copies, 0);
  EXPECT_EQ(s.plan("tflms", 89)->statistics.copies, 2);
  EXPECT_EQ(s.plan("tflms", 69)->statistics.copies, 6);
  EXPECT_EQ(s.plan("tflms", 69)->step_ns, 160);
}

TEST(Tflms, SaysTheLeastBudgetAndThatWorks) {
  const Setting s(convolutions(8, 10), 10);
  const int64_t least = least_named(s.plan("tflms", 20));
  EXPECT_TRUE(s.plan("tflms", least).ok());
  EXPECT_FALSE(s.plan("tflms", least - 1).ok());
}

TEST(Tflms, NeedsSwapping) {
  Setting s(convolutions(8, 10), 10);
  s.problem.allow.swap = false;
  EXPECT_EQ(s.plan("tflms", 50).error().kind, ErrorKind::kBadInput);
}

TEST(Tflms, SamePlanAtAnyThreadCount) {
  const Graph graph = transformer_graph(
      {.layers = 4, .batch = 8, .sequence = 64, .hidden = 64, .heads = 4, .vocabulary = 100});
  const Setting s(graph, byte_costs(graph, 2));
  const Planned planned = same_at_any_thread_count(s, "tflms", s.peak() * 6 / 10);
  EXPECT_GT(planned.statistics.copies, 0);
}

TEST(Tflms, PlansRandomSteps) {
  Tally tally;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    const Graph graph = random_graph(seed, 40);
    Setting s(graph, random_costs(graph, seed));
    for (const int64_t percent : {80, 90, 95}) {
      tally.add(s.plan("tflms", s.peak() * percent / 100));
    }
  }
  EXPECT_GT(tally.plans, 5);
  EXPECT_GT(tally.copies, 5);
}

}  // namespace
}  // namespace outsize::planning
