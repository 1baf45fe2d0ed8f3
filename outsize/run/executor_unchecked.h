// For tests: an executor of a plan that the checker has not seen, so that clock mode can be shown
// plans that are wrong.
//
//   auto executor = unchecked_executor(graph, plan_without_a_wait, device, {.clock_mode = true});
//   executor->step() fails: "... not ordered after ..."
#pragma once

#include <memory>

#include "outsize/run/executor.h"

namespace outsize {

// As Executor::create without the checker; still kIllegal where running would be undefined.
Result<std::unique_ptr<Executor>> unchecked_executor(const Graph& graph, const Plan& plan,
                                                     Device& device,
                                                     const ExecutorOptions& options);

}  // namespace outsize
