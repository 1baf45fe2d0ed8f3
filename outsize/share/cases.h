// Workloads that others have published figures for, rebuilt.
//
//   case_names()  "equal-low", "equal-high", "varied-low", "varied-high", "polybench",
//                 "nvshare-small-50", "nvshare-small-90", "nvshare-big-50", "nvshare-big-90"
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "outsize/share/workload.h"

namespace outsize::share {

std::vector<std::string> case_names();
std::optional<Workload> named_case(std::string_view name);

// Two equal jobs on one 16 GB GPU: work on the host, then rounds of a burst on the device and a
// short gap, none of them long enough to give the device back.
struct TurnsModel {
  int64_t working_set_bytes = 0;
  int64_t solo_ns = 0;            // the job by itself
  int64_t device_phase_ns = 0;    // of that: all rounds; what is left comes before
  int64_t round_ns = 0;           // burst and gap
  int64_t busy_permille = 1000;   // the burst's part of a round
  int64_t fault_bytes_per_s = 0;  // pages out, then in
};
Workload turns_workload(const TurnsModel& model);

}  // namespace outsize::share
