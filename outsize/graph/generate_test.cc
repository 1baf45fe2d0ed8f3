#include "outsize/graph/generate.h"

#include <gtest/gtest.h>

#include "outsize/graph/builder.h"
#include "outsize/graph/order.h"

namespace outsize {
namespace {

TEST(Builder, HeaderExampleAndMistakes) {
  GraphBuilder b;
  b.parameter("w", 8).input("x", 4).activation("a", 4).output("y", 4);
  b.op("mm").reads("w", "x").makes("a");
  b.op("relu").reads("a").makes("y");
  const Graph graph = b.build();
  EXPECT_EQ(graph.storages[0].name, "w");
  EXPECT_EQ(graph.ops[0].reads,
            (std::vector<Access>{{StorageId(0), {0, 8}}, {StorageId(1), {0, 4}}}));
  EXPECT_THROW(b.op("z").reads("q"), InternalError);
  EXPECT_THROW(b.activation("a", 1), InternalError);
  GraphBuilder bad;
  bad.activation("a", 4);
  bad.op("read").reads("a");
  EXPECT_THROW(bad.build(), InternalError);
}

// Ops: f0 f1 loss loss_backward b1 b0 u0 u1. Storages of 10 B: x w0 w1 a0 a1 loss g1 dw1 g0 dw0.
//   f0:            x w0 w1 a0                  40
//   f1:            x w0 w1 a0 a1               50
//   loss:          x w0 w1 a0 a1 loss          60
//   loss_backward: x w0 w1 a0 a1 loss g1       70
//   b1:            x w0 w1 a0 loss g1 dw1 g0   80    (a1 is done)
//   b0:            x w0 w1 loss dw1 g0 dw0     70    (x is read by b0)
//   u0:            w0 w1 loss dw1 dw0          50
//   u1:            w0 w1 loss dw1              40
TEST(ChainGraph, LivenessByHand) {
  const Graph graph = chain_graph(2, 10);
  const Liveness liveness = liveness_of(graph, {});
  EXPECT_EQ(liveness.live_bytes, (std::vector<int64_t>{40, 50, 60, 70, 80, 70, 50, 40}));
  EXPECT_EQ(liveness.peak_op, OpId(4));
  EXPECT_EQ(liveness.largest_working_set, 50);  // b1 touches g1 a0 w1 dw1 g0
  EXPECT_EQ(liveness.persistent_bytes, 20);
}

TEST(RandomGraph, IsLegalDeterministicAndVaried) {
  int mutations = 0, parts = 0, rng = 0, collective = 0, exit_only = 0, entry_only = 0,
      handed_on = 0, outputs = 0, empty = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int ops = 1 + static_cast<int>(seed % 30);
    const Graph graph = random_graph(seed, ops);
    ASSERT_TRUE(check_graph(graph).ok()) << seed << check_graph(graph).error().message;
    ASSERT_EQ(graph, random_graph(seed, ops));
    ASSERT_EQ(graph.ops.size(), static_cast<size_t>(ops));
    for (const Op& op : graph.ops) {
      mutations += !op.mutates.empty();
      rng += op.uses_rng;
      collective += op.collective;
      for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
        for (const Access& access : *accesses)
          parts += access.bytes.size() != graph.storage(access.storage).bytes;
    }
    for (const Storage& storage : graph.storages) {
      exit_only += storage.persistent && !storage.entry;
      entry_only += storage.persistent && !storage.exit;
      handed_on += !storage.persistent && storage.entry && storage.exit;
      outputs += storage.role == Role::kOutput;
      empty += storage.bytes == 0;
    }
  }
  for (const int count :
       {mutations, parts, rng, collective, exit_only, entry_only, handed_on, outputs, empty})
    EXPECT_GT(count, 20);
  EXPECT_NE(random_graph(1, 10), random_graph(2, 10));
}

TEST(RandomGraph, OptionsTakeEffect) {
  const RandomGraphOptions plain{
      .unit_bytes = 512, .largest_units = 4, .mutates = 0, .parts = 0, .rng = 0, .collective = 0};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Graph graph = random_graph(seed, 25, plain);
    for (const Storage& storage : graph.storages) {
      EXPECT_EQ(storage.bytes % 512, 0);
      EXPECT_LE(storage.bytes, 2048);
    }
    for (const Op& op : graph.ops) {
      EXPECT_TRUE(op.mutates.empty());
      EXPECT_FALSE(op.uses_rng || op.collective);
      for (const auto* accesses : {&op.reads, &op.makes})
        for (const Access& access : *accesses)
          EXPECT_EQ(access.bytes.size(), graph.storage(access.storage).bytes);
    }
  }
}

TEST(UnetGraph, SkipsLiveAcrossTheBottom) {
  const Graph graph = unet_graph(4, int64_t{1} << 20);
  ASSERT_TRUE(check_graph(graph).ok());
  int convolutions = 0, updates = 0;
  for (const Op& op : graph.ops) {
    convolutions += op.name == "convolution";
    updates += op.name == "sgd";
  }
  EXPECT_EQ(convolutions, 4 + 1 + 4);
  EXPECT_EQ(updates, convolutions);
  const Liveness liveness = liveness_of(graph, {});
  EXPECT_GT(liveness.peak_bytes, 2 * liveness.largest_working_set);
}

TEST(TransformerGraph, SizesByHand) {
  const TransformerSize size{.layers = 3,
                             .batch = 2,
                             .sequence = 8,
                             .hidden = 16,
                             .heads = 4,
                             .vocabulary = 100,
                             .element_bytes = 4};
  const Graph graph = transformer_graph(size);
  // Per layer two norms (2h), qkv 3h², projection h², MLP 8h²; embedding and logits v·h each; one
  // norm. (3·(64 + 12·256) + 2·1600 + 32) elements of 4 B, each with two optimizer states.
  EXPECT_EQ(liveness_of(graph, {}).persistent_bytes, 4 * (3 * (64 + 3072) + 3200 + 32) * 3);
  int rng = 0, adam = 0;
  for (const Op& op : graph.ops) {
    rng += op.uses_rng;
    adam += op.name == "adam";
  }
  EXPECT_EQ(rng, 3);  // forward dropout of each layer
  EXPECT_EQ(adam, 3 * 6 + 3);
  EXPECT_FALSE(is_legal_order(graph, std::vector<OpId>{}));
}

}  // namespace
}  // namespace outsize
