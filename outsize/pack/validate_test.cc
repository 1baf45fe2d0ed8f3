#include "outsize/pack/validate.h"

#include <gtest/gtest.h>

namespace outsize {
namespace {

std::vector<Buffer> three() {
  std::vector<Buffer> buffers(3);
  buffers[0] = {0, {0, 2}, 4, 1, std::nullopt, {}};
  buffers[1] = {1, {1, 3}, 4, 4, std::nullopt, {}};
  buffers[2] = {2, {2, 4}, 4, 1, 0, {}};
  return buffers;
}

TEST(Validate, AcceptsAPacking) {
  EXPECT_TRUE(validate_packing(three(), {0, 4, 0}, 8, 8).ok());
  EXPECT_TRUE(validate_packing({}, {}, 0, 0).ok());
}

TEST(Validate, NamesTheOverlap) {
  std::vector<Buffer> buffers = three();
  buffers[1].alignment = 1;
  const PackingCheck check = validate_packing(buffers, {0, 2, 0}, 0, -1);
  EXPECT_EQ(check.fault, PackingFault::kOverlap);
  EXPECT_EQ(check.first, 0u);
  EXPECT_EQ(check.second, 1u);
  EXPECT_EQ(check.time, 1);
  EXPECT_EQ(check.bytes, (Interval{2, 4}));
  EXPECT_EQ(check.message, "buffers 0 and 1 (positions 0 and 1) share bytes [2, 4) at time 1");
}

TEST(Validate, OneFaultOfEachKind) {
  const auto fault = [](std::vector<int64_t> offsets, int64_t capacity, int64_t height) {
    return validate_packing(three(), offsets, capacity, height).fault;
  };
  EXPECT_EQ(fault({0, 4}, 0, -1), PackingFault::kCount);
  EXPECT_EQ(fault({-1, 4, 0}, 0, -1), PackingFault::kNegative);
  EXPECT_EQ(fault({0, 5, 0}, 0, -1), PackingFault::kAlignment);
  EXPECT_EQ(fault({0, 4, 8}, 0, -1), PackingFault::kMoved);
  EXPECT_EQ(fault({0, 8, 0}, 11, -1), PackingFault::kCapacity);
  EXPECT_EQ(fault({0, 4, 0}, 0, 9), PackingFault::kHeight);
}

TEST(Validate, LooksInsideGaps) {
  std::vector<Buffer> buffers(2);
  buffers[0] = {0, {0, 9}, 8, 1, std::nullopt, {{{3, 6}, Interval{4, 8}}}};
  buffers[1] = {1, {3, 6}, 4, 1, std::nullopt, {}};
  EXPECT_TRUE(validate_packing(buffers, {0, 0}, 0, 8).ok());
  EXPECT_EQ(validate_packing(buffers, {0, 2}, 0, -1).fault, PackingFault::kOverlap);
  buffers[1].life = {3, 7};
  const PackingCheck check = validate_packing(buffers, {0, 0}, 0, -1);
  EXPECT_EQ(check.fault, PackingFault::kOverlap);
  EXPECT_EQ(check.time, 6);
}

}  // namespace
}  // namespace outsize
