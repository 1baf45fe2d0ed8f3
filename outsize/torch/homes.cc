#include "outsize/torch/homes.h"

#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>

#include <cstring>
#include <utility>

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

// Whether anything but the one tensor that was handed in holds its storage, or anything but its
// Python object and the caller holds the tensor: it may have the address of the bytes.
bool held_elsewhere(const at::Tensor& tensor) {
  const auto python = [](const auto* object) {
    return object->pyobj_slot()->load_pyobj() != nullptr ? size_t{1} : size_t{0};
  };
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return tensor.storage().use_count() > 1 + python(storage) ||
         tensor.use_count() > 1 + python(tensor.unsafeGetTensorImpl());
}

Result<c10::DataPtr> ordinary_memory(size_t bytes) {
  try {
    return c10::GetAllocator(c10::kCPU)->allocate(bytes);
  } catch (const std::exception& e) {
    return device_error("no ordinary memory for a tensor of {} bytes: {}", bytes, e.what());
  }
}

}  // namespace

struct Homes::Stay {
  std::shared_ptr<Homes> homes;
  HomePlace place;
  bool adopted;
  c10::DataPtr kept;  // what the tensor left for this place, if somebody may know its address
};

struct Homes::Left {
  c10::DataPtr own;  // ordinary memory, where the tensor lies
  c10::DataPtr kept;
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
  end_adoption(*stay);
}

void Homes::end_left(void* left) { delete static_cast<Left*>(left); }

void Homes::end_adoption(Stay& stay) {
  if (!std::exchange(stay.adopted, false)) return;
  const std::lock_guard lock(stay.homes->mutex_);
  stay.homes->adopted_.erase(stay.homes->adopted_.find(stay.place));
}

// What must outlive the tensor's move from `old`, so that addresses in it can still be read.
c10::DataPtr Homes::kept_of(c10::DataPtr old) const {
  if (old.get_deleter() != &Homes::end_stay) return old;
  auto* stay = static_cast<Stay*>(old.get_context());
  end_adoption(*stay);
  // A new place of the same session keeps that alive by itself.
  return stay->homes.get() == this ? std::move(stay->kept) : std::move(old);
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
  auto stay = std::make_unique<Stay>(Stay{shared_from_this(), place, adopted, {}});
  if (adopted) {
    const std::lock_guard lock(mutex_);
    adopted_.insert(place);
  }
  return {pointer, stay.release(), &Homes::end_stay, c10::Device(c10::kCPU)};
}

Status Homes::point(const at::Tensor& tensor, Tier tier, int64_t address, const void* source) {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return storage.error();
  const auto bytes = static_cast<int64_t>((*storage)->nbytes());
  if (bytes == 0) return Done{};
  Result<std::byte*> target = pointer(tier, address, bytes);
  if (!target.ok()) return target.error();
  if (source != *target)
    if (Status status = write(tier, address, source, bytes); !status) return status;
  c10::DataPtr old = (*storage)->set_data_ptr(data_at({tier, address, bytes}, *target, true));
  if (held_elsewhere(tensor))
    static_cast<Stay*>((*storage)->data_ptr().get_context())->kept = kept_of(std::move(old));
  bump_version(tensor);
  return Done{};
}

Status Homes::adopt(const at::Tensor& tensor, Tier tier, int64_t address) {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return storage.error();
  const void* source = (*storage)->data();
  if (source == nullptr && (*storage)->nbytes() > 0)
    return bad_input("the tensor's storage has no bytes to adopt");
  return point(tensor, tier, address, source);
}

Status Homes::move(const std::vector<HomeMove>& moves) {
  std::vector<c10::DataPtr> aside(moves.size());
  for (size_t k = 0; k < moves.size(); ++k) {
    if (!home_of(moves[k].tensor)) continue;
    const size_t bytes = moves[k].tensor.storage().nbytes();
    Result<c10::DataPtr> memory = ordinary_memory(bytes);
    if (!memory.ok()) return memory.error();
    std::memcpy(memory->get(), moves[k].tensor.storage().data(), bytes);
    aside[k] = std::move(*memory);
  }
  for (size_t k = 0; k < moves.size(); ++k) {
    const HomeMove& m = moves[k];
    if (Status status = aside[k] ? point(m.tensor, m.tier, m.address, aside[k].get())
                                 : adopt(m.tensor, m.tier, m.address);
        !status)
      return status;
  }
  return Done{};
}

Status Homes::repoint(const at::Tensor& tensor, Tier tier, int64_t address) {
  const Result<std::byte*> target = pointer(tier, address, 0);
  return point(tensor, tier, address, target.ok() ? *target : nullptr);
}

Status Homes::release(const at::Tensor& tensor) {
  Result<c10::StorageImpl*> storage = storage_of(tensor);
  if (!storage.ok()) return storage.error();
  if (!home_of(tensor)) return Done{};
  const size_t bytes = (*storage)->nbytes();
  Result<c10::DataPtr> data = ordinary_memory(bytes);
  if (!data.ok()) return data.error();
  std::memcpy(data->get(), (*storage)->data(), bytes);
  // The same content: no new version.
  c10::DataPtr old = (*storage)->set_data_ptr(std::move(*data));
  if (!held_elsewhere(tensor)) return Done{};
  end_adoption(*static_cast<Stay*>(old.get_context()));
  c10::DataPtr own = (*storage)->set_data_ptr({});
  void* const begin = own.get();
  auto left = std::make_unique<Left>(Left{std::move(own), std::move(old)});
  (*storage)->set_data_ptr({begin, left.release(), &Homes::end_left, c10::Device(c10::kCPU)});
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
