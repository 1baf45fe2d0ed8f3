#include <gtest/gtest.h>

#include "outsize/base/deadline.h"
#include "outsize/base/ids.h"
#include "outsize/base/interval.h"
#include "outsize/base/names.h"
#include "outsize/base/random.h"
#include "outsize/base/result.h"

namespace outsize {
namespace {

TEST(Names, NearestMatch) {
  const std::vector<std::string> known{"device", "host", "disk"};
  EXPECT_EQ(nearest_match("hots", known), "host");
  EXPECT_EQ(nearest_match("devcie", known), "device");
  EXPECT_EQ(nearest_match("disk", known), "disk");
  EXPECT_EQ(nearest_match("parameters", known), "");
  EXPECT_EQ(nearest_match("x", {}), "");
}

TEST(Interval, HalfOpen) {
  EXPECT_FALSE((Interval{0, 4}).overlaps({4, 6}));
  EXPECT_TRUE((Interval{0, 5}).overlaps({4, 6}));
  EXPECT_FALSE((Interval{3, 3}).overlaps({0, 6}));
  EXPECT_TRUE((Interval{0, 4}).contains(Interval{0, 4}));
  EXPECT_FALSE((Interval{0, 4}).contains(4));
  EXPECT_EQ((Interval{0, 4}).intersect({2, 9}), (Interval{2, 4}));
}

TEST(Ids, NoneIsInvalid) {
  EXPECT_FALSE(OpId{}.valid());
  EXPECT_TRUE(OpId(0).valid());
  EXPECT_LT(OpId(1), OpId(2));
  EXPECT_EQ(StorageId(7).index(), 7u);
}

// The numbers of splitmix64 for seed 0, from its reference code: a seed means the same everywhere.
TEST(Random, KnownNumbers) {
  Random random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafull);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4ull);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_LT(random.below(3), 3);
    const double x = random.uniform();
    EXPECT_TRUE(x >= 0 && x < 1);
  }
}

TEST(Result, ValueOrError) {
  const Result<int> good = 3;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  const Result<int> bad = bad_input("op {} has {} bytes", 3, 7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message, "op 3 has 7 bytes");
  EXPECT_EQ(bad.error().kind, ErrorKind::kBadInput);
  EXPECT_THROW((void)*bad, InternalError);
}

TEST(Deadline, ByWorkAndByCancelling) {
  Deadline deadline = Deadline::after_work(10);
  deadline.spend(9);
  EXPECT_FALSE(deadline.reached());
  deadline.spend(1);
  EXPECT_TRUE(deadline.reached());
  std::atomic<bool> cancel{false};
  const Deadline other = Deadline::of(1e18, 1'000, &cancel);
  EXPECT_FALSE(other.reached());
  cancel = true;
  EXPECT_TRUE(other.reached());
  EXPECT_TRUE(Deadline::after_seconds(0).reached());
}

}  // namespace
}  // namespace outsize
