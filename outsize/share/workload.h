// Jobs that share one device's memory, and the device: what the policies divide and the simulator
// runs.
//
//   job "a": 2 sub-tasks x 3 GiB, each: allocate; `rounds` times read, compute, write, rest; free
//
//   sub-task  |alloc|read|--compute--|write|...host...|read|--compute--|write|free
//   memory     one command at a time, from all sub-tasks' queue
//
// A sub-task touches all of its bytes at each read and write. What lies in memory passes at the
// memory's rate, what lies in swap at the swap's. A compute burst longer than the device's slice is
// done slice by slice, a read before each: that is how two jobs on one GPU drive out each other's
// pages. A GPU job is one sub-task of many rounds; a kernel of thread blocks is many sub-tasks of
// one.
//
// Value types. Nothing here says who goes first: policy.h does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "outsize/base/result.h"

namespace outsize::share {

struct SharedDevice {
  int64_t memory_bytes = 0;
  int64_t page_bytes = 4096;
  int64_t memory_bytes_per_s = 0;    // 0: reading what is in memory is part of the compute time
  int64_t swap_in_bytes_per_s = 0;   // also of reads that are served in swap
  int64_t swap_out_bytes_per_s = 0;  // also of writes that are served in swap
  int64_t compute_units = 0;         // sub-tasks that compute at once; 0: all
  int64_t slice_ns = 0;              // the longest stretch of compute between two reads; 0: any
  int64_t idle_release_ns = 0;       // a turn ends early after so long without work; 0: it does not

  bool operator==(const SharedDevice&) const = default;
  int64_t pages() const { return memory_bytes / page_bytes; }
};

// A job's own offer: with this much memory a round's compute burst takes so long, and moves so
// much.
struct CurvePoint {
  int64_t budget_bytes = 0;
  int64_t burst_ns = 0;
  int64_t moved_bytes = 0;  // over the swap link, hidden behind the burst
  bool operator==(const CurvePoint&) const = default;
};

struct Job {
  std::string name;
  int64_t arrives_ns = 0;
  int64_t subtasks = 1;
  int64_t subtask_bytes = 0;
  int64_t rounds = 1;
  std::vector<int64_t> compute_ns;  // a round's burst: one for all sub-tasks, or one for each
  int64_t host_first_ns = 0;        // before it asks for anything
  int64_t host_ns = 0;              // after each round but the last; the device is not needed
  bool writes = true;               // a write of all bytes ends each burst
  int64_t compute_units = 0;        // its sub-tasks that are between read and write at once; 0: all
  std::vector<CurvePoint> curve;    // for `broker`; empty: what does not fit is used in swap

  bool operator==(const Job&) const = default;
  int64_t bytes() const { return subtasks * subtask_bytes; }
  int64_t burst_ns(int64_t subtask) const {
    return compute_ns[compute_ns.size() == 1 ? 0 : static_cast<size_t>(subtask)];
  }
};

struct Workload {
  std::string name, source;
  SharedDevice device;
  std::vector<Job> jobs;
  bool operator==(const Workload&) const = default;
};

// kBadInput names the job and field: no memory, a sub-task that can never fit, a wrong list length.
Status check_workload(const Workload& workload);

int64_t pages_of(int64_t bytes, const SharedDevice& device);  // rounded up
// Rounded up; a rate of 0 takes no time.
int64_t transfer_ns(int64_t bytes, int64_t bytes_per_s);

}  // namespace outsize::share
