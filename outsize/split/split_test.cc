#include "outsize/split/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "outsize/base/random.h"
#include "outsize/split/choose.h"

namespace outsize {
namespace {

// Graphs of contiguous float tensors that each have a storage of their own.
class Tensors {
 public:
  ValueId tensor(const std::vector<int64_t>& sizes, bool entry = false,
                 const std::string& dtype = "float32") {
    Value value;
    value.storage = StorageId(static_cast<int64_t>(graph.storages.size()));
    value.dtype = dtype;
    value.sizes = sizes;
    value.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) value.strides[d - 1] = value.strides[d] * sizes[d];
    Storage storage;
    storage.bytes = count_of(value) * element_bytes(dtype);
    storage.entry = entry;
    graph.storages.push_back(storage);
    graph.values.push_back(value);
    return ValueId(static_cast<int64_t>(graph.values.size()) - 1);
  }
  ValueId input(const std::vector<int64_t>& sizes, const std::string& dtype = "float32") {
    return tensor(sizes, true, dtype);
  }
  ValueId view(ValueId of, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    Value value = graph.value(of);
    value.sizes = sizes;
    value.strides = strides;
    graph.values.push_back(value);
    return ValueId(static_cast<int64_t>(graph.values.size()) - 1);
  }
  OpId op(const std::string& name, const std::vector<Argument>& args,
          const std::vector<ValueId>& results, const std::vector<ValueId>& reads,
          const std::vector<ValueId>& makes, const std::vector<ValueId>& mutates = {}) {
    Op op;
    op.name = name;
    op.args = args;
    for (const ValueId v : results) op.results.emplace_back().data = v;
    for (const ValueId v : reads) op.reads.push_back(all(v));
    for (const ValueId v : makes) op.makes.push_back(all(v));
    for (const ValueId v : mutates) op.mutates.push_back(all(v));
    op.site = {"net", "train.py", 7, "forward"};
    graph.ops.push_back(op);
    return OpId(static_cast<int64_t>(graph.ops.size()) - 1);
  }
  Access all(ValueId v) const { return {graph.value(v).storage, bytes_of(graph.value(v))}; }
  Graph graph;
};

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Op& op : graph.ops) names.push_back(op.name);
  return names;
}

SplitOptions believing(int64_t largest_bytes) {
  SplitOptions options;
  options.largest_bytes = largest_bytes;
  options.least_piece_bytes = 64;
  options.prove = [](const Graph&, const Cut&) -> Result<Proof> { return Proof{true, ""}; };
  return options;
}

const Argument kNone{};
Argument number(int64_t i) { return Argument{i}; }

TEST(Split, ElementwisePiecesAreRangesOfTheSameStorages) {
  Tensors t;
  const ValueId a = t.input({4, 100}), b = t.tensor({4, 100});
  const OpId op = t.op("aten.gelu.default", {{a}, {std::string("none")}}, {b}, {a}, {b});
  const std::vector<Cut> cuts = cuts_of(t.graph, op);
  ASSERT_EQ(cuts.size(), 1u);
  EXPECT_EQ(cuts[0].kind, CutKind::kElements);
  EXPECT_EQ(cuts[0].bounds, (std::vector<int64_t>{0, 64, 128, 192, 256, 320, 384, 400}));
  const Result<Graph> cut = apply_cuts(t.graph, {{op, CutKind::kElements, {0, 128, 400}, -1}});
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  ASSERT_EQ(cut->ops.size(), 2u);
  EXPECT_EQ(cut->ops[0].makes, (std::vector<Access>{{StorageId(1), {0, 512}}}));
  EXPECT_EQ(cut->ops[1].makes, (std::vector<Access>{{StorageId(1), {512, 1600}}}));
  EXPECT_EQ(cut->ops[1].reads, (std::vector<Access>{{StorageId(0), {512, 1600}}}));
  const Value& second = cut->value(std::get<ValueId>(cut->ops[1].results[0].data));
  EXPECT_EQ(second.sizes, std::vector<int64_t>{272});
  EXPECT_EQ(second.offset, 128);
  EXPECT_EQ(cut->ops[1].site, t.graph.ops[0].site);
  // Nothing that was there has another id.
  EXPECT_TRUE(std::equal(t.graph.values.begin(), t.graph.values.end(), cut->values.begin()));
  EXPECT_TRUE(std::equal(t.graph.storages.begin(), t.graph.storages.end(), cut->storages.begin()));
}

