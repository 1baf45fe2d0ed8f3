#include "outsize/planners/dtr.h"

#include <algorithm>
#include <limits>
#include <set>

#include "outsize/base/bytes.h"
#include "outsize/planners/dtr_costs.h"
#include "outsize/planners/plan_once.h"

namespace outsize::planning {
namespace {

constexpr int32_t kNew = -2;  // a buffer yet to be added
constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What is on the device: one version of a part.
struct Held {
  int32_t version = 0;
  int32_t locks = 0;
  int64_t stamp = 0;  // when it joined those that may be evicted
};

class Dtr {
 public:
  Dtr(const Case& c, const DtrParams& params, int64_t capacity, Trouble& trouble)
      : c_(c),
        params_(params),
        capacity_(capacity),
        trouble_(trouble),
        at_(c.parts.parts.size()),
        costs_(c.parts.parts.size(), params.neighbourhood) {
    std::vector<int64_t> turn(c.order.size());  // per op: where it stands in the order
    for (size_t i = 0; i < c.order.size(); ++i) turn[c.order[i].index()] = static_cast<int64_t>(i);
    for (int32_t p = 0; p < part_count(); ++p) {
      const PartInfo& part = c.parts[p];
      At& a = at(p);
      a.bytes = device_bytes_of(c, part);
      for (const PartUse& use : part.uses) a.last_use = std::max(a.last_use, turn[use.op.index()]);
      a.fixed = part.entry || part.persistent || !remakeable(p);
      if (!part.entry) continue;
      a.current = add_buffer(p);
      buffers_.back().entry = true;
      ++held_.back().locks;  // never evicted
      a.version = 0;
      used_ += a.bytes;
    }
    most_ = static_cast<int64_t>(params.most_recompute *
                                 static_cast<double>(starts_of(c, plain_program(c)).back()));
  }

  std::optional<Decision> run() {
    for (size_t i = 0; i < c_.order.size(); ++i) {
      now_ = static_cast<int64_t>(i);
      if (!rescue(c_.order[i]) || !execute({c_.order[i]})) return std::nullopt;
      for (int32_t p : rescued_) unlock(at(p).current);
      rescued_.clear();
      going_.clear();
      release(c_.order[i]);
    }
    for (int32_t p = 0; p < part_count(); ++p) {
      if (!c_.parts[p].exit) continue;
      if (at(p).current < 0 && remake(p, at(p).version) < 0) return std::nullopt;
      lock(at(p).current);
      buffers_[static_cast<size_t>(at(p).current)].exit = true;
    }
    Program program(c_.parts, buffers_, executions_);
    settle_at_homes(c_, program);
    std::vector<Move> moves = moves_of(program);
    return Decision{std::move(program), std::move(moves)};
  }

 private:
  // What is known of a part.
  struct At {
    int64_t bytes = 0;
    int64_t last_use = -1;
    int32_t version = -1;        // that program order has reached; -1: not made yet
    int32_t current = -1;        // the buffer that holds that version; -1: evicted
    bool fixed = false;          // nothing can make it again
    int64_t touched = 0;         // on the clock
    std::vector<int32_t> older;  // buffers that hold earlier versions
  };
  using Content = std::pair<int32_t, int32_t>;  // part, version

  int32_t part_count() const { return static_cast<int32_t>(at_.size()); }
  At& at(int32_t p) { return at_[static_cast<size_t>(p)]; }
  const At& at(int32_t p) const { return at_[static_cast<size_t>(p)]; }

  bool remakeable(int32_t p) const {
    for (OpId w : c_.parts[p].writers) {
      if (!c_.parts.rerunnable[w.index()]) return false;
      for (size_t k = 0; k < c_.parts.of_op[w.index()].size(); ++k) {
        const PartUse& use = c_.parts.use_of_op[w.index()][k];
        // Changing another tensor in place would take that tensor's earlier content from it.
        if (c_.parts.of_op[w.index()][k] != p && use.reads && use.writes) return false;
      }
    }
    return true;
  }
  // Whether it is read after the present op; from that op on.
  bool wanted(int32_t p) const { return at(p).last_use > now_ || c_.parts[p].exit; }
  bool wanted_from(int32_t p) const { return at(p).last_use >= now_ || c_.parts[p].exit; }
  int64_t ns_of(OpId op) const { return c_.problem->profile->ops[op.index()].ns; }

