#include "outsize/tiers/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "outsize/base/bytes.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace outsize {
namespace {

// x86-64 huge pages; a base aligned to it lets the kernel use them where shared memory may have
// any.
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t page_bytes() { return static_cast<int64_t>(sysconf(_SC_PAGESIZE)); }

std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;  // not there, or "max"
}

std::optional<int64_t> field_of(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  while (file >> word) {
    if (word == field && file >> number) return number;
    file.clear();
  }
  return std::nullopt;
}

// What the cgroup at `folder` leaves. Its page cache can be given back, so it does not count as
// used.
int64_t left_in_cgroup(const std::string& folder, const char* limit_file, const char* usage_file,
                       const char* cache_field) {
  const std::optional<int64_t> limit = read_number(folder + limit_file);
  const std::optional<int64_t> usage = read_number(folder + usage_file);
  if (!limit || !usage) return kUnlimited;
  const int64_t cache = field_of(folder + "memory.stat", cache_field).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache));
}

// Every cgroup from the process's own up to the root binds.
void narrow_by_cgroups(AvailableMemory& available, const std::string& root, std::string path,
                       const char* limit_file, const char* usage_file, const char* cache_field) {
  for (;;) {
    const std::string folder = root + path + (path.ends_with('/') ? "" : "/");
    const int64_t left = left_in_cgroup(folder, limit_file, usage_file, cache_field);
    if (left < available.bytes) available = {left, "cgroup " + folder};
    if (path.empty() || path == "/") return;
    path.resize(path.find_last_of('/'));
  }
}

}  // namespace

