// The far tier of a problem without a host: everything that leaves the device goes to the disk.
//
//   device ─ write → disk        a planner sees:   device ─ out → host
//   device ← read ── disk                          device ← in ── host
//
// with the disk's rates and whole blocks. So planners know one far tier, and what they decide is
// put back into the words of the disk.
#pragma once

#include "outsize/planners/planner.h"

namespace outsize::planning {

class DiskAsHost {
 public:
  // Whether the disk is this problem's only far tier.
  static bool applies(const Problem& problem);

  // Requires: applies(problem), and `problem` outlives this.
  explicit DiskAsHost(const Problem& problem);
  DiskAsHost(const DiskAsHost&) = delete;
  DiskAsHost& operator=(const DiskAsHost&) = delete;

  // The same problem with the disk in the host's place.
  const Problem& problem() const { return problem_; }
  // A plan of that problem, lowered, as a plan of the one given.
  Plan restored(Plan plan) const;

 private:
  const Problem* given_;
  Machine machine_;
  Problem problem_;
};

}  // namespace outsize::planning
