#include "outsize/planners/dtr.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace outsize::planning {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What is on the device: one version of a part.
struct Held {
  int32_t version = 0;
  int32_t locks = 0;
  bool alive = false;
  int64_t stamp = 0;  // when it joined those that may be evicted
};

// Components of evicted parts, with the sum of their costs; a part made again leaves its cost
// behind in no component, but the component stays one.
class Classes {
 public:
  void clear(size_t parts) { node_.assign(parts, -1); }
  void add(size_t part, double cost) {
    node_[part] = static_cast<int32_t>(parent_.size());
    parent_.push_back(node_[part]);
    cost_.push_back(cost);
  }
  void join(size_t a, size_t b) {
    int32_t x = root(node_[a]), y = root(node_[b]);
    if (x == y) return;
    parent_[static_cast<size_t>(x)] = y;
    cost_[static_cast<size_t>(y)] += cost_[static_cast<size_t>(x)];
  }
  void leave(size_t part, double cost) {
    if (node_[part] < 0) return;
    cost_[static_cast<size_t>(root(node_[part]))] -= cost;
    node_[part] = -1;
  }
  int32_t of(size_t part) { return root(node_[part]); }
  double cost(int32_t root) const { return cost_[static_cast<size_t>(root)]; }

 private:
  int32_t root(int32_t n) {
    while (parent_[static_cast<size_t>(n)] != n) {
      int32_t& up = parent_[static_cast<size_t>(n)];
      up = parent_[static_cast<size_t>(up)];
      n = up;
    }
    return n;
  }
  std::vector<int32_t> node_, parent_;
  std::vector<double> cost_;
};

class Dtr {
 public:
  Dtr(const Case& c, const DtrParams& params, int64_t capacity, Trouble& trouble)
      : c_(c), params_(params), capacity_(capacity), trouble_(trouble) {
    const size_t parts = c.parts.parts.size();
    at_.resize(parts);
    neighbours_.resize(parts);
    classes_.clear(parts);
    for (size_t i = 0; i < c.order.size(); ++i) turn_.push_back(0);
    for (size_t i = 0; i < c.order.size(); ++i) turn_[c.order[i].index()] = static_cast<int64_t>(i);
    for (size_t p = 0; p < parts; ++p) {
      const PartInfo& part = c.parts.parts[p];
      at_[p].bytes = device_bytes_of(c, part);
      for (const PartUse& use : part.uses)
        at_[p].last_use = std::max(at_[p].last_use, turn_[use.op.index()]);
      at_[p].fixed = part.entry || part.persistent || !remakeable(static_cast<int32_t>(p));
      if (!part.entry) continue;
      const int32_t b = add_buffer(static_cast<int32_t>(p));
      buffers_[static_cast<size_t>(b)].entry = true;
      ++held_[static_cast<size_t>(b)].locks;  // never evicted
      at_[p].current = b;
      at_[p].version = 0;
      used_ += at_[p].bytes;
    }
    most_ = static_cast<int64_t>(params.most_recompute *
                                 static_cast<double>(starts_of(c, plain_program(c)).back()));
  }

  std::optional<Decision> run() {
    for (size_t i = 0; i < c_.order.size(); ++i) {
      now_ = static_cast<int64_t>(i);
      if (!rescue(c_.order[i]) || !execute(c_.order[i], false, -1, -1)) return std::nullopt;
      for (int32_t p : rescued_) unlock(at_[static_cast<size_t>(p)].current);
      rescued_.clear();
      going_.clear();
      release(c_.order[i]);
    }
    for (size_t p = 0; p < at_.size(); ++p) {
      if (!c_.parts.parts[p].exit) continue;
      if (at_[p].current < 0 && remake(static_cast<int32_t>(p), at_[p].version) < 0)
        return std::nullopt;
      lock(at_[p].current);
      buffers_[static_cast<size_t>(at_[p].current)].exit = true;
    }
    Program program(c_.parts, buffers_, executions_);
    for (size_t b = 0; b < buffers_.size(); ++b) {
      Instance& in = program.instance(static_cast<int32_t>(b));
      if (c_.homes[static_cast<size_t>(in.part)] != 2) continue;
      in.away_at_entry = in.entry;
      if (in.exit && !in.touches.empty()) in.touches.back().away = true;
    }
    std::vector<Move> moves = moves_of(program);
    return Decision{std::move(program), std::move(moves)};
  }

