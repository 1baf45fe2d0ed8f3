#include "outsize/bound/holders.h"

#include <gtest/gtest.h>

#include "outsize/base/random.h"
#include "outsize/graph/builder.h"

namespace outsize {
namespace {

constexpr StorageId kX{0}, kW{1}, kA{2}, kB{3}, kY{4};

// The example of the header.
Graph example() {
  GraphBuilder b;
  b.input("x", 100).parameter("w", 50).activation("a", 100).activation("b", 10).output("y", 100);
  b.op("op0").reads("x").makes("a");
  b.op("op1").reads("a", "w").makes("b");
  b.op("op2").reads("a", "b").makes("y");
  return b.build();
}

TEST(ExplainBytes, LooksAtThePeakUntilTheBudgetIsBelowTheFloor) {
  const Graph graph = example();
  const Explanation roomy = explain_bytes(graph, {}, 230);
  EXPECT_EQ(roomy.peak_bytes, 260);  // a 100, y 100, w 50, b 10
  EXPECT_EQ(roomy.floor, (Floor{210, OpId(2)}));
  EXPECT_FALSE(roomy.below_floor);
  EXPECT_EQ(roomy.at, OpId(2));
  EXPECT_EQ(roomy.holders, (std::vector<Holder>{{kA, 100, OpId(0), OpId(2)},
                                                {kY, 100, OpId(2), OpId(2)},
                                                {kW, 50, OpId(), OpId(1)},
                                                {kB, 10, OpId(1), OpId(2)}}));
  EXPECT_FALSE(explain_bytes(graph, {}, 210).below_floor);

  const Explanation tight = explain_bytes(graph, {}, 209);
  EXPECT_TRUE(tight.below_floor);
  EXPECT_EQ(tight.holders, (std::vector<Holder>{{kA, 100, OpId(0), OpId(2)},
                                                {kY, 100, OpId(2), OpId(2)},
                                                {kB, 10, OpId(1), OpId(2)}}));
}

TEST(ExplainBytes, AWorkspaceMovesWhatSetsThem) {
  // op0: x 100 + w 50 + a 100 + 40 of workspace = 290 alive; it touches x, a and the 40: 240.
  const Explanation e = explain_bytes(example(), {40, 0, 0}, 1000);
  EXPECT_EQ(e.peak_bytes, 290);
  EXPECT_EQ(e.floor, (Floor{240, OpId(0)}));
  EXPECT_EQ(e.at, OpId(0));
  EXPECT_EQ(e.workspace_bytes, 40);
  EXPECT_EQ(e.holders.front(), (Holder{kX, 100, OpId(), OpId(0)}));
}

TEST(ExplainBytes, CountsTheBytesThatAnOpTouchesOfAStorage) {
  GraphBuilder b;
  b.input("x", 100).output("y", 10);
  b.op("half").reads_part("x", 0, 30).reads_part("x", 20, 50).makes("y");
  EXPECT_EQ(touched_while(b.build(), OpId(0)),
            (std::vector<Holder>{{StorageId(0), 50, OpId(), OpId(0)},
                                 {StorageId(1), 10, OpId(0), OpId(0)}}));
}

TEST(ExplainBytes, HasStateThatNoOpTouches) {
  GraphBuilder b;
  b.parameter("frozen", 70).input("x", 10).output("y", 20);
  b.op("op0").reads("x").makes("y");
  const Explanation e = explain_bytes(b.build(), {}, 1000);
  EXPECT_EQ(e.peak_bytes, 100);
  EXPECT_EQ(e.holders.front(), (Holder{StorageId(0), 70, OpId(), OpId()}));
}

TEST(ExplainBytes, NothingSetsTheBytesOfNoOps) {
  EXPECT_EQ(explain_bytes(Graph{}, {}, 0), Explanation{});
}

int64_t sum_of(const std::vector<Holder>& holders) {
  int64_t sum = 0;
  for (const Holder& h : holders) sum += h.bytes;
  return sum;
}

TEST(ExplainBytes, HoldersAddUpToWhatLivenessAndFloorSay) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    GraphBuilder b;
    b.parameter("w", random.below(50)).parameter("frozen", random.below(50));
    b.input("x", 1 + random.below(50));
    std::string last = "x";
    for (int i = 0; i < 8; ++i) {
      const std::string name = "a" + std::to_string(i);
      if (random.chance(0.2))
        b.output(name, 5);
      else
        b.activation(name, random.below(50));
      b.op("op").reads(last, random.chance(0.5) ? "w" : "x").makes(name);
      last = random.chance(0.7) ? name : last;
    }
    const Graph graph = b.build();
    const Liveness live = liveness_of(graph, {});
    for (size_t t = 0; t < graph.ops.size(); ++t) {
      const OpId op(static_cast<int64_t>(t));
      EXPECT_EQ(sum_of(alive_while(graph, op)), live.live_bytes[t]) << "seed " << seed;
      EXPECT_EQ(sum_of(touched_while(graph, op)), working_set_bytes(graph, op)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace outsize
