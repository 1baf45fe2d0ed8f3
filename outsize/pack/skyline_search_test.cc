#include "outsize/pack/skyline_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "outsize/base/random.h"
#include "outsize/pack/brute_force.h"
#include "outsize/pack/exact.h"
#include "outsize/pack/validate.h"

namespace outsize::packing {
namespace {

using Outcome = SkylineSearch::Outcome;

std::vector<Buffer> buffers_of(const std::vector<SkylineItem>& items) {
  std::vector<Buffer> buffers;
  for (const SkylineItem& item : items) {
    Buffer& buffer = buffers.emplace_back();
    buffer.life = {item.begin, item.end};
    buffer.size = item.size;
  }
  return buffers;
}

bool valid(const std::vector<SkylineItem>& items, const std::vector<int64_t>& offsets,
           int64_t capacity) {
  return validate_packing(buffers_of(items), offsets, capacity, -1).ok();
}

TEST(SkylineSearch, DrawnExample) {
  // b0 [0,2) 4, b1 [1,3) 4, b2 [2,4) 4; sections 0, 1, 2 begin at times 0, 1, 2.
  const std::vector<SkylineItem> items = {{0, 2, 4}, {1, 3, 4}, {2, 3, 4}};
  Deadline deadline;
  SkylineSearch eight(items, 8);
  ASSERT_EQ(eight.run(0, 1000, deadline), Outcome::kFound);
  EXPECT_TRUE(valid(items, eight.offsets(), 8));
  SkylineSearch seven(items, 7);
  EXPECT_EQ(seven.run(0, 1000, deadline), Outcome::kNone);
}

TEST(SkylineSearch, NothingWaits) {
  Deadline deadline;
  EXPECT_EQ(SkylineSearch({}, 1).run(0, 10, deadline), Outcome::kFound);
}

// Finds the lowest packing, and proves that there is none one byte below, whatever the order of
// choices and whatever was learned in turns that were too short.
TEST(SkylineSearch, EqualsBruteForceOnTinyInstances) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    std::vector<SkylineItem> items;
    const int64_t n = 2 + random.below(5), sections = 2 + random.below(5);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t begin = random.below(sections);
      const int64_t end = begin + 1 + random.below(sections - begin);
      items.push_back(
          {static_cast<uint32_t>(begin), static_cast<uint32_t>(end), 1 + random.below(6)});
    }
    const int64_t lowest = lowest_by_brute_force(buffers_of(items));
    Deadline deadline;
    SkylineSearch at(items, lowest), below(items, lowest - 1);
    for (uint64_t turn = 0; turn < 5; ++turn) {
      EXPECT_NE(at.run(turn, 2 + random.below(4), deadline), Outcome::kNone) << "seed " << seed;
      EXPECT_NE(below.run(turn, 2 + random.below(4), deadline), Outcome::kFound) << "seed " << seed;
    }
    ASSERT_EQ(at.run(seed, 100'000, deadline), Outcome::kFound) << "seed " << seed;
    EXPECT_TRUE(valid(items, at.offsets(), lowest)) << "seed " << seed;
    EXPECT_EQ(below.run(seed, 100'000, deadline), Outcome::kNone) << "seed " << seed;
  }
}

// At the most bytes live at once, where a packing may be missing and the proof takes search.
TEST(SkylineSearch, AgreesWithTheSearchByRisingOffset) {
  int found = 0, proved = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    std::vector<SkylineItem> items;
    std::vector<int64_t> load(8, 0);
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t begin = random.below(8);
      const int64_t end = std::min<int64_t>(8, begin + 1 + random.below(4));
      items.push_back(
          {static_cast<uint32_t>(begin), static_cast<uint32_t>(end), 1 + random.below(20)});
      for (int64_t s = begin; s < end; ++s) load[static_cast<size_t>(s)] += items.back().size;
    }
    // Every section is filled up, so that nothing may stay empty.
    const int64_t most = *std::max_element(load.begin(), load.end());
    for (uint32_t s = 0; s < 8; ++s)
      if (load[s] < most) items.push_back({s, s + 1, most - load[s]});
    const std::vector<Buffer> buffers = buffers_of(items);
    const Instance instance(buffers);
    Deadline deadline;
    const ExactResult other = search_exact(instance, instance.most_live(), 1'000'000, deadline);
    SkylineSearch search(items, instance.most_live());
    const Outcome outcome = search.run(seed, 1'000'000, deadline);
    if (other.proved_infeasible) {
      ++proved;
      EXPECT_EQ(outcome, Outcome::kNone) << "seed " << seed;
    }
    if (other.offsets) {
      ++found;
      ASSERT_EQ(outcome, Outcome::kFound) << "seed " << seed;
      EXPECT_TRUE(valid(items, search.offsets(), instance.most_live())) << "seed " << seed;
    }
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(proved, 3);
}

TEST(SkylineSearch, SameSeedAndWorkSamePacking) {
  Random random(9);
  std::vector<SkylineItem> items;
  for (int i = 0; i < 60; ++i) {
    const auto begin = static_cast<uint32_t>(random.below(30));
    items.push_back(
        {begin, begin + 1 + static_cast<uint32_t>(random.below(6)), 1 + random.below(50)});
  }
  Deadline deadline;
  SkylineSearch one(items, 600), two(items, 600);
  ASSERT_EQ(one.run(7, 50'000, deadline), two.run(7, 50'000, deadline));
  EXPECT_EQ(one.offsets(), two.offsets());
  EXPECT_EQ(one.work(), two.work());
}

}  // namespace
}  // namespace outsize::packing
