#include "outsize/planners/choose.h"

#include <algorithm>
#include <queue>

#include "outsize/base/bytes.h"

namespace outsize::planning {
namespace {

constexpr double kTiny = 1e-3;  // ns; keeps scores of free choices finite
constexpr int32_t kBlock = 32;  // ranks looked at as one, for the highest usage

}  // namespace

Chooser::Chooser(const Problem& problem, const Prices& prices, const ChooseParams& params)
    : problem_(&problem), prices_(prices), params_(params) {
  const Graph& graph = *problem.graph;
  for (const auto& [tier, range] : problem.reserved)
    if (tier == Tier::kDevice) reserved_ += range.size();
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    std::vector<Interval> seen;
    int64_t bytes = problem.profile->ops[i].workspace_bytes;
    std::vector<OperandAccess> accesses = accesses_of(graph.ops[i]);
    for (size_t k = 0; k < accesses.size(); ++k) {
      bool repeated = false;
      for (size_t j = 0; j < k; ++j) repeated |= accesses[j].access == accesses[k].access;
      if (!repeated) bytes += accesses[k].access.bytes.size();
    }
    working_sets_.push_back(bytes);
  }
}

int64_t Chooser::size_of(const PartInfo& part) const {
  return round_up(part.bytes(), problem_->machine->alignment);
}

bool Chooser::home_on_host(const Instance& instance) {
  if (instance.entry) return instance.away_at_entry;
  return instance.exit && !instance.touches.empty() && instance.touches.back().away;
}

bool Chooser::movable(const PartInfo& part, int32_t part_id) const {
  if (!part.persistent) return true;
  if (!params_.homes.empty() && params_.homes[static_cast<size_t>(part_id)] == 1) return false;
  if (!params_.homes.empty() && params_.homes[static_cast<size_t>(part_id)] == 2) return true;
  return params_.host_homes && part.bytes() >= params_.stay_bytes;
}

std::vector<int64_t> Chooser::usage(const Program& program) const {
  size_t n = program.size();
  std::vector<int64_t> delta(n + 1, 0);
  auto hold = [&](int64_t from, int64_t to, int64_t bytes) {  // ranks [from, to)
    if (from >= to) return;
    delta[static_cast<size_t>(from)] += bytes;
    delta[static_cast<size_t>(to)] -= bytes;
  };
  int64_t end = static_cast<int64_t>(n);
  for (const Instance& in : program.instances()) {
    const PartInfo& part = program.parts()[in.part];
    int64_t bytes = size_of(part);
    if (part.persistent && !home_on_host(in) && (in.exit || in.entry)) {
      // A home on the device is there all step long; one that this step gives up, to its last
      // touch.
      int64_t to = in.exit              ? end
                   : in.touches.empty() ? 0
                                        : program.rank(in.touches.back().step) + 1;
      hold(0, to, bytes);
      continue;
    }
    if (in.entry && !in.away_at_entry)
      hold(0, in.touches.empty() ? (in.exit ? end : 0) : program.rank(in.touches[0].step), bytes);
    for (size_t k = 0; k < in.touches.size(); ++k) {
      int64_t at = program.rank(in.touches[k].step);
      int64_t next = k + 1 < in.touches.size() ? program.rank(in.touches[k + 1].step)
                     : in.exit                 ? end
                                               : at + 1;
      hold(at, in.touches[k].away ? at + 1 : next, bytes);
    }
  }
  std::vector<int64_t> out(n);
  int64_t now = reserved_, a = problem_->machine->alignment;
  for (size_t r = 0; r < n; ++r) {
    now += delta[r];
    int64_t w = problem_->profile->ops[program.step(program.order()[r]).op.index()].workspace_bytes;
    out[r] = now + round_up(w, a);
  }
  return out;
}

void Chooser::measure(const Program& program) {
  usage_ = usage(program);
  needy_.clear();
  block_most_.assign(usage_.size() / kBlock + 1, 0);
  for (size_t r = 0; r < usage_.size(); ++r) {
    if (usage_[r] > params_.capacity) needy_.push_back(static_cast<int32_t>(r));
    block_most_[r / kBlock] = std::max(block_most_[r / kBlock], usage_[r]);
  }
  starts_.assign(program.size() + 1, 0);
  for (size_t r = 0; r < program.size(); ++r)
    starts_[r + 1] =
        starts_[r] +
        static_cast<double>(problem_->profile->ops[program.step(program.order()[r]).op.index()].ns);
  if (prices_.link_out_per_byte > 0 || prices_.link_in_per_byte > 0) load_links(program);
}

