// What a step that stopped has left behind, worked out from how far each stream came.
//
//   compute ran op0 (reads W) and began op1 (mutates W):  changed = {W}
//   in copied B over the place in host memory that is A's home:  displaced = {A}
#pragma once

#include <array>
#include <cstdint>

#include "outsize/run/executor.h"
#include "outsize/run/program.h"

namespace outsize {

// `begun`: per stream, how many of its instructions were begun. `instruction` is left to the
// caller.
Failure failure_after(const Graph& graph, const Plan& plan, const Program& program,
                      const std::array<int64_t, kStreams>& begun);

}  // namespace outsize
