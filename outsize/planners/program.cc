#include "outsize/planners/program.h"

#include <algorithm>

namespace outsize::planning {
namespace {

constexpr int32_t kScraps = -1;  // the version of content that nobody can use
constexpr int kDeepest = 400;    // chained recomputations looked at for one drop

bool is_writer_step(const Step& step, const PartInfo& part, const Touch& t) {
  return step.rerun && t.writes && t.after == t.before + 1 &&
         part.writers[static_cast<size_t>(t.after) - 1] == step.op;
}

}  // namespace

Program::Program(const Parts& parts, const std::vector<OpId>& order) : parts_(&parts) {
  instances_of_part_.resize(parts.parts.size());
  for (size_t p = 0; p < parts.parts.size(); ++p) {
    int32_t id = add_instance(static_cast<int32_t>(p));
    instance(id).entry = parts.parts[p].entry;
    instance(id).exit = parts.parts[p].exit;
  }
  for (OpId op : order) {
    int32_t step = static_cast<int32_t>(steps_.size());
    order_.push_back(step);
    ranks_.push_back(step);
    steps_.push_back(
        {op, false, false, parts.of_op[op.index()]});  // instance ids equal part ids here
    for (size_t k = 0; k < parts.of_op[op.index()].size(); ++k) {
      const PartUse& use = parts.use_of_op[op.index()][k];
      touch(parts.of_op[op.index()][k], step, use.reads, use.writes, use.before, use.after);
    }
  }
}

Program::Program(const Parts& parts, const std::vector<StagedBuffer>& buffers,
                 const std::vector<StagedRun>& executions)
    : parts_(&parts) {
  instances_of_part_.resize(parts.parts.size());
  std::vector<int32_t> held;  // per buffer: the version it holds; none before its first touch
  constexpr int32_t kNothing = -2;
  for (const StagedBuffer& buffer : buffers) {
    int32_t id = add_instance(buffer.part);
    instance(id).entry = buffer.entry;
    instance(id).exit = buffer.exit;
    held.push_back(buffer.entry ? 0 : kNothing);
  }
  for (const StagedRun& e : executions) {
    auto id = static_cast<int32_t>(steps_.size());
    order_.push_back(id);
    ranks_.push_back(id);
    steps_.push_back({e.op, e.rerun, false, e.buffers});
    for (size_t k = 0; k < e.buffers.size(); ++k) {
      const PartUse& use = parts.use_of_op[e.op.index()][k];
      const auto b = static_cast<size_t>(e.buffers[k]);
      const std::vector<Touch>& before = instance(e.buffers[k]).touches;
      if (!before.empty() && before.back().step == id) continue;
      if (e.rerun && use.writes && held[b] == use.after) {
        touch(e.buffers[k], id, use.after != 1, true, use.after, use.after);
      } else if (use.writes && !use.reads && use.before != 0 && held[b] == kNothing) {
        // A piece of a larger part, the rest of which is missing.
        touch(e.buffers[k], id, false, true, kScraps, kScraps);
        held[b] = kScraps;
      } else {
        const bool there = held[b] == use.before || (held[b] == kNothing && use.before == 0);
        OUTSIZE_CHECK(there, "step {}: op {} wants version {} of part {}, buffer {} holds {}", id,
                      e.op.value, use.before, instance(e.buffers[k]).part, b, held[b]);
        touch(e.buffers[k], id, use.reads, use.writes, use.before, use.after);
        held[b] = use.after;
      }
    }
  }
}

int32_t Program::add_instance(int32_t part) {
  int32_t id = static_cast<int32_t>(instances_.size());
  instances_.emplace_back().part = part;
  instances_of_part_[static_cast<size_t>(part)].push_back(id);
  return id;
}

void Program::touch(int32_t instance_id, int32_t step, bool reads, bool writes, int32_t before,
                    int32_t after) {
  std::vector<Touch>& touches = instance(instance_id).touches;
  auto at = std::upper_bound(touches.begin(), touches.end(), rank(step),
                             [&](int32_t r, const Touch& t) { return r < rank(t.step); });
  if (at != touches.begin() && (at - 1)->step == step) {
    Touch& same = *(at - 1);
    same.reads |= reads;
    same.writes |= writes;
    same.after = std::max(same.after, after);
    return;
  }
  // Inside a gap in which the instance is away, it is away before and after.
  bool away = at != touches.begin() ? (at - 1)->away : instance(instance_id).away_at_entry;
  if (at == touches.end() && !instance(instance_id).exit) away = false;
  touches.insert(at, {step, reads, writes, before, after, away});
}

void Program::refresh_ranks(size_t from) {
  for (size_t i = from; i < order_.size(); ++i)
    ranks_[static_cast<size_t>(order_[i])] = static_cast<int32_t>(i);
}

void Program::insert_steps(size_t at, const std::vector<int32_t>& ids) {
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(at), ids.begin(), ids.end());
  ranks_.resize(steps_.size());
  refresh_ranks(at);
}