  int32_t add_buffer(int32_t p) {
    buffers_.push_back({p, false, false});
    held_.emplace_back();
    return static_cast<int32_t>(buffers_.size() - 1);
  }
  Held& held(int32_t b) { return held_[static_cast<size_t>(b)]; }
  const Held& held(int32_t b) const { return held_[static_cast<size_t>(b)]; }
  int32_t part_of(int32_t b) const { return buffers_[static_cast<size_t>(b)].part; }

  // A buffer with that version, or -1.
  int32_t find(int32_t p, int32_t version) const {
    const At& a = at(p);
    if (a.current >= 0 && held(a.current).version == version) return a.current;
    for (int32_t b : a.older)
      if (held(b).version == version) return b;
    return -1;
  }

  // Whether that content is there, and no op to come writes over it.
  bool stays(int32_t p, int32_t version) const {
    return find(p, version) >= 0 && version == static_cast<int32_t>(c_.parts[p].writers.size());
  }

  void lock(int32_t b) {
    if (held(b).locks++ == 0) pool_.erase({held(b).stamp, b});
  }
  void unlock(int32_t b) {
    if (--held(b).locks > 0) return;
    held(b).stamp = ++stamps_;
    pool_.insert({held(b).stamp, b});
  }

  // Whether `test` holds for a content (part, version) that the writers up to that version of `p`
  // read, other than of `p` itself.
  template <typename Test>
  bool any_source(int32_t p, int32_t version, Test test) const {
    for (int32_t v = 1; v <= version; ++v) {
      const size_t w = c_.parts[p].writers[static_cast<size_t>(v) - 1].index();
      for (size_t k = 0; k < c_.parts.of_op[w].size(); ++k) {
        const PartUse& use = c_.parts.use_of_op[w][k];
        const int32_t q = c_.parts.of_op[w][k];
        if (q != p && use.reads && test(q, use.before)) return true;
      }
    }
    return false;
  }

  // Whether nothing would be lost for good without a buffer of it.
  bool can_remake(int32_t p, int32_t version, std::set<Content>& seen) const {
    if (at(p).fixed) return false;
    if (!seen.insert({p, version}).second) return true;
    return !any_source(p, version, [&](int32_t q, int32_t before) {
      if (std::find(going_.begin(), going_.end(), q) != going_.end()) return true;
      return !stays(q, before) && !can_remake(q, before, seen);
    });
  }
  bool can_remake(int32_t b) const {
    std::set<Content> seen;
    return can_remake(part_of(b), held(b).version, seen);
  }

  // Whether making it again, with what is there now, reads what part `on` holds.
  bool depends(int32_t p, int32_t version, int32_t on, std::set<Content>& seen) const {
    if (!seen.insert({p, version}).second) return false;
    return any_source(p, version, [&](int32_t q, int32_t before) {
      return q == on || (!stays(q, before) && depends(q, before, on, seen));
    });
  }

  // Whether something evicted that is wanted later would have to be made from it.
  bool needed_by_evicted(int32_t p) const {
    std::vector<int32_t> stack{p};
    std::set<int32_t> seen{p};
    while (!stack.empty()) {
      const int32_t x = stack.back();
      stack.pop_back();
      for (int32_t y : costs_.children(x)) {
        // An earlier content of a part that changes may be wanted while a later one is there.
        const bool gone = costs_.is_evicted(y), changes = c_.parts[y].writers.size() > 1;
        if ((!gone && !changes) || !seen.insert(y).second) continue;
        if (gone && wanted_from(y)) return true;
        stack.push_back(y);
      }
    }
    return false;
  }