TEST(Split, BroadcastOperandsStayWhole) {
  Tensors t;
  const ValueId a = t.input({2, 3, 5, 7}), mask = t.input({1, 1, 5, 7}), b = t.tensor({2, 3, 5, 7});
  const OpId op = t.op("aten.add.Tensor", {{a}, {mask}, number(1)}, {b}, {a, mask}, {b});
  const auto slicing = slicing_of(t.graph, op);
  ASSERT_TRUE(slicing);
  EXPECT_EQ(slicing->kind, CutKind::kRows);
  EXPECT_EQ(slicing->count, 6);
  EXPECT_EQ(slicing->values.at(mask).dim, -1);
  // A rank of four would give the pieces, which have three dimensions, another.
  EXPECT_EQ(slicing->values.at(mask).view.sizes, (std::vector<int64_t>{5, 7}));
}

TEST(Split, WhatMixesOrDrawsIsNotCut) {
  Tensors t;
  const ValueId a = t.input({8, 8}), b = t.tensor({8, 8}), c = t.tensor({8}), d = t.tensor({8, 8});
  const OpId sum = t.op("aten.sum.dim_IntList", {{a}}, {c}, {a}, {c});
  const OpId square = t.op("aten.mm.default", {{a}, {a}}, {b}, {a}, {b});
  const OpId along = t.op("aten._softmax.default", {{a}, number(0), {false}}, {d}, {a}, {d});
  const OpId random = t.op("aten.mul_.Tensor", {{b}, {2.0}}, {b}, {}, {}, {b});
  t.graph.ops.back().uses_rng = true;
  for (const OpId op : {sum, square, along, random})
    EXPECT_TRUE(cuts_of(t.graph, op).empty()) << t.graph.op(op).name;
}

TEST(Split, ItemsTakeTheirShareOfEveryList) {
  Tensors t;
  using List = Argument::List;
  const ValueId p = t.input({3}), q = t.input({5}), g = t.input({3}), h = t.input({5});
  const ValueId s = t.input({});
  const OpId op = t.op("aten._foreach_addcmul_.ScalarList",
                       {{List{{p}, {q}}}, {List{{g}, {h}}}, {List{{1.0}, {2.0}}}, {s}}, {},
                       {g, h, s}, {}, {p, q});
  const Result<Graph> cut = apply_cuts(t.graph, {{op, CutKind::kItems, {0, 1, 2}, -1}});
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  ASSERT_EQ(cut->ops.size(), 2u);
  EXPECT_EQ(cut->ops[1].args[1].data, (Argument{List{{h}}}).data);
  EXPECT_EQ(cut->ops[1].args[2].data, (Argument{List{{2.0}}}).data);
  EXPECT_EQ(cut->ops[1].mutates, std::vector<Access>{t.all(q)});
  EXPECT_EQ(cut->ops[1].reads, (std::vector<Access>{t.all(h), t.all(s)}));
}

TEST(Split, BoundsMustCoverTheOp) {
  Tensors t;
  const ValueId a = t.input({4, 100}), b = t.tensor({4, 100});
  const OpId op = t.op("aten.tanh.default", {{a}}, {b}, {a}, {b});
  for (const std::vector<int64_t>& bounds :
       {std::vector<int64_t>{0, 399}, {1, 400}, {0, 200, 200, 400}, {0, 300, 200, 400}, {0}, {}})
    EXPECT_FALSE(apply_cuts(t.graph, {{op, CutKind::kElements, bounds, -1}}).ok());
  EXPECT_FALSE(apply_cuts(t.graph, {{op, CutKind::kRows, {0, 200, 400}, -1}}).ok());
  EXPECT_FALSE(apply_cuts(t.graph, {{OpId(9), CutKind::kRows, {0, 200, 400}, -1}}).ok());
  const Cut fine{op, CutKind::kElements, {0, 200, 400}, -1};
  EXPECT_TRUE(apply_cuts(t.graph, {fine}).ok());
  EXPECT_FALSE(apply_cuts(t.graph, {fine, fine}).ok());
}

