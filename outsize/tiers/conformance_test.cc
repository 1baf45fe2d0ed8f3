// What every TierMemory must do, whatever holds the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/tiers/arena.h"
#include "outsize/tiers/disk.h"
#include "outsize/tiers/faulty.h"

namespace outsize {
namespace {

constexpr int64_t kBytes = 1 << 20;

// Moves at most a few bytes at a time, and is interrupted in between.
class StutteringCalls : public FileCalls {
 public:
  ssize_t pread(int fd, void* buffer, size_t count, off_t offset) override {
    if (interrupted()) return -1;
    return FileCalls::pread(fd, buffer, shortened(fd, count), offset);
  }
  ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset) override {
    if (interrupted()) return -1;
    return FileCalls::pwrite(fd, buffer, shortened(fd, count), offset);
  }

 private:
  bool interrupted() {
    const int64_t call = calls_++;
    if (call % 3 == 0) errno = EINTR;
    if (call % 5 == 0) errno = EAGAIN;
    return call % 3 == 0 || call % 5 == 0;
  }
  size_t shortened(int, size_t count) {
    // Whole blocks stay whole blocks (a direct call takes no others), all else ends anywhere.
    if (count % 4096 == 0) return count > 4096 ? count / 2 / 4096 * 4096 : count;
    return count > 1 ? count / 2 : count;
  }
  std::atomic<int64_t> calls_{0};
};

// Owns what a wrapper needs beside itself.
struct Made {
  std::vector<std::shared_ptr<void>> owned;
  std::shared_ptr<TierMemory> memory;
};

struct Kind {
  std::string name;
  std::function<Made()> make;
};

std::string scratch() { return ::testing::TempDir(); }

Made arena_memory() {
  Result<Arena> arena = Arena::create("host", kBytes);
  OUTSIZE_CHECK(arena.ok(), "{}", arena.ok() ? "" : arena.error().message);
  return {{}, std::make_shared<ArenaMemory>(std::move(*arena))};
}

Made disk_memory(const DiskOptions& options) {
  auto disk = DiskMemory::create(scratch(), kBytes, options);
  OUTSIZE_CHECK(disk.ok(), "{}", disk.ok() ? "" : disk.error().message);
  return {{}, std::shared_ptr<TierMemory>(std::move(*disk))};
}

Made stuttering_disk(bool direct) {
  auto calls = std::make_shared<StutteringCalls>();
  Made made = disk_memory({.direct = direct, .calls = calls.get()});
  made.owned.push_back(calls);
  return made;
}

Made delayed(Made inner) {
  auto wrapper = std::make_shared<FaultyMemory>(*inner.memory, Faults{.delay_ns = 1000});
  inner.owned.push_back(inner.memory);
  inner.memory = wrapper;
  return inner;
}

std::vector<Kind> kinds() {
  return {{"arena", arena_memory},
          {"disk", [] { return disk_memory({}); }},
          {"disk_through_cache", [] { return disk_memory({.direct = false}); }},
          {"disk_sparse", [] { return disk_memory({.preallocate = false}); }},
          {"disk_stuttering", [] { return stuttering_disk(true); }},
          {"disk_stuttering_through_cache", [] { return stuttering_disk(false); }},
          {"arena_delayed", [] { return delayed(arena_memory()); }}};
}

class Conformance : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { made_ = GetParam().make(); }
  TierMemory& memory() { return *made_.memory; }
  Made made_;
};

std::vector<std::byte> random_bytes(Random& random, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
  return bytes;
}

TEST_P(Conformance, StartsAsZeros) {
  EXPECT_EQ(memory().bytes(), kBytes);
  std::vector<std::byte> all(kBytes, std::byte{7});
  ASSERT_TRUE(memory().read(0, all.data(), kBytes).ok());
  EXPECT_EQ(std::count(all.begin(), all.end(), std::byte{0}), kBytes);
}