// When the links have done what the program asks of them: copies out in the order in which their
// room is wanted, copies in as late as brings each in time.
void Chooser::load_links(const Program& program) {
  size_t n = program.size();
  out_clear_.assign(n + 1, 0);
  in_clear_.assign(n + 1, starts_[n]);
  struct Out {
    int32_t from;
    double written, ns;
  };
  std::vector<Out> outs;
  std::vector<std::pair<int32_t, double>> ins;  // due, ns
  for (const Instance& in : program.instances()) {
    if (in.touches.empty()) continue;
    double bytes = static_cast<double>(program.parts()[in.part].bytes());
    double in_ns = bytes * prices_.link_in_per_byte;
    int32_t on_host = in.entry && in.away_at_entry ? 0 : -2;
    if (in.away_at_entry) ins.emplace_back(program.rank(in.touches[0].step), in_ns);
    for (size_t k = 0; k < in.touches.size(); ++k) {
      const Touch& t = in.touches[k];
      if (!t.away) continue;
      if (on_host != t.after)
        outs.push_back(
            {program.rank(t.step), written_at(program, in, k), bytes * prices_.link_out_per_byte});
      on_host = t.after;
      if (k + 1 < in.touches.size() && needs_content(in.touches[k + 1]))
        ins.emplace_back(program.rank(in.touches[k + 1].step), in_ns);
    }
  }
  std::stable_sort(outs.begin(), outs.end(),
                   [](const Out& a, const Out& b) { return a.from < b.from; });
  std::stable_sort(ins.begin(), ins.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  double now = 0;
  size_t r = 0;
  for (const Out& out : outs) {
    for (; r < static_cast<size_t>(out.from); ++r) out_clear_[r] = now;
    now = std::max(now, out.written) + out.ns;
  }
  for (; r <= n; ++r) out_clear_[r] = now;
  double cursor = starts_[n];
  size_t above = n + 1;  // ranks from here on are set
  for (const auto& [due, ns] : ins) {
    for (; above > static_cast<size_t>(due) + 1; --above) in_clear_[above - 1] = cursor;
    cursor = std::min(cursor, starts_[static_cast<size_t>(due)]) - ns;
  }
  for (; above > 0; --above) in_clear_[above - 1] = cursor;
}

// When the version in the gap after touch `k` was written.
double Chooser::written_at(const Program& program, const Instance& in, size_t k) const {
  size_t maker = k;
  while (maker > 0 && in.touches[maker - 1].after == in.touches[k].after) --maker;
  return starts_[static_cast<size_t>(program.rank(in.touches[maker].step)) + 1];
}

// How long the step would wait for the links if `bytes` left after rank `from` and came back for
// rank `to`: the room must be there at the first step in between that is short of it, and stay to
// the last.
double Chooser::stall(double written, int32_t from, int32_t to, int64_t bytes, bool out,
                      bool in) const {
  if (prices_.link_out_per_byte <= 0 && prices_.link_in_per_byte <= 0) return 0;
  auto first = std::upper_bound(needy_.begin(), needy_.end(), from);
  auto last = std::lower_bound(needy_.begin(), needy_.end(), to);
  if (first >= last) return 0;
  double cost = 0;
  int32_t end = static_cast<int32_t>(starts_.size()) - 1;
  if (out) {
    double ended = std::max(out_clear_[static_cast<size_t>(std::max(0, from))], written) +
                   static_cast<double>(bytes) * prices_.link_out_per_byte;
    cost += std::max(0.0, ended - starts_[static_cast<size_t>(*first)]);
    if (to == end) cost += std::max(0.0, ended - starts_.back());
  }
  if (in) {
    double begun = std::min(in_clear_[static_cast<size_t>(to)], starts_[static_cast<size_t>(to)]) -
                   static_cast<double>(bytes) * prices_.link_in_per_byte;
    cost += std::max(0.0, starts_[static_cast<size_t>(*(last - 1)) + 1] - begun);
    if (from < 0) cost += std::max(0.0, -begun);
  }
  return cost;
}

// What the copies of one instance cost, each version going out at most once while it stays valid.
double Chooser::swap_cost(const Program& program, const Instance& in) const {
  const PartInfo& part = program.parts()[in.part];
  double bytes = static_cast<double>(part.bytes());
  double out_ns = bytes * prices_.out_per_byte + static_cast<double>(prices_.out_latency_ns);
  double in_ns = bytes * prices_.in_per_byte + static_cast<double>(prices_.in_latency_ns);
  double cost = 0;
  int32_t on_host = in.entry && in.away_at_entry ? 0 : -2;
  if (in.away_at_entry && !in.touches.empty()) cost += in_ns;
  for (size_t k = 0; k < in.touches.size(); ++k) {
    const Touch& t = in.touches[k];
    if (!t.away) continue;
    bool last = k + 1 == in.touches.size();
    bool out = on_host != t.after;
    bool back = !last && needs_content(in.touches[k + 1]);
    if (out) cost += out_ns;
    if (back) cost += in_ns;
    on_host = t.after;
  }
  // In the steps that follow, a storage whose home this step makes will have to come in as well.
  if (part.persistent && in.exit && !in.entry && home_on_host(in)) cost += in_ns;
  return cost;
}

double Chooser::cost(const Program& program) {
  measure(program);
  return priced(program);
}

double Chooser::priced(const Program& program) const {
  double total = 0;
  for (const Instance& in : program.instances()) total += swap_cost(program, in);
  for (int32_t s : program.order())
    if (program.step(s).rerun)
      total += prices_.run_factor *
               static_cast<double>(problem_->profile->ops[program.step(s).op.index()].ns);
  return total;
}

double Chooser::gain(int32_t from, int32_t to, int64_t bytes) const {
  double sum = 0;
  auto first = std::upper_bound(needy_.begin(), needy_.end(), from);
  for (auto r = first; r != needy_.end() && *r < to; ++r)
    sum += static_cast<double>(std::min(usage_[static_cast<size_t>(*r)] - params_.capacity, bytes));
  return sum;
}

int64_t Chooser::highest(int32_t from, int32_t to) const {
  int64_t most = 0;
  int32_t r = std::max(0, from + 1);
  while (r < to) {
    if (r % kBlock == 0 && r + kBlock <= to) {
      most = std::max(most, block_most_[static_cast<size_t>(r / kBlock)]);
      r += kBlock;
    } else {
      most = std::max(most, usage_[static_cast<size_t>(r)]);
      ++r;
    }
  }
  return most;
}

std::optional<int64_t> Chooser::run_price(OpId op) const {
  if (working_sets_[op.index()] + reserved_ > params_.capacity) return std::nullopt;
  return problem_->profile->ops[op.index()].ns;
}

int64_t Chooser::hold_price(int32_t from, int32_t to, int64_t bytes) const {
  if (highest(from, to) + bytes <= params_.capacity) return 0;
  if (!params_.swap) return kNeverNs;
  return static_cast<int64_t>(static_cast<double>(bytes) *
                              (prices_.out_per_byte + prices_.in_per_byte)) +
         prices_.out_latency_ns + prices_.in_latency_ns;
}

void Chooser::candidates_of(const Program& program, int32_t id, std::vector<Candidate>& out) const {
  const Instance& in = program.instance(id);
  const PartInfo& part = program.parts()[in.part];
  if (part.bytes() == 0 || !movable(part, in.part)) return;
  using Kind = Candidate::Kind;
  if (part.persistent && !home_on_host(in)) {
    // One home: on the host, the storage is away before its first and after its last touch.
    if (params_.swap && (in.entry || (in.exit && !in.touches.empty())))
      out.push_back({Kind::kHome, id, -1, 0});
    if (params_.swap && in.touches.size() > 1 && in.entry)
      out.push_back({Kind::kHomeAll, id, -1, 0});
    return;
  }
  // What is handed in or out lies where there is room for it.
  if (!part.persistent && (in.entry || in.exit) && !home_on_host(in) && params_.swap)
    out.push_back({Kind::kHome, id, -1, 0});
  for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
    const Touch& t = in.touches[k];
    if (t.away || program.rank(in.touches[k + 1].step) - program.rank(t.step) < 2) continue;
    if (params_.swap && (part.persistent || part.bytes() >= params_.least_swap_bytes))
      out.push_back({Kind::kSwap, id, t.step, 0});
    if (params_.recompute && !part.persistent && !part.entry)
      out.push_back({Kind::kDrop, id, t.step, 0});
  }
}

