#include "outsize/planners/checkmate/stages.h"

#include <algorithm>

#include "outsize/base/bytes.h"

namespace outsize::planning {
namespace {

constexpr int32_t kNone = -1;

// Made by one op, from nothing.
bool is_value(const PartInfo& part) {
  if (part.entry || part.persistent || part.writers.size() != 1) return false;
  return std::none_of(part.uses.begin(), part.uses.end(),
                      [](const PartUse& use) { return use.writes && use.reads; });
}

struct Builder {
  explicit Builder(const Case& case_) : c(case_), place(c.order.size()) {
    for (size_t i = 0; i < c.order.size(); ++i) place[c.order[i].index()] = static_cast<int32_t>(i);
    value_of.assign(c.parts.parts.size(), kNone);
  }

  Stages built() {
    add_values();
    for (const OpId op : c.order) add_node(op);
    for (int32_t i = out.count(); i-- > 0;) limit_reruns(i);
    add_what_is_no_value();
    return std::move(out);
  }

  void add_values() {
    for (size_t p = 0; p < c.parts.parts.size(); ++p) {
      const PartInfo& part = c.parts.parts[p];
      if (!is_value(part)) continue;
      value_of[p] = static_cast<int32_t>(out.values.size());
      Stages::Value& value = out.values.emplace_back();
      value.part = static_cast<int32_t>(p);
      value.maker = place[part.writers.front().index()];
      value.bytes = device_bytes_of(c, part);
      value.exit = part.exit;
      for (const PartUse& use : part.uses)
        if (use.reads) value.readers.push_back(place[use.op.index()]);
      std::sort(value.readers.begin(), value.readers.end());
    }
  }

  void add_node(OpId op) {
    const OpCost& cost = c.problem->profile->ops[op.index()];
    Stages::Node& node = out.nodes.emplace_back();
    node.op = op;
    node.ns = cost.ns;
    node.workspace = round_up(cost.workspace_bytes, c.problem->machine->alignment);
    for (size_t k = 0; k < c.parts.of_op[op.index()].size(); ++k) {
      const int32_t v = value_of[static_cast<size_t>(c.parts.of_op[op.index()][k])];
      if (v == kNone) continue;
      std::vector<int32_t>& list = c.parts.use_of_op[op.index()][k].reads ? node.reads : node.makes;
      if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
    }
  }

  // Requires: done for all later ops.
  void limit_reruns(int32_t i) {
    Stages::Node& node = out.nodes[static_cast<size_t>(i)];
    int32_t wanted = i;
    for (int32_t v : node.makes) {
      Stages::Value& value = out.values[static_cast<size_t>(v)];
      value.last_stage = value.exit ? out.count() : i;
      for (int32_t r : value.readers)
        value.last_stage = std::max(value.last_stage, out.nodes[static_cast<size_t>(r)].last_rerun);
      wanted = std::max(wanted, value.last_stage);
    }
    node.last_rerun = std::min({wanted, can_rerun_until(i), out.count() - 1});
  }

  // The last stage in which it would find what it reads of what is no value, as it found it.
  int32_t can_rerun_until(int32_t i) const {
    const size_t op = out.nodes[static_cast<size_t>(i)].op.index();
    if (!c.parts.rerunnable[op]) return i;
    int32_t until = out.count() - 1;
    for (size_t k = 0; k < c.parts.of_op[op].size(); ++k) {
      const int32_t p = c.parts.of_op[op][k];
      const PartUse& use = c.parts.use_of_op[op][k];
      if (value_of[static_cast<size_t>(p)] != kNone) continue;
      if (use.writes) return i;
      const PartInfo& part = c.parts[p];
      for (const PartUse& later : part.uses)
        if (later.writes && later.before >= use.before && place[later.op.index()] > i)
          until = std::min(until, place[later.op.index()]);
      if (!part.entry && !part.exit) until = std::min(until, last_touch(part));
    }
    return std::max(until, i);
  }

  int32_t last_touch(const PartInfo& part) const {
    int32_t last = kNone;
    for (const PartUse& use : part.uses) last = std::max(last, place[use.op.index()]);
    return last;
  }

  void add_what_is_no_value() {
    const size_t n = out.nodes.size();
    out.beside_op.assign(n, 0);
    out.beside_reruns.assign(n, 0);
    for (size_t p = 0; p < c.parts.parts.size(); ++p) {
      const PartInfo& part = c.parts.parts[p];
      if (value_of[p] != kNone || (part.uses.empty() && !part.entry)) continue;
      const int32_t end = static_cast<int32_t>(n) - 1;
      int32_t first = end;
      for (const PartUse& use : part.uses) first = std::min(first, place[use.op.index()]);
      const int32_t last = part.exit || part.entry ? end : last_touch(part);
      for (int32_t t = part.entry ? 0 : first; t <= last; ++t) {
        out.beside_op[static_cast<size_t>(t)] += device_bytes_of(c, part);
        if (part.entry || t > first)
          out.beside_reruns[static_cast<size_t>(t)] += device_bytes_of(c, part);
      }
    }
  }

