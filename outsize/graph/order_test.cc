#include "outsize/graph/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "outsize/graph/builder.h"
#include "outsize/graph/generate.h"

namespace outsize {
namespace {

std::vector<OpId> ids(std::initializer_list<int> list) {
  std::vector<OpId> out;
  for (const int i : list) out.emplace_back(i);
  return out;
}

TEST(Dependencies, HeaderExample) {
  GraphBuilder b;
  b.activation("A", 8).activation("B", 8).output("C", 8);
  b.op("op0").makes("A");
  b.op("op1").reads("A").makes("B");
  b.op("op2").mutates("A");
  b.op("op3").reads("A").makes("C");
  const auto dependencies = dependencies_of(b.build());
  EXPECT_EQ(dependencies[0], ids({}));
  EXPECT_EQ(dependencies[1], ids({0}));
  EXPECT_EQ(dependencies[2], ids({0, 1}));
  EXPECT_EQ(dependencies[3], ids({2}));
}

TEST(Dependencies, ByBytes) {
  GraphBuilder b;
  b.activation("A", 10).output("y", 1);
  b.op("op0").makes_part("A", 0, 5);
  b.op("op1").makes_part("A", 5, 10);
  b.op("op2").reads_part("A", 2, 5);
  b.op("op3").mutates_part("A", 4, 6);
  b.op("op4").mutates_part("A", 0, 4);
  b.op("op5").reads("A").makes("y");
  const auto dependencies = dependencies_of(b.build());
  EXPECT_EQ(dependencies[1], ids({}));
  EXPECT_EQ(dependencies[2], ids({0}));
  EXPECT_EQ(dependencies[3], ids({0, 1, 2}));
  EXPECT_EQ(dependencies[4], ids({0, 2}));
  EXPECT_EQ(dependencies[5], ids({1, 3, 4}));
}

TEST(Dependencies, ChainsAndScalars) {
  GraphBuilder b;
  b.output("a", 1).output("b", 1).output("c", 1).output("d", 1);
  b.op("op0").makes("a").rng().collective();
  b.op("op1").makes("b");
  b.op("op2").makes("c").rng();
  b.op("op3").makes("d").collective();
  Graph graph = b.build();
  // op1 returns an item; op3 takes twice that.
  Scalar item, twice;
  item.kind = ScalarKind::kItem;
  twice.kind = ScalarKind::kOp;
  twice.function = "mul";
  twice.args = {{ScalarId(0)}, {2.0}};
  graph.scalars = {item, twice};
  graph.ops[1].results = {{ScalarId(0)}};
  graph.ops[3].args = {{Argument::List{{ScalarId(1)}}}};
  ASSERT_TRUE(check_graph(graph).ok());
  const auto dependencies = dependencies_of(graph);
  EXPECT_EQ(dependencies[1], ids({}));
  EXPECT_EQ(dependencies[2], ids({0}));
  EXPECT_EQ(dependencies[3], ids({0, 1}));
}

TEST(CheckOrder, NamesWhatIsWrong) {
  const Graph graph = chain_graph(1, 4);  // forward, loss, loss_backward, backward, update
  const auto wrong = [&](std::initializer_list<int> order) {
    const Status status = check_order(graph, ids(order));
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(wrong({0, 1, 2, 3, 4}), "");
  EXPECT_EQ(wrong({0, 2, 1, 3, 4}), "");
  EXPECT_EQ(wrong({0, 1, 2, 3}), "the order has 4 ops, the graph 5");
  EXPECT_EQ(wrong({0, 1, 2, 3, 3}), "op 3 is at places 3 and 4");
  EXPECT_EQ(wrong({0, 1, 2, 3, 5}), "place 4 has op 5; there are 5");
  EXPECT_EQ(wrong({0, 1, 3, 2, 4}),
            "op 3 (backward) must come after op 2 (loss_backward), but is at place 2 before 3");
  EXPECT_TRUE(is_legal_order(graph, program_order(graph)));
  EXPECT_FALSE(is_legal_order(graph, ids({4, 0, 1, 2, 3})));
}

// What program order gives every read: per access byte, the op that wrote it last. An independent
// reading of "computes the same step", byte by byte.
std::vector<std::vector<int>> contents_seen(const Graph& graph, std::span<const OpId> order) {
  std::vector<std::vector<int>> writer;
  for (const Storage& storage : graph.storages)
    writer.emplace_back(static_cast<size_t>(storage.bytes), -1);
  std::vector<std::vector<int>> seen(graph.ops.size() + 1);
  for (const OpId id : order) {
    const Op& op = graph.op(id);
    for (const auto* accesses : {&op.reads, &op.mutates})
      for (const Access& access : *accesses)
        for (int64_t x = access.bytes.begin; x < access.bytes.end; ++x)
          seen[id.index()].push_back(writer[access.storage.index()][static_cast<size_t>(x)]);
    for (const auto* accesses : {&op.makes, &op.mutates})
      for (const Access& access : *accesses)
        for (int64_t x = access.bytes.begin; x < access.bytes.end; ++x)
          writer[access.storage.index()][static_cast<size_t>(x)] = id.value;
  }
  for (size_t s = 0; s < graph.storages.size(); ++s)
    if (graph.storages[s].exit)
      seen.back().insert(seen.back().end(), writer[s].begin(), writer[s].end());
  return seen;
}

TEST(RandomOrder, IsLegalAndGivesTheSameStep) {
  int moved = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = random_graph(seed, 20);
    const auto program = program_order(graph);
    const auto order = random_topological_order(graph, seed);
    EXPECT_EQ(order, random_topological_order(graph, seed));
    ASSERT_TRUE(is_legal_order(graph, order)) << seed;
    EXPECT_EQ(contents_seen(graph, order), contents_seen(graph, program)) << seed;
    EXPECT_TRUE(check_graph(reordered(graph, order)).ok()) << seed;
    moved += order != program;
  }
  EXPECT_GT(moved, 50);
}

// Any swap of two neighbours is called legal exactly when it keeps contents and chains.
TEST(CheckOrder, AgreesWithContentsOnNeighbourSwaps) {
  int legal = 0, illegal = 0;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    const Graph graph = random_graph(seed, 15);
    const auto program = program_order(graph);
    const auto expected = contents_seen(graph, program);
    for (size_t i = 0; i + 1 < program.size(); ++i) {
      auto order = program;
      std::swap(order[i], order[i + 1]);
      const Op& a = graph.ops[i];
      const Op& b = graph.ops[i + 1];
      const bool chained = (a.uses_rng && b.uses_rng) || (a.collective && b.collective);
      // A write moved before the only read of what it overwrites shows at that read; so does every
      // other conflict, at a read or at exit, but for bytes nobody looks at again.
      const bool same = !chained && contents_seen(graph, order) == expected;
      const bool said = is_legal_order(graph, order);
      if (said) {
        EXPECT_TRUE(same) << "seed " << seed << " place " << i;
      }
      if (!same) {
        EXPECT_FALSE(said) << "seed " << seed << " place " << i;
      }
      (said ? legal : illegal) += 1;
    }
  }
  EXPECT_GT(legal, 30);
  EXPECT_GT(illegal, 30);
}

}  // namespace
}  // namespace outsize
