// The memory of a session (device arena, host slab, disk file) and the user's tensors that live in
// it.
//
//   Result<std::shared_ptr<Homes>> homes = Homes::create({.device = 6 << 30, .host = 32 << 30},
//   "");
//   (*homes)->adopt(p, Tier::kHost, 4096);    // bytes copied there; p, its views and aliases see
//   them
//   (*homes)->home_of(p);                     // {host, 4096, bytes}
//   (*homes)->release(p);                     // back to ordinary memory
//
// A tensor that was adopted keeps the memory alive, whatever becomes of the session. NumPy arrays
// and DLPack hold addresses, and a tensor alike of theirs: while somebody else holds the storage or
// the tensor, the memory that it leaves is kept for as long as the tensor lies where it went, so
// that such an address never dangles. Ordinary memory keeps what was there when the tensor left; a
// place of a session does so until a plan puts something else there.
// Thread-safe, but for what PyTorch itself allows on one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/plan/plan.h"
#include "outsize/tiers/memory.h"
#include "outsize/torch/cpu_device.h"

namespace outsize {

struct HomePlace {
  Tier tier = Tier::kDevice;
  int64_t address = 0;
  int64_t bytes = 0;
  auto operator<=>(const HomePlace&) const = default;
};

// Where a tensor is to lie.
struct HomeMove {
  at::Tensor tensor;
  Tier tier = Tier::kDevice;
  int64_t address = 0;
};

class Homes : public std::enable_shared_from_this<Homes> {
 public:
  // `sizes.device` > 0; others may be 0. `disk_dir` is where the disk tier's file goes.
  static Result<std::shared_ptr<Homes>> create(const Budgets& sizes, const std::string& disk_dir);
  ~Homes();
  Homes(const Homes&) = delete;
  Homes& operator=(const Homes&) = delete;

  CpuTiers tiers() const { return {device_.get(), host_.get(), disk_.get()}; }

  // Copies the bytes of the tensor's storage to the place and points the storage there; the
  // tensor's version is bumped. Every tensor on that storage follows. kBadInput where the place is
  // outside the tier or the storage has no CPU bytes.
  Status adopt(const at::Tensor& tensor, Tier tier, int64_t address);
  // The same for several, any of whose targets may be the present place of another.
  Status move(const std::vector<HomeMove>& moves);
  // As `adopt` without copying: the place holds the content already.
  Status repoint(const at::Tensor& tensor, Tier tier, int64_t address);
  // Copies the bytes to ordinary memory and points the storage there; its content and version stay.
  // Nothing to do if it has no home here.
  Status release(const at::Tensor& tensor);
  std::optional<HomePlace> home_of(const at::Tensor& tensor) const;
  // A uint8 tensor on the bytes themselves.
  Result<at::Tensor> at(Tier tier, int64_t address, int64_t bytes);

  // Places that storages of the user lie on now, ascending.
  std::vector<HomePlace> adopted() const;

  Status read(Tier tier, int64_t address, void* to, int64_t bytes) const;
  Status write(Tier tier, int64_t address, const void* from, int64_t bytes) const;

 private:
  // What a storage's data pointer holds while it lies here, and after it has left.
  struct Stay;
  struct Left;
  Homes() = default;
  static void end_stay(void* stay);
  static void end_left(void* left);
  static void end_adoption(Stay& stay);
  c10::DataPtr kept_of(c10::DataPtr old) const;
  Result<std::byte*> pointer(Tier tier, int64_t address, int64_t bytes) const;
  c10::DataPtr data_at(const HomePlace& place, std::byte* pointer, bool adopted);
  // Requires: `source` has the storage's bytes, or is the place itself.
  Status point(const at::Tensor& tensor, Tier tier, int64_t address, const void* source);

  std::unique_ptr<TierMemory> device_, host_, disk_;
  mutable std::mutex mutex_;  // guards adopted_
  std::multiset<HomePlace> adopted_;
};

}  // namespace outsize