AvailableMemory available_memory() {
  AvailableMemory available{kUnlimited, "unknown"};
  if (const auto kib = field_of("/proc/meminfo", "MemAvailable:"); kib)
    available = {*kib * 1024, "available RAM (/proc/meminfo)"};
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  while (std::getline(own, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      narrow_by_cgroups(available, "/sys/fs/cgroup", path, "memory.max", "memory.current",
                        "inactive_file");
    std::stringstream names(controllers);
    std::string controller;
    while (std::getline(names, controller, ','))
      if (controller == "memory")
        narrow_by_cgroups(available, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                          "memory.usage_in_bytes", "total_inactive_file");
  }
  return available;
}

Result<Arena> Arena::create(const std::string& name, int64_t bytes) {
  Result<Arena> arena = reserve(name, bytes);
  if (!arena.ok()) return arena;
  if (Status resident = arena->make_resident(arena->bytes()); !resident.ok())
    return resident.error();
  return arena;
}

Status Arena::make_resident(int64_t end) {
  const int64_t page = page_bytes();
  const int64_t rounded = std::min((end + page - 1) / page * page, bytes_);
  if (rounded <= resident_) return Done{};
  const AvailableMemory available = available_memory();
  if (rounded - resident_ > available.bytes)
    return infeasible("arena {}: wants {} more, {} has {}", name_,
                      format_bytes(rounded - resident_), available.source,
                      format_bytes(available.bytes));
  std::byte* begin = base_ + resident_;
  if (madvise(begin, static_cast<size_t>(rounded - resident_), MADV_POPULATE_WRITE) != 0) {
    if (errno != EINVAL)  // older kernels don't know the advice
      return infeasible("arena {}: making {} resident: {} ({} had {})", name_,
                        format_bytes(rounded), std::strerror(errno), available.source,
                        format_bytes(available.bytes));
    // Reading a page and writing it back makes it resident and changes nothing.
    for (int64_t at = resident_; at < rounded; at += page) {
      auto* byte = static_cast<volatile std::byte*>(base_ + at);
      *byte = *byte;
    }
  }
  resident_ = rounded;
  return Done{};
}

Result<Arena> Arena::reserve(const std::string& name, int64_t bytes) {
  OUTSIZE_CHECK(bytes > 0, "arena {} of {} bytes", name, bytes);
  const int64_t page = page_bytes();
  if (bytes > kUnlimited - 4 * kHugePage)
    return infeasible("arena {}: {} bytes is more than can be addressed", name, bytes);
  const int64_t rounded = (bytes + page - 1) / page * page;

  Arena arena;
  arena.name_ = name;
  arena.fd_ = memfd_create(("outsize-" + name).c_str(), MFD_CLOEXEC);
  if (arena.fd_ < 0) return device_error("arena {}: memfd_create: {}", name, std::strerror(errno));
  if (ftruncate(arena.fd_, rounded) != 0)
    return device_error("arena {}: sizing to {}: {}", name, format_bytes(rounded),
                        std::strerror(errno));

  // Reserve address space for the arena on a huge-page boundary with a page of nothing on both
  // sides.
  const auto reserved = static_cast<size_t>(rounded + 2 * kHugePage + 2 * page);
  void* space =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    return device_error("arena {}: reserving {}: {}", name, format_bytes(rounded),
                        std::strerror(errno));
  const auto start = reinterpret_cast<uintptr_t>(space);
  const auto huge = static_cast<uintptr_t>(kHugePage);
  const uintptr_t base = (start + static_cast<uintptr_t>(page) + huge - 1) / huge * huge;
  // Give back all of the reservation but the arena and its two guard pages.
  const uintptr_t keep_begin = base - static_cast<uintptr_t>(page);
  const uintptr_t keep_end = base + static_cast<uintptr_t>(rounded + page);
  if (keep_begin > start) munmap(space, keep_begin - start);
  if (start + reserved > keep_end)
    munmap(reinterpret_cast<void*>(keep_end), start + reserved - keep_end);
  arena.base_ = reinterpret_cast<std::byte*>(base);
  arena.bytes_ = rounded;
  if (mmap(arena.base_, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, arena.fd_, 0) == MAP_FAILED)
    return device_error("arena {}: mapping {}: {}", name, format_bytes(rounded),
                        std::strerror(errno));
  // Speed only; refused where shared memory may not have huge pages (EINVAL), which costs nothing.
  (void)madvise(arena.base_, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  release();
  name_ = std::move(other.name_);
  base_ = std::exchange(other.base_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  resident_ = std::exchange(other.resident_, 0);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Arena::~Arena() { release(); }

void Arena::release() noexcept {
  if (base_ != nullptr) {
    const int64_t page = page_bytes();
    munmap(base_ - page, static_cast<size_t>(bytes_ + 2 * page));
  }
  if (fd_ >= 0) close(fd_);
  base_ = nullptr;
  fd_ = -1;
  bytes_ = 0;
}

std::byte* Arena::pointer(int64_t address) const {
  OUTSIZE_CHECK(0 <= address && address <= bytes_, "arena {}: address {} outside [0, {}]", name_,
                address, bytes_);
  return base_ + address;
}

bool Arena::contains(const void* pointer) const {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const auto begin = reinterpret_cast<uintptr_t>(base_);
  return begin <= at && at < begin + static_cast<uintptr_t>(bytes_);
}

int64_t Arena::address_of(const void* pointer) const {
  const int64_t address = static_cast<const std::byte*>(pointer) - base_;
  OUTSIZE_CHECK(0 <= address && address <= bytes_, "arena {}: pointer at {} outside [0, {}]", name_,
                address, bytes_);
  return address;
}

void Arena::poison(int64_t begin, int64_t end) const {
  OUTSIZE_CHECK(0 <= begin && begin <= end && end <= bytes_, "arena {}: poison [{}, {}) of {}",
                name_, begin, end, bytes_);
  std::memset(base_ + begin, 0xFF, static_cast<size_t>(end - begin));
}

Status ArenaMemory::read(int64_t address, void* destination, int64_t bytes) {
  if (Status in_range = check_range(*this, "read", address, bytes); !in_range.ok()) return in_range;
  if (bytes > 0) std::memcpy(destination, arena_.base() + address, static_cast<size_t>(bytes));
  return Done{};
}

Status ArenaMemory::write(int64_t address, const void* source, int64_t bytes) {
  if (Status in_range = check_range(*this, "write", address, bytes); !in_range.ok())
    return in_range;
  if (bytes > 0) std::memcpy(arena_.base() + address, source, static_cast<size_t>(bytes));
  return Done{};
}

}  // namespace outsize
