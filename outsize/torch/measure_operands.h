// Operands to measure ops on: memory that was touched before, filled with numbers of the right
// kind, and fingerprints of it.
//
//   TouchedBlock block("operands");  block.reserve(1 << 20);
//   fill_storage(block.base(), 4096, "float32", 7);      // normal, deviation 0.5
//   uint64_t before = fingerprint(block.base(), 4096);
//
// Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/tiers/arena.h"

namespace outsize {

// Memory that grows by being replaced: shared pages as a step's arena has them, known to the
// allocator's hook. Contents are not kept.
class TouchedBlock {
 public:
  explicit TouchedBlock(std::string name) : name_(std::move(name)) {}
  TouchedBlock(const TouchedBlock&) = delete;
  TouchedBlock& operator=(const TouchedBlock&) = delete;
  ~TouchedBlock();
  // At least `bytes`; gives memory back where it is much too large.
  Status reserve(int64_t bytes);
  std::byte* base() const { return arena_ ? arena_->base() : nullptr; }
  int64_t bytes() const { return arena_ ? arena_->bytes() : 0; }

 private:
  void drop();
  const std::string name_;
  std::optional<Arena> arena_;
};

// Numbers to fill storages with: a table per dtype, laid end to end. Floats are normal with
// deviation 0.5, bools random, integers and types unknown zero; a single float is 1 (a step count,
// a scale).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : seed_(seed) {}
  void fill(std::byte* to, int64_t bytes, const std::string& dtype);

 private:
  const std::vector<std::byte>& table(const std::string& dtype);
  const uint64_t seed_;
  std::map<std::string, std::vector<std::byte>> tables_;
};

// Equal bytes, equal fingerprints; of different ones all but a few in 2^64 differ.
uint64_t fingerprint(const std::byte* bytes, int64_t count);

// Reads `bytes` of memory nobody else uses, so that caches hold nothing of the operands.
class Evictor {
 public:
  explicit Evictor(int64_t bytes) : words_(static_cast<size_t>(bytes / 8), 1) {}
  void evict();

 private:
  std::vector<uint64_t> words_;
  uint64_t sum_ = 0;
};

}  // namespace outsize