 private:
  // What is known of a part.
  struct At {
    int64_t bytes = 0;
    int64_t last_use = -1;
    int32_t version = -1;          // that program order has reached; -1: not made yet
    int32_t current = -1;          // the buffer that holds that version; -1: evicted
    bool fixed = false;            // nothing can make it again
    int64_t touched = 0;           // on the clock
    double cost = 0;               // of its writers so far
    double before = 0, after = 0;  // cost of its evicted ancestors, descendants
    bool stale = true;             // the two are to be counted again
    std::vector<int32_t> older;    // buffers that hold earlier versions
  };
  struct Neighbours {
    std::vector<int32_t> parents, children;
  };

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
  bool evicted(int32_t p) const {
    const At& a = at_[static_cast<size_t>(p)];
    return a.version >= 0 && a.current < 0;
  }
  bool wanted(int32_t p) const {
    return at_[static_cast<size_t>(p)].last_use > now_ || c_.parts[p].exit;
  }
  int64_t ns_of(OpId op) const { return c_.problem->profile->ops[op.index()].ns; }

  int32_t add_buffer(int32_t p) {
    buffers_.push_back({p, false, false});
    held_.push_back({0, 0, true, 0});
    return static_cast<int32_t>(buffers_.size() - 1);
  }
  Held& held(int32_t b) { return held_[static_cast<size_t>(b)]; }
  int32_t part_of(int32_t b) const { return buffers_[static_cast<size_t>(b)].part; }

