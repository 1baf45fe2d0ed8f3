// A machine: what a planner and the simulator must know of a device and its links.
//
// The unit machine, for tests: every op takes its stated ns, every link moves 1 byte per ns (1e9
// bytes/s), nothing slows anything, alignment 1. Then every expected number is hand arithmetic.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "outsize/base/result.h"

namespace outsize {

struct Link {
  int64_t latency_ns = 0;   // per copy
  int64_t bytes_per_s = 0;  // one copy alone; 0: there is no such link
  bool operator==(const Link&) const = default;
};

struct Machine {
  std::string name;
  std::string source;        // where the numbers come from
  int64_t device_bytes = 0;  // memory there is; 0: unknown
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t alignment = 64;         // of device addresses
  int64_t disk_alignment = 4096;  // of disk addresses and sizes
  // Roofline: peak operations/s by dtype name ("float32", ...), memory bytes/s, ns per launch.
  std::map<std::string, double> flops_per_s;
  double achieved_fraction = 1.0;  // of those peaks, by dense ops in practice
  int64_t memory_bytes_per_s = 0;
  int64_t launch_ns = 0;
  Link out, in;                  // device -> host, host -> device
  int64_t both_bytes_per_s = 0;  // sum over out and in while both move; 0: they don't share
  Link write, read;              // host -> disk, disk -> host
  int64_t disk_both_bytes_per_s = 0;
  // A copy between device and host placed in the compute stream, all cores moving it; 0: as `out` /
  // `in`.
  int64_t sync_bytes_per_s = 0;
  // While at least one copy runs beside it, an op runs at this many thousandths of its speed; and a
  // copy beside a running op likewise.
  int64_t compute_permille_beside_copy = 1000;
  int64_t copy_permille_beside_compute = 1000;
  // The same for copies to and from the disk, which keep the cores less busy.
  int64_t compute_permille_beside_disk = 1000;
  int64_t disk_permille_beside_compute = 1000;
  bool operator==(const Machine&) const = default;
};

Machine unit_machine();
// Presets by name ("v100-16gb-pcie3", "unit", ...), in a fixed order.
std::vector<Machine> preset_machines();
// A preset, or the file at `name_or_path` (see docs/formats/machine.md).
Result<Machine> find_machine(const std::string& name_or_path);
Status check_machine(const Machine& machine);

}  // namespace outsize