// Random ranges, ragged and whole-block, from pointers of any alignment, against a plain vector.
TEST_P(Conformance, ReadsWhatWasWrittenLast) {
  Random random(11);
  std::vector<std::byte> model(kBytes, std::byte{0});
  std::vector<std::byte> buffer(kBytes + 4096);
  for (int round = 0; round < 120; ++round) {
    const int64_t step = random.chance(0.5) ? 4096 : 1;
    const int64_t address = random.below(kBytes / step) * step;
    const int64_t most = std::min<int64_t>(kBytes - address, random.chance(0.3) ? kBytes : 20000);
    const int64_t bytes = std::max<int64_t>(1, random.below(most / step + 1) * step);
    if (address + bytes > kBytes) continue;
    std::byte* at = buffer.data() + random.below(4096);
    if (random.chance(0.5)) {
      const std::vector<std::byte> content = random_bytes(random, bytes);
      std::memcpy(at, content.data(), content.size());
      ASSERT_TRUE(memory().write(address, at, bytes).ok());
      std::copy(content.begin(), content.end(), model.begin() + address);
    } else {
      ASSERT_TRUE(memory().read(address, at, bytes).ok());
      ASSERT_EQ(std::memcmp(at, model.data() + address, static_cast<size_t>(bytes)), 0)
          << "round " << round << ": " << bytes << " bytes at " << address;
    }
  }
  std::vector<std::byte> all(kBytes);
  ASSERT_TRUE(memory().read(0, all.data(), kBytes).ok());
  EXPECT_TRUE(all == model);
}

TEST_P(Conformance, BaseSeesWritesAndIsSeen) {
  ASSERT_NE(memory().base(), nullptr);
  Random random(12);
  const std::vector<std::byte> content = random_bytes(random, 3 * 4096 + 100);
  const auto bytes = static_cast<int64_t>(content.size());
  ASSERT_TRUE(memory().write(4096 - 50, content.data(), bytes).ok());
  EXPECT_EQ(std::memcmp(memory().base() + 4096 - 50, content.data(), content.size()), 0);
  std::memset(memory().base() + 8192, 0x5A, 4096);
  std::vector<std::byte> back(4096);
  ASSERT_TRUE(memory().read(8192, back.data(), 4096).ok());
  EXPECT_EQ(back, std::vector<std::byte>(4096, std::byte{0x5A}));
  // And a read after the direct write over what `base` had dirtied.
  ASSERT_TRUE(memory().write(8192, content.data(), 4096).ok());
  EXPECT_EQ(std::memcmp(memory().base() + 8192, content.data(), 4096), 0);
}

TEST_P(Conformance, RefusesRangesOutside) {
  std::byte b[16] = {};
  const struct {
    int64_t address, bytes;
  } bad[] = {{-1, 1}, {kBytes, 1}, {kBytes - 1, 2}, {0, -1}, {1, INT64_MAX}};
  for (const auto& range : bad) {
    const Status read = memory().read(range.address, b, range.bytes);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().kind, ErrorKind::kDevice);
    EXPECT_NE(read.error().message.find(
                  fmt::format("read of {} bytes at {}", range.bytes, range.address)),
              std::string::npos)
        << read.error().message;
    EXPECT_FALSE(memory().write(range.address, b, range.bytes).ok());
  }
  EXPECT_TRUE(memory().read(kBytes, b, 0).ok());
  EXPECT_TRUE(memory().write(0, b, 0).ok());
  EXPECT_TRUE(memory().write(kBytes - 16, b, 16).ok());
}

// Two threads write neighbouring ranges that share blocks, many times: neither loses a byte.
TEST_P(Conformance, NeighboursInOneBlockDontDisturbEachOther) {
  constexpr int64_t kPiece = 6000;  // one and a half blocks: every other border lies inside a block
  constexpr int64_t kPieces = 40;
  const auto writer = [&](int64_t odd) {
    for (int round = 0; round < 8; ++round)
      for (int64_t piece = odd; piece < kPieces; piece += 2) {
        const std::vector<std::byte> content(kPiece, static_cast<std::byte>(piece + 1));
        const Status written = memory().write(piece * kPiece, content.data(), kPiece);
        EXPECT_TRUE(written.ok());
      }
  };
  std::thread other(writer, 1);
  writer(0);
  other.join();
  for (int64_t piece = 0; piece < kPieces; ++piece) {
    std::vector<std::byte> back(kPiece);
    ASSERT_TRUE(memory().read(piece * kPiece, back.data(), kPiece).ok());
    EXPECT_EQ(back, std::vector<std::byte>(kPiece, static_cast<std::byte>(piece + 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, Conformance, ::testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace outsize
