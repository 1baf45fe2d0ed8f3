// From what an op was seen to ask for to what a plan needs to know: which requests are its outputs,
// where its temporaries lie in a workspace as small as they allow, and whether they come in one
// order at all.
//
//   run 1, run 2:  A 64 KiB made 0 freed 2;  B 2 MiB made 1, held (result 0)
//   requests = {{64 KiB, temporary at 0}, {2 MiB, output 0}},  workspace_bytes = 64 KiB
//
// Pure functions; no torch.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/profile/profile.h"

namespace outsize {

// One request of one run.
struct SeenRequest {
  int64_t bytes = 0;
  bool worker = false;
  int64_t made_at = 0;   // moments count requests and frees of the run
  int64_t freed_at = 0;  // past all moments: held to the end
  int32_t output = -1;   // index into the op's `makes`
  bool operator==(const SeenRequest&) const = default;
};
using SeenRun = std::vector<SeenRequest>;

struct OpRequests {
  std::vector<Request> requests;
  int64_t workspace_bytes = 0;
  bool scratch = false;
  bool operator==(const OpRequests&) const = default;
};

// Requires: at least one run. `threads`: of the op's calls.
OpRequests requests_from(const std::vector<SeenRun>& runs, int64_t threads);

}  // namespace outsize
