#include "outsize/bound/throughput.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"
#include "outsize/graph/forward.h"
#include "outsize/graph/generate.h"
#include "outsize/profile/generate_costs.h"

namespace outsize {
namespace {

StepShape example() {
  return {1, 100, 200, 1000, 100, {{StorageId(0), 100, 30}, {StorageId(1), 200, 100}}};
}

ThroughputLimits limits_of(int64_t device) { return {device, 1 << 30, true, true}; }

TEST(BestSplit, TakesWhatHidesThenWhatIsCheapToRemake) {
  // 200 B must go. 100 B hide: 100 ns out in the forward pass. The other 100 B: 30 ns to remake,
  // 100 ns to wait for their copies out.
  const ThroughputPoint p = best_split(example(), unit_machine(), limits_of(800));
  EXPECT_TRUE(p.feasible);
  EXPECT_DOUBLE_EQ(p.step_ns, 330);
  EXPECT_EQ(p.swap_bytes, 100);
  EXPECT_EQ(p.recompute_bytes, 100);
  EXPECT_DOUBLE_EQ(p.exposed_ns, 0);
  EXPECT_DOUBLE_EQ(p.samples_per_s, 1e9 / 330);
}

TEST(BestSplit, EachWayAloneIsSlower) {
  ThroughputLimits limits = limits_of(800);
  limits.recompute = false;  // 200 B out in 200 ns, 100 of them hidden; back within 200 ns
  EXPECT_DOUBLE_EQ(best_split(example(), unit_machine(), limits).step_ns, 400);
  limits = limits_of(800);
  limits.swap = false;  // 30 ns for 100 B, 50 for half of the other tensor
  EXPECT_DOUBLE_EQ(best_split(example(), unit_machine(), limits).step_ns, 380);
}

TEST(BestSplit, RemakingHidesCopiesBack) {
  // 200 B each way: out hides in 1000 ns. Back takes 200 ns against a backward pass of 50 ns. With
  // x bytes remade at 0.5 ns each: 200 - x = 50 + x / 2 at x = 100, and then nothing waits: 1100
  // ns. All swapped waits 150 ns (1200); all remade takes 100 ns (1150).
  StepShape s{1, 1000, 50, 1000, 100, {{StorageId(0), 200, 100}}};
  const ThroughputPoint p = best_split(s, unit_machine(), limits_of(800));
  EXPECT_DOUBLE_EQ(p.step_ns, 1100);
  EXPECT_EQ(p.recompute_bytes, 100);
}

TEST(BestSplit, SaysTheLeastBudget) {
  ThroughputPoint p = best_split(example(), unit_machine(), limits_of(99));
  EXPECT_FALSE(p.feasible);
  EXPECT_EQ(p.least_budget, 100);
  ThroughputLimits limits = limits_of(99);
  limits.swap = false;  // 300 B can be remade
  EXPECT_EQ(best_split(example(), unit_machine(), limits).least_budget, 700);
  limits.swap = true, limits.host_bytes = 50;
  EXPECT_EQ(best_split(example(), unit_machine(), limits).least_budget, 650);
  EXPECT_DOUBLE_EQ(best_split(example(), unit_machine(), limits_of(1000)).step_ns, 300);
}

// a + 30 B ns of ops, 10 B of them forward; 100 + 20 B bytes, 20 B of them remade at 0.5 ns a byte.
StepShape affine(int64_t batch, double a) {
  const auto b = static_cast<double>(batch);
  return {batch, 10 * b, a + 20 * b, 100 + 20 * batch, 100, {{StorageId(0), 20 * batch, 10 * b}}};
}

TEST(ThroughputModel, StopsWhereRemakingCostsMoreThanALargerBatchSaves) {
  // Budget 300: up to a batch of 10 all is kept. Beyond, each sample costs 20 B x 0.5 ns; worth it
  // if 0.5 ns x 200 B < a, the time that does not grow with the batch.
  ThroughputLimits limits = limits_of(300);
  limits.swap = false;
  Result<ThroughputModel> small =
      ThroughputModel::fit({affine(2, 60), affine(4, 60)}, unit_machine(), limits);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->best().batch, 10);
  EXPECT_DOUBLE_EQ(small->best().samples_per_s, 10 * 1e9 / 360);
  Result<ThroughputModel> large =
      ThroughputModel::fit({affine(2, 160), affine(4, 160)}, unit_machine(), limits);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->best().batch, 4 * ThroughputModel::kReach);
}

