// A workload's text form, `outsize-jobs` version 1 (docs/formats/jobs.md).
//
//   Result<Workload> w = workload_from_json(text);   w.ok() && *workload_from_json(to_json(*w)) ==
//   *w
//
// Reading checks what check_workload does. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/result.h"
#include "outsize/share/workload.h"

namespace outsize::share {

std::string to_json(const Workload& workload);
Result<Workload> workload_from_json(std::string_view text);

}  // namespace outsize::share
