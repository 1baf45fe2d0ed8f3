// A tier memory that can be replaced by a larger one while others hold on to it.
//
//   GrowingMemory shadow(std::move(small));
//   shadow.replace(std::move(larger));        // what `small` held is gone
//
// Threads: as TierMemory; `replace` while nobody reads or writes.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "outsize/tiers/memory.h"

namespace outsize {

class GrowingMemory : public TierMemory {
 public:
  // Requires: not null; as for `replace`.
  explicit GrowingMemory(std::unique_ptr<TierMemory> memory) : memory_(std::move(memory)) {}
  void replace(std::unique_ptr<TierMemory> memory) { memory_ = std::move(memory); }

  const std::string& name() const override { return memory_->name(); }
  int64_t bytes() const override { return memory_->bytes(); }
  Status read(int64_t address, void* destination, int64_t bytes) override {
    return memory_->read(address, destination, bytes);
  }
  Status write(int64_t address, const void* source, int64_t bytes) override {
    return memory_->write(address, source, bytes);
  }
  std::byte* base() override { return memory_->base(); }
  Status make_resident(int64_t end) override { return memory_->make_resident(end); }

 private:
  std::unique_ptr<TierMemory> memory_;
};

}  // namespace outsize