  double score(int32_t b) {
    const int32_t p = part_of(b);
    const At& a = at(p);
    const double cost = params_.cost ? costs_.cost(p) : 1;
    double under = params_.bytes ? static_cast<double>(a.bytes) : 1;
    if (params_.staleness) under *= static_cast<double>(clock_ - a.touched);
    return under > 0 ? cost / under : kInfinite;
  }

  void drop(int32_t b) {
    At& a = at(part_of(b));
    used_ -= a.bytes;
    if (held(b).locks == 0) pool_.erase({held(b).stamp, b});
    if (a.current != b) {
      std::erase(a.older, b);
      return;
    }
    a.current = -1;
    costs_.evicted(part_of(b));
  }

  // What has the least score of what can be evicted now, or -1.
  int32_t victim() {
    std::set<int32_t> lost;  // for good, if it went now
    for (;;) {
      int32_t best = -1;
      double least = kInfinite;
      for (const auto& [stamp, b] : pool_) {
        if (lost.contains(b)) continue;
        const double s = score(b);
        if (s <= least) best = b, least = s;
        if (s == 0) break;
      }
      if (best < 0 || can_remake(best) ||
          (!wanted_from(part_of(best)) && !needed_by_evicted(part_of(best))))
        return best;
      lost.insert(best);
    }
  }

  // Evicts until `bytes` more fit.
  bool make_room(int64_t bytes, OpId op) {
    while (used_ + bytes > capacity_) {
      const int32_t b = victim();
      if (b < 0) return falls_short(op, bytes);
      drop(b);
    }
    return true;
  }
  bool falls_short(OpId op, int64_t bytes) {
    trouble_.shortfall = Shortfall{op, used_ + bytes, capacity_};
    return false;
  }

  // A run of an op. In a rerun, `chain` is the buffer of part `target` that is being made again; -1
  // until its first writer has run.
  struct Run {
    OpId op;
    bool rerun = false;
    int32_t target = -1, chain = -1;
  };

  // Whether the content of operand `k` must be there.
  bool needs(const Run& run, size_t k) const {
    const PartUse& use = c_.parts.use_of_op[run.op.index()][k];
    if (run.chain >= 0 && c_.parts.of_op[run.op.index()][k] == run.target) return false;
    return use.reads || (!run.rerun && use.writes && use.before > 0);
  }

  // Locks what must be there; what isn't is made again first.
  bool fetch(const Run& run, std::vector<int32_t>& locked) {
    const std::vector<int32_t>& parts = c_.parts.of_op[run.op.index()];
    const std::vector<PartUse>& uses = c_.parts.use_of_op[run.op.index()];
    for (size_t k = 0; k < parts.size(); ++k)
      if (needs(run, k)) at(parts[k]).touched = clock_;
    for (const bool there : {true, false})
      for (size_t k = 0; k < parts.size(); ++k) {
        if (!needs(run, k)) continue;
        const bool again = std::any_of(locked.begin(), locked.end(),
                                       [&](int32_t b) { return part_of(b) == parts[k]; });
        if (again) continue;
        int32_t b = find(parts[k], uses[k].before);
        if (b < 0 && there) continue;
        if (b < 0) b = remake(parts[k], uses[k].before);
        if (b < 0) return false;
        lock(b);
        locked.push_back(b);
      }
    return true;
  }

  // The buffer for each access, of those there are; kNew where one must be added, whose bytes are
  // added up.
  std::vector<int32_t> operands_of(const Run& run, std::vector<int32_t>& locked, int64_t& bytes) {
    const std::vector<int32_t>& parts = c_.parts.of_op[run.op.index()];
    const std::vector<PartUse>& uses = c_.parts.use_of_op[run.op.index()];
    std::vector<int32_t> operands(parts.size(), -1);
    for (size_t k = 0; k < parts.size(); ++k) {
      const int32_t p = parts[k];
      // What is written without being read, but was there at entry, has its place.
      const bool has_place = !run.rerun && c_.parts[p].entry;
      if (p == run.target && run.chain >= 0) {
        operands[k] = run.chain;
      } else if (needs(run, k) || has_place) {
        operands[k] = find(p, uses[k].before);
      } else if (run.rerun && find(p, uses[k].after) >= 0) {
        operands[k] = find(p, uses[k].after);
        lock(operands[k]);
        locked.push_back(operands[k]);
      } else {
        operands[k] = same_part_before(parts, operands, k);
        if (operands[k] >= 0) continue;
        operands[k] = kNew;
        bytes += at(p).bytes;
      }
    }
    return operands;
  }
  // The operand of an earlier access to the part of access `k`; the last of them.
  static int32_t same_part_before(const std::vector<int32_t>& parts,
                                  const std::vector<int32_t>& operands, size_t k) {
    for (size_t j = k; j-- > 0;)
      if (parts[j] == parts[k]) return operands[j];
    return -1;
  }

