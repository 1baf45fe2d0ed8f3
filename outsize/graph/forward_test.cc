#include "outsize/graph/forward.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"

namespace outsize {
namespace {

// conv makes a (8 B), relu makes b (4 B), the third op reads both and is the fullest moment.
Graph three_ops(const std::string& third, bool phases) {
  GraphBuilder b;
  b.input("x", 1).activation("a", 8).activation("b", 4).output("y", 1);
  b.op("conv").reads("x").makes("a");
  b.op("relu").reads("a").makes("b");
  b.op(third).reads("a", "b").makes("y");
  Graph graph = b.build();
  if (phases) graph.ops[0].site.phase = "forward";
  return graph;
}

TEST(Forward, EndsByPhaseThenByNameThenAtTheFullestMoment) {
  EXPECT_EQ(forward_ops(three_ops("relu_backward", true)), 1u);
  EXPECT_EQ(forward_ops(three_ops("relu_backward", false)), 2u);
  EXPECT_EQ(forward_ops(three_ops("ReluBackward0", false)), 2u);
  EXPECT_EQ(forward_ops(three_ops("sum", false)), 2u);
  EXPECT_EQ(forward_ops(Graph{}), 0u);
}

TEST(Forward, TheFirstOpBeginsNoBackwardPass) {
  Graph graph = three_ops("relu_backward", false);
  graph.ops[0].name = "backward_hook";
  EXPECT_EQ(forward_ops(graph), 2u);
}

TEST(Forward, NamesAreReadInAnyCase) {
  Op op;
  op.name = "aten::Conv2d";
  EXPECT_TRUE(name_has(op, {"mm", "conv"}));
  EXPECT_FALSE(name_has(op, {"mm", "conv3"}));
}

}  // namespace
}  // namespace outsize