std::optional<Chooser::Evaluation> Chooser::evaluate(const Program& program,
                                                     const Candidate& candidate) const {
  const Instance& in = program.instance(candidate.instance);
  const PartInfo& part = program.parts()[in.part];
  int64_t bytes = size_of(part);
  Evaluation out;
  if (candidate.kind == Candidate::Kind::kHome || candidate.kind == Candidate::Kind::kHomeAll) {
    if (home_on_host(in)) return std::nullopt;
    int32_t end = static_cast<int32_t>(program.size());
    Instance moved = in;
    moved.away_at_entry = in.entry;
    double waits = 0;
    if (in.touches.empty()) {
      out.benefit = gain(-1, end, bytes);
    } else {
      int32_t first = program.rank(in.touches.front().step);
      int32_t last = program.rank(in.touches.back().step);
      if (in.entry || part.persistent) out.benefit += gain(-1, first, bytes);
      if (in.entry) waits += stall(0, -1, first, part.bytes(), false, true);
      if (in.exit) {
        moved.touches.back().away = true;
        out.benefit += gain(last, end, bytes);
        bool written = in.touches.back().after > 0 || !in.entry;
        waits += stall(written_at(program, in, in.touches.size() - 1), last, end, part.bytes(),
                       written, false);
      }
      if (candidate.kind == Candidate::Kind::kHomeAll)
        for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
          int32_t from = program.rank(in.touches[k].step);
          int32_t to = program.rank(in.touches[k + 1].step);
          double more = gain(from, to, bytes);
          if (more <= 0) continue;
          moved.touches[k].away = true;
          out.benefit += more;
          waits += stall(written_at(program, in, k), from, to, part.bytes(),
                         in.touches[k].after > 0, true);
        }
    }
    out.cost = swap_cost(program, moved) - swap_cost(program, in) + waits;
    out.moved = std::move(moved);
    return out;
  }
  auto touch = std::find_if(in.touches.begin(), in.touches.end(),
                            [&](const Touch& t) { return t.step == candidate.step; });
  if (touch == in.touches.end() || touch + 1 == in.touches.end() || touch->away)
    return std::nullopt;
  size_t k = static_cast<size_t>(touch - in.touches.begin());
  int32_t from = program.rank(touch->step), to = program.rank((touch + 1)->step);
  out.benefit = gain(from, to, bytes);
  if (out.benefit <= 0) return std::nullopt;
  if (candidate.kind == Candidate::Kind::kSwap) {
    Instance moved = in;
    moved.touches[k].away = true;
    bool copies = true;  // unless another gap of this version has the copy made
    for (size_t j = 0; j < in.touches.size(); ++j)
      copies &= !(j != k && in.touches[j].away && in.touches[j].after == touch->after);
    copies &= !(touch->after == 0 && in.away_at_entry);
    out.cost = swap_cost(program, moved) - swap_cost(program, in) +
               stall(written_at(program, in, k), from, to, part.bytes(), copies, true);
    return out;
  }
  out.draft = program.draft_drop(
      candidate.instance, k, [this](OpId op) { return run_price(op); },
      [this](int32_t a, int32_t b, int64_t held) { return hold_price(a, b, held); });
  if (!out.draft) return std::nullopt;
  out.cost = prices_.run_factor * static_cast<double>(out.draft->run_ns) +
             static_cast<double>(out.draft->hold_ns);
  return out;
}

