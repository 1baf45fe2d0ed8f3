// Choosing: which gaps to swap and which to recompute so that at every step what is on the device
// fits a capacity, at the least cost the prices name.
//
//   capacity 10   steps  0  1  2  3  4        need 4 at steps 1-3
//   usage               10 14 14 14  9        A (6 B, gap over 1-3): swap 12 ns, recompute 5 ns
//                                             B (4 B, gap over 1-3): swap 8 ns           → drop A
//
// A greedy weighted cover (most bytes of need met per nanosecond first), then a pass that takes
// back what has become redundant. Deterministic. The same profile of usage is what the sequence
// will hold, when copies stand next to the steps they serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/base/deadline.h"
#include "outsize/base/random.h"
#include "outsize/planners/planner.h"
#include "outsize/planners/program.h"

namespace outsize::planning {

// What a choice costs. `per_byte` in nanoseconds, as felt by the step (not by the link).
struct Prices {
  double out_per_byte = 0;
  double in_per_byte = 0;
  int64_t out_latency_ns = 0;
  int64_t in_latency_ns = 0;
  double run_factor = 1.0;  // nanoseconds of recomputing count this much
  // What the links take: a swap that they can't serve in time costs what the step waits. 0: not
  // looked at.
  double link_out_per_byte = 0;
  double link_in_per_byte = 0;
};

struct ChooseParams {
  int64_t capacity = 0;
  bool swap = true;
  bool recompute = true;
  bool host_homes = true;         // persistent storages may live on the host
  int64_t stay_bytes = 64 << 10;  // smaller persistent storages have their home on the device
  int64_t least_swap_bytes = 0;   // smaller activations are not copied away
  std::vector<int8_t> homes;      // per part: 0 free, 1 device, 2 host; empty: all free
  double noise = 0;               // searching: scores are scaled by up to this much, at random
};

// Why a capacity can't be met: the step where `needed` bytes stay over it.
struct Shortfall {
  OpId op;
  int64_t needed = 0;
  int64_t capacity = 0;
};

class Chooser {
 public:
  // Requires: all outlive the chooser.
  Chooser(const Problem& problem, const Prices& prices, const ChooseParams& params);

  // Adds decisions to `program` until it fits; empty on success.
  std::optional<Shortfall> fit(Program& program, Random& random);
  // Takes back decisions that aren't needed, dearest first.
  void prune(Program& program);
  // What the program's decisions cost by the prices.
  double cost(const Program& program);
  // Bytes on the device at each rank.
  std::vector<int64_t> usage(const Program& program) const;

  int64_t capacity() const { return params_.capacity; }
  // Whether copies may take a part off the device (a persistent one: its home too).
  bool may_swap(const PartInfo& part, int32_t part_id) const {
    return params_.swap && part.bytes() > 0 && movable(part, part_id);
  }
  int64_t size_of(const PartInfo& part) const;  // aligned
  // Whether an instance that crosses the border lies on the host there, as its flags say.
  static bool home_on_host(const Instance& instance);

 private:
  struct Candidate {
    // kHomeAll: its home on the host, and away in every gap where room is short.
    enum class Kind { kSwap, kHome, kHomeAll, kDrop } kind = Kind::kSwap;
    int32_t instance = -1;
    int32_t step = -1;  // the touch before the gap; -1: from entry
    double score = 0;
  };
  struct Evaluation {
    double cost = 0;
    double benefit = 0;
    std::optional<Program::Draft> draft;  // kDrop
    std::optional<Instance> moved;        // kHome, kHomeAll
  };

  double swap_cost(const Program& program, const Instance& instance) const;
  std::optional<Evaluation> evaluate(const Program& program, const Candidate& candidate) const;
  void candidates_of(const Program& program, int32_t instance, std::vector<Candidate>& out) const;
  void apply(Program& program, const Candidate& candidate, const Evaluation& evaluation,
             std::vector<int32_t>& changed);
  double gain(int32_t from, int32_t to, int64_t bytes) const;  // over ranks (from, to)
  int64_t highest(int32_t from, int32_t to) const;             // usage over ranks (from, to)
  double priced(const Program& program) const;
  void load_links(const Program& program);
  double written_at(const Program& program, const Instance& instance, size_t k) const;
  double stall(double written, int32_t from, int32_t to, int64_t bytes, bool out, bool in) const;
  std::optional<int64_t> run_price(OpId op) const;
  int64_t hold_price(int32_t from, int32_t to, int64_t bytes) const;
  void measure(const Program& program);
  bool movable(const PartInfo& part, int32_t part_id) const;

  const Problem* problem_;
  Prices prices_;
  ChooseParams params_;
  int64_t reserved_ = 0;               // device bytes that the problem keeps for others
  std::vector<int64_t> working_sets_;  // per op
  std::vector<int64_t> usage_;         // per rank, of the program being fitted
  std::vector<int32_t> needy_;         // ranks where it is over the capacity
  std::vector<int64_t> block_most_;    // the highest usage in each block of ranks
  std::vector<double> starts_;         // per rank, and the end: compute ns before it
  std::vector<double> out_clear_;      // per rank: when all copies out wanted by then have ended
  std::vector<double> in_clear_;  // per rank: when the first copy in due from then on must begin
};

}  // namespace outsize::planning