// hidden @ weight -> logits -> log-softmax -> loss, and its gradient.
struct LossNet : Tensors {
  LossNet() {
    const ValueId hidden = input({64, 8}), weight = input({8, 256}), target = input({64}, "int64");
    const ValueId logits = tensor({64, 256}), logp = tensor({64, 256});
    const ValueId loss = tensor({}), total = tensor({}), one = input({});
    const ValueId grad_logp = tensor({64, 256}), grad_logits = tensor({64, 256});
    const ValueId grad_hidden = tensor({64, 8}), grad_weight = tensor({256, 8});
    const Argument int64_1 = number(1), ignored = number(-100);
    op("aten.mm.default", {{hidden}, {weight}}, {logits}, {hidden, weight}, {logits});
    op("aten._log_softmax.default", {{logits}, int64_1, {false}}, {logp}, {logits}, {logp});
    op("aten.nll_loss_forward.default", {{logp}, {target}, kNone, int64_1, ignored}, {loss, total},
       {logp, target}, {loss, total});
    op("aten.nll_loss_backward.default",
       {{one}, {logp}, {target}, kNone, int64_1, ignored, {total}}, {grad_logp},
       {one, logp, target, total}, {grad_logp});
    op("aten._log_softmax_backward_data.default",
       {{grad_logp}, {logp}, int64_1, {Keyword{"dtype", "float32"}}}, {grad_logits},
       {grad_logp, logp}, {grad_logits});
    const ValueId turned = view(grad_logits, {256, 64}, {1, 256});
    op("aten.mm.default", {{turned}, {hidden}}, {grad_weight}, {grad_logits, hidden},
       {grad_weight});
    const ValueId weight_turned = view(weight, {256, 8}, {1, 256});
    op("aten.mm.default", {{grad_logits}, {weight_turned}}, {grad_hidden}, {grad_logits, weight},
       {grad_hidden});
  }
};

TEST(Split, AChainHoldsOneTensorWhereItHeldThree) {
  const LossNet net;
  const int64_t logits = 64 * 256 * 4;
  const std::vector<int64_t> before = held_bytes(net.graph, {});
  EXPECT_GT(*std::max_element(before.begin(), before.end()), 3 * logits - 1);
  const Result<Split> split = split_graph(net.graph, believing(logits / 2));
  ASSERT_TRUE(split.ok()) << split.error().message;
  const std::vector<int64_t> after = held_bytes(split->graph, {});
  // The gradient of the logits, which the weight's gradient wants whole, and little else.
  EXPECT_LT(*std::max_element(after.begin(), after.end()), logits + logits / 2);
  EXPECT_TRUE(split->refused.empty());
  // Forward and backward: two runs, piece by piece.
  const std::vector<std::string> names = names_of(split->graph);
  const auto first = std::find(names.begin(), names.end(), "aten.mm.default") - names.begin();
  const auto at = static_cast<size_t>(first);
  EXPECT_EQ(names[at + 1], "aten._log_softmax.default");
  EXPECT_EQ(names[at + 2], "aten.gather.default");
  EXPECT_EQ(names[at + 3], "aten.mm.default");
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten.nll_loss_forward.default"), 1);
  const auto back = std::find(names.begin(), names.end(), "aten.nll_loss_backward.default");
  EXPECT_EQ(*(back + 1), "aten._log_softmax_backward_data.default");
  EXPECT_EQ(*(back + 2), "aten.nll_loss_backward.default");
}

TEST(Split, AStepThatFitsIsLeftAlone) {
  const LossNet net;
  const Result<Split> split = split_graph(net.graph, believing(int64_t{1} << 20));
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->graph, net.graph);
  EXPECT_TRUE(split->done.empty());
}