void Chooser::apply(Program& program, const Candidate& candidate, const Evaluation& evaluation,
                    std::vector<int32_t>& changed) {
  Instance& in = program.instance(candidate.instance);
  changed = {candidate.instance};
  if (evaluation.moved) {
    in = *evaluation.moved;
  } else {
    auto touch = std::find_if(in.touches.begin(), in.touches.end(),
                              [&](const Touch& t) { return t.step == candidate.step; });
    if (candidate.kind == Candidate::Kind::kSwap)
      touch->away = true;
    else
      changed = program.drop(candidate.instance, static_cast<size_t>(touch - in.touches.begin()),
                             *evaluation.draft);
  }
  measure(program);
}

std::optional<Shortfall> Chooser::fit(Program& program, Random& random) {
  measure(program);
  auto lower = [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score < b.score;
    if (a.instance != b.instance) return a.instance > b.instance;
    if (a.step != b.step) return a.step > b.step;
    return a.kind > b.kind;
  };
  std::priority_queue<Candidate, std::vector<Candidate>, decltype(lower)> queue(lower);
  auto offer = [&](int32_t instance) {
    std::vector<Candidate> found;
    candidates_of(program, instance, found);
    for (Candidate& c : found) {
      std::optional<Evaluation> e = evaluate(program, c);
      if (!e || e->benefit <= 0) continue;
      c.score = e->benefit / std::max(e->cost, kTiny);
      if (params_.noise > 0) c.score *= 1.0 + params_.noise * (2 * random.uniform() - 1);
      queue.push(c);
    }
  };
  auto short_at = [&]() -> std::optional<size_t> {
    auto most = std::max_element(usage_.begin(), usage_.end());
    if (most == usage_.end() || *most <= params_.capacity) return std::nullopt;
    return static_cast<size_t>(most - usage_.begin());
  };
  for (size_t i = 0; i < program.instances().size(); ++i) offer(static_cast<int32_t>(i));
  // Each drop may open new gaps, so the number of edits needs a limit of its own.
  size_t edits = 0, most_edits = 20 * program.size() + 1000;
  bool refilled = true;
  while (std::optional<size_t> at = short_at()) {
    if (queue.empty() && !refilled) {
      for (size_t i = 0; i < program.instances().size(); ++i) offer(static_cast<int32_t>(i));
      refilled = true;
    }
    if (queue.empty() || edits > most_edits)
      return Shortfall{program.step(program.order()[*at]).op, usage_[*at], params_.capacity};
    Candidate best = queue.top();
    queue.pop();
    std::optional<Evaluation> e = evaluate(program, best);
    if (!e || e->benefit <= 0) continue;
    double score = e->benefit / std::max(e->cost, kTiny);
    // Lazy: the score may have fallen since it was queued; it goes back unless it still leads.
    if (params_.noise <= 0 && !queue.empty() && score < queue.top().score * (1 - 1e-9)) {
      best.score = score;
      queue.push(best);
      continue;
    }
    std::vector<int32_t> changed;
    apply(program, best, *e, changed);
    ++edits;
    refilled = false;
    if (best.kind != Candidate::Kind::kSwap)
      for (int32_t instance : changed) offer(instance);
  }
  return std::nullopt;
}

