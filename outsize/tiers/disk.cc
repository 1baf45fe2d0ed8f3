#include "outsize/tiers/disk.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "outsize/base/bytes.h"

namespace outsize {
namespace {

constexpr int64_t kBlock = 4096;
// A call's largest count: the kernel clamps at 2 GiB and a 32-bit length elsewhere would wrap to 0.
constexpr int64_t kLargestCall = int64_t{256} << 20;
// Copies from or to memory that the device can't reach directly go through buffers of this size.
constexpr int64_t kBounce = int64_t{4} << 20;

int64_t round_down(int64_t x) { return x / kBlock * kBlock; }
int64_t round_up(int64_t x) { return round_down(x + kBlock - 1); }

// What O_DIRECT wants of buffers' addresses, where the kernel says so.
int64_t direct_memory_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx facts{};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0 && facts.stx_dio_mem_align > 0)
    return static_cast<int64_t>(facts.stx_dio_mem_align);
#endif
  (void)fd;
  return kBlock;
}

// Opens a file without a name in `directory`.
int open_nameless(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = directory + "/outsize-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

// Takes the space of [begin, end). Returns an errno, 0 for success.
int take_space(int fd, int64_t begin, int64_t end) {
  for (;;) {
    // posix_fallocate can be interrupted too, and returns its error.
    const int error = posix_fallocate(fd, begin, end - begin);
    if (error != EINTR) return error;
  }
}

}  // namespace

ssize_t FileCalls::pread(int fd, void* buffer, size_t count, off_t offset) {
  return ::pread(fd, buffer, count, offset);
}
ssize_t FileCalls::pwrite(int fd, const void* buffer, size_t count, off_t offset) {
  return ::pwrite(fd, buffer, count, offset);
}

Result<std::unique_ptr<DiskMemory>> DiskMemory::create(const std::string& directory, int64_t bytes,
                                                       const DiskOptions& options) {
  OUTSIZE_CHECK(bytes > 0 && bytes < (int64_t{1} << 62), "disk tier of {} bytes", bytes);
  std::unique_ptr<DiskMemory> disk(new DiskMemory);
  disk->name_ = "disk";
  disk->directory_ = directory;
  disk->bytes_ = round_up(bytes);
  disk->calls_ = options.calls != nullptr ? options.calls : &disk->system_calls_;
  disk->fd_ = open_nameless(directory);
  if (disk->fd_ < 0)
    return device_error("disk: making a file in {}: {}", directory, std::strerror(errno));

  if (ftruncate(disk->fd_, disk->bytes_) != 0) return disk->no_space(disk->bytes_, errno);
  if (options.preallocate)
    if (Status taken = disk->make_resident(disk->bytes_); !taken.ok()) return taken.error();
  if (options.direct) {
    // The same file again, with its own flags.
    const std::string again = fmt::format("/proc/self/fd/{}", disk->fd_);
    disk->direct_fd_ = open(again.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (disk->direct_fd_ < 0 && errno != EINVAL && errno != ENOENT && errno != EACCES)
      return device_error("disk: opening the file in {} for direct use: {}", directory,
                          std::strerror(errno));
    if (disk->direct_fd_ >= 0) disk->memory_alignment_ = direct_memory_alignment(disk->direct_fd_);
  }
  void* base = mmap(nullptr, static_cast<size_t>(disk->bytes_), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, disk->fd_, 0);
  if (base == MAP_FAILED)
    return device_error("disk: mapping {} of the file in {}: {}", format_bytes(disk->bytes_),
                        directory, std::strerror(errno));
  disk->base_ = static_cast<std::byte*>(base);
  return disk;
}

DiskMemory::~DiskMemory() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
  if (direct_fd_ >= 0) close(direct_fd_);
  if (fd_ >= 0) close(fd_);
}

Status DiskMemory::make_resident(int64_t end) {
  const int64_t wanted = std::min(round_up(end), bytes_);
  if (wanted <= taken_) return Done{};
  if (const int error = take_space(fd_, taken_, wanted); error != 0)
    return no_space(wanted - taken_, error);
  taken_ = wanted;
  return Done{};
}

Error DiskMemory::no_space(int64_t bytes, int error) const {
  struct statvfs space{};
  const bool known = statvfs(directory_.c_str(), &space) == 0;
  return Error{error == ENOSPC || error == EFBIG ? ErrorKind::kInfeasible : ErrorKind::kDevice,
               fmt::format("disk: taking {} in {}: {} (the file system has {} free)",
                           format_bytes(bytes), directory_, std::strerror(error),
                           known ? format_bytes(static_cast<int64_t>(space.f_bavail) *
                                                static_cast<int64_t>(space.f_frsize))
                                 : "an unknown number of bytes")};
}

Error DiskMemory::failed(const char* what, int64_t address, int64_t bytes, int error) const {
  return device_error("disk: {} of {} bytes at {} of the file in {}: {}", what, bytes, address,
                      directory_, std::strerror(error));
}