// An instance holding that version just before rank `at_rank`: one that is wanted later too
// (alive), else the one that was given up last.
Program::Provider Program::provider(int32_t part, int32_t version, int32_t at_rank) const {
  Provider best;
  int32_t best_last = -2;
  for (int32_t id : instances_of_part_[static_cast<size_t>(part)]) {
    const Instance& in = instance(id);
    auto next = std::lower_bound(in.touches.begin(), in.touches.end(), at_rank,
                                 [&](const Touch& t, int32_t r) { return rank(t.step) < r; });
    int32_t last = -1;
    if (next == in.touches.begin()) {
      if (!in.entry || version != 0) continue;
    } else {
      if ((next - 1)->after != version) continue;
      last = rank((next - 1)->step);
    }
    if (next != in.touches.end() || in.exit) return {id, true};
    if (last > best_last) best = {id, false}, best_last = last;
  }
  return best;
}

bool Program::draft_make(int32_t part, int32_t version, int32_t at_rank, const RunPrice& run,
                         const HoldPrice& hold, Draft& draft, int depth) const {
  const PartInfo& info = (*parts_)[part];
  if (version == 0 || info.entry || info.persistent) return false;
  if (depth > kDeepest || draft.runs.size() > kDeepest) return false;
  for (int32_t v = 1; v <= version; ++v) {
    OpId writer = info.writers[static_cast<size_t>(v) - 1];
    size_t w = writer.index();
    if (!parts_->rerunnable[w]) return false;
    std::optional<int64_t> cost = run(writer);
    if (!cost) return false;
    bool again = std::find(draft.runs.begin(), draft.runs.end(), writer) != draft.runs.end();
    if (again) {
      // That run makes this part as well; not so if another one has changed it since.
      const bool changed =
          std::any_of(info.writers.begin() + 1, info.writers.end(), [&](OpId later) {
            return std::find(draft.runs.begin(), draft.runs.end(), later) != draft.runs.end();
          });
      if (version == 1 && !changed) break;
      return false;
    }
    for (size_t k = 0; k < parts_->accesses[w].size(); ++k) {
      int32_t q = parts_->of_op[w][k];
      const PartUse& use = parts_->use_of_op[w][k];
      if (q == part) continue;
      // Changing another tensor in place would take that tensor's earlier content from it.
      if (use.writes && use.reads) return false;
      if (!use.reads) continue;
      auto made = std::find_if(draft.made.rbegin(), draft.made.rend(),
                               [&](const auto& m) { return m.first == q; });
      if (made != draft.made.rend()) {
        if (made->second != use.before) return false;
        continue;
      }
      Provider from = provider(q, use.before, at_rank);
      if (from.alive) continue;
      if (from.instance >= 0) {
        const Instance& in = instance(from.instance);
        auto next = std::lower_bound(in.touches.begin(), in.touches.end(), at_rank,
                                     [&](const Touch& t, int32_t r) { return rank(t.step) < r; });
        int32_t last = next == in.touches.begin() ? -1 : rank((next - 1)->step);
        int64_t held = hold(last, at_rank, (*parts_)[q].bytes());
        const PartInfo& other = (*parts_)[q];
        std::optional<int64_t> remake =
            use.before == 1 ? run(other.writers[0]) : std::optional<int64_t>();
        if (!remake || held <= *remake) {
          draft.extended.push_back(from.instance);
          draft.hold(held);
          continue;
        }
        Draft attempt = draft;
        if (draft_make(q, use.before, at_rank, run, hold, attempt, depth + 1)) {
          draft = std::move(attempt);
        } else {
          draft.extended.push_back(from.instance);
          draft.hold(held);
        }
        continue;
      }
      if (!draft_make(q, use.before, at_rank, run, hold, draft, depth + 1)) return false;
    }
    draft.runs.push_back(writer);
    draft.run_ns += *cost;
  }
  draft.made.emplace_back(part, version);
  return true;
}