TEST(Split, WhatIsNotProvedIsNotCut) {
  const LossNet net;
  SplitOptions options = believing(64 * 256 * 2);
  options.prove = [](const Graph& graph, const Cut& cut) -> Result<Proof> {
    const bool product = graph.op(cut.op).name == "aten.mm.default";
    return Proof{!product, product ? "seen to differ" : ""};
  };
  const Result<Split> split = split_graph(net.graph, options);
  ASSERT_TRUE(split.ok());
  for (const SplitDone& done : split->done) EXPECT_NE(done.op, "aten.mm.default (net)");
  EXPECT_FALSE(split->done.empty());
  ASSERT_FALSE(split->refused.empty());
  EXPECT_EQ(split->refused[0].op, "aten.mm.default (net)");
  EXPECT_EQ(split->refused[0].why, "seen to differ");
  // The product makes its result whole then.
  const auto names = names_of(split->graph);
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten.mm.default"), 3);
  options.prove = [](const Graph&, const Cut&) -> Result<Proof> { return device_error("broken"); };
  EXPECT_FALSE(split_graph(net.graph, options).ok());
}

TEST(Split, FewerPiecesAreBetterThanNone) {
  const LossNet net;
  SplitOptions options = believing(64 * 256 * 2);
  std::set<int64_t> tried;
  options.prove = [&](const Graph&, const Cut& cut) -> Result<Proof> {
    tried.insert(cut.pieces());
    return Proof{cut.pieces() == 2, "seen to differ"};
  };
  const Result<Split> split = split_graph(net.graph, options);
  ASSERT_TRUE(split.ok()) << split.error().message;
  EXPECT_GT(*tried.rbegin(), 2);
  ASSERT_FALSE(split->done.empty());
  for (const SplitDone& done : split->done) EXPECT_EQ(done.pieces, 2) << done.op;
}

TEST(Split, AWorkspaceShrinksWithThePieces) {
  Tensors t;
  const ValueId x = t.input({8, 4}), w = t.input({4, 4}), y = t.tensor({8, 4}),
                z = t.tensor({8, 4});
  t.op("aten.mm.default", {{x}, {w}}, {y}, {x, w}, {y});
  t.op("aten.cumsum.default", {{y}, number(0)}, {z}, {y}, {z});  // so that y is whole
  SplitOptions options = believing(4000);
  options.workspace_bytes = {0, 0};
  Result<Split> split = split_graph(t.graph, options);
  ASSERT_TRUE(split.ok());
  EXPECT_TRUE(split->done.empty());
  options.workspace_bytes = {6000, 0};
  split = split_graph(t.graph, options);
  ASSERT_TRUE(split.ok());
  ASSERT_EQ(split->done.size(), 1u);
  EXPECT_EQ(split->done[0].bytes_before, 8 * 4 * 4 * 2 + 4 * 4 * 4 + 6000);
  EXPECT_LE(split->done[0].bytes_after, 4000);
}

TEST(Split, PiecesDontOvertakeWhatTheyNeed) {
  // b is made in pieces, summed as a whole, and the sum is wanted by the next: no common run.
  Tensors t;
  const ValueId a = t.input({1024}), b = t.tensor({1024}), s = t.tensor({}), c = t.tensor({1024});
  const OpId one = t.op("aten.tanh.default", {{a}}, {b}, {a}, {b});
  t.op("aten.sum.default", {{b}}, {s}, {b}, {s});
  const OpId two = t.op("aten.mul.Tensor", {{b}, {s}}, {c}, {b, s}, {c});
  std::vector<Cut> cuts = {{one, CutKind::kElements, {0, 512, 1024}, 0},
                           {two, CutKind::kElements, {0, 512, 1024}, 0}};
  settle_runs(t.graph, cuts);
  EXPECT_NE(cuts[0].run, cuts[1].run);
  const Result<Graph> cut = apply_cuts(t.graph, cuts);
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(names_of(*cut),
            (std::vector<std::string>{"aten.tanh.default", "aten.tanh.default", "aten.sum.default",
                                      "aten.mul.Tensor", "aten.mul.Tensor"}));
  // Forced into one run they would wait for each other.
  cuts[0].run = cuts[1].run = 0;
  EXPECT_FALSE(apply_cuts(t.graph, cuts).ok());
}

