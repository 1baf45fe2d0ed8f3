#include "outsize/planners/far_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "outsize/graph/generate.h"
#include "outsize/planners/case_testing.h"

namespace outsize::planning {
namespace {

Setting random_setting(uint64_t seed) {
  const Graph graph = random_graph(seed, 40);
  Setting s(graph, random_costs(graph, seed));
  s.work = 100;
  s.problem.budgets.device = s.peak() * 3 / 4;
  return s;
}

TEST(FarTier, ADiskOfTheHostsRatesGivesTheSamePlanOnDisk) {
  int swapped = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Setting s = random_setting(seed);
    s.problem.budgets.host = int64_t{1} << 30;
    const Result<Planned> host = s.plan("outsize");
    s.problem.budgets.disk = std::exchange(s.problem.budgets.host, 0);
    const Result<Planned> disk = s.plan("outsize");
    ASSERT_EQ(host.ok(), disk.ok());
    if (!host.ok()) continue;
    EXPECT_EQ(host->step_ns, disk->step_ns);
    EXPECT_EQ(host->statistics.moved_out, disk->statistics.moved_write);
    EXPECT_EQ(host->statistics.moved_in, disk->statistics.moved_read);
    EXPECT_EQ(disk->statistics.moved_out + disk->statistics.moved_in, 0);
    EXPECT_EQ(disk->peak[static_cast<size_t>(Tier::kHost)], 0);
    swapped += disk->statistics.moved_write > 0;
  }
  EXPECT_GT(swapped, 5);
}

TEST(FarTier, ResidenciesOnDiskHaveWholeBlocks) {
  int residencies = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Setting s = random_setting(seed);
    s.machine.disk_alignment = 64;
    s.problem.budgets.disk = int64_t{1} << 30;
    const Result<Planned> planned = s.plan("outsize");
    if (!planned.ok()) continue;
    for (const Residency& r : planned->plan.residencies) {
      if (r.tier != Tier::kDisk) continue;
      EXPECT_EQ(r.address % 64, 0);
      ++residencies;
    }
  }
  EXPECT_GT(residencies, 20);
}

TEST(FarTier, TooSmallADiskIsNamed) {
  int named = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Setting s = random_setting(seed);
    s.problem.allow.recompute = false;
    s.problem.budgets.disk = 1;
    const Result<Planned> planned = s.plan("outsize");
    if (planned.ok()) continue;
    EXPECT_EQ(planned.error().message.find("host"), std::string::npos) << planned.error().message;
    named += planned.error().message.find("on the disk, budget 1 B") != std::string::npos;
  }
  EXPECT_GT(named, 5);
}

TEST(FarTier, HomesOnDiskAreKeptAndRefusedBesideAHost) {
  Setting s = random_setting(3);
  const auto persistent =
      std::find_if(s.graph.storages.begin(), s.graph.storages.end(),
                   [](const Storage& storage) { return storage.persistent && storage.bytes > 0; });
  ASSERT_NE(persistent, s.graph.storages.end());
  const StorageId id(persistent - s.graph.storages.begin());
  s.problem.budgets.disk = int64_t{1} << 30;
  s.problem.border = {{id, Tier::kDisk, 4096}};
  const Result<Planned> planned = s.plan("outsize");
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  for (const BorderItem& item : planned->plan.exit) {
    const Residency& home = planned->plan.residency(item.residency);
    if (!item.home || home.part.storage != id) continue;
    EXPECT_EQ(home.tier, Tier::kDisk);
    EXPECT_EQ(home.address, 4096);
  }
  s.problem.budgets.host = 1 << 20;
  const Result<Planned> refused = s.plan("outsize");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("one tier below the device"), std::string::npos);
}

}  // namespace
}  // namespace outsize::planning
