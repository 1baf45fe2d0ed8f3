// What Checkmate's plans are held against. For tests only; exponential, or a table over all memory.
//
// `least_staged_ns` tries every schedule of a step in stages: ops of a stage ascend, the last one
// is new, and anything may be let go at any time. `rotor_ns` is the dynamic programme of rotor
// (Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: "Optimal checkpointing for heterogeneous
// chains", 2019) for chains whose backward op l reads a_(l-1) and the gradient of a_l: a checkpoint
// stays until its backward op has run, which is the best there is where all a have the same size.
#pragma once

#include <map>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "outsize/graph/builder.h"
#include "outsize/planners/checkmate/stages.h"

namespace outsize::planning {

// Least time of a step within `capacity`; none where nothing fits. `in_stages` off: an op may run
// again at any time.
inline std::optional<int64_t> least_staged_ns(const Stages& stages, int64_t capacity,
                                              bool in_stages = true) {
  using State = std::tuple<int64_t, int32_t, uint32_t, int32_t>;  // ns, stage, held, last op of it
  std::priority_queue<State, std::vector<State>, std::greater<>> open;
  std::map<std::tuple<int32_t, uint32_t, int32_t>, int64_t> best;
  auto reach = [&](int64_t ns, int32_t t, uint32_t held, int32_t last) {
    if (!in_stages) last = -1;
    const auto [at, fresh] = best.try_emplace({t, held, last}, ns);
    if (!fresh && at->second <= ns) return;
    at->second = ns;
    open.emplace(ns, t, held, last);
  };
  auto bit = [](int32_t v) { return 1u << v; };
  auto bytes = [&](uint32_t held) {
    int64_t sum = 0;
    for (size_t v = 0; v < stages.values.size(); ++v)
      if ((held & bit(static_cast<int32_t>(v))) != 0) sum += stages.values[v].bytes;
    return sum;
  };
  uint32_t wanted = 0;
  for (size_t v = 0; v < stages.values.size(); ++v)
    if (stages.values[v].exit) wanted |= bit(static_cast<int32_t>(v));
  reach(0, 0, 0, -1);
  while (!open.empty()) {
    const auto [ns, t, held, last] = open.top();
    open.pop();
    if (t == stages.count()) {
      if ((held & wanted) == wanted) return ns;
      continue;
    }
    for (size_t v = 0; v < stages.values.size(); ++v)
      if ((held & bit(static_cast<int32_t>(v))) != 0)
        reach(ns, t, held & ~bit(static_cast<int32_t>(v)), last);
    for (int32_t i = last + 1; i <= t; ++i) {
      const Stages::Node& node = stages.nodes[static_cast<size_t>(i)];
      if (i < t && t > node.last_rerun) continue;
      uint32_t reads = 0, makes = 0;
      for (int32_t v : node.reads) reads |= bit(v);
      for (int32_t v : node.makes) makes |= bit(v);
      if ((held & reads) != reads) continue;
      const auto at = static_cast<size_t>(t);
      const int64_t beside = i == t ? stages.beside_op[at] : stages.beside_reruns[at];
      if (bytes(held | makes) + node.workspace + beside > capacity) continue;
      reach(ns + node.ns, i == t ? t + 1 : t, held | makes, i == t ? -1 : i);
    }
  }
  return std::nullopt;
}

// f_l makes a_l from a_(l-1), a_0 is handed in; b_l makes g_(l-1) from a_(l-1) and g_l, where g_n
// is a_n. Vectors by l, from 0; the times of f_0 and b_0 are not used.
struct Chain {
  std::vector<int64_t> a, g, forward, backward;
  int32_t length() const { return static_cast<int32_t>(a.size()) - 1; }

  Graph graph() const {
    auto of = [](const char* letter, int32_t l) { return letter + std::to_string(l); };
    auto size = [](const std::vector<int64_t>& sizes, int32_t l) {
      return sizes[static_cast<size_t>(l)];
    };
    const int32_t n = length();
    GraphBuilder b;
    b.input("a0", a[0]);
    for (int32_t l = 1; l <= n; ++l) b.activation(of("a", l), size(a, l));
    for (int32_t l = n - 1; l >= 1; --l) b.gradient(of("g", l), size(g, l));
    b.output("g0", g[0]);
    for (int32_t l = 1; l <= n; ++l)
      b.op(of("f", l)).reads(of("a", l - 1)).makes(of("a", l)).phase("forward");
    for (int32_t l = n; l >= 1; --l)
      b.op(of("b", l))
          .reads(of("a", l - 1))
          .reads(l == n ? of("a", n) : of("g", l))
          .makes(of("g", l - 1))
          .phase("backward");
    return b.build();
  }
  std::vector<int64_t> times() const {
    std::vector<int64_t> out(forward.begin() + 1, forward.end());
    out.insert(out.end(), backward.rbegin(), backward.rend() - 1);
    return out;
  }
};

class Rotor {
 public:
  Rotor(const Chain& chain, int64_t capacity) : chain_(chain), capacity_(capacity) {}
  // Least time of the step; none where nothing fits.
  std::optional<int64_t> ns() { return solve(1, chain_.length(), 0); }

 private:
  static int64_t of(const std::vector<int64_t>& values, int32_t l) {
    return values[static_cast<size_t>(l)];
  }
  // From a_(s-1) and, unless t is the last, g_t, to g_(s-1), beside `held` bytes of checkpoints
  // further ahead.
  std::optional<int64_t> solve(int32_t s, int32_t t, int64_t held) {
    const auto key = std::make_tuple(s, t, held);
    if (const auto at = table_.find(key); at != table_.end()) return at->second;
    const bool last = t == chain_.length();
    const int64_t gradient = last ? 0 : of(chain_.g, t);
    std::optional<int64_t> best;
    if (s == t) {
      const int64_t there = held + of(chain_.a, s - 1) + (last ? of(chain_.a, t) : gradient);
      if (there + of(chain_.g, s - 1) <= capacity_)
        best = of(chain_.backward, s) + (last ? of(chain_.forward, s) : 0);
    }
    int64_t sweep = 0;
    for (int32_t j = s + 1; j <= t; ++j) {
      // f_(j-1), from a_(j-2): that one is let go after it, unless it is the checkpoint.
      const int64_t before = j - 1 == s ? 0 : of(chain_.a, j - 2);
      const int64_t there = held + of(chain_.a, s - 1) + gradient + before + of(chain_.a, j - 1);
      if (there > capacity_) break;
      sweep += of(chain_.forward, j - 1);
      const auto ahead = solve(j, t, held + of(chain_.a, s - 1));
      const auto behind = ahead ? solve(s, j - 1, held) : std::nullopt;
      if (behind && (!best || sweep + *ahead + *behind < *best)) best = sweep + *ahead + *behind;
    }
    table_[key] = best;
    return best;
  }

  const Chain& chain_;
  const int64_t capacity_;
  std::map<std::tuple<int32_t, int32_t, int64_t>, std::optional<int64_t>> table_;
};

}  // namespace outsize::planning