TEST(Split, OpsBetweenGoBeforeOrAfterTheRun) {
  Tensors t;
  const ValueId a = t.input({1024}), b = t.tensor({1024}), c = t.tensor({1024});
  const ValueId m = t.tensor({1024}), n = t.tensor({1024});
  const OpId one = t.op("aten.tanh.default", {{a}}, {b}, {a}, {b});
  t.op("aten.bernoulli.p", {{a}, {0.5}}, {m}, {a}, {m});  // wanted by the second
  t.op("aten.cumsum.default", {{b}, number(0)}, {n}, {b}, {n});
  const OpId two = t.op("aten.mul.Tensor", {{b}, {m}}, {c}, {b, m}, {c});
  std::vector<Cut> cuts = {{one, CutKind::kElements, {0, 512, 1024}, 0},
                           {two, CutKind::kElements, {0, 512, 1024}, 0}};
  settle_runs(t.graph, cuts);
  EXPECT_EQ(cuts[0].run, cuts[1].run);
  const Result<Graph> cut = apply_cuts(t.graph, cuts);
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(names_of(*cut), (std::vector<std::string>{"aten.bernoulli.p", "aten.tanh.default",
                                                      "aten.mul.Tensor", "aten.tanh.default",
                                                      "aten.mul.Tensor", "aten.cumsum.default"}));
}

TEST(Split, ShapesAloneNeedNoTensor) {
  Tensors t;
  const ValueId a = t.input({4, 6}), b = t.tensor({4, 6}), c = t.tensor({4, 6});
  const Argument format{Keyword{"memory_format", "preserve_format"}};
  t.op("aten.zeros_like.default", {{a}, kNone, kNone, kNone, {false}, format}, {b}, {a}, {b});
  t.op("aten.rand_like.default", {{a}, kNone, kNone, kNone, {false}, format}, {c}, {a}, {c});
  const Graph after = without_shape_reads(t.graph);
  EXPECT_EQ(after.ops[0].name, "aten.zeros.default");
  EXPECT_TRUE(after.ops[0].reads.empty());
  EXPECT_EQ(after.ops[0].args.size(), 5u);
  EXPECT_EQ(after.ops[1], t.graph.ops[1]);
}

// Random chains of pointwise ops: cut at random bounds and joined into runs, every op still reads
// what the same op wrote before (check_graph in apply_cuts), and every byte is written as often as
// it was.
TEST(Split, RandomChainsStayTheSameStep) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    Tensors t;
    std::vector<ValueId> there = {t.input({1024}), t.input({1024})};
    std::vector<Cut> cuts;
    for (int i = 0; i < 12; ++i) {
      const auto pick = [&] {
        return there[static_cast<size_t>(random.below(static_cast<int64_t>(there.size())))];
      };
      const ValueId x = pick(), y = pick();
      OpId op;
      const int64_t choice = random.below(4);
      if (choice == 0 && x != y) {
        op = t.op("aten.add_.Tensor", {{x}, {y}, number(1)}, {x}, {y}, {}, {x});
      } else if (choice == 1) {
        const ValueId out = t.tensor({1024});
        op = t.op("aten.cumsum.default", {{x}, number(0)}, {out}, {x}, {out});
        there.push_back(out);
      } else {
        const ValueId out = t.tensor({1024});
        op = t.op("aten.mul.Tensor", {{x}, {y}}, {out}, x == y ? std::vector{x} : std::vector{x, y},
                  {out});
        there.push_back(out);
      }
      if (slicing_of(t.graph, op) && random.chance(0.8))
        cuts.push_back({op, CutKind::kElements, {0, 256, 640, 1024}, random.below(2)});
    }
    settle_runs(t.graph, cuts);
    const Result<Graph> cut = apply_cuts(t.graph, cuts);
    ASSERT_TRUE(cut.ok()) << "seed " << seed << ": " << cut.error().message;
    EXPECT_EQ(cut->ops.size(), t.graph.ops.size() + 2 * cuts.size()) << "seed " << seed;
    // Byte 0, 300 and 1000 of each storage see the same ops, by name and in the same order.
    for (const int64_t element : {0, 300, 1000})
      for (size_t s = 0; s < t.graph.storages.size(); ++s) {
        const auto history = [&](const Graph& graph) {
          std::vector<std::string> seen;
          for (const Op& op : graph.ops)
            for (const auto* list : {&op.makes, &op.mutates})
              for (const Access& access : *list)
                if (access.storage.index() == s && access.bytes.contains(element * 4))
                  seen.push_back(op.name);
          return seen;
        };
        EXPECT_EQ(history(t.graph), history(*cut)) << "seed " << seed;
      }
  }
}

}  // namespace
}  // namespace outsize
