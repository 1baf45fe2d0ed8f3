#include "outsize/planners/vdnn.h"

#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

constexpr int64_t kA0 = 0, kA1 = 1;

// Three convolutions, 10 ns an op, inputs of 10 B: conv1 0-10, conv2 10-20, conv3 20-30, and their
// backward ops 30-40, 40-50, 50-60. a2 is needed right after conv3, so it stays.
struct Three : TestCase {
  explicit Three(int64_t device = 1000) : TestCase(convolutions(3, 10), 10, device) {}
};

TEST(Vdnn, SendsOutBesideALayerAndFetchesOneAhead) {
  Three t;
  Decision d = decide_vdnn(t.c);
  ASSERT_EQ(d.moves.size(), 2u);
  EXPECT_EQ(t.move(d, kA0, 0)->release, 1);  // beside conv1; conv2 waits for it
  EXPECT_EQ(t.move(d, kA1, 1)->release, 2);
  EXPECT_EQ(t.move(d, kA1, 1)->arrive, 3);  // beside conv3's backward
  EXPECT_EQ(t.move(d, kA0, 0)->arrive, 4);  // beside conv2's
  // Each copy takes the 10 ns of the op it stands beside.
  EXPECT_EQ(t.run(d).step_ns, 60);
  EXPECT_EQ(t.run(d).moved_out, 20);
}

TEST(Vdnn, LayersWaitForTheirCopies) {
  Three t;
  t.machine.out.bytes_per_s = t.machine.in.bytes_per_s = 500'000'000;  // 20 ns a copy
  // conv1 0, a0 out 0-20; conv2 20, a1 out 20-40; conv3 40-50 and its backward 50-60; a1 in 50-70;
  // conv2' 70-80, a0 in 70-90; conv1' 90-100.
  EXPECT_EQ(t.run(decide_vdnn(t.c), TestCase::apart()).step_ns, 100);
  VdnnRules rules;
  rules.wait = false;
  // conv3' ends at 40; a1 out 20-40, in 40-60; conv2' 60-70; a0 in 60-80; conv1' 80-90.
  EXPECT_EQ(t.run(decide_vdnn(t.c, rules), TestCase::apart()).step_ns, 90);
}

TEST(Vdnn, WithoutPrefetchLayersWaitForWhatTheyNeed) {
  Three t;
  VdnnRules rules;
  rules.prefetch = false;
  EXPECT_EQ(t.run(decide_vdnn(t.c, rules)).step_ns, 80);  // two copies in of 10 ns, beside nothing
}

// relu makes a from x; pool makes b from a; conv makes c from a table; sum adds b and c; the loss.
// Then their backward ops, in reverse, from rank 5 on.
Graph with_a_table() {
  GraphBuilder b;
  b.input("x", 10).activation("a", 10).activation("b", 10).activation("c", 10);
  b.parameter("table", 1).activation("d", 1).activation("e", 1);
  b.gradient("f", 1).gradient("g", 1).gradient("h", 1).output("y", 1);
  b.op("relu").reads("x").makes("a").phase("forward");
  b.op("pool").reads("a").makes("b").phase("forward");
  b.op("conv").reads("table").makes("c").phase("forward");
  b.op("sum").reads("b", "c").makes("d").phase("forward");
  b.op("loss").reads("d").makes("e").phase("forward");
  b.op("loss_backward").reads("e").makes("f").phase("backward");
  b.op("sum_backward").reads("b", "c", "f").makes("g").phase("backward");
  b.op("conv_backward").reads("g").mutates("table").phase("backward");
  b.op("pool_backward").reads("a", "g").makes("h").phase("backward");
  b.op("relu_backward").reads("x", "h").makes("y").phase("backward");
  return b.build();
}

TEST(Vdnn, TheSearchEndsAtAConvolution) {
  TestCase t(with_a_table(), 10, 1000);
  // sum's backward op (6) finds the convolution first, whose own one (7) fetches a; pool's, x.
  Decision d = decide_vdnn(t.c);
  EXPECT_EQ(t.move(d, 1, 1)->arrive, 7);
  EXPECT_EQ(t.move(d, 0, 0)->arrive, 8);
  VdnnRules rules;
  rules.window = false;
  d = decide_vdnn(t.c, rules);
  EXPECT_EQ(t.move(d, 1, 1)->arrive, 6);
  EXPECT_EQ(t.move(d, 0, 0)->arrive, 7);
}

TEST(Vdnn, ConvLeavesWhatNoConvolutionReads) {
  TestCase t(with_a_table(), 10, 1000);
  VdnnRules conv;
  conv.all = false;
  EXPECT_EQ(decide_vdnn(t.c).moves.size(), 4u);  // x, a, b, c
  EXPECT_EQ(decide_vdnn(t.c, conv).moves.size(), 0u);
}

TEST(Vdnn, MovesNothingWhereTheStepFits) {
  Three t;
  Result<Planned> planned = t.plan("vdnn");
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->statistics.copies, 0);
  planned = t.plan("vdnn-all");
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->statistics.copies, 4);
}

TEST(Vdnn, SaysTheLeastBudget) {
  // Weights 3; a1 is on its way back while conv3' has a2, a3 and makes g2: 34 bytes.
  EXPECT_EQ(least_named(Three(33).plan("vdnn")), 34);
  Three enough(34);
  EXPECT_TRUE(enough.plan("vdnn").ok());
  EXPECT_FALSE(enough.plan("keep").ok());
}

TEST(Vdnn, NeedsSwapping) {
  Three t;
  t.problem.allow.swap = false;
  EXPECT_EQ(t.plan("vdnn").error().kind, ErrorKind::kBadInput);
}

}  // namespace
}  // namespace outsize::planning
