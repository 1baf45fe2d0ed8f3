// An arena: one shared mapping of RAM of a stated size, resident from the start or as far as it was
// asked to be, with a guard page on either side. A tier address is a distance from its base.
//
//   auto arena = Arena::create("device", 1000);      // 4096 bytes: rounded up to whole pages
//   void* p = arena->pointer(64);                    // tier address 64
//   arena->address_of(p) == 64;
//
// The mapping is a memfd, so that a forked process shares the pages and doubles nothing, and
// another process that is handed `fd()` can map or punch them. Ownership: movable, unmaps at
// destruction; pointers are good until then. Threads: the object is immutable after create but for
// `poison`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "outsize/base/result.h"
#include "outsize/tiers/memory.h"

namespace outsize {

class Arena {
 public:
  // Fails with kInfeasible where RAM or the cgroup can't hold `bytes`, before any page is touched.
  // Requires: bytes > 0. Cost: touches every page (about 4 GiB/s).
  static Result<Arena> create(const std::string& name, int64_t bytes);
  // Addresses only: no page is resident until `make_resident` (or a first touch) asks for it.
  static Result<Arena> reserve(const std::string& name, int64_t bytes);
  // Makes [0, end) resident; what is already costs nothing. kInfeasible where RAM can't hold the
  // rest.
  Status make_resident(int64_t end);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  std::byte* base() const { return base_; }
  int fd() const { return fd_; }
  // Requires: 0 <= address <= bytes().
  std::byte* pointer(int64_t address) const;
  bool contains(const void* pointer) const;
  // Requires: contains(pointer), or pointer is one past the end.
  int64_t address_of(const void* pointer) const;
  // Fills [begin, end) with 0xFF bytes: NaN in every float type, -1 in every signed one, so that a
  // read of bytes nobody wrote shows.
  void poison(int64_t begin, int64_t end) const;
  void poison() const { poison(0, bytes_); }

 private:
  Arena() = default;
  void release() noexcept;

  std::string name_;
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  int64_t resident_ = 0;  // [0, resident_) was made resident
  int fd_ = -1;
};

// RAM that this process can still take: what the kernel says is available, and what the memory
// cgroups it is in leave; `source` names the tighter one.
struct AvailableMemory {
  int64_t bytes = 0;
  std::string source;
};
AvailableMemory available_memory();

class ArenaMemory : public TierMemory {
 public:
  explicit ArenaMemory(Arena arena) : arena_(std::move(arena)) {}
  const std::string& name() const override { return arena_.name(); }
  int64_t bytes() const override { return arena_.bytes(); }
  Status read(int64_t address, void* destination, int64_t bytes) override;
  Status write(int64_t address, const void* source, int64_t bytes) override;
  std::byte* base() override { return arena_.base(); }
  Status make_resident(int64_t end) override { return arena_.make_resident(end); }
  const Arena& arena() const { return arena_; }

 private:
  Arena arena_;
};

}  // namespace outsize
