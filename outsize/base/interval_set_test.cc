#include "outsize/base/interval_set.h"

#include <gtest/gtest.h>

#include <bitset>

#include "outsize/base/random.h"

namespace outsize {
namespace {

TEST(IntervalSet, HeaderExample) {
  IntervalSet set;
  set.add({0, 4});
  set.add({8, 12});
  EXPECT_EQ(set.first_missing({0, 10}), (Interval{4, 8}));
  EXPECT_EQ(set.first_common({2, 20}), (Interval{2, 4}));
  EXPECT_EQ(set.size(), 8);
  set.add({4, 8});
  EXPECT_EQ(set.parts(), (std::vector<Interval>{{0, 12}}));
  set.remove({3, 5});
  EXPECT_EQ(set.parts(), (std::vector<Interval>{{0, 3}, {5, 12}}));
}

// Against a set of single bytes.
TEST(IntervalSet, AgreesWithBits) {
  constexpr int64_t kRange = 40;
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    IntervalSet set;
    std::bitset<kRange> bits;
    for (int step = 0; step < 20; ++step) {
      const int64_t begin = random.below(kRange), end = random.between(begin, kRange + 1);
      const bool add = random.chance(0.6);
      if (add)
        set.add({begin, end});
      else
        set.remove({begin, end});
      for (int64_t x = begin; x < end; ++x) bits[static_cast<size_t>(x)] = add;
      ASSERT_EQ(set.size(), static_cast<int64_t>(bits.count()));
      for (size_t i = 0; i + 1 < set.parts().size(); ++i)
        ASSERT_LT(set.parts()[i].end, set.parts()[i + 1].begin);
      const int64_t a = random.below(kRange), b = random.between(a, kRange + 1);
      // The first run of bytes in [a, b) that are (not) in the set.
      const auto first_run = [&](bool wanted) {
        Interval run;
        for (int64_t x = a; x < b; ++x) {
          if (bits[static_cast<size_t>(x)] != wanted) {
            if (!run.empty()) break;
            continue;
          }
          if (run.empty()) run.begin = x;
          run.end = x + 1;
        }
        return run;
      };
      ASSERT_EQ(set.first_missing({a, b}), first_run(false));
      ASSERT_EQ(set.first_common({a, b}), first_run(true));
      ASSERT_EQ(set.contains({a, b}), first_run(false).empty());
      ASSERT_EQ(set.overlaps({a, b}), !first_run(true).empty());
    }
  }
}

}  // namespace
}  // namespace outsize
