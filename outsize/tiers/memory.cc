#include "outsize/tiers/memory.h"

namespace outsize {

Status check_range(const TierMemory& memory, const char* what, int64_t address, int64_t bytes) {
  if (address < 0 || bytes < 0 || address > memory.bytes() || bytes > memory.bytes() - address)
    return device_error("{}: {} of {} bytes at {}, the tier has {}", memory.name(), what, bytes,
                        address, memory.bytes());
  return Done{};
}

}  // namespace outsize
