#include "outsize/planners/superneurons.h"

#include <algorithm>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

struct Layer {
  const char* name;
  int64_t bytes;  // of its output
};

// A chain of layers and their backward ops; each of these reads its layer's input, output and the
// output's gradient, as cuDNN's do.
Graph chain_of(const std::vector<Layer>& layers, int64_t input) {
  size_t n = layers.size();
  auto of = [](const char* letter, size_t i) { return letter + std::to_string(i); };
  GraphBuilder b;
  b.input("a0", input);
  for (size_t i = 1; i <= n; ++i) b.activation(of("a", i), layers[i - 1].bytes);
  for (size_t i = 0; i <= n; ++i) b.gradient(of("g", i), i > 0 ? layers[i - 1].bytes : input);
  for (size_t i = 1; i <= n; ++i)
    b.op(layers[i - 1].name).reads(of("a", i - 1)).makes(of("a", i)).phase("forward");
  b.op("loss_backward").reads(of("a", n)).makes(of("g", n)).phase("backward");
  for (size_t i = n; i >= 1; --i)
    b.op(layers[i - 1].name + std::string("_backward"))
        .reads(of("a", i - 1), of("a", i), of("g", i))
        .makes(of("g", i - 1))
        .phase("backward");
  return b.build();
}

// AlexNet, elements per image.
Graph alexnet() {
  return chain_of({{"conv", 290400}, {"relu", 290400}, {"lrn", 290400},   {"pool", 69984},  //
                   {"conv", 186624}, {"relu", 186624}, {"lrn", 186624},   {"pool", 43264},  //
                   {"conv", 64896},  {"relu", 64896},                                       //
                   {"conv", 64896},  {"relu", 64896},                                       //
                   {"conv", 43264},  {"relu", 43264},  {"pool", 9216},                      //
                   {"linear", 4096}, {"relu", 4096},   {"dropout", 4096},                   //
                   {"linear", 4096}, {"relu", 4096},   {"dropout", 4096},                   //
                   {"linear", 1000}},
                  154587);
}

int64_t reruns(const Decision& decision) {
  int64_t n = 0;
  for (int32_t s : decision.program.order()) n += decision.program.step(s).rerun;
  return n;
}

std::optional<Decision> decide(const TestCase& t, const SuperneuronsRules& rules) {
  Trouble trouble;
  return decide_superneurons(t.c, t.problem.budgets.device, rules, trouble);
}

// The paper's table 1: AlexNet is 14 recomputations speed-centric, 23 memory-centric, 17
// cost-aware. Its cheap layers stand in segments of 3, 3, 1, 1, 2, 2, 2: their sum, the sum of
// n (n + 1) / 2, and the latter for the first segment alone, which makes 650,784 and needs 720,768
// for pool's backward op, where the largest op, lrn's backward one, has 1,161,600.
TEST(Superneurons, RecomputesAsItsPaperCounts) {
  TestCase t(alexnet(), 10, 1 << 30);
  SuperneuronsRules rules;
  rules.remake = Remake::kSpeed;
  EXPECT_EQ(reruns(*decide(t, rules)), 14);
  rules.remake = Remake::kMemory;
  EXPECT_EQ(reruns(*decide(t, rules)), 23);
  rules.remake = Remake::kCostAware;
  EXPECT_EQ(reruns(*decide(t, rules)), 17);
  rules.recompute = false;
  EXPECT_EQ(reruns(*decide(t, rules)), 0);
}

// Bytes while the backward op of the first segment's last layer runs.
int64_t at_first_pool(const TestCase& t, const Decision& d) {
  std::vector<int64_t> usage = usage_of(t.c, d.program, d.moves);
  size_t rank = 0;
  while (d.program.step(d.program.order()[rank]).op != OpId(41)) ++rank;
  return usage[rank];
}