  const Case& c;
  std::vector<int32_t> place, value_of;  // op -> place in the order; part -> value
  Stages out;
};

// The ops that stage t must run; or a value that it needs and nothing can make there.
int32_t run_stage(const Stages& stages, const Saved& saved, int32_t t, std::vector<char>& runs) {
  runs.assign(stages.nodes.size(), 0);
  const auto now = static_cast<size_t>(t);
  runs[now] = 1;
  auto can_run = [&](int32_t i) { return t <= stages.nodes[static_cast<size_t>(i)].last_rerun; };
  for (size_t v = 0; v < stages.values.size(); ++v) {
    const int32_t maker = stages.values[v].maker;
    if (maker >= t || !saved[now + 1][v] || saved[now][v]) continue;
    if (!can_run(maker)) return static_cast<int32_t>(v);
    runs[static_cast<size_t>(maker)] = 1;
  }
  for (int32_t i = t; i >= 0; --i) {
    if (!runs[static_cast<size_t>(i)]) continue;
    for (int32_t v : stages.nodes[static_cast<size_t>(i)].reads) {
      const int32_t maker = stages.values[static_cast<size_t>(v)].maker;
      if (saved[now][static_cast<size_t>(v)]) continue;
      if (!can_run(maker)) return v;
      runs[static_cast<size_t>(maker)] = 1;
    }
  }
  return kNone;
}

// Writes out one run; `current`: the buffer of each value, or none.
class Writer {
 public:
  Writer(const Case& c, const Stages& stages)
      : c_(c),
        stages_(stages),
        value_of_(c.parts.parts.size(), kNone),
        current_(stages.values.size(), kNone) {
    for (size_t v = 0; v < stages.values.size(); ++v)
      value_of_[static_cast<size_t>(stages.values[v].part)] = static_cast<int32_t>(v);
    place_of_.assign(c.parts.parts.size(), kNone);
    for (size_t p = 0; p < c.parts.parts.size(); ++p)
      if (value_of_[p] == kNone)
        place_of_[p] = add(static_cast<int32_t>(p), c.parts.parts[p].entry, c.parts.parts[p].exit);
  }

  void begin(const std::vector<char>& saved) {
    for (size_t v = 0; v < current_.size(); ++v)
      if (!saved[v]) current_[v] = kNone;
  }
  void run(int32_t i, bool again) {
    const OpId op = stages_.nodes[static_cast<size_t>(i)].op;
    const std::vector<int32_t>& parts = c_.parts.of_op[op.index()];
    StagedRun& e = runs_.emplace_back(StagedRun{op, again, {}});
    std::vector<int32_t> made;
    for (size_t k = 0; k < parts.size(); ++k) {
      const int32_t v = value_of_[static_cast<size_t>(parts[k])];
      if (v != kNone && current_[static_cast<size_t>(v)] == kNone)
        current_[static_cast<size_t>(v)] = add(parts[k], false, false);
      e.buffers.push_back(v == kNone ? place_of_[static_cast<size_t>(parts[k])]
                                     : current_[static_cast<size_t>(v)]);
    }
  }
  Decision end() {
    for (size_t v = 0; v < current_.size(); ++v)
      if (stages_.values[v].exit) buffers_[static_cast<size_t>(current_[v])].exit = true;
    Program program(c_.parts, buffers_, runs_);
    settle_at_homes(c_, program);
    std::vector<Move> moves = moves_of(program);
    return {std::move(program), std::move(moves)};
  }

 private:
  int32_t add(int32_t part, bool entry, bool exit) {
    buffers_.push_back({part, entry, exit});
    return static_cast<int32_t>(buffers_.size() - 1);
  }

  const Case& c_;
  const Stages& stages_;
  std::vector<int32_t> value_of_, place_of_, current_;
  std::vector<StagedBuffer> buffers_;
  std::vector<StagedRun> runs_;
};

}  // namespace

Stages stages_of(const Case& c) { return Builder(c).built(); }

Saved save_everything(const Stages& stages) {
  Saved saved(stages.nodes.size() + 1, std::vector<char>(stages.values.size(), 0));
  for (size_t v = 0; v < stages.values.size(); ++v) {
    const Stages::Value& value = stages.values[v];
    const int32_t last =
        value.exit ? stages.count() : (value.readers.empty() ? value.maker : value.readers.back());
    for (int32_t t = value.maker + 1; t <= last; ++t) saved[static_cast<size_t>(t)][v] = 1;
  }
  return saved;
}

Staged completed(const Stages& stages, Saved saved) {
  Staged out{std::move(saved), {}, 0};
  out.runs.resize(stages.nodes.size());
  for (size_t v = 0; v < stages.values.size(); ++v)
    if (stages.values[v].exit) out.saved.back()[v] = 1;
  for (int32_t t = 0; t < stages.count();) {
    const int32_t lost = run_stage(stages, out.saved, t, out.runs[static_cast<size_t>(t)]);
    if (lost == kNone) {
      ++t;
      continue;
    }
    const int32_t maker = stages.values[static_cast<size_t>(lost)].maker;
    for (int32_t s = maker + 1; s <= t; ++s)
      out.saved[static_cast<size_t>(s)][static_cast<size_t>(lost)] = 1;
    t = maker;
  }
  for (int32_t t = 0; t < stages.count(); ++t)
    for (int32_t i = 0; i < t; ++i)
      if (out.runs[static_cast<size_t>(t)][static_cast<size_t>(i)])
        out.rerun_ns += stages.nodes[static_cast<size_t>(i)].ns;
  return out;
}

Decision decision_of(const Case& c, const Stages& stages, const Staged& staged) {
  Writer writer(c, stages);
  for (int32_t t = 0; t < stages.count(); ++t) {
    writer.begin(staged.saved[static_cast<size_t>(t)]);
    for (int32_t i = 0; i <= t; ++i)
      if (staged.runs[static_cast<size_t>(t)][static_cast<size_t>(i)]) writer.run(i, i < t);
  }
  return writer.end();
}

}  // namespace outsize::planning