  bool execute(const Run& run) {
    const std::vector<int32_t>& parts = c_.parts.of_op[run.op.index()];
    std::vector<int32_t> locked, fresh;
    if (!fetch(run, locked)) return false;
    int64_t bytes = round_up(c_.problem->profile->ops[run.op.index()].workspace_bytes,
                             c_.problem->machine->alignment);
    std::vector<int32_t> operands = operands_of(run, locked, bytes);
    if (!make_room(bytes, run.op)) return false;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (operands[k] != kNew) continue;
      operands[k] = same_part_before(parts, operands, k);
      if (operands[k] >= 0) continue;
      operands[k] = add_buffer(parts[k]);
      held_.back().version = -1;
      held_.back().locks = 1;
      fresh.push_back(operands[k]);
      used_ += at(parts[k]).bytes;
    }
    clock_ += ns_of(run.op);
    if (run.rerun && (rerun_ns_ += ns_of(run.op)) > most_) return falls_short(run.op, bytes);
    executions_.push_back({run.op, run.rerun, operands});
    settle(run.op, run.rerun, operands);
    for (int32_t b : locked) unlock(b);
    for (int32_t b : fresh) {
      // What a rerun made of a piece of a larger part is of no use.
      const bool scraps = held(b).version < 0;
      unlock(b);
      if (scraps) drop(b);
    }
    return true;
  }

  // Versions after a run.
  void settle(OpId op, bool rerun, const std::vector<int32_t>& operands) {
    const size_t o = op.index();
    for (size_t k = 0; k < operands.size(); ++k) {
      const int32_t p = c_.parts.of_op[o][k];
      const PartUse& use = c_.parts.use_of_op[o][k];
      At& a = at(p);
      const int32_t b = operands[k];
      if (!use.writes || held(b).version == use.after) continue;
      if (rerun && held(b).version != use.before && use.before != 0) continue;  // scraps
      held(b).version = use.after;
      if (!rerun) {
        if (a.version < use.after) a.version = use.after;
        a.current = b;
        a.touched = clock_;
        costs_.written(p, ns_of(op), sources_of(op, p));
      } else if (use.after == a.version && a.current < 0) {
        std::erase(a.older, b);
        a.current = b;
        costs_.remade(p);
      } else if (a.current != b && std::find(a.older.begin(), a.older.end(), b) == a.older.end()) {
        a.older.push_back(b);
      }
    }
  }

  // Parts that a writer of `p` reads and that had to be made.
  std::vector<int32_t> sources_of(OpId writer, int32_t p) const {
    const size_t o = writer.index();
    std::vector<int32_t> out;
    for (size_t k = 0; k < c_.parts.of_op[o].size(); ++k) {
      const int32_t q = c_.parts.of_op[o][k];
      if (q != p && c_.parts.use_of_op[o][k].reads && !c_.parts[q].entry) out.push_back(q);
    }
    return out;
  }

  // Makes a version again; the buffer, or -1.
  int32_t remake(int32_t p, int32_t version) {
    OUTSIZE_CHECK(!at(p).fixed && version > 0,
                  "version {} of part {} is gone and can't be made again", version, p);
    int32_t chain = -1;
    for (int32_t v = 1; v <= version; ++v) {
      const OpId writer = c_.parts[p].writers[static_cast<size_t>(v) - 1];
      if (!execute({writer, true, p, chain})) return -1;
      if (chain < 0) {
        chain = operand_of(executions_.back(), p);
        lock(chain);
      }
    }
    unlock(chain);
    return chain;
  }
  int32_t operand_of(const StagedRun& e, int32_t p) const {
    for (int32_t b : e.buffers)
      if (part_of(b) == p) return b;
    return -1;
  }

