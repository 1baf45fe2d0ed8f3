#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#include "outsize/base/bytes.h"
#include "outsize/tiers/arena.h"
#include "outsize/tiers/disk.h"
#include "outsize/tiers/faulty.h"

namespace outsize {
namespace {

int64_t resident_shared_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (status >> word)
    if (word == "RssShmem:" && status >> kib) return kib;
  return -1;
}

TEST(Arena, RoundsUpToPagesAndIsResidentAtOnce) {
  const int64_t before = resident_shared_kib();
  Result<Arena> arena = Arena::create("device", (32 << 20) + 1);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->bytes(), (32 << 20) + 4096);
  EXPECT_GE(resident_shared_kib() - before, 32 << 10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % 4096, 0u);
}

TEST(Arena, PointersAndAddressesAreEachOthersInverse) {
  Result<Arena> arena = Arena::create("device", 8192);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(arena->address_of(arena->pointer(64)), 64);
  EXPECT_EQ(arena->address_of(arena->pointer(8192)), 8192);
  EXPECT_TRUE(arena->contains(arena->pointer(8191)));
  EXPECT_FALSE(arena->contains(arena->pointer(8192)));
  EXPECT_FALSE(arena->contains(arena->base() - 1));
  EXPECT_THROW((void)arena->pointer(8193), InternalError);
  EXPECT_THROW((void)arena->address_of(arena->base() - 1), InternalError);
}

TEST(Arena, RefusesMoreThanThereIsAndSaysSo) {
  const AvailableMemory available = available_memory();
  ASSERT_GT(available.bytes, 0);
  const Result<Arena> arena = Arena::create("device", available.bytes * 2);
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.error().kind, ErrorKind::kInfeasible);
  EXPECT_NE(arena.error().message.find("wants " + format_bytes(available.bytes * 2)),
            std::string::npos)
      << arena.error().message;
  EXPECT_NE(arena.error().message.find(available.source), std::string::npos);
}

TEST(Arena, PoisonReadsAsNaN) {
  Result<Arena> arena = Arena::create("device", 4096);
  ASSERT_TRUE(arena.ok());
  arena->poison(0, 8);
  float as_float[3];
  std::memcpy(as_float, arena->base(), sizeof as_float);
  EXPECT_TRUE(std::isnan(as_float[0]));
  EXPECT_TRUE(std::isnan(as_float[1]));
  EXPECT_EQ(as_float[2], 0.0f);
  arena->poison();
  EXPECT_EQ(arena->base()[4095], std::byte{0xFF});
}

TEST(Arena, MovingKeepsTheMapping) {
  Result<Arena> made = Arena::create("device", 4096);
  ASSERT_TRUE(made.ok());
  Arena first = std::move(*made);
  first.base()[0] = std::byte{42};
  std::byte* const base = first.base();
  Arena second = std::move(first);
  EXPECT_EQ(second.base(), base);
  EXPECT_EQ(second.base()[0], std::byte{42});
  EXPECT_EQ(first.base(), nullptr);  // NOLINT: what moving leaves is stated
}

TEST(ArenaDeathTest, GuardsBothEnds) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  Result<Arena> arena = Arena::create("device", 4096);
  ASSERT_TRUE(arena.ok());
  volatile std::byte* base = arena->base();
  EXPECT_DEATH(base[4096] = std::byte{1}, "");
  EXPECT_DEATH(base[-1] = std::byte{1}, "");
}

