#include "outsize/run/throttle.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace outsize {
namespace {

// Each way 2 bytes/ns, both ways together 3.
constexpr LinkLimits kLimits{{0, 2'000'000'000}, {0, 2'000'000'000}, 3'000'000'000};

TEST(SharedLinks, OneCopyAloneMovesAtItsLink) {
  SharedLinks links(kLimits);
  const int64_t copy = links.begin(10, true, 8);
  EXPECT_NEAR(links.end_of(10, copy), 14, 1e-6);
  EXPECT_NEAR(links.end_of(13, copy), 14, 1e-6);
}

// The example of the header.
TEST(SharedLinks, BothWaysShareWhatBothMay) {
  SharedLinks links(kLimits);
  const int64_t out = links.begin(0, true, 8);
  const int64_t in = links.begin(2, false, 6);
  EXPECT_NEAR(links.end_of(2, out), 2 + 4 / 1.5, 1e-6);
  EXPECT_NEAR(links.end_of(2, in), 2 + 4 / 1.5 + 1, 1e-6);
  EXPECT_NEAR(links.end_of(5, in), 2 + 4 / 1.5 + 1, 1e-6);  // by then `out` is done
}

TEST(SharedLinks, NothingSharedRunsAtFullSpeedBothWays) {
  SharedLinks links({kLimits.out, kLimits.in, 0});
  const int64_t out = links.begin(0, true, 8);
  const int64_t in = links.begin(0, false, 6);
  EXPECT_NEAR(links.end_of(0, out), 4, 1e-6);
  EXPECT_NEAR(links.end_of(0, in), 3, 1e-6);
}

// Two out: 1 byte/ns each until the smaller is done at 4, then 2 bytes/ns for what is left of 10.
TEST(SharedLinks, CopiesOneWayShareTheLink) {
  SharedLinks links(kLimits);
  const int64_t small = links.begin(0, true, 4);
  const int64_t large = links.begin(0, true, 10);
  EXPECT_NEAR(links.end_of(0, small), 4, 1e-6);
  EXPECT_NEAR(links.end_of(0, large), 7, 1e-6);
}

TEST(SharedLinks, ACopyGivenUpLeavesTheLinkToOthers) {
  SharedLinks links(kLimits);
  const int64_t dropped = links.begin(0, true, 100);
  const int64_t kept = links.begin(0, true, 8);
  EXPECT_NEAR(links.end_of(2, kept), 8, 1e-6);
  links.forget(dropped);
  EXPECT_NEAR(links.end_of(2, kept), 5, 1e-6);  // 2 moved at 1, 6 to go at 2
}

TEST(SharedLinks, NoBytesTakeNoTime) {
  SharedLinks links(kLimits);
  EXPECT_NEAR(links.end_of(3, links.begin(3, false, 0)), 3, 1e-6);
}

// What went through to the device below, and when a copy fails there.
class Below : public Device {
 public:
  Status begin_step() override { return note(); }
  Status run_op(const RunCall&) override { return note(); }
  Status copy(const CopyCall& call) override {
    ++calls;
    return call.bytes == kFailing ? device_error("no such bytes") : Status(Done{});
  }
  Status save_generator(OpId) override { return note(); }
  Status rewind_generator(OpId) override { return note(); }
  Status resume_generator() override { return note(); }
  Status end_step() override { return note(); }

  static constexpr int64_t kFailing = 13;
  int calls = 0;

 private:
  Status note() {
    ++calls;
    return Done{};
  }
};

CopyCall call_of(Tier from, Tier to, int64_t bytes) {
  CopyCall call;
  call.from = from;
  call.to = to;
  call.bytes = bytes;
  return call;
}

double seconds_of(Device& device, const CopyCall& call) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(device.copy(call).ok());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// 1 MB/s each way, 1.5 both, 10 ms latency.
constexpr LinkLimits kSlow{{10'000'000, 1'000'000}, {10'000'000, 1'000'000}, 1'500'000};

TEST(ThrottledDevice, ACopyTakesItsLatencyAndItsBytesTimeAtLeast) {
  Below below;
  ThrottledDevice device(below, kSlow);
  EXPECT_GE(seconds_of(device, call_of(Tier::kDevice, Tier::kHost, 20'000)), 0.030);
  EXPECT_GE(seconds_of(device, call_of(Tier::kHost, Tier::kDevice, 20'000)), 0.030);
  EXPECT_EQ(below.calls, 2);
}

TEST(ThrottledDevice, CopiesBothWaysAtOnceTakeLonger) {
  Below below;
  ThrottledDevice device(below, kSlow);
  std::array<double, 2> seconds{};
  std::thread other(
      [&] { seconds[1] = seconds_of(device, call_of(Tier::kHost, Tier::kDevice, 60'000)); });
  seconds[0] = seconds_of(device, call_of(Tier::kDevice, Tier::kHost, 60'000));
  other.join();
  // 120,000 bytes never take less than 80 ms, whatever overlaps.
  EXPECT_GE(std::max(seconds[0], seconds[1]), 0.080);
}

TEST(ThrottledDevice, OtherRoadsAndCallsPassAsTheyAre) {
  Below below;
  ThrottledDevice device(below, {{0, 1}, {0, 1}, 1});  // a byte a second: would never end
  EXPECT_TRUE(device.copy(call_of(Tier::kDevice, Tier::kDisk, 1 << 20)).ok());
  EXPECT_TRUE(device.copy(call_of(Tier::kDisk, Tier::kDevice, 1 << 20)).ok());
  EXPECT_TRUE(device.copy(call_of(Tier::kDevice, Tier::kDevice, 1 << 20)).ok());
  EXPECT_TRUE(device.begin_step().ok());
  EXPECT_TRUE(device.run_op({}).ok());
  EXPECT_TRUE(device.save_generator(OpId{0}).ok());
  EXPECT_TRUE(device.rewind_generator(OpId{0}).ok());
  EXPECT_TRUE(device.resume_generator().ok());
  EXPECT_TRUE(device.end_step().ok());
  EXPECT_EQ(below.calls, 9);
}

TEST(ThrottledDevice, ACopyThatFailsIsNotWaitedFor) {
  Below below;
  ThrottledDevice device(below, {{0, 1}, {0, 1}, 1});  // its 13 bytes would take 13 s
  const auto begin = std::chrono::steady_clock::now();
  const Status failed = device.copy(call_of(Tier::kDevice, Tier::kHost, Below::kFailing));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no such bytes");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

}  // namespace
}  // namespace outsize