std::optional<Program::Draft> Program::draft_drop(int32_t instance_id, size_t k,
                                                  const RunPrice& run,
                                                  const HoldPrice& hold) const {
  const Instance& in = instance(instance_id);
  if (k + 1 >= in.touches.size()) return std::nullopt;
  int32_t version = in.touches[k].after;
  int32_t after_rank = rank(in.touches[k].step), at_rank = rank(in.touches[k + 1].step);
  Draft draft;
  const Touch& next = in.touches[k + 1];
  if (next.writes && !next.reads && next.before == next.after) {
    draft.reborn = true;
    return draft;
  }
  for (int32_t other : instances_of_part_[static_cast<size_t>(in.part)]) {
    if (other == instance_id || instance(other).touches.empty()) continue;
    const Touch& last = instance(other).touches.back();
    if (last.after == version && rank(last.step) > after_rank && rank(last.step) < at_rank &&
        !instance(other).exit) {
      draft.joins = other;
      return draft;
    }
  }
  if (!draft_make(in.part, version, at_rank, run, hold, draft, 0)) return std::nullopt;
  return draft;
}

std::vector<int32_t> Program::drop(int32_t instance_id, size_t k, const Draft& draft,
                                   bool serve_later) {
  std::vector<int32_t> changed{instance_id};
  int32_t part = instance(instance_id).part;
  int32_t version = instance(instance_id).touches[k].after;
  std::vector<Touch> rest(
      instance(instance_id).touches.begin() + static_cast<std::ptrdiff_t>(k) + 1,
      instance(instance_id).touches.end());
  bool exit = instance(instance_id).exit;
  int32_t at_rank = rank(rest.front().step);
  instance(instance_id).touches.resize(k + 1);
  instance(instance_id).touches.back().away = false;
  instance(instance_id).exit = false;

  if (draft.reborn) rest.front().before = rest.front().after - 1;
  int32_t heir = draft.joins ? *draft.joins : add_instance(part);
  std::vector<std::pair<int32_t, int32_t>> born{{part, heir}};  // by part, in this edit
  std::vector<int32_t> ids;
  for (OpId op : draft.runs) {
    ids.push_back(static_cast<int32_t>(steps_.size()));
    steps_.push_back({op, true, false, {}});
  }
  insert_steps(static_cast<size_t>(at_rank), ids);
  for (int32_t id : ids) {
    size_t w = step(id).op.index();
    std::vector<int32_t> operands;
    for (size_t a = 0; a < parts_->accesses[w].size(); ++a) {
      int32_t q = parts_->of_op[w][a];
      const PartUse& use = parts_->use_of_op[w][a];
      // What was made on the way, if it holds the version that is read: another instance may be
      // there with a later one.
      auto known = std::find_if(born.begin(), born.end(), [&](const auto& b) {
        const std::vector<Touch>& touches = instance(b.second).touches;
        return b.first == q && (!use.reads || touches.empty() || touches.back().step == id ||
                                touches.back().after == use.before);
      });
      int32_t operand = -1;
      bool wanted = std::find(draft.made.begin(), draft.made.end(),
                              std::pair<int32_t, int32_t>{q, use.after}) != draft.made.end();
      if (known != born.end()) {
        operand = known->second;
      } else if (use.reads) {
        operand = provider(q, use.before, rank(id)).instance;
        OUTSIZE_CHECK(operand >= 0, "rerun of op {} finds no version {} of part {}", w, use.before,
                      q);
        if (operand == instance_id) changed.push_back(operand);
      } else {
        // An output nobody asked for: over the same content where that is there, else thrown away.
        Provider there = provider(q, use.after, rank(id));
        if (there.alive && !wanted && !instance(there.instance).exit) {
          operand = there.instance;
          touch(operand, id, use.after != 1, true, use.after, use.after);
          operands.push_back(operand);
          changed.push_back(operand);
          continue;
        }
        operand = add_instance(q);
        if (use.before != 0 && !wanted) {
          // A piece of a larger part: with the rest missing its content is of no use to anybody.
          touch(operand, id, false, true, kScraps, kScraps);
          operands.push_back(operand);
          continue;
        }
        born.emplace_back(q, operand);
      }
      touch(operand, id, use.reads, use.writes, use.before, use.after);
      operands.push_back(operand);
      changed.push_back(operand);
    }
    steps_[static_cast<size_t>(id)].operands = std::move(operands);
  }
  Instance& next = instance(heir);
  OUTSIZE_CHECK(draft.reborn || (!next.touches.empty() && next.touches.back().after == version),
                "part {} is not made again at version {}", part, version);
  for (Touch& t : rest) {
    for (int32_t& operand : steps_[static_cast<size_t>(t.step)].operands)
      if (operand == instance_id) operand = heir;
    next.touches.push_back(t);
  }
  next.exit = exit;
  changed.push_back(heir);

  // A later rerun of the same op is now served by this one.
  std::vector<int32_t> later;
  for (OpId op : draft.runs)
    for (size_t r = static_cast<size_t>(at_rank) + ids.size(); serve_later && r < order_.size();
         ++r)
      if (steps_[static_cast<size_t>(order_[r])].rerun &&
          steps_[static_cast<size_t>(order_[r])].op == op)
        later.push_back(order_[r]);
  for (int32_t s : later)
    if (std::optional<Undo> undo = draft_undrop(s)) undrop(*undo, changed);

  std::sort(changed.begin(), changed.end());
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return changed;
}