  // Before an op changes what was there at entry: what is wanted later and can only be made from
  // the content that goes is made now.
  bool rescue(OpId op) {
    const size_t o = op.index();
    for (size_t k = 0; k < c_.parts.of_op[o].size(); ++k) {
      const int32_t q = c_.parts.of_op[o][k];
      if (c_.parts.use_of_op[o][k].writes && at(q).fixed && at(q).current >= 0) going_.push_back(q);
    }
    for (int32_t q : going_)
      for (int32_t x = 0; x < part_count(); ++x) {
        if (!costs_.is_evicted(x) || !wanted_from(x)) continue;
        std::set<Content> seen;
        if (!depends(x, at(x).version, q, seen)) continue;
        if (remake(x, at(x).version) < 0) return false;
        lock(at(x).current);
        rescued_.push_back(x);
      }
    return true;
  }

  // Lets go of what an op read or made for the last time.
  void release(OpId op) {
    std::vector<int32_t> parts = c_.parts.of_op[op.index()];
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (int32_t p : parts) {
      const At& a = at(p);
      if (!params_.eager || wanted(p) || a.current < 0 || held(a.current).locks > 0) continue;
      if (can_remake(a.current) || !needed_by_evicted(p)) drop(a.current);
    }
  }

  const Case& c_;
  const DtrParams params_;
  const int64_t capacity_;
  Trouble& trouble_;
  std::vector<At> at_;  // by part
  DtrCosts costs_;
  std::vector<StagedBuffer> buffers_;
  std::vector<Held> held_;
  std::vector<StagedRun> executions_;
  std::vector<int32_t> going_;    // parts there at entry whose content this op changes
  std::vector<int32_t> rescued_;  // made again before that; locked until it has run
  std::set<std::pair<int64_t, int32_t>> pool_;  // stamp, buffer
  int64_t now_ = 0, clock_ = 1, stamps_ = 0, used_ = 0, rerun_ns_ = 0, most_ = 0;
};

Status plan_dtr_with(Search& search, const char* name, const DtrParams& params) {
  if (!search.problem().allow.recompute)
    return bad_input("planner {} only recomputes, and recomputing is not allowed; allow it", name);
  RealiseOptions options;
  options.effort = Effort::kThorough;
  return plan_once(search, name, [&](const Case& c, Trouble& trouble) {
    return realise_within(
        c, [&](int64_t capacity, Trouble& why) { return decide_dtr(c, params, capacity, why); },
        trouble, options);
  });
}

}  // namespace

DtrParams h_dtr() { return {}; }
DtrParams h_dtr_eq_class() {
  DtrParams params;
  params.neighbourhood = DtrNeighbourhood::kClasses;
  return params;
}
DtrParams h_msps() {
  DtrParams params;
  params.neighbourhood = DtrNeighbourhood::kAncestors;
  params.staleness = false;
  return params;
}
DtrParams h_lru() {
  DtrParams params;
  params.neighbourhood = DtrNeighbourhood::kNone;
  params.cost = params.bytes = false;
  return params;
}

std::optional<Decision> decide_dtr(const Case& c, const DtrParams& params, int64_t capacity,
                                   Trouble& trouble) {
  return Dtr(c, params, capacity, trouble).run();
}

Status plan_dtr(Search& search) { return plan_dtr_with(search, "dtr", h_dtr()); }
Status plan_dtr_eq_class(Search& search) {
  return plan_dtr_with(search, "dtr-eq-class", h_dtr_eq_class());
}
Status plan_dtr_msps(Search& search) { return plan_dtr_with(search, "dtr-msps", h_msps()); }
Status plan_dtr_lru(Search& search) { return plan_dtr_with(search, "dtr-lru", h_lru()); }

}  // namespace outsize::planning