  // A buffer with that version, or -1.
  int32_t find(int32_t p, int32_t version) const {
    const At& a = at_[static_cast<size_t>(p)];
    if (a.current >= 0 && held_[static_cast<size_t>(a.current)].version == version)
      return a.current;
    for (int32_t b : a.older)
      if (held_[static_cast<size_t>(b)].version == version) return b;
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

  // Whether nothing would be lost for good without a buffer of it.
  bool can_remake(int32_t p, int32_t version, std::set<std::pair<int32_t, int32_t>>& seen) const {
    if (at_[static_cast<size_t>(p)].fixed) return false;
    if (!seen.insert({p, version}).second) return true;
    for (int32_t v = 1; v <= version; ++v) {
      const size_t w = c_.parts[p].writers[static_cast<size_t>(v) - 1].index();
      for (size_t k = 0; k < c_.parts.of_op[w].size(); ++k) {
        const PartUse& use = c_.parts.use_of_op[w][k];
        const int32_t q = c_.parts.of_op[w][k];
        if (q == p || !use.reads) continue;
        if (std::find(going_.begin(), going_.end(), q) != going_.end()) return false;
        if (stays(q, use.before)) continue;
        if (!can_remake(q, use.before, seen)) return false;
      }
    }
    return true;
  }
  bool can_remake(int32_t b) const {
    std::set<std::pair<int32_t, int32_t>> seen;
    return can_remake(part_of(b), held_[static_cast<size_t>(b)].version, seen);
  }

  // Whether something evicted that is wanted later would have to be made from it.
  bool needed_by_evicted(int32_t p) const {
    std::vector<int32_t> stack{p};
    std::set<int32_t> seen{p};
    while (!stack.empty()) {
      const int32_t x = stack.back();
      stack.pop_back();
      for (int32_t y : neighbours_[static_cast<size_t>(x)].children) {
        // An earlier content of a part that changes may be wanted while a later one is there.
        const bool gone = evicted(y), changes = c_.parts[y].writers.size() > 1;
        if ((!gone && !changes) || !seen.insert(y).second) continue;
        if (gone && wanted_from(y)) return true;
        stack.push_back(y);
      }
    }
    return false;
  }

  // The live parts at the edge of the evicted ones around `p` must count their neighbourhood again.
  void spoil(int32_t p) {
    for (const bool up : {true, false}) {
      std::vector<int32_t> stack{p};
      std::set<int32_t> seen{p};
      at_[static_cast<size_t>(p)].stale = true;
      while (!stack.empty()) {
        const Neighbours& near = neighbours_[static_cast<size_t>(stack.back())];
        stack.pop_back();
        for (int32_t q : up ? near.parents : near.children) {
          if (!seen.insert(q).second) continue;
          at_[static_cast<size_t>(q)].stale = true;
          if (evicted(q)) stack.push_back(q);
        }
      }
    }
  }

  double evicted_cost(int32_t p, bool up) const {
    double sum = 0;
    std::vector<int32_t> stack{p};
    std::set<int32_t> seen{p};
    while (!stack.empty()) {
      const Neighbours& near = neighbours_[static_cast<size_t>(stack.back())];
      stack.pop_back();
      for (int32_t q : up ? near.parents : near.children) {
        if (!evicted(q) || !seen.insert(q).second) continue;
        sum += at_[static_cast<size_t>(q)].cost;
        stack.push_back(q);
      }
    }
    return sum;
  }

  double neighbourhood(int32_t p) {
    At& a = at_[static_cast<size_t>(p)];
    if (params_.neighbourhood == DtrNeighbourhood::kNone) return 0;
    if (params_.neighbourhood == DtrNeighbourhood::kClasses) {
      std::vector<int32_t> roots;
      for (const auto* list : {&neighbours_[static_cast<size_t>(p)].parents,
                               &neighbours_[static_cast<size_t>(p)].children})
        for (int32_t q : *list)
          if (evicted(q)) roots.push_back(classes_.of(static_cast<size_t>(q)));
      std::sort(roots.begin(), roots.end());
      roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
      return std::accumulate(roots.begin(), roots.end(), 0.0,
                             [&](double sum, int32_t r) { return sum + classes_.cost(r); });
    }
    if (a.stale) {
      a.before = evicted_cost(p, true);
      a.after = evicted_cost(p, false);
      a.stale = false;
    }
    return a.before + (params_.neighbourhood == DtrNeighbourhood::kEvicted ? a.after : 0);
  }

  double score(int32_t b) {
    const int32_t p = part_of(b);
    const At& a = at_[static_cast<size_t>(p)];
    const double cost = params_.cost ? a.cost + neighbourhood(p) : 1;
    double under = params_.bytes ? static_cast<double>(a.bytes) : 1;
    if (params_.staleness) under *= static_cast<double>(clock_ - a.touched);
    return under > 0 ? cost / under : kInfinite;
  }

  void drop(int32_t b) {
    const int32_t p = part_of(b);
    At& a = at_[static_cast<size_t>(p)];
    used_ -= a.bytes;
    held(b).alive = false;
    if (held(b).locks == 0) pool_.erase({held(b).stamp, b});
    if (a.current != b) {
      std::erase(a.older, b);
      return;
    }
    a.current = -1;
    if (params_.neighbourhood == DtrNeighbourhood::kClasses) {
      classes_.add(static_cast<size_t>(p), a.cost);
      const Neighbours& near = neighbours_[static_cast<size_t>(p)];
      for (const auto* list : {&near.parents, &near.children})
        for (int32_t q : *list)
          if (q != p && evicted(q)) classes_.join(static_cast<size_t>(q), static_cast<size_t>(p));
    }
    spoil(p);
  }

  // Evicts until `bytes` more fit.
  bool make_room(int64_t bytes, OpId op) {
    while (used_ + bytes > capacity_) {
      int32_t best = -1;
      double least = kInfinite;
      std::set<int32_t> lost;  // can't be evicted now
      for (;;) {
        best = -1;
        least = kInfinite;
        for (const auto& [stamp, b] : pool_) {
          if (lost.contains(b)) continue;
          const double s = score(b);
          if (s <= least) best = b, least = s;
          if (s == 0) break;
        }
        if (best < 0 || can_remake(best) ||
            (!wanted_from(part_of(best)) && !needed_by_evicted(part_of(best))))
          break;
        lost.insert(best);
      }
      if (best < 0) {
        trouble_.shortfall = Shortfall{op, used_ + bytes, capacity_};
        return false;
      }
      drop(best);
    }
    return true;
  }

  // Runs an op. `chain` is the buffer of part `target` that is being made again, or -1.
  bool execute(OpId op, bool rerun, int32_t target, int32_t chain) {
    const size_t o = op.index();
    const std::vector<int32_t>& parts = c_.parts.of_op[o];
    const std::vector<PartUse>& uses = c_.parts.use_of_op[o];
    std::vector<int32_t> locked;
    auto needs = [&](size_t k) {  // content that must be there
      if (parts[k] == target && chain >= 0) return false;
      return uses[k].reads || (!rerun && uses[k].writes && uses[k].before > 0);
    };
    auto is_entry = [&](size_t k) {  // written without being read, but it has its place
      return !rerun && c_.parts[parts[k]].entry;
    };
    for (size_t k = 0; k < parts.size(); ++k)
      if (needs(k)) at_[static_cast<size_t>(parts[k])].touched = clock_;
    for (const bool there : {true, false})
      for (size_t k = 0; k < parts.size(); ++k) {
        if (!needs(k)) continue;
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

    // A buffer for each access.
    std::vector<int32_t> operands(parts.size(), -1);
    std::vector<int32_t> fresh;
    int64_t bytes = c_.problem->profile->ops[o].workspace_bytes;
    const int64_t a = c_.problem->machine->alignment;
    bytes = (bytes + a - 1) / a * a;
    for (size_t k = 0; k < parts.size(); ++k) {
      const int32_t p = parts[k];
      if (p == target && chain >= 0) {
        operands[k] = chain;
      } else if (needs(k) || is_entry(k)) {
        operands[k] = find(p, uses[k].before);
      } else if (rerun && find(p, uses[k].after) >= 0) {
        operands[k] = find(p, uses[k].after);
        lock(operands[k]);
        locked.push_back(operands[k]);
      } else {
        for (size_t j = 0; j < k; ++j)
          if (parts[j] == p) operands[k] = operands[j];
        if (operands[k] >= 0) continue;
        bytes += at_[static_cast<size_t>(p)].bytes;
        operands[k] = -2;
      }
    }
    if (!make_room(bytes, op)) return false;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (operands[k] != -2) continue;
      for (size_t j = 0; j < k; ++j)
        if (parts[j] == parts[k]) operands[k] = operands[j];
      if (operands[k] >= 0) continue;
      operands[k] = add_buffer(parts[k]);
      held(operands[k]).version = -1;
      held(operands[k]).locks = 1;
      fresh.push_back(operands[k]);
      used_ += at_[static_cast<size_t>(parts[k])].bytes;
    }
    clock_ += ns_of(op);
    if (rerun && (rerun_ns_ += ns_of(op)) > most_) {
      trouble_.shortfall = Shortfall{op, used_ + bytes, capacity_};
      return false;
    }
    executions_.push_back({op, rerun, operands});
    settle(op, rerun, operands);
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
      At& a = at_[static_cast<size_t>(p)];
      const int32_t b = operands[k];
      if (!use.writes || held(b).version == use.after) continue;
      if (rerun && held(b).version != use.before && use.before != 0) continue;  // scraps
      held(b).version = use.after;
      if (!rerun) {
        if (a.version < use.after) a.version = use.after;
        a.current = b;
        a.cost += static_cast<double>(ns_of(op));
        a.touched = clock_;
        link(p, op);
        spoil(p);
      } else if (use.after == a.version && a.current < 0) {
        std::erase(a.older, b);
        a.current = b;
        if (params_.neighbourhood == DtrNeighbourhood::kClasses)
          classes_.leave(static_cast<size_t>(p), a.cost);
        spoil(p);
      } else if (a.current != b && std::find(a.older.begin(), a.older.end(), b) == a.older.end()) {
        a.older.push_back(b);
      }
    }
  }