void Chooser::prune(Program& program) {
  measure(program);
  struct Move {
    double cost;
    int32_t instance, step;  // step -1: its home; instance -1: a rerun
  };
  std::vector<Move> moves;
  for (size_t i = 0; i < program.instances().size(); ++i) {
    const Instance& in = program.instances()[i];
    double now = swap_cost(program, in);
    if (now <= 0) continue;
    for (size_t k = 0; k + 1 < in.touches.size(); ++k)
      if (in.touches[k].away) {
        Instance kept = in;
        kept.touches[k].away = false;
        moves.push_back(
            {now - swap_cost(program, kept), static_cast<int32_t>(i), in.touches[k].step});
      }
    bool fixed = !params_.homes.empty() && params_.homes[static_cast<size_t>(in.part)] != 0;
    if (home_on_host(in) && !fixed) moves.push_back({now, static_cast<int32_t>(i), -1});
  }
  for (int32_t s : program.order())
    if (program.step(s).rerun)
      moves.push_back({static_cast<double>(problem_->profile->ops[program.step(s).op.index()].ns) *
                           prices_.run_factor,
                       -1, s});
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.cost > b.cost; });
  for (const Move& m : moves) {
    if (m.instance < 0) {
      std::optional<Program::Undo> undo = program.draft_undrop(m.step);
      if (!undo) continue;
      bool room = true;
      for (const Program::Undo::Heir& h : undo->heirs)
        room &= highest(h.from, program.rank(m.step)) + size_of(program.part_of(h.instance)) <=
                params_.capacity;
      if (!room) continue;
      Program attempt = program;
      std::vector<int32_t> changed;
      attempt.undrop(*undo, changed);
      std::vector<int64_t> held = usage(attempt);
      if (*std::max_element(held.begin(), held.end()) > params_.capacity) continue;
      if (priced(attempt) >= priced(program)) continue;
      program = std::move(attempt);
      measure(program);
      continue;
    }
    Instance& in = program.instance(m.instance);
    Instance before = in;
    if (m.step < 0) {
      const PartInfo& part = program.parts()[in.part];
      in.away_at_entry = false;
      if (part.persistent)
        for (Touch& t : in.touches) t.away = false;
      else if (in.exit && !in.touches.empty())
        in.touches.back().away = false;
    } else {
      auto touch = std::find_if(in.touches.begin(), in.touches.end(),
                                [&](const Touch& t) { return t.step == m.step; });
      if (touch == in.touches.end() || touch + 1 == in.touches.end() || !touch->away) continue;
      int32_t from = program.rank(touch->step), to = program.rank((touch + 1)->step);
      if (highest(from, to) + size_of(program.parts()[in.part]) > params_.capacity) continue;
      touch->away = false;
    }
    std::vector<int64_t> held = usage(program);
    if (*std::max_element(held.begin(), held.end()) > params_.capacity)
      in = before;
    else
      measure(program);
  }
}

}  // namespace outsize::planning