template <bool kWrites>
Status DiskMemory::transfer_buffered(int64_t address, std::byte* memory, int64_t bytes) {
  while (bytes > 0) {
    const auto count = static_cast<size_t>(std::min(bytes, kLargestCall));
    const ssize_t moved = kWrites ? calls_->pwrite(fd_, memory, count, address)
                                  : calls_->pread(fd_, memory, count, address);
    if (moved < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return failed(kWrites ? "write" : "read", address, bytes, errno);
    }
    if (moved == 0)
      return device_error(
          "disk: {} of {} bytes at {} of the file in {} moved nothing: the file "
          "was cut to less than {} bytes",
          kWrites ? "write" : "read", bytes, address, directory_, bytes_);
    address += moved;
    memory += moved;
    bytes -= moved;
  }
  return Done{};
}

// Requires: address and bytes are whole blocks, memory is aligned for direct calls.
template <bool kWrites>
Status DiskMemory::transfer_direct(int64_t address, std::byte* memory, int64_t bytes) {
  while (bytes > 0) {
    const auto count = static_cast<size_t>(std::min(bytes, kLargestCall));
    const ssize_t moved = kWrites ? calls_->pwrite(direct_fd_, memory, count, address)
                                  : calls_->pread(direct_fd_, memory, count, address);
    if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (moved < 0 && errno != EINVAL)
      return failed(kWrites ? "write" : "read", address, bytes, errno);
    // A short count may end inside a block, where a direct call can't go on; what is left of that
    // block goes through the page cache. EINVAL: alignment this device wants and did not say.
    const int64_t whole = moved < 0 ? 0 : round_down(moved);
    if (whole == 0) {
      const int64_t piece = moved < 0 ? static_cast<int64_t>(count) : kBlock;
      if (Status done = transfer_buffered<kWrites>(address, memory, piece); !done.ok()) return done;
      address += piece;
      memory += piece;
      bytes -= piece;
      continue;
    }
    address += whole;
    memory += whole;
    bytes -= whole;
  }
  return Done{};
}

template <bool kWrites>
Status DiskMemory::transfer(int64_t address, std::byte* memory, int64_t bytes) {
  const int64_t middle_begin = round_up(address);
  const int64_t middle_end = round_down(address + bytes);
  // Only blocks that lie wholly inside the range go past the cache, so that two neighbours that
  // share a block both write it through the cache and lose nothing.
  if (direct_fd_ < 0 || middle_end <= middle_begin)
    return transfer_buffered<kWrites>(address, memory, bytes);
  if (Status head = transfer_buffered<kWrites>(address, memory, middle_begin - address); !head.ok())
    return head;
  std::byte* middle = memory + (middle_begin - address);
  const auto alignment = static_cast<uintptr_t>(memory_alignment_);
  if (reinterpret_cast<uintptr_t>(middle) % alignment == 0) {
    if (Status moved = transfer_direct<kWrites>(middle_begin, middle, middle_end - middle_begin);
        !moved.ok())
      return moved;
  } else {
    const int64_t bounce_bytes = std::min(kBounce, middle_end - middle_begin);
    struct Free {
      void operator()(void* p) const { std::free(p); }
    };
    const std::unique_ptr<std::byte, Free> bounce(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(kBlock), static_cast<size_t>(bounce_bytes))));
    if (bounce == nullptr)
      return device_error("disk: no memory for a buffer of {}", format_bytes(bounce_bytes));
    for (int64_t at = middle_begin; at < middle_end; at += bounce_bytes) {
      const int64_t piece = std::min(bounce_bytes, middle_end - at);
      std::byte* here = memory + (at - address);
      if constexpr (kWrites) std::memcpy(bounce.get(), here, static_cast<size_t>(piece));
      if (Status moved = transfer_direct<kWrites>(at, bounce.get(), piece); !moved.ok())
        return moved;
      if constexpr (!kWrites) std::memcpy(here, bounce.get(), static_cast<size_t>(piece));
    }
  }
  return transfer_buffered<kWrites>(middle_end, memory + (middle_end - address),
                                    address + bytes - middle_end);
}

Status DiskMemory::read(int64_t address, void* destination, int64_t bytes) {
  if (Status in_range = check_range(*this, "read", address, bytes); !in_range.ok()) return in_range;
  return transfer<false>(address, static_cast<std::byte*>(destination), bytes);
}

Status DiskMemory::write(int64_t address, const void* source, int64_t bytes) {
  if (Status in_range = check_range(*this, "write", address, bytes); !in_range.ok())
    return in_range;
  // The bytes are only read; `transfer` serves both ways.
  return transfer<true>(address, const_cast<std::byte*>(static_cast<const std::byte*>(source)),
                        bytes);
}

}  // namespace outsize
