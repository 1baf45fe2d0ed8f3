#include "outsize/profile/literature/models.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

namespace outsize::literature {
namespace {

Machine v100() { return *find_machine("v100-16gb-pcie3"); }

TEST(LiteratureModels, AreAsLargeAsThePapers) {
  std::cout << "model, batch: ops, distinct sizes, GB (Table 1)\n";
  for (const LiteratureModel& m : literature_models()) {
    if (m.batch == 0) continue;
    NetGraph net = m.build(m.batch);
    int64_t ops = static_cast<int64_t>(net.graph.ops.size());
    int64_t sizes = distinct_sizes(net.graph), bytes = total_bytes(net.graph);
    std::cout << fmt::format("{}, {}: {} ({}), {} ({}), {:.1f} ({:.0f})\n", m.name, m.batch, ops,
                             m.ops, sizes, m.sizes, static_cast<double>(bytes) / 1e9,
                             static_cast<double>(m.bytes) / 1e9);
    EXPECT_LE(std::abs(ops - m.ops), m.ops / 10) << m.name;
    EXPECT_LE(std::abs(sizes - m.sizes), std::max<int64_t>(2, m.sizes / 10)) << m.name;
    EXPECT_LE(std::abs(bytes - m.bytes), m.bytes / 10) << m.name;
  }
}

TEST(LiteratureModels, TakeAsLongAsThePapersIdeal) {
  for (const LiteratureModel& m : literature_models())
    for (const Published& p : m.ideals) {
      Result<GraphFile> file = literature_graph(m.name, p.batch, v100());
      ASSERT_TRUE(file.ok()) << file.error().message;
      ASSERT_TRUE(check_profile(file->graph, *file->profile).ok());
      double per_s =
          1e9 * static_cast<double>(p.batch) / static_cast<double>(compute_ns(*file->profile));
      EXPECT_NEAR(per_s, p.ideal_per_s, p.ideal_per_s * 1e-3) << m.name << " " << p.batch;
    }
}

TEST(LiteratureModels, TheNarrowOneIsScaledAsTheWideOne) {
  Result<GraphFile> narrow = literature_graph("wresnet-152-4", 64, v100());
  ASSERT_TRUE(narrow.ok());
  // Its convolutions do 16/100 of the work, and the rest is 4/10: between 2.5 and 6.25 times as
  // many samples a second as the 4.21 of the wide one.
  double per_s = 64e9 / static_cast<double>(compute_ns(*narrow->profile));
  EXPECT_GT(per_s, 2.5 * 4.21);
  EXPECT_LT(per_s, 6.25 * 4.21);
}

TEST(LiteratureModels, NamesWhatWasMeant) {
  Result<GraphFile> file = literature_graph("nasnet", 16, v100());
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("did you mean 'nasnet-25'"), std::string::npos);
  EXPECT_FALSE(literature_graph("nasnet-25", 0, v100()).ok());
}

// conv 3 -> 8 channels, 2x2 kernel, edge 4, batch 2: 2 * (2 * 8 * 16) * (3 * 4) = 6144 operations.
TEST(Net, CountsOperationsAndAddsGradientsUp) {
  Net net("tiny", 2);
  Tensor x = net.input(4 * 2 * 3 * 16);
  Tensor y = net.relu(net.conv(x, {3, 8, 2, 2, 4}));
  Tensor a = net.pool(y, 8, 1), b = net.pool(y, 8, 1);
  net.classify(net.sum(a, b), 8, 10);
  NetGraph g = net.finish();
  EXPECT_EQ(g.flops[0], 6144);
  std::vector<std::string> names;
  for (const Op& op : g.graph.ops) names.push_back(op.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "Convolution", "Activation", "Pooling", "Pooling", "elemwise_add",
                       "FullyConnected", "SoftmaxOutput", "_backward_SoftmaxOutput",
                       "_backward_FullyConnected", "_backward_add", "_backward_Pooling",
                       "_backward_Pooling", "grad_add", "_backward_Activation",
                       "_backward_Convolution", "sgd_update", "sgd_update", "sgd_update"}));
  // The image gets no gradient.
  EXPECT_EQ(g.flops[14], 6144);
}

}  // namespace
}  // namespace outsize::literature
