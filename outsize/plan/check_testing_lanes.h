// The streams of a tiny plan by trial: which instructions may open and close when, and all states
// that can be reached. For the checker's oracle.
//
//   Lanes lanes(plan);  Lanes::Progress at = {};
//   lanes.can_step(at, s);  ++at[s];   // opens the first instruction of stream s; once more closes
//   it
//
// The plan must outlive it. Cost of search: the product of the streams' lengths.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "outsize/plan/plan.h"

namespace outsize {

class Lanes {
 public:
  // How far each stream is: twice the instructions that have ended, plus one if one is open.
  using Progress = std::array<int, kStreams>;

  explicit Lanes(const Plan& plan) : plan_(plan) {
    for (size_t i = 0; i < plan.instructions.size(); ++i)
      lanes_[static_cast<size_t>(plan.instructions[i].stream)].push_back(static_cast<int>(i));
  }

  // The instruction that a stream has open, or opens next. Requires: there is one.
  int at(const Progress& progress, size_t s) const {
    return lanes_[s][static_cast<size_t>(progress[s] / 2)];
  }
  bool has_ended(const Progress& progress, int instruction) const {
    const auto stream =
        static_cast<size_t>(plan_.instructions[static_cast<size_t>(instruction)].stream);
    const auto& lane = lanes_[stream];
    const auto at = std::find(lane.begin(), lane.end(), instruction) - lane.begin();
    return at < progress[stream] / 2;
  }
  int open_in(const Progress& progress, size_t s) const {
    return progress[s] % 2 == 1 ? at(progress, s) : -1;
  }
  // Whether a stream can close what it has open, or open its next.
  bool can_step(const Progress& progress, size_t s) const {
    if (progress[s] % 2 == 1) return true;
    const auto next = static_cast<size_t>(progress[s] / 2);
    if (next == lanes_[s].size()) return false;
    for (const InstructionId wait : plan_.instructions[static_cast<size_t>(lanes_[s][next])].waits)
      if (!has_ended(progress, wait.value)) return false;
    return true;
  }
  bool is_finished(const Progress& progress) const {
    for (size_t s = 0; s < kStreams; ++s)
      if (progress[s] < static_cast<int>(2 * lanes_[s].size())) return false;
    return true;
  }

  // Looks at every state that can be reached, for one in which two instructions are open that
  // conflict(int, int) says may not be.
  template <typename Conflict>
  std::optional<std::string> search(Conflict&& conflict) const {
    std::set<Progress> seen = {Progress{}};
    std::vector<Progress> left = {Progress{}};
    while (!left.empty()) {
      const Progress at = left.back();
      left.pop_back();
      bool moved = false;
      for (size_t s = 0; s < kStreams; ++s) {
        if (!can_step(at, s)) continue;
        moved = true;
        Progress next = at;
        ++next[s];
        if (!seen.insert(next).second) continue;
        left.push_back(next);
        const int opened = open_in(next, s);
        for (size_t t = 0; t < kStreams; ++t)
          if (t != s && opened >= 0 && open_in(next, t) >= 0 && conflict(opened, open_in(next, t)))
            return "two open instructions touch one byte";
      }
      if (!moved && !is_finished(at)) return "the streams wait for ever";
    }
    return std::nullopt;
  }

 private:
  const Plan& plan_;
  std::array<std::vector<int>, kStreams> lanes_;  // per stream: its instructions
};

}  // namespace outsize
