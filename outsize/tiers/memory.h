// One tier's bytes behind one seam: read and write byte ranges by address, whatever holds them (an
// arena of RAM, a file), and a base pointer where the bytes can be reached directly.
//
//   auto arena = Arena::create("host", 1 << 30);
//   ArenaMemory host(std::move(*arena));
//   host.write(4096, source, 100);          // bytes [4096, 4196) of the tier
//   host.base()[4096] == source[0];
//
// Threads: `read` and `write` may be called from several threads at once as long as the ranges
// don't overlap (neighbours may share a page). All calls are synchronous: the bytes have moved, or
// the error says why not, when they return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "outsize/base/result.h"

namespace outsize {

class TierMemory {
 public:
  virtual ~TierMemory() = default;
  // For messages: "host", "disk".
  virtual const std::string& name() const = 0;
  virtual int64_t bytes() const = 0;
  virtual Status read(int64_t address, void* destination, int64_t bytes) = 0;
  virtual Status write(int64_t address, const void* source, int64_t bytes) = 0;
  // Where address 0 lies, or null. What is written through either way is seen through the other.
  virtual std::byte* base() = 0;
  // Asks for the bytes [0, end) to be there for good, where a tier takes them as they are needed.
  virtual Status make_resident(int64_t end) {
    (void)end;
    return Done{};
  }
};

// Refuses ranges outside [0, memory.bytes()): "host: read of 100 bytes at 4090, the tier has 4096".
Status check_range(const TierMemory& memory, const char* what, int64_t address, int64_t bytes);

}  // namespace outsize
