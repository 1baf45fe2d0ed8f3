// The most bytes per second that can leave and enter the device, whatever the copies and their
// streams.
//
//   out 10, in 10, both 16, disk write 2, read 3 (a disk is in use):  out 12, in 13, both 16 + 2 +
//   3
//
// Follows outsize/simulate: copies of one direction share the fastest of their own rates; copies
// between device and disk go over the disk's link. Internal to outsize/bound.
#pragma once

#include <algorithm>
#include <cstdint>

#include "outsize/profile/machine.h"

namespace outsize::bounding {

struct Rates {
  int64_t out = 0, in = 0;
  int64_t both = 0;  // of out and in together; 0: no limit of its own
  // What a copy in the compute stream adds to these while no op runs.
  int64_t sync_out = 0, sync_in = 0, sync_both = 0;
  bool sync() const { return sync_out > 0 || sync_in > 0 || sync_both > 0; }
};

inline Rates rates_of(const Machine& machine, bool disk) {
  Rates rates;
  const int64_t out = machine.out.bytes_per_s, in = machine.in.bytes_per_s;
  const int64_t sync = machine.sync_bytes_per_s;
  rates.out = out;
  rates.in = in;
  if (machine.both_bytes_per_s > 0) rates.both = std::max({machine.both_bytes_per_s, out, in});
  if (sync > 0) {
    if (out > 0) rates.sync_out = std::max<int64_t>(0, sync - out);
    if (in > 0) rates.sync_in = std::max<int64_t>(0, sync - in);
    if (rates.both > 0) rates.sync_both = std::max<int64_t>(0, sync - rates.both);
  }
  if (disk) {
    const int64_t write = machine.write.bytes_per_s, read = machine.read.bytes_per_s;
    rates.out += write;
    rates.in += read;
    if (rates.both > 0)
      rates.both += machine.disk_both_bytes_per_s > 0
                        ? std::max({machine.disk_both_bytes_per_s, write, read})
                        : write + read;
  }
  return rates;
}

}  // namespace outsize::bounding