TEST(Arena, ForkedChildSharesThePages) {
  Result<Arena> arena = Arena::create("device", 4096);
  ASSERT_TRUE(arena.ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    arena->base()[0] = std::byte{9};
    _exit(0);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_EQ(arena->base()[0], std::byte{9});
}

TEST(Disk, NamesTheDirectoryThatIsNotThere) {
  const auto disk = DiskMemory::create("/nowhere/at/all", 4096, {});
  ASSERT_FALSE(disk.ok());
  EXPECT_NE(disk.error().message.find("/nowhere/at/all"), std::string::npos);
}

TEST(Disk, FullDiskShowsAtCreation) {
  const auto disk = DiskMemory::create(::testing::TempDir(), int64_t{1} << 50, {});
  ASSERT_FALSE(disk.ok());
  EXPECT_EQ(disk.error().kind, ErrorKind::kInfeasible);
  EXPECT_NE(disk.error().message.find("taking " + format_bytes(int64_t{1} << 50)),
            std::string::npos)
      << disk.error().message;
  EXPECT_NE(disk.error().message.find("free"), std::string::npos) << disk.error().message;
}

TEST(Disk, LeavesNoFileBehind) {
  const std::string folder = ::testing::TempDir() + "/outsize_tiers_empty";
  ASSERT_EQ(system(("mkdir -p " + folder).c_str()), 0);
  auto disk = DiskMemory::create(folder, 4096, {});
  ASSERT_TRUE(disk.ok());
  EXPECT_EQ(rmdir(folder.c_str()), 0) << std::strerror(errno);
}

TEST(Disk, TakesSpaceAsFarAsIsAsked) {
  auto disk = DiskMemory::create(::testing::TempDir(), 1 << 20, {.preallocate = false});
  ASSERT_TRUE(disk.ok());
  const auto taken = [&] {
    struct stat facts{};
    EXPECT_EQ(fstat((*disk)->fd(), &facts), 0);
    return facts.st_blocks * 512;
  };
  EXPECT_EQ(taken(), 0);
  ASSERT_TRUE((*disk)->make_resident(5000).ok());
  EXPECT_EQ(taken(), 8192);
  ASSERT_TRUE((*disk)->make_resident(4096).ok());  // there already
  ASSERT_TRUE((*disk)->make_resident(int64_t{1} << 40).ok());
  EXPECT_EQ(taken(), 1 << 20);
}

// Offsets and lengths past 32 bits, on a sparse file.
TEST(Disk, ReachesPastFourGiB) {
  const int64_t bytes = (int64_t{1} << 33) + 8192;
  auto disk = DiskMemory::create(::testing::TempDir(), bytes, {.preallocate = false});
  ASSERT_TRUE(disk.ok());
  std::vector<std::byte> content(3 * 4096, std::byte{3});
  for (const int64_t at :
       {int64_t{0}, (int64_t{1} << 32) - 4096, (int64_t{1} << 32) + 1, bytes - 3 * 4096}) {
    std::fill(content.begin(), content.end(), static_cast<std::byte>(at % 251 + 1));
    ASSERT_TRUE((*disk)->write(at, content.data(), 3 * 4096).ok());
  }
  for (const int64_t at : {(int64_t{1} << 32) + 1, bytes - 3 * 4096}) {
    ASSERT_TRUE((*disk)->read(at, content.data(), 3 * 4096).ok());
    EXPECT_EQ(std::count(content.begin(), content.end(), static_cast<std::byte>(at % 251 + 1)),
              3 * 4096);
  }
}

// Fails the given call with the given errno; or claims an end of file.
class FailingCalls : public FileCalls {
 public:
  FailingCalls(int64_t call, int error) : fail_(call), error_(error) {}
  ssize_t pread(int fd, void* buffer, size_t count, off_t offset) override {
    if (calls_++ == fail_) return fail();
    return FileCalls::pread(fd, buffer, count, offset);
  }
  ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset) override {
    if (calls_++ == fail_) return fail();
    return FileCalls::pwrite(fd, buffer, count, offset);
  }

 private:
  ssize_t fail() const {
    errno = error_;
    return error_ == 0 ? 0 : -1;
  }
  int64_t calls_ = 0;
  const int64_t fail_;
  const int error_;
};

TEST(Disk, ReportsWhatTheSystemSays) {
  std::vector<std::byte> content(4 * 4096);
  for (const int error : {ENOSPC, EIO}) {
    FailingCalls calls(1, error);
    auto disk = DiskMemory::create(::testing::TempDir(), 1 << 16, {.calls = &calls});
    ASSERT_TRUE(disk.ok());
    ASSERT_TRUE((*disk)->write(0, content.data(), 4096).ok());
    const Status written = (*disk)->write(8192, content.data(), 4096);
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().kind, ErrorKind::kDevice);
    EXPECT_NE(written.error().message.find("4096 bytes at 8192"), std::string::npos);
    EXPECT_NE(written.error().message.find(std::strerror(error)), std::string::npos);
    EXPECT_TRUE((*disk)->write(8192, content.data(), 4096).ok());  // the next call is its own
  }
}

TEST(Disk, ReportsAFileThatWasCut) {
  FailingCalls calls(0, 0);
  auto disk = DiskMemory::create(::testing::TempDir(), 1 << 16, {.direct = false, .calls = &calls});
  ASSERT_TRUE(disk.ok());
  std::byte b[8];
  const Status read = (*disk)->read(100, b, 8);
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("cut"), std::string::npos);
}

TEST(Faulty, FailsShortensAndDamagesTheChosenCalls) {
  Result<Arena> arena = Arena::create("host", 4096);
  ASSERT_TRUE(arena.ok());
  ArenaMemory inner(std::move(*arena));
  FaultyMemory faulty(inner, {.fail_call = 1, .short_call = 2, .damage_call = 3});
  const std::vector<std::byte> ones(8, std::byte{1});
  ASSERT_TRUE(faulty.write(0, ones.data(), 8).ok());
  const Status failed = faulty.write(8, ones.data(), 8);
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.error().message.find("call 1 (write of 8 bytes at 8)"), std::string::npos);
  EXPECT_EQ(inner.base()[8], std::byte{0});
  ASSERT_FALSE(faulty.write(8, ones.data(), 8).ok());
  EXPECT_EQ(inner.base()[11], std::byte{1});
  EXPECT_EQ(inner.base()[12], std::byte{0});
  std::vector<std::byte> back(8);
  ASSERT_TRUE(faulty.read(0, back.data(), 8).ok());
  EXPECT_NE(back, ones);
  ASSERT_TRUE(faulty.read(0, back.data(), 8).ok());
  EXPECT_EQ(back, ones);
  EXPECT_EQ(faulty.calls(), 5);
}

}  // namespace
}  // namespace outsize
