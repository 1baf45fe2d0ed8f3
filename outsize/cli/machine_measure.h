// Measuring this machine, which takes torch: done by the Python extension, in the environment that
// was built beside this program.
//
//   build/bin/outsize  ->  build/venv/bin/python -c "... outsize_core.measure_machine ..."
//
// What Python says on standard error passes through. Ctrl-C ends both.
#pragma once

#include <string>

#include "outsize/base/result.h"

namespace outsize::cli {

struct MeasureOptions {
  std::string name = "this machine";
  std::string disk_dir;  // empty: no disk tier
};

// The machine's JSON form.
Result<std::string> measured_machine(const MeasureOptions& options);

}  // namespace outsize::cli
