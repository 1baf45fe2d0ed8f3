// What making tensors again takes, and how one choice changes the next (Capuchin, section 4.4 and
// algorithm 2).
//
//   T1 -> T2 -> T3 -> T4, an op each of 10 ns; T1, T2 and T4 are candidates, T3 is gone by then
//   at first        T2 from {T1} in 10, T4 from {T2} in 20
//   T2 is chosen    T4 from {T1} in 30; T1 is now a source of T2 alone: 10 more where it is chosen
//
// Candidates count as there for one another until they are chosen. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace outsize::planning::capuchin {

struct Remake {
  int32_t tensor = 0;  // a part
  int64_t bytes = 0;
  std::set<int32_t> sources;  // the candidates that making it again starts from
  int64_t run_ns = 0;         // of the ops from those to it
  int64_t extra_ns = 0;       // of its own repetitions, for others that start from it

  int64_t cost_ns() const { return run_ns + extra_ns; }
  bool operator==(const Remake&) const = default;
};

class Remakes {
 public:
  // `update`: choices change the costs of what is left; off, they stay as they were at first.
  explicit Remakes(std::vector<Remake> candidates, bool update = true)
      : left_(std::move(candidates)), update_(update) {}

  // Most bytes per ns of making again (MSPS), the first of equals; null where none is left.
  const Remake* best() const;
  const Remake* find(int32_t tensor) const;
  // To be made again: those that start from it start from its sources.
  void choose(int32_t tensor);
  // Not to be made again: it goes another way, and others may still start from it.
  void remove(int32_t tensor);

 private:
  std::vector<Remake> left_, chosen_;
  bool update_;
};

}  // namespace outsize::planning::capuchin
