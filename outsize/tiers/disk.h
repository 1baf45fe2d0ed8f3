// The disk tier: one nameless file of a stated size, read and written past the page cache
// (O_DIRECT) wherever whole blocks move, through it for ragged edges and where the file system has
// no direct path.
//
//   auto disk = DiskMemory::create("/scratch", int64_t{1} << 40, {});
//   (*disk)->write(0, pointer, 1 << 20);
//
// The file has no name, so it is gone when the process is, however that ends. Its space is taken at
// creation, or as far as `make_resident` asks before a plan uses it: a full disk shows there and
// not in the middle of a step. One large direct call keeps the device's queue full by itself (the
// kernel submits all its blocks before it waits), so there are no threads here; callers give each
// stream its own. `base()` is a shared mapping of the file: what is read through it is clean page
// cache.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "outsize/base/result.h"
#include "outsize/tiers/memory.h"

namespace outsize {

// The two system calls that move bytes; tests put ones in between that stop short or are
// interrupted.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual ssize_t pread(int fd, void* buffer, size_t count, off_t offset);
  virtual ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset);
};

struct DiskOptions {
  bool direct = true;          // speed and cache use only: past the page cache where it can be done
  bool preallocate = true;     // take all space at creation; else as make_resident asks
  FileCalls* calls = nullptr;  // null: the system's; must outlive the memory
};

class DiskMemory : public TierMemory {
 public:
  // `directory` must exist; `bytes` is rounded up to 4096.
  static Result<std::unique_ptr<DiskMemory>> create(const std::string& directory, int64_t bytes,
                                                    const DiskOptions& options);
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;
  ~DiskMemory() override;

  const std::string& name() const override { return name_; }
  int64_t bytes() const override { return bytes_; }
  Status read(int64_t address, void* destination, int64_t bytes) override;
  Status write(int64_t address, const void* source, int64_t bytes) override;
  std::byte* base() override { return base_; }
  // Takes the space of [0, end); kInfeasible where the file system hasn't got it.
  Status make_resident(int64_t end) override;
  // Whether whole blocks go past the page cache.
  bool direct() const { return direct_fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  DiskMemory() = default;
  template <bool kWrites>
  Status transfer(int64_t address, std::byte* memory, int64_t bytes);
  template <bool kWrites>
  Status transfer_direct(int64_t address, std::byte* memory, int64_t bytes);
  template <bool kWrites>
  Status transfer_buffered(int64_t address, std::byte* memory, int64_t bytes);
  Error no_space(int64_t bytes, int error) const;
  Error failed(const char* what, int64_t address, int64_t bytes, int error) const;

  std::string name_;
  std::string directory_;
  int64_t bytes_ = 0;
  int64_t taken_ = 0;                // [0, taken_) has its space
  int fd_ = -1;                      // through the page cache
  int direct_fd_ = -1;               // past it; -1 where the file system refuses
  int64_t memory_alignment_ = 4096;  // of buffers in direct calls
  std::byte* base_ = nullptr;
  FileCalls system_calls_;
  FileCalls* calls_ = nullptr;
};

}  // namespace outsize
