#include "outsize/planners/tflms.h"

#include <algorithm>
#include <deque>
#include <map>

namespace outsize::planning {
namespace {

constexpr int32_t kInput = -1;  // in place of the op that makes a tensor

void keep_unique(std::vector<int32_t>& ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

// Finds the control op of a copy in.
class Controls {
 public:
  Controls(const TflmsOrder& order, int32_t forward, const TflmsRules& rules)
      : order_(order), forward_(forward), rules_(rules) {
    by_order_.resize(order.order.size() + 2);
    for (size_t i = 0; i < order.order.size(); ++i)
      by_order_[static_cast<size_t>(order.order[i])].push_back(static_cast<int32_t>(i));
  }

  // `readers`: of the source, which is an op or an input.
  std::optional<int32_t> find(int32_t source, const std::vector<int32_t>& readers, int32_t target) {
    const int32_t from = source == kInput ? 0 : at(source);
    return rules_.control == TflmsControl::kDirectOrder ? direct(from, target)
                                                        : chain(from, readers, target);
  }

 private:
  int32_t at(int32_t op) const { return order_.order[static_cast<size_t>(op)]; }

  // Ops that the target can be reached from.
  const std::vector<bool>& leads_to(int32_t target) {
    auto [found, missing] = leads_to_.try_emplace(target);
    if (!missing) return found->second;
    std::vector<bool>& leads = found->second;
    leads.assign(order_.order.size(), false);
    std::vector<int32_t> open{target};
    while (!open.empty()) {
      const int32_t op = open.back();
      open.pop_back();
      for (int32_t maker : order_.before[static_cast<size_t>(op)]) {
        if (leads[static_cast<size_t>(maker)]) continue;
        leads[static_cast<size_t>(maker)] = true;
        open.push_back(maker);
      }
    }
    return leads;
  }

  // Algorithm 1.
  std::optional<int32_t> direct(int32_t from, int32_t target) {
    const int32_t last = std::max(at(target) - rules_.upper + 1, from);
    const std::vector<bool>& leads = leads_to(target);
    for (int32_t ahead = rules_.lower; ahead <= rules_.upper; ++ahead) {
      const int32_t order = at(target) - ahead;
      if (order <= last) return std::nullopt;
      for (int32_t op : by_order_[static_cast<size_t>(order)])
        if (leads[static_cast<size_t>(op)]) return op;
    }
    return std::nullopt;
  }

  // Algorithm 2.
  std::optional<int32_t> chain(int32_t from, const std::vector<int32_t>& readers, int32_t target) {
    const std::vector<bool>& leads = leads_to(target);
    std::vector<bool> seen(order_.order.size(), false);
    std::vector<std::vector<int32_t>> level{readers}, next;  // what each op of a level leads to
    for (int32_t lower = rules_.lower, upper = rules_.upper; !level.empty(); --lower, --upper) {
      if (upper == 0 || lower > upper) return std::nullopt;
      next.clear();
      for (const std::vector<int32_t>& outs : level) {
        for (int32_t op : outs)
          if (lower <= 0 && op >= forward_ && at(op) > from && at(op) < at(target) &&
              leads[static_cast<size_t>(op)])
            return op;
        for (int32_t op : outs) {
          if (op >= forward_ || seen[static_cast<size_t>(op)]) continue;
          seen[static_cast<size_t>(op)] = true;
          next.push_back(order_.after[static_cast<size_t>(op)]);
        }
      }
      level.swap(next);
    }
    return std::nullopt;
  }

  const TflmsOrder& order_;
  int32_t forward_;
  const TflmsRules& rules_;
  std::vector<std::vector<int32_t>> by_order_;
  std::map<int32_t, std::vector<bool>> leads_to_;
};

// Parts in the order in which a breadth-first walk from the inputs meets their last maker.
std::vector<int32_t> breadth_first(const Case& c, const TflmsOrder& order) {
  std::vector<std::vector<int32_t>> made(order.order.size());
  std::vector<int32_t> parts;
  for (size_t p = 0; p < c.parts.parts.size(); ++p) {
    const PartInfo& part = c.parts.parts[p];
    if (part.writers.empty())
      parts.push_back(static_cast<int32_t>(p));
    else
      made[part.writers.back().index()].push_back(static_cast<int32_t>(p));
  }
  std::vector<bool> seen(order.order.size(), false);
  std::deque<int32_t> open;
  const auto meet = [&](int32_t op) {
    if (seen[static_cast<size_t>(op)]) return;
    seen[static_cast<size_t>(op)] = true;
    open.push_back(op);
  };
  for (size_t i = 0; i < order.before.size(); ++i)
    if (order.before[i].empty()) meet(static_cast<int32_t>(i));
  while (!open.empty()) {
    const auto op = static_cast<size_t>(open.front());
    open.pop_front();
    parts.insert(parts.end(), made[op].begin(), made[op].end());
    for (int32_t reader : order.after[op]) meet(reader);
  }
  return parts;
}

struct Tuning {
  TflmsRules rules;
  std::vector<TflmsTensor> tensors;
};

// The parameters that section 5.2 tunes; branches where nothing fits without.
std::vector<Tuning> tunings_of(const Case& c, const TflmsOrder& order, bool branches) {
  std::vector<Tuning> out;
  for (int32_t threshold : branches ? std::vector<int32_t>{20, 5, 1} : std::vector<int32_t>{-1})
    for (const TflmsControl control : {TflmsControl::kChainRule, TflmsControl::kDirectOrder})
      for (const int32_t lower : {1, 2, 4, 8, 16, 32}) {
        TflmsRules rules;
        rules.control = control;
        rules.lower = lower;
        rules.branches = threshold;
        out.push_back({rules, tflms_tensors(c, order, rules)});
      }
  return out;
}

// The fewest tensors with which it fits.
std::optional<Decision> decide_least(const Case& c, const Tuning& tuning, int64_t capacity,
                                     Trouble& trouble) {
  const auto shortfall = [&](const Decision& d) {
    return shortfall_of(d.program, usage_of(c, d.program, d.moves), capacity);
  };
  const auto decide = [&](size_t count) {
    return decide_tflms(c, tuning.tensors, count, capacity, tuning.rules);
  };
  size_t fits = tuning.tensors.size();
  Decision best = decide(fits);
  trouble.shortfall = shortfall(best);
  if (trouble.shortfall) return std::nullopt;
  for (size_t least = 0; least < fits;) {
    const size_t middle = least + (fits - least) / 2;
    Decision tried = decide(middle);
    if (shortfall(tried)) {
      least = middle + 1;
    } else {
      fits = middle;
      best = std::move(tried);
    }
  }
  return best;
}

std::optional<Plan> plan_tuning(const Case& c, const Tuning& tuning, Trouble& trouble) {
  return realise_within(
      c, [&](int64_t capacity, Trouble& why) { return decide_least(c, tuning, capacity, why); },
      trouble, {CopyStyle::kWriteBehind, Effort::kThorough, {}});
}

}  // namespace

TflmsOrder tflms_order(const Case& c) {
  TflmsOrder out;
  const size_t ops = c.parts.use_of_op.size();
  out.before.resize(ops);
  out.after.resize(ops);
  out.order.assign(ops, 1);
  for (size_t op = 0; op < ops; ++op) {
    for (size_t k = 0; k < c.parts.use_of_op[op].size(); ++k) {
      const PartUse& use = c.parts.use_of_op[op][k];
      if (use.before == 0 || !(use.reads || use.before != use.after)) continue;
      const PartInfo& part = c.parts[c.parts.of_op[op][k]];
      const OpId maker = part.writers[static_cast<size_t>(use.before) - 1];
      if (maker.index() != op) out.before[op].push_back(static_cast<int32_t>(maker.value));
    }
    keep_unique(out.before[op]);
    for (int32_t maker : out.before[op]) {
      out.after[static_cast<size_t>(maker)].push_back(static_cast<int32_t>(op));
      out.order[op] = std::max(out.order[op], out.order[static_cast<size_t>(maker)] + 1);
    }
  }
  return out;
}

std::vector<TflmsTensor> tflms_tensors(const Case& c, const TflmsOrder& order,
                                       const TflmsRules& rules) {
  const auto forward = static_cast<int32_t>(forward_ops(*c.problem->graph));
  const Program program = plain_program(c);  // instances are the parts, ranks the ops
  Controls controls(order, forward, rules);
  const auto order_of = [&](int32_t op) { return order.order[static_cast<size_t>(op)]; };
  std::vector<TflmsTensor> tensors;
  for (int32_t part : breadth_first(c, order)) {
    const PartInfo& info = c.parts[part];
    if (info.persistent || info.bytes() == 0) continue;
    const int32_t source =
        info.writers.empty() ? kInput : static_cast<int32_t>(info.writers.back().value);
    if (source >= forward) continue;
    const std::vector<Touch>& touches = program.instance(part).touches;
    std::vector<int32_t> readers;
    for (const Touch& t : touches)
      if (t.step > source) readers.push_back(t.step);
    // Rewritten edges lead to the readers from `first` on: what is read on the device last by an
    // edge that is not rewritten stays until then.
    size_t first = touches.size();
    const int32_t made_at = source == kInput ? 0 : order_of(source);
    while (first > 0) {
      const int32_t reader = touches[first - 1].step;
      const bool branch = rules.branches >= 0 && order_of(reader) - made_at > rules.branches;
      if (reader <= source || (reader < forward && !branch)) break;
      --first;
    }
    TflmsTensor tensor{part, {}};
    for (size_t k = std::max<size_t>(first, 1); k < touches.size(); ++k) {
      const int32_t before = touches[k - 1].step, reader = touches[k].step;
      if (reader - before < 2 || !needs_content(touches[k])) continue;
      const bool close = order_of(reader) - order_of(before) <= rules.fuse_distance;
      if (k > first && rules.fuse_in && close) continue;
      TflmsSwapIn swap{{part, static_cast<int32_t>(k) - 1, before, reader}, std::nullopt};
      if (rules.swap_in) {
        swap.control = controls.find(source, readers, reader);
        if (!swap.control) continue;  // it would come back at once
      }
      tensor.swap_ins.push_back(swap);
    }
    if (!tensor.swap_ins.empty()) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Decision decide_tflms(const Case& c, const std::vector<TflmsTensor>& tensors, size_t count,
                      int64_t capacity, const TflmsRules& rules) {
  Program program = plain_program(c);
  for (size_t i = 0; i < count; ++i)
    for (const TflmsSwapIn& swap : tensors[i].swap_ins) mark_away(program, swap.gap);
  std::vector<Move> moves = timed_moves(c, program, capacity, 1.0);
  for (size_t i = 0; i < count; ++i)
    for (const TflmsSwapIn& swap : tensors[i].swap_ins) {
      Move* move = move_of(moves, swap.gap);
      move->copy_clean = !rules.fuse_out;
      move->arrive = std::max(swap.control ? *swap.control + 1 : move->to, move->release);
      move->in_after = move->arrive - 1;
    }
  return {std::move(program), std::move(moves)};
}

Status plan_tflms(Search& search) {
  const Problem& problem = search.problem();
  if (!can_swap(problem))
    return bad_input(
        "planner tflms only swaps, and there is no swapping here; allow it, and give "
        "a host or a disk");
  const TflmsOrder order = tflms_order(search.step());
  std::vector<Tuning> tried;
  std::optional<Trouble> trouble;
  for (const bool branches : {false, true}) {
    if (search.best()) break;
    for (Tuning& tuning : tunings_of(search.step(), order, branches)) {
      if (search.best() && problem.deadline->reached()) break;
      Trouble why;
      const std::optional<Plan> plan = plan_tuning(search.step(), tuning, why);
      problem.deadline->spend(1);
      if (plan)
        search.offer(*plan);
      else if (!trouble)
        trouble = why;
      tried.push_back(std::move(tuning));
    }
  }
  if (search.best()) return Done{};
  return search.infeasible("tflms", *trouble, works_at(search.step(), [&](const Case& at) {
                             return std::any_of(tried.begin(), tried.end(), [&](const Tuning& t) {
                               Trouble why;
                               return plan_tuning(at, t, why).has_value();
                             });
                           }));
}

}  // namespace outsize::planning