  void link(int32_t p, OpId writer) {
    const size_t o = writer.index();
    for (size_t k = 0; k < c_.parts.of_op[o].size(); ++k) {
      const int32_t q = c_.parts.of_op[o][k];
      if (q == p || !c_.parts.use_of_op[o][k].reads || c_.parts[q].entry) continue;
      std::vector<int32_t>& parents = neighbours_[static_cast<size_t>(p)].parents;
      if (std::find(parents.begin(), parents.end(), q) != parents.end()) continue;
      parents.push_back(q);
      neighbours_[static_cast<size_t>(q)].children.push_back(p);
    }
  }

  // Makes a version again; the buffer, or -1.
  int32_t remake(int32_t p, int32_t version) {
    OUTSIZE_CHECK(!at_[static_cast<size_t>(p)].fixed && version > 0,
                  "version {} of part {} is gone and can't be made again", version, p);
    int32_t chain = -1;
    for (int32_t v = 1; v <= version; ++v) {
      const OpId writer = c_.parts[p].writers[static_cast<size_t>(v) - 1];
      if (!execute(writer, true, p, chain)) return -1;
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
      if (!c_.parts.use_of_op[o][k].writes || !at_[static_cast<size_t>(q)].fixed ||
          at_[static_cast<size_t>(q)].current < 0)
        continue;
      going_.push_back(q);
    }
    for (int32_t q : going_)
      for (size_t x = 0; x < at_.size(); ++x) {
        if (!evicted(static_cast<int32_t>(x)) || !wanted_from(static_cast<int32_t>(x))) continue;
        std::set<std::pair<int32_t, int32_t>> seen;
        if (!depends(static_cast<int32_t>(x), at_[x].version, q, seen)) continue;
        if (remake(static_cast<int32_t>(x), at_[x].version) < 0) return false;
        lock(at_[x].current);
        rescued_.push_back(static_cast<int32_t>(x));
      }
    return true;
  }
  bool wanted_from(int32_t p) const {
    return at_[static_cast<size_t>(p)].last_use >= now_ || c_.parts[p].exit;
  }
  bool depends(int32_t p, int32_t version, int32_t on,
               std::set<std::pair<int32_t, int32_t>>& seen) const {
    if (!seen.insert({p, version}).second) return false;
    for (int32_t v = 1; v <= version; ++v) {
      const size_t w = c_.parts[p].writers[static_cast<size_t>(v) - 1].index();
      for (size_t k = 0; k < c_.parts.of_op[w].size(); ++k) {
        const int32_t q = c_.parts.of_op[w][k];
        const PartUse& use = c_.parts.use_of_op[w][k];
        if (q == p || !use.reads) continue;
        if (q == on) return true;
        if (!stays(q, use.before) && depends(q, use.before, on, seen)) return true;
      }
    }
    return false;
  }

