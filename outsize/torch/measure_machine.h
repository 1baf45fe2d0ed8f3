// Measures this machine as the simulator wants it described: copies between arenas by one thread
// and by all, alone, both ways at once and beside a matrix product, and a folder's disk.
//
//   Result<Machine> here = measure_machine({.disk_dir = "/scratch"});
//   here->out.bytes_per_s, here->compute_permille_beside_copy, here->read.bytes_per_s
//
// Takes a few seconds and about 4 x `copy_bytes` of RAM. Numbers are medians. Run it alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "outsize/base/result.h"
#include "outsize/profile/machine.h"

namespace outsize {

struct MeasureMachineOptions {
  std::string name = "this machine";
  std::string disk_dir;                     // "": no disk tier
  int64_t copy_bytes = int64_t{64} << 20;   // per copy
  int64_t disk_bytes = int64_t{256} << 20;  // per transfer
  int rounds = 5;
  std::function<void(const std::string& what)> progress;  // one line per thing measured
};

Result<Machine> measure_machine(const MeasureMachineOptions& options);

}  // namespace outsize