TEST(Superneurons, EachWayOfRemakingPlansLegally) {
  TestCase t(alexnet(), 10, 1 << 30);
  std::vector<int64_t> peaks;
  for (Remake remake : {Remake::kSpeed, Remake::kCostAware, Remake::kMemory}) {
    SuperneuronsRules rules;
    rules.remake = remake;
    Decision d = *decide(t, rules);
    EXPECT_EQ(t.run(d).recompute_ns, 10 * reruns(d));
    peaks.push_back(at_first_pool(t, d));
  }
  // pool's backward op has its input, output, both gradients, the batch and conv's output; made
  // once for the whole segment, relu's output is there too.
  EXPECT_EQ(peaks[0], 154587 + 4 * 290400 + 2 * 69984);
  EXPECT_EQ(peaks[1], peaks[0] - 290400);
  EXPECT_EQ(peaks[2], peaks[1]);
}

// Four convolutions of 10 B with weights of 1 B. All kept, conv4' needs a0 to a4, the weights and
// its gradient: 55.
struct Four : TestCase {
  explicit Four(int64_t device) : TestCase(convolutions(4, 10), 10, device) {}
};

TEST(Superneurons, CachesByLastUse) {
  Four plenty(55);
  EXPECT_EQ(decide(plenty, {})->moves.size(), 0u);
  Four t(45);
  Decision d = *decide(t, {});
  ASSERT_EQ(d.moves.size(), 1u);
  const Move* a0 = t.move(d, 0, 0);  // used last by conv1, a1 by conv2
  ASSERT_TRUE(a0);
  EXPECT_EQ(a0->release, 3);        // conv4 asks for its room
  EXPECT_EQ(a0->arrive, 6);         // conv1's backward op needs it, conv2's brings it
  EXPECT_EQ(t.run(d).step_ns, 90);  // 8 ops, and conv4 waits for the copy out
}

TEST(Superneurons, WithoutPrefetchTheOpWaits) {
  Four t(45);
  SuperneuronsRules rules;
  rules.prefetch = false;
  EXPECT_EQ(t.run(*decide(t, rules)).step_ns, 100);
}

TEST(Superneurons, WithoutCacheAllHeavyOutputsLeave) {
  Four t(45);
  EXPECT_EQ(t.run(*decide(t, {})).moved_out, 10);
  SuperneuronsRules rules;
  rules.cache = false;
  // a1 and a2; a3 is needed at once, a0 is nobody's output.
  EXPECT_EQ(decide(t, rules)->moves.size(), 2u);
  EXPECT_TRUE(t.move(*decide(t, rules), 1, 1) && t.move(*decide(t, rules), 2, 1));
}

TEST(Superneurons, SaysTheLeastBudget) {
  // conv4' touches a3, a4, g3 and the weights are there: 25.
  EXPECT_EQ(least_named(Four(24).plan("superneurons")), 25);
  EXPECT_TRUE(Four(25).plan("superneurons").ok());
}

TEST(Superneurons, DoesWithoutAHost) {
  Four t(45);
  t.problem.allow.swap = false;
  EXPECT_EQ(t.plan("superneurons").error().kind, ErrorKind::kInfeasible);
}

// Seeds among them where a recomputation makes an early version of a tensor on its way, and reads a
// late one that another instance holds.
TEST(Superneurons, PlansRandomSteps) {
  Tally tally;
  for (const uint64_t seed : {2, 4, 6, 8, 20, 32, 64}) {
    const Graph graph = random_graph(seed, 20 + static_cast<int>(seed % 50));
    const Setting s(graph, random_costs(graph, seed));
    for (const int64_t percent : {50, 80, 90, 95}) {
      tally.add(s.plan("superneurons", s.peak() * percent / 100));
    }
  }
  EXPECT_GT(tally.plans, 8);
  EXPECT_GT(tally.copies, 8);
  EXPECT_GT(tally.reruns, 8);
}

}  // namespace
}  // namespace outsize::planning
