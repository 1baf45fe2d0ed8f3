#include "outsize/tiers/faulty.h"

#include <chrono>
#include <thread>
#include <vector>

namespace outsize {
namespace {

void wait_out(int64_t delay_ns) {
  if (delay_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
}

void flip_middle(std::byte* memory, int64_t bytes) {
  if (bytes > 0) memory[bytes / 2] ^= std::byte{1};
}

}  // namespace

Status FaultyMemory::read(int64_t address, void* destination, int64_t bytes) {
  const int64_t call = calls_++;
  wait_out(faults_.delay_ns);
  if (call == faults_.fail_call)
    return device_error("{}: injected failure of call {} (read of {} bytes at {})", name(), call,
                        bytes, address);
  if (call == faults_.short_call) {
    if (Status half = inner_.read(address, destination, bytes / 2); !half.ok()) return half;
    return device_error("{}: injected short read in call {}: {} of {} bytes at {}", name(), call,
                        bytes / 2, bytes, address);
  }
  Status done = inner_.read(address, destination, bytes);
  if (done.ok() && call == faults_.damage_call)
    flip_middle(static_cast<std::byte*>(destination), bytes);
  return done;
}

Status FaultyMemory::write(int64_t address, const void* source, int64_t bytes) {
  const int64_t call = calls_++;
  wait_out(faults_.delay_ns);
  if (call == faults_.fail_call)
    return device_error("{}: injected failure of call {} (write of {} bytes at {})", name(), call,
                        bytes, address);
  if (call == faults_.short_call) {
    if (Status half = inner_.write(address, source, bytes / 2); !half.ok()) return half;
    return device_error("{}: injected short write in call {}: {} of {} bytes at {}", name(), call,
                        bytes / 2, bytes, address);
  }
  if (call != faults_.damage_call || bytes <= 0) return inner_.write(address, source, bytes);
  const auto* begin = static_cast<const std::byte*>(source);
  std::vector<std::byte> damaged(begin, begin + bytes);
  flip_middle(damaged.data(), bytes);
  return inner_.write(address, damaged.data(), bytes);
}

}  // namespace outsize
