// The fastest step of a tiny graph by trying everything: the oracle that bounds are held against.
//
// Time goes in units of 1 ns on the unit machine (links of 1 byte per ns); whole storages; every
// start of an op, a rerun or a copy and every drop is tried at every ns, from every state of the
// border, and the step must end in the state in which it began. Exponential: for up to eight
// storages and fifteen ops, sizes and times below 16, and in practice for about six of each. For
// tests only. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

#include "outsize/graph/graph.h"
#include "outsize/profile/profile.h"

namespace outsize {

class TinySearch {
 public:
  TinySearch(const Graph& graph, const Profile& profile, int64_t capacity, bool recompute)
      : capacity_(capacity), recompute_(recompute), storages_(graph.storages) {
    for (size_t t = 0; t < graph.ops.size(); ++t) {
      Step step;
      step.ns = profile.ops[t].ns;
      for (const Access& a : graph.ops[t].reads) step.reads |= bit(a.storage.index());
      for (const Access& a : graph.ops[t].makes) step.makes |= bit(a.storage.index());
      for (const Access& a : graph.ops[t].mutates) step.mutates |= bit(a.storage.index());
      steps_.push_back(step);
    }
  }

  // The least ns; empty where there is no plan.
  std::optional<int64_t> least() {
    std::optional<int64_t> best;
    const auto masks = static_cast<uint32_t>(1u << storages_.size());
    for (uint32_t device = 0; device < masks; ++device)
      for (uint32_t host = 0; host < masks; ++host) {
        if (!is_border(device, host)) continue;
        const auto ns = from(device, host, best);
        if (ns && (!best || *ns < *best)) best = ns;
      }
    return best;
  }

 private:
  struct Step {
    int64_t ns = 0;
    uint32_t reads = 0, makes = 0, mutates = 0;
    uint32_t all() const { return reads | makes | mutates; }
  };
  // What runs and moves now; -1: nothing.
  struct State {
    int next = 0;
    int running = -1, run_left = 0;
    int out = -1, out_left = 0;
    int in = -1, in_left = 0;
    uint32_t device = 0, host = 0;
    uint64_t key() const {
      uint64_t k = 0;
      for (int field : {next, running + 1, run_left, out + 1, out_left, in + 1, in_left})
        k = k << 4 | static_cast<uint64_t>(field);
      return k << 16 | device << 8 | host;
    }
  };
  static uint32_t bit(size_t s) { return 1u << s; }

  bool is_border(uint32_t device, uint32_t host) const {
    for (size_t s = 0; s < storages_.size(); ++s) {
      const bool there = ((device | host) & bit(s)) != 0;
      if (there != storages_[s].entry) return false;
    }
    return bytes(device) <= capacity_;
  }
  bool is_end(const State& state, uint32_t device, uint32_t host) const {
    if (state.next < static_cast<int>(steps_.size()) || state.running >= 0 || state.out >= 0 ||
        state.in >= 0)
      return false;
    for (size_t s = 0; s < storages_.size(); ++s) {
      if (storages_[s].persistent) {
        if ((device & bit(s)) != 0 && (state.device & bit(s)) == 0) return false;
        if ((host & bit(s)) != 0 && (state.host & bit(s)) == 0) return false;
      } else if (storages_[s].exit && ((state.device | state.host) & bit(s)) == 0) {
        return false;
      }
    }
    return true;
  }
  int64_t bytes(uint32_t mask) const {
    int64_t sum = 0;
    for (size_t s = 0; s < storages_.size(); ++s)
      if ((mask & bit(s)) != 0) sum += storages_[s].bytes;
    return sum;
  }
  int64_t held(const State& state) const {
    return bytes(state.device | (state.in >= 0 ? bit(static_cast<size_t>(state.in)) : 0));
  }
  uint32_t busy(const State& state) const {
    return state.running >= 0 ? steps_[static_cast<size_t>(state.running)].all() : 0;
  }

  // All that can be begun or dropped at once.
  template <typename F>
  void begin_something(const State& state, F&& push) const {
    const uint32_t moving_out = state.out >= 0 ? bit(static_cast<size_t>(state.out)) : 0;
    const uint32_t moving_in = state.in >= 0 ? bit(static_cast<size_t>(state.in)) : 0;
    if (state.running < 0) {
      for (int op = 0; op <= state.next && op < static_cast<int>(steps_.size()); ++op) {
        const Step& step = steps_[static_cast<size_t>(op)];
        if (op < state.next && (!recompute_ || !can_rerun(op, state.next))) continue;
        const uint32_t needs = step.reads | step.mutates;
        if ((state.device & needs) != needs || (moving_in & step.all()) != 0 ||
            (moving_out & (step.makes | step.mutates)) != 0)
          continue;
        State to = state;
        to.device |= step.makes;
        if (held(to) > capacity_) continue;
        if (op == state.next) {
          to.host &= ~(step.makes | step.mutates);
          ++to.next;
        }
        to.running = op;
        to.run_left = static_cast<int>(step.ns);
        push(to);
      }
    }
    const uint32_t written = state.running >= 0
                                 ? steps_[static_cast<size_t>(state.running)].makes |
                                       steps_[static_cast<size_t>(state.running)].mutates
                                 : 0;
    for (size_t s = 0; s < storages_.size(); ++s) {
      const bool here = (state.device & bit(s)) != 0, there = (state.host & bit(s)) != 0;
      if (here && !there && state.out < 0 && (written & bit(s)) == 0) {
        State to = state;
        to.out = static_cast<int>(s);
        to.out_left = static_cast<int>(storages_[s].bytes);
        push(to);
      }
      if (!here && there && state.in < 0) {
        State to = state;
        to.in = static_cast<int>(s);
        to.in_left = static_cast<int>(storages_[s].bytes);
        if (held(to) <= capacity_) push(to);
      }
      if (here && ((busy(state) | moving_out) & bit(s)) == 0) {
        State to = state;
        to.device &= ~bit(s);
        push(to);
      }
    }
  }
  // Its inputs and outputs are still of the version that its own run saw and made.
  bool can_rerun(int op, int next) const {
    const Step& step = steps_[static_cast<size_t>(op)];
    if (step.mutates != 0) return false;
    for (int later = op + 1; later < next; ++later)
      if ((steps_[static_cast<size_t>(later)].mutates & step.all()) != 0) return false;
    return true;
  }

  std::optional<int64_t> from(uint32_t device, uint32_t host,
                              const std::optional<int64_t>& best) const {
    State first;
    first.device = device;
    first.host = host;
    std::unordered_set<uint64_t> seen;
    std::deque<State> now{first}, later;
    for (int64_t time = 0; !now.empty() && (!best || time < *best); ++time) {
      later.clear();
      while (!now.empty()) {
        const State state = now.front();
        now.pop_front();
        if (!seen.insert(state.key()).second) continue;
        if (is_end(state, device, host)) return time;
        begin_something(state, [&](const State& to) { now.push_back(to); });
        if (state.running < 0 && state.out < 0 && state.in < 0) continue;
        State to = state;
        if (to.running >= 0 && --to.run_left == 0) to.running = -1;
        if (to.out >= 0 && --to.out_left == 0) {
          to.host |= bit(static_cast<size_t>(to.out));
          to.out = -1;
        }
        if (to.in >= 0 && --to.in_left == 0) {
          to.device |= bit(static_cast<size_t>(to.in));
          to.in = -1;
        }
        later.push_back(to);
      }
      now.swap(later);
    }
    return std::nullopt;
  }

  int64_t capacity_;
  bool recompute_;
  std::vector<Storage> storages_;
  std::vector<Step> steps_;
};

}  // namespace outsize