TEST(ThroughputModel, FollowsMeasuredCurves) {
  const Result<std::vector<StepShape>> shapes = shapes_from_csv(
      "batch,forward_ns,backward_ns,peak_bytes,least_bytes\n1,100,200,20,10\n3,120,240,40,10\n"
      "4,200,400,50,10\n");
  ASSERT_TRUE(shapes.ok()) << shapes.error().message;
  ASSERT_EQ(shapes->size(), 3u);
  EXPECT_EQ((*shapes)[1].remakes.front().bytes, 30);
  const ThroughputModel model = *ThroughputModel::fit(*shapes, unit_machine(), limits_of(1000));
  EXPECT_DOUBLE_EQ(model.shape_at(2).forward_ns, 110);
  EXPECT_DOUBLE_EQ(model.shape_at(5).forward_ns, 280);
  EXPECT_EQ(model.shape_at(2).peak_bytes, 30);
  EXPECT_EQ(model.best().batch, 3);  // 8.33 samples per 1000 ns; 6.67 at 4 and less beyond
}

TEST(ThroughputModel, RefusesWhatItCannotFit) {
  EXPECT_FALSE(ThroughputModel::fit({}, unit_machine(), limits_of(1)).ok());
  EXPECT_FALSE(
      ThroughputModel::fit({affine(2, 1), affine(2, 1)}, unit_machine(), limits_of(1)).ok());
  EXPECT_FALSE(shapes_from_csv("batch\n1\n").ok());
  const std::string heading = "batch,forward_ns,backward_ns,peak_bytes,least_bytes\n";
  EXPECT_FALSE(shapes_from_csv(heading).ok());
  EXPECT_FALSE(shapes_from_csv(heading + "1,2,3,4\n").ok());
  EXPECT_FALSE(shapes_from_csv(heading + "1,2,3,4,5\n").ok());  // the least above the peak
  EXPECT_TRUE(shapes_from_csv(heading + "1,2,3,5,4\n").ok());
}

TEST(ThroughputModel, SaysWhichBatchNeedsLeast) {
  const ThroughputModel model =
      *ThroughputModel::fit({affine(2, 1), affine(4, 1)}, unit_machine(), limits_of(50));
  EXPECT_FALSE(model.best().feasible);
  EXPECT_EQ(model.best().least_budget, 100);
}

TEST(ShapeOf, ReadsOffAGraph) {
  // f makes a, g makes b from a, h makes c from b: b is read by nobody after h. Backward reads a,
  // c.
  GraphBuilder b;
  b.input("x", 1).activation("a", 40).activation("b", 8).activation("c", 30).activation("d", 1);
  b.parameter("w", 5);
  b.op("f").reads("x", "w").makes("a").phase("forward");
  b.op("g").reads("a").makes("b").phase("forward");
  b.op("h").reads("b").makes("c").phase("forward");
  b.op("loss").reads("c").makes("d").phase("forward");
  b.op("k").reads("d").phase("backward");
  b.op("i").reads("c", "d").phase("backward");
  b.op("j").reads("a", "d").mutates("w").phase("backward");
  const Graph graph = b.build();
  const StepShape shape = shape_of(graph, equal_costs(graph, 10), 7);
  EXPECT_EQ(shape.batch, 7);
  EXPECT_DOUBLE_EQ(shape.forward_ns, 40);
  EXPECT_DOUBLE_EQ(shape.backward_ns, 30);
  // While h runs: w 5, a 40, b 8, c 30.
  EXPECT_EQ(shape.peak_bytes, 83);
  // a waits from g to j and c from loss to i. Least: while g runs a 40, b 8, w 5.
  EXPECT_EQ(shape.least_bytes, 53);
  ASSERT_EQ(shape.remakes.size(), 2u);  // a by f: 10 ns for 40 B; c by h and g, as b is gone: 20
  EXPECT_EQ(shape.remakes[0], (Remake{StorageId(1), 40, 10}));
  EXPECT_EQ(shape.remakes[1], (Remake{StorageId(3), 30, 20}));
}

TEST(ShapeOf, FindsTheBackwardPassOfGeneratedGraphs) {
  for (const Graph& graph : {chain_graph(6, 100), unet_graph(3, 4096), transformer_graph({})}) {
    const size_t forward = forward_ops(graph);
    EXPECT_GT(forward, 0u);
    EXPECT_LT(forward, graph.ops.size());
    const StepShape shape = shape_of(graph, equal_costs(graph, 10), 1);
    EXPECT_LT(shape.least_bytes, shape.peak_bytes);
    EXPECT_FALSE(shape.remakes.empty());
  }
}

}  // namespace
}  // namespace outsize
