#include "outsize/torch/homes.h"

#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>

#include <cstring>

#include "outsize/tiers/arena.h"
#include "outsize/tiers/disk.h"
#include "outsize/torch/allocator.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

Result<c10::StorageImpl*> storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.device().type() != c10::kCPU)
    return bad_input("wanted a CPU tensor with a storage");
  return tensor.storage().unsafeGetStorageImpl();
}

void bump_version(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

struct Homes::Stay {
  std::shared_ptr<Homes> homes;
  HomePlace place;
  bool adopted;
};

Result<std::shared_ptr<Homes>> Homes::create(const Budgets& sizes, const std::string& disk_dir) {
  if (sizes.device <= 0)
    return bad_input("a session's device memory is {} bytes; wanted more than 0", sizes.device);
  std::shared_ptr<Homes> homes(new Homes);
  Result<Arena> device = Arena::create("device", sizes.device);
  if (!device.ok()) return device.error();
  homes->device_ = std::make_unique<ArenaMemory>(std::move(*device));
  register_arena(homes->device_->base(), homes->device_->bytes());
  if (sizes.host > 0) {
    // A cap: plans make resident what they use of it.
    Result<Arena> host = Arena::reserve("host", sizes.host);
    if (!host.ok()) return host.error();
    homes->host_ = std::make_unique<ArenaMemory>(std::move(*host));
  }
  if (sizes.disk > 0) {
    // A cap as well: plans take the space they use before their first step.
    auto disk = DiskMemory::create(disk_dir, sizes.disk, {.preallocate = false});
    if (!disk.ok()) return disk.error();
    homes->disk_ = std::move(*disk);
  }
  return homes;
}

Homes::~Homes() {
  if (device_) forget_arena(device_->base());
}

void Homes::end_stay(void* pointer) {
  const std::unique_ptr<Stay> stay(static_cast<Stay*>(pointer));
  if (!stay->adopted) return;
  const std::lock_guard lock(stay->homes->mutex_);
  stay->homes->adopted_.erase(stay->homes->adopted_.find(stay->place));
}

Result<std::byte*> Homes::pointer(Tier tier, int64_t address, int64_t bytes) const {
  TierMemory* memory = tiers().of(tier);
  if (memory == nullptr) return bad_input("the session has no {} tier", kTierNames.name(tier));
  if (address < 0 || bytes < 0 || address > memory->bytes() - bytes)
    return bad_input("{} bytes at {} of the {} tier, which has {}", bytes, address,
                     kTierNames.name(tier), memory->bytes());
  if (memory->base() == nullptr)
    return bad_input("the {} tier can't be reached by address", kTierNames.name(tier));
  return memory->base() + address;
}

c10::DataPtr Homes::data_at(const HomePlace& place, std::byte* pointer, bool adopted) {
  auto stay = std::make_unique<Stay>(Stay{shared_from_this(), place, adopted});
  if (adopted) {
    const std::lock_guard lock(mutex_);
    adopted_.insert(place);
  }
  return {pointer, stay.release(), &Homes::end_stay, c10::Device(c10::kCPU)};
}

Status Homes::point(const at::Tensor& tensor, Tier tier, int64_t address, bool copy) {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return storage.error();
  const auto bytes = static_cast<int64_t>((*storage)->nbytes());
  if (bytes == 0) return Done{};
  Result<std::byte*> target = pointer(tier, address, bytes);
  if (!target.ok()) return target.error();
  const void* source = (*storage)->data();
  if (copy && source != *target) {
    if (source == nullptr) return bad_input("the tensor's storage has no bytes to adopt");
    if (Status status = write(tier, address, source, bytes); !status) return status;
  }
  // The old data pointer frees, or ends its stay, here.
  (*storage)->set_data_ptr(data_at({tier, address, bytes}, *target, true));
  bump_version(tensor);
  return Done{};
}

Status Homes::adopt(const at::Tensor& tensor, Tier tier, int64_t address) {
  return point(tensor, tier, address, true);
}

Status Homes::repoint(const at::Tensor& tensor, Tier tier, int64_t address) {
  return point(tensor, tier, address, false);
}

Status Homes::release(const at::Tensor& tensor) {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return storage.error();
  if (!home_of(tensor)) return Done{};
  const size_t bytes = (*storage)->nbytes();
  c10::DataPtr data;
  try {
    data = c10::GetAllocator(c10::kCPU)->allocate(bytes);
  } catch (const std::exception& e) {
    return device_error("no ordinary memory for a tensor of {} bytes: {}", bytes, e.what());
  }
  std::memcpy(data.get(), (*storage)->data(), bytes);
  (*storage)->set_data_ptr(std::move(data));  // the same content: no new version
  return Done{};
}

std::optional<HomePlace> Homes::home_of(const at::Tensor& tensor) const {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return std::nullopt;
  const c10::DataPtr& data = (*storage)->data_ptr();
  if (data.get_deleter() != &Homes::end_stay) return std::nullopt;
  const auto* stay = static_cast<const Stay*>(data.get_context());
  if (stay->homes.get() != this) return std::nullopt;
  return stay->place;
}

Result<at::Tensor> Homes::at(Tier tier, int64_t address, int64_t bytes) {
  Result<std::byte*> begin = pointer(tier, address, bytes);
  if (!begin.ok()) return begin.error();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes),
                             data_at({tier, address, bytes}, *begin, false), nullptr, false);
  return byte_view(storage, bytes);
}

std::vector<HomePlace> Homes::adopted() const {
  const std::lock_guard lock(mutex_);
  return {adopted_.begin(), adopted_.end()};
}

Status Homes::read(Tier tier, int64_t address, void* to, int64_t bytes) const {
  TierMemory* memory = tiers().of(tier);
  if (memory == nullptr) return bad_input("the session has no {} tier", kTierNames.name(tier));
  return memory->read(address, to, bytes);
}

Status Homes::write(Tier tier, int64_t address, const void* from, int64_t bytes) const {
  TierMemory* memory = tiers().of(tier);
  if (memory == nullptr) return bad_input("the session has no {} tier", kTierNames.name(tier));
  return memory->write(address, from, bytes);
}

}  // namespace outsize