std::optional<Program::Undo> Program::draft_undrop(int32_t step_id) const {
  if (step(step_id).gone || !step(step_id).rerun) return std::nullopt;
  Undo undo;
  std::vector<int32_t>& fall = undo.steps;
  fall = {step_id};
  std::vector<std::pair<int32_t, size_t>> births;  // instance, how many leading touches fall
  auto falls = [&](int32_t s) { return std::find(fall.begin(), fall.end(), s) != fall.end(); };
  for (size_t f = 0; f < fall.size(); ++f) {
    const Step& s = step(fall[f]);
    for (int32_t id : s.operands) {
      const Instance& in = instance(id);
      auto t = std::find_if(in.touches.begin(), in.touches.end(),
                            [&](const Touch& x) { return x.step == fall[f]; });
      OUTSIZE_CHECK(t != in.touches.end(), "step {} does not touch instance {}", fall[f], id);
      if (!t->writes || t->before == t->after) continue;
      if (std::any_of(births.begin(), births.end(), [&](const auto& b) { return b.first == id; }))
        continue;
      size_t leading = 0;
      while (leading < in.touches.size() && is_writer_step(step(in.touches[leading].step),
                                                           (*parts_)[in.part], in.touches[leading]))
        ++leading;
      if (in.entry || static_cast<size_t>(t - in.touches.begin()) >= leading) return std::nullopt;
      for (size_t l = 0; l < leading; ++l)
        if (!falls(in.touches[l].step)) fall.push_back(in.touches[l].step);
      births.emplace_back(id, leading);
    }
  }
  for (const auto& [id, leading] : births) {
    const Instance& in = instance(id);
    if (leading == in.touches.size() && !in.exit) continue;  // it served nobody
    int32_t version = in.touches[leading - 1].after, born = rank(in.touches[0].step);
    Undo::Heir best{id, -1, -1,
                    leading < in.touches.size() ? rank(in.touches[leading].step)
                                                : static_cast<int32_t>(order_.size())};
    for (int32_t other : instances_of_part_[static_cast<size_t>(in.part)]) {
      const Instance& o = instance(other);
      if (other == id || o.exit || o.touches.empty()) continue;
      const Touch& last = o.touches.back();
      if (last.after != version || rank(last.step) >= born || rank(last.step) <= best.from)
        continue;
      if (falls(last.step)) continue;
      best.heir = other;
      best.from = rank(last.step);
    }
    if (best.heir < 0) return std::nullopt;
    undo.heirs.push_back(best);
  }
  return undo;
}

void Program::undrop(const Undo& undo, std::vector<int32_t>& changed) {
  for (int32_t s : undo.steps) {
    for (int32_t id : step(s).operands) {
      std::vector<Touch>& touches = instance(id).touches;
      auto t =
          std::find_if(touches.begin(), touches.end(), [&](const Touch& x) { return x.step == s; });
      if (t == touches.end()) continue;
      // The two gaps around the touch become one.
      if (t != touches.begin())
        (t - 1)->away = t + 1 == touches.end() ? t->away : (t - 1)->away || t->away;
      touches.erase(t);
      changed.push_back(id);
    }
    steps_[static_cast<size_t>(s)].gone = true;
  }
  for (const Undo::Heir& h : undo.heirs) {
    Instance& from = instance(h.instance);
    Instance& to = instance(h.heir);
    for (const Touch& t : from.touches) {
      for (int32_t& operand : steps_[static_cast<size_t>(t.step)].operands)
        if (operand == h.instance) operand = h.heir;
      to.touches.push_back(t);
    }
    to.exit = from.exit;
    from.touches.clear();
    from.exit = false;
    changed.push_back(h.heir);
  }
  size_t first = order_.size();
  for (int32_t s : undo.steps) first = std::min(first, static_cast<size_t>(rank(s)));
  std::erase_if(order_, [&](int32_t s) { return step(s).gone; });
  refresh_ranks(first);
}

}  // namespace outsize::planning
