// HOME's search (sections 3.3 and 3.5, algorithms 1 and 3): a swarm of placement policies.
//
//   best of the last iteration [2, 2, 2, 0]      tensor 1 of a particle at [0, 1, 2, 0]: tries
//   the particle's own best    [1, 1, 2, 0]      [2, 1, 2, 0] and [1, 1, 2, 0], keeps the cheaper;
//                                                then tensor 2, and so on
//
// Deterministic for a seed and an amount of work, at any number of threads. Not thread-safe.
#pragma once

#include <functional>

#include "outsize/base/deadline.h"
#include "outsize/base/random.h"
#include "outsize/planners/home/evaluate.h"

namespace outsize::planning::home {

struct Particle {
  Policy policy, best;
  Score score, best_score;
};

// What particles may do.
struct Allowed {
  bool swap = true;
  bool recompute = true;
};

// Each tensor gets the action of `leader` or of the particle's own best, whichever is cheaper with
// the other actions as they are.
Policy updated(const Stages& stages, const Particle& particle, const Policy& leader,
               int64_t capacity, const Rules& rules);

class Swarm {
 public:
  // Requires: all outlive the swarm.
  Swarm(const Stages& stages, int64_t capacity, const Rules& rules, const Allowed& allowed,
        uint64_t seed);

  const Policy& best() const { return best_; }
  const Score& best_score() const { return best_score_; }

  // Moves particles until the deadline, the last iteration or a swarm that stands still; a unit of
  // work is a particle moved. `on_better` is called after an iteration that found a better policy.
  void run(Deadline& deadline, int threads, const std::function<void()>& on_better);

 private:
  void look(const Particle& particle);
  // Particles [begin, end).
  void move(size_t begin, size_t end, const Policy& leader, size_t threads);

  const Stages& stages_;
  int64_t capacity_;
  const Rules& rules_;
  std::vector<Particle> particles_;
  Policy best_;
  Score best_score_;
};

}  // namespace outsize::planning::home