  // Lets go of what an op read or made for the last time.
  void release(OpId op) {
    std::vector<int32_t> parts = c_.parts.of_op[op.index()];
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (int32_t p : parts) {
      At& a = at_[static_cast<size_t>(p)];
      if (!params_.eager || wanted(p) || a.current < 0 || held(a.current).locks > 0) continue;
      if (can_remake(a.current) || !needed_by_evicted(p)) drop(a.current);
    }
  }

  const Case& c_;
  const DtrParams params_;
  const int64_t capacity_;
  Trouble& trouble_;
  std::vector<At> at_;  // by part
  std::vector<Neighbours> neighbours_;
  std::vector<StagedBuffer> buffers_;
  std::vector<Held> held_;
  std::vector<StagedRun> executions_;
  std::vector<int64_t> turn_;     // per op: where it stands in the order
  std::vector<int32_t> going_;    // parts there at entry whose content this op changes
  std::vector<int32_t> rescued_;  // made again before that; locked until it has run
  std::set<std::pair<int64_t, int32_t>> pool_;  // stamp, buffer
  Classes classes_;
  int64_t now_ = 0, clock_ = 1, stamps_ = 0, used_ = 0, rerun_ns_ = 0, most_ = 0;
};

Status plan_dtr_with(Search& search, const char* name, const DtrParams& params) {
  const Problem& problem = search.problem();
  if (!problem.allow.recompute)
    return bad_input("planner {} only recomputes, and recomputing is not allowed; allow it", name);
  RealiseOptions options;
  options.effort = Effort::kThorough;
  auto plan = [&](const Case& c, Trouble& trouble) {
    return realise_within(
        c, [&](int64_t capacity, Trouble& why) { return decide_dtr(c, params, capacity, why); },
        trouble, options);
  };
  Trouble trouble;
  const std::optional<Plan> found = plan(search.step(), trouble);
  problem.deadline->spend(1);
  if (!found)
    return search.infeasible(name, trouble, works_at(search.step(), [&](const Case& c) {
                               Trouble why;
                               return plan(c, why).has_value();
                             }));
  search.offer(*found);
  return Done{};
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
