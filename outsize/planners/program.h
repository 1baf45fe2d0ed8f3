// The program: the step as planners rewrite it. Steps (runs and reruns) in order, and *instances*:
// one buffer of a part from its first touch to its last, with what happens in the gaps between
// touches.
//
//   op0 makes A, op1 reads A, ..., op7 reads A       one instance, touched at steps 0, 1, 7
//   away(A, 1): in the gap after step 1 it is away   (swap: the same instance leaves and returns)
//   drop(A, 1): op0 is run again just before op7     (recompute: a second instance, touched by the
//                                                     rerun and by op7; the first one ends at op1)
//
// Every edit keeps the program correct: each touch finds the version of its part that program order
// gives it. Step and instance ids never change; `order` says where the steps stand. Value type; not
// thread-safe. It knows nothing of capacities and links; see choose.h.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "outsize/plan/plan.h"
#include "outsize/planners/parts.h"

namespace outsize::planning {

struct Touch {
  int32_t step = 0;
  bool reads = false;
  bool writes = false;
  int32_t before = 0;  // versions; a rerun that writes the same content again has before == after
  int32_t after = 0;
  bool away = false;  // off the device in the gap that follows
};

// A price that nothing is worth, in ns.
inline constexpr int64_t kNeverNs = int64_t{1} << 60;

// Whether a touch needs the content that the gap before it kept.
inline bool needs_content(const Touch& t) {
  return t.reads || (t.before != t.after && t.before > 0);
}

struct Instance {
  int32_t part = 0;
  bool entry = false;  // there before the first step
  bool exit = false;   // wanted after the last
  bool away_at_entry = false;
  // The tier it is on at entry and exit where it is away there.
  Tier home = Tier::kHost;
  std::vector<Touch> touches;  // in order
};

struct Step {
  OpId op;
  bool rerun = false;
  bool gone = false;              // taken out again
  std::vector<int32_t> operands;  // instance per access of the op
};

// One buffer of a part in a schedule that a planner wrote itself.
struct StagedBuffer {
  int32_t part = 0;
  bool entry = false;  // there before the first step
  bool exit = false;   // wanted after the last
};

// One run of an op in such a schedule. A rerun may write over a buffer that holds the same content
// already.
struct StagedRun {
  OpId op;
  bool rerun = false;
  std::vector<int32_t> buffers;  // per access of the op
};

class Program {
 public:
  // The ops in `order` (a legal order of all of them), nothing moved, nothing recomputed.
  // Requires: the parts outlive the program.
  Program(const Parts& parts, const std::vector<OpId>& order);
  // A schedule as it stands; instances are numbered as the buffers.
  // Requires: each buffer holds the version that an op reads when it reads it.
  Program(const Parts& parts, const std::vector<StagedBuffer>& buffers,
          const std::vector<StagedRun>& executions);

  const Parts& parts() const { return *parts_; }
  const std::vector<int32_t>& order() const { return order_; }  // step ids
  const Step& step(int32_t id) const { return steps_[static_cast<size_t>(id)]; }
  size_t size() const { return order_.size(); }
  const std::vector<Instance>& instances() const { return instances_; }
  Instance& instance(int32_t id) { return instances_[static_cast<size_t>(id)]; }
  const Instance& instance(int32_t id) const { return instances_[static_cast<size_t>(id)]; }
  const PartInfo& part_of(int32_t instance_id) const {
    return (*parts_)[instance(instance_id).part];
  }
  // Where a step stands in `order`.
  int32_t rank(int32_t step) const { return ranks_[static_cast<size_t>(step)]; }

  // What holding `bytes` more over the ranks (from, to) would cost; asked when a recomputation
  // needs a tensor that is no longer there, and keeping it longer competes with running its maker
  // again.
  using HoldPrice = std::function<int64_t(int32_t from, int32_t to, int64_t bytes)>;
  // What one run of an op costs, and whether that op's working set fits at all.
  using RunPrice = std::function<std::optional<int64_t>(OpId op)>;

  struct Draft {
    std::vector<OpId> runs;                         // to insert, in order
    std::vector<std::pair<int32_t, int32_t>> made;  // part, version
    std::vector<int32_t> extended;                  // instances kept longer
    int64_t run_ns = 0;
    int64_t hold_ns = 0;
    bool reborn = false;           // the next touch writes that content afresh: nothing is run
    std::optional<int32_t> joins;  // an earlier instance with that content serves: nothing is run

    // Many prices are added up, each as high as kNeverNs: the sum stays below overflow.
    void hold(int64_t ns) { hold_ns = std::min(hold_ns + ns, 2 * kNeverNs); }
  };
  // How the content in the gap after touch `k` would be made again before the next touch; none
  // where it can't be.
  std::optional<Draft> draft_drop(int32_t instance_id, size_t k, const RunPrice& run,
                                  const HoldPrice& hold) const;
  // Does it. Returns the instances whose gaps changed, ascending. `serve_later`: later reruns of
  // the same ops are taken out again, as what they make is now there, held for longer.
  std::vector<int32_t> drop(int32_t instance_id, size_t k, const Draft& draft,
                            bool serve_later = true);

  // What taking a rerun out again means: the steps that stand or fall with it, and which instance
  // made by them goes on in which earlier one, held over the ranks (from, to) between the two.
  struct Undo {
    struct Heir {
      int32_t instance, heir;
      int32_t from, to;
    };
    std::vector<int32_t> steps;
    std::vector<Heir> heirs;
  };
  // None where no earlier instance holds what a rerun makes.
  std::optional<Undo> draft_undrop(int32_t step) const;
  // Does it; `changed` gets the instances concerned.
  void undrop(const Undo& undo, std::vector<int32_t>& changed);

 private:
  struct Provider {
    int32_t instance = -1;
    bool alive = false;
  };
  Provider provider(int32_t part, int32_t version, int32_t at_rank) const;
  bool draft_make(int32_t part, int32_t version, int32_t at_rank, const RunPrice& run,
                  const HoldPrice& hold, Draft& draft, int depth) const;
  int32_t add_instance(int32_t part);
  void touch(int32_t instance_id, int32_t step, bool reads, bool writes, int32_t before,
             int32_t after);
  void insert_steps(size_t at, const std::vector<int32_t>& ids);
  void refresh_ranks(size_t from);

  const Parts* parts_;
  std::vector<Step> steps_;
  std::vector<int32_t> order_;
  std::vector<int32_t> ranks_;
  std::vector<Instance> instances_;
  std::vector<std::vector<int32_t>> instances_of_part_;
};

}  // namespace outsize::planning
