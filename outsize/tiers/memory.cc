#include "outsize/tiers/memory.h"

#include <array>

namespace outsize {

Status check_range(const TierMemory& memory, const char* what, int64_t address, int64_t bytes) {
  if (address < 0 || bytes < 0 || address > memory.bytes() || bytes > memory.bytes() - address)
    return device_error("{}: {} of {} bytes at {}, the tier has {}", memory.name(), what, bytes,
                        address, memory.bytes());
  return Done{};
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  const char* unit = nullptr;
  for (const char* next : kUnits) {
    if (amount < 1024) break;
    amount /= 1024;
    unit = next;
  }
  if (unit == nullptr) return fmt::format("{} bytes", bytes);
  return fmt::format("{} bytes ({:.1f} {})", bytes, amount, unit);
}

}  // namespace outsize
