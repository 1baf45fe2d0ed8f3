#include "outsize/bound/step_program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "outsize/base/check.h"

namespace outsize::bounding {
namespace {

using Term = LinearProgram::Term;
constexpr double kScaledPeak = 50;    // the program's peak, in its own unit of bytes
constexpr double kScaledTime = 1000;  // its compute, in its own unit of time
constexpr int32_t kNoColumn = -1;

struct Slot {
  Moment end = 0;      // last op
  Moment fullest = 0;  // op with the most bytes alive
  int64_t ns = 0;
};

// A running sum over moments, one column per moment at which it is looked at.
class Chain {
 public:
  void start(Term term) { base_.push_back(term); }
  void add(Moment at, Term term) { events_.push_back({at, term}); }

  // Requires: `points` ascending.
  void build(LinearProgram& lp, const std::vector<Moment>& points, double ceiling) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& x, const Event& y) { return x.at < y.at; });
    int32_t column = lp.add_column(0, kInfinity, 0, ceiling);
    columns_.push_back(column);
    std::vector<Term> row{{column, 1.0}};
    for (const Term& term : base_) row.emplace_back(term.first, -term.second);
    lp.add_row(0, 0, row);
    size_t next = 0;
    for (Moment point : points) {
      row.clear();
      for (; next < events_.size() && events_[next].at <= point; ++next)
        row.emplace_back(events_[next].term.first, -events_[next].term.second);
      if (!row.empty()) {
        const int32_t sum = lp.add_column(0, kInfinity, 0, ceiling);
        row.emplace_back(sum, 1.0);
        row.emplace_back(column, -1.0);
        lp.add_row(0, 0, row);
        column = sum;
      }
      if (column != columns_.back()) columns_.push_back(column);
      points_.push_back(point);
      at_.push_back(column);
    }
  }
  // The sum of everything at or before `point`, one of the points built.
  int32_t at(Moment point) const {
    const auto found = std::lower_bound(points_.begin(), points_.end(), point);
    OUTSIZE_CHECK(found != points_.end() && *found == point, "no point {} in a chain", point);
    return at_[static_cast<size_t>(found - points_.begin())];
  }
  const std::vector<int32_t>& columns() const { return columns_; }

 private:
  struct Event {
    Moment at;
    Term term;
  };
  std::vector<Term> base_;
  std::vector<Event> events_;
  std::vector<Moment> points_;
  std::vector<int32_t> at_;       // per point
  std::vector<int32_t> columns_;  // each once
};

// At most `most` runs of ops, of about equal time.
std::vector<Slot> slots_of(const Profile& profile, const std::vector<int64_t>& alive,
                           int64_t most) {
  const auto ops = static_cast<int64_t>(profile.ops.size());
  const double total = std::max<double>(1, static_cast<double>(compute_ns(profile)));
  std::vector<Slot> slots;
  double before = 0;
  int64_t current = -1;
  for (int64_t t = 0; t < ops; ++t) {
    const auto op = static_cast<size_t>(t);
    const int64_t slot =
        ops <= most
            ? t
            : std::min(most - 1, static_cast<int64_t>(before * static_cast<double>(most) / total));
    const auto moment = static_cast<Moment>(t);
    if (slot != current) {
      slots.push_back({moment, moment, 0});
      current = slot;
    }
    Slot& s = slots.back();
    s.end = moment;
    s.ns += profile.ops[op].ns;
    if (alive[op] > alive[static_cast<size_t>(s.fullest)]) s.fullest = moment;
    before += static_cast<double>(profile.ops[op].ns);
  }
  return slots;
}

class Builder {
 public:
  Builder(const Graph& graph, const Profile& profile, const Rates& rates, const StepLimits& limits)
      : profile_(profile),
        rates_(rates),
        limits_(limits),
        ops_(static_cast<Moment>(graph.ops.size())),
        grains_(grains_of(graph)) {}

  StepBound run() {
    StepBound result;
    const int64_t compute = compute_ns(profile_);
    if (ops_ == 0) return {LpStatus::kOptimal, 0, 0, 0, 0, 0, 0, {}, {}};
    measure();
    slots_ = slots_of(profile_, alive_, std::max<int64_t>(1, limits_.most_slots));
    time_unit_ = std::max<double>(1, static_cast<double>(compute)) / kScaledTime;
    byte_unit_ = std::max<double>(1, static_cast<double>(peak_)) / kScaledPeak;
    choose_gaps();
    add_columns();
    add_gaps();
    add_recompute();
    build_chains();
    add_rows();
    result.status = lp_.solve(limits_.seconds, limits_.most_iterations);
    result.shares = shares();
    result.prices = prices();
    result.slots = slots_.size();
    result.columns = lp_.columns();
    result.rows = lp_.rows();
    result.entries = lp_.entries();
    result.value_ns = lp_.value() * time_unit_;
    result.ns = compute;
    if (result.status == LpStatus::kInfeasible || result.status == LpStatus::kFailed) return result;
    // A plan takes at least `horizon`, or nothing in it takes longer than that.
    const double horizon = 2 * std::max(lp_.value(), kScaledTime);
    for (int32_t column : duration_) lp_.set_ceiling(column, horizon);
    for (int32_t column : rerun_) lp_.set_ceiling(column, horizon);
    for (int32_t column : sync_) lp_.set_ceiling(column, horizon);
    const double proved = std::min(horizon, lp_.bound()) * (1 - 1e-9);
    result.ns = std::max(compute, static_cast<int64_t>(std::floor(proved * time_unit_)));
    return result;
  }

 private:
  double scaled(int64_t bytes) const { return static_cast<double>(bytes) / byte_unit_; }
  // Bytes per second to the program's units.
  double rate(int64_t bytes_per_s) const {
    return static_cast<double>(bytes_per_s) / 1e9 * time_unit_ / byte_unit_;
  }

  // Bytes alive per op, workspace included.
  void measure() {
    const auto sum = [&](bool small_only_when_used) {
      std::vector<int64_t> change(static_cast<size_t>(ops_) + 1, 0);
      for (const Grain& grain : grains_) {
        const int64_t bytes = grain.bytes.size();
        const auto add = [&](Moment begin, Moment end) {
          change[static_cast<size_t>(begin)] += bytes;
          change[static_cast<size_t>(end) + 1] -= bytes;
        };
        if (small_only_when_used && small(grain)) {
          for (Moment use : grain.uses) add(use, use);
        } else {
          add(grain.birth, grain.death);
        }
      }
      std::vector<int64_t> alive(static_cast<size_t>(ops_));
      int64_t now = 0;
      for (size_t t = 0; t < alive.size(); ++t) {
        now += change[t];
        alive[t] = now + profile_.ops[t].workspace_bytes;
      }
      return alive;
    };
    alive_ = sum(false);
    peak_ = *std::max_element(alive_.begin(), alive_.end());
    alive_ = sum(true);
  }
  bool small(const Grain& grain) const {
    return static_cast<double>(grain.bytes.size()) <
           limits_.smallest_share * static_cast<double>(peak_);
  }

  // Only gaps over a moment that is too full: a plan that moves others could as well not.
  void choose_gaps() {
    for (const Slot& slot : slots_)
      if (alive_[static_cast<size_t>(slot.fullest)] > limits_.device_bytes)
        full_.push_back(slot.fullest);
    const auto spans_full = [&](Moment a, Moment b) {
      const auto next = std::upper_bound(full_.begin(), full_.end(), a);
      return next != full_.end() && *next < b;
    };
    for (size_t g = 0; g < grains_.size(); ++g) {
      if (small(grains_[g])) continue;
      for (const Gap& gap : gaps_of(grains_[g], g, ops_)) {
        const bool spans = gap.kind == GapKind::kWrap
                               ? spans_full(gap.a, ops_) || spans_full(-1, gap.b)
                               : spans_full(gap.a, gap.b);
        if (spans) gaps_.push_back(gap);
      }
    }
    for (const Gap& gap : gaps_) largest_sum_ += 3 * scaled(grains_[gap.grain].bytes.size());
    largest_sum_ += 1;
  }

  void add_columns() {
    for (const Slot& slot : slots_) {
      duration_.push_back(
          lp_.add_column(static_cast<double>(slot.ns) / time_unit_, kInfinity, 1, 0));
      out_.push_back(lp_.add_column(0, kInfinity, 0, largest_sum_));
      for (auto* in : {&in_dirty_, &in_clean_})
        in->push_back(lp_.add_column(0, kInfinity, 0, largest_sum_));
    }
    out_start_ = lp_.add_column(0, kInfinity, 0, largest_sum_);
    in_dirty_start_ = lp_.add_column(0, kInfinity, 0, largest_sum_);
    in_clean_start_ = lp_.add_column(0, kInfinity, 0, largest_sum_);
  }

  std::vector<GapShare> shares() const {
    std::vector<GapShare> out;
    const std::vector<double>& at = lp_.solution();
    for (size_t i = 0; i < gaps_.size(); ++i) {
      const Grain& grain = grains_[gaps_[i].grain];
      GapShare share{grain.storage, grain.bytes, gaps_[i], 0, 0};
      share.away = at[static_cast<size_t>(away_column_[i])] / scaled(grain.bytes.size());
      if (dropped_column_[i] != kNoColumn)
        share.dropped = at[static_cast<size_t>(dropped_column_[i])];
      out.push_back(share);
    }
    return out;
  }

  std::vector<BytePrice> prices() const {
    std::vector<BytePrice> out;
    for (const auto& [at, row] : memory_rows_) {
      const double price = lp_.multipliers()[row];
      if (price > 0) out.push_back({at, price * time_unit_ / byte_unit_});
    }
    return out;
  }

  bool droppable(const Gap& gap) const {
    return limits_.recompute && gap.writer >= 0 && !gap.last_step &&
           (gap.kind == GapKind::kInner || gap.kind == GapKind::kAfter);
  }

  void add_gaps() {
    struct Version {
      int32_t written = kNoColumn;  // bytes of it that go out, once
      bool carried = false;         // of the step before, and still of use in this one
      bool lasting = false;         // of use after this step
      Moment over = -1;             // last gap's end
      Moment over_carried = -1;
    };
    std::map<std::pair<size_t, Moment>, Version> versions;
    for (const Gap& gap : gaps_) {
      const double size = scaled(grains_[gap.grain].bytes.size());
      const int32_t away = lp_.add_column(0, limits_.swap ? size : 0, 0, size);
      away_column_.push_back(away);
      int32_t dropped = kNoColumn;
      if (droppable(gap)) {
        const auto more = limits_.surcharges.find({grains_[gap.grain].storage, gap.a});
        const double extra = more == limits_.surcharges.end() ? 0 : more->second;
        dropped = lp_.add_column(0, extra < 0 ? 0 : 1, 0, 1);
        if (extra > 0) rerun_cost_.add(std::min(gap.b, ops_ - 1), {dropped, extra / time_unit_});
        lp_.add_row(-kInfinity, size, {{away, 1.0}, {dropped, size}});
        dropped_.add(gap.a + 1, {dropped, size});
        dropped_.add(std::min(gap.b, ops_), {dropped, -size});
        reruns_[gap.writer].push_back({dropped, gap.a, gap.b});
      }
      dropped_column_.push_back(dropped);
      Chain& started = gap.clean ? started_clean_ : started_dirty_;
      Chain& due = gap.clean ? due_clean_ : due_dirty_;
      if (gap.a < 0 || gap.kind == GapKind::kWrap) started.start({away, 1.0});
      if (gap.a >= 0) started.add(gap.a, {away, 1.0});
      if (gap.kind != GapKind::kAfter) due.add(gap.b, {away, 1.0});
      if (gap.clean) continue;
      Version& version = versions[{gap.grain, gap.writer}];
      if (version.written == kNoColumn) {
        version.written = lp_.add_column(0, size, 0, size);
        written_.push_back(version.written);
      }
      lp_.add_row(0, kInfinity, {{version.written, 1.0}, {away, -1.0}});
      if (gap.kind == GapKind::kWrap || gap.last_step) {
        version.carried = true;
        version.over_carried = std::max(version.over_carried, gap.b);
      } else if (gap.kind == GapKind::kAfter) {
        version.lasting = true;
      } else {
        version.over = std::max(version.over, gap.b);
      }
    }
    for (const auto& [key, version] : versions) {
      const Term term{version.written, 1.0};
      released_.add(key.second, term);
      if (version.carried) {
        released_.start(term);
        over_.add(version.over_carried, term);
      } else if (!version.lasting) {
        over_.add(version.over, term);
      }
    }
  }

  // A run of `op` again, in time for the end of one of its gaps; it serves every gap it falls into.
  void add_recompute() {
    for (const auto& [op, drops] : reruns_) {
      std::map<Moment, int32_t> run_for;
      const double cost =
          static_cast<double>(profile_.ops[static_cast<size_t>(op)].ns) / time_unit_;
      for (const Drop& drop : drops) {
        if (run_for.count(drop.b) != 0) continue;
        const int32_t run = lp_.add_column(0, 1, 0, 1);
        run_for[drop.b] = run;
        if (cost > 0) rerun_cost_.add(std::min(drop.b, ops_ - 1), {run, cost});
      }
      for (const Drop& drop : drops) {
        std::vector<Term> row{{drop.column, -1.0}};
        for (auto run = run_for.upper_bound(drop.a); run != run_for.end() && run->first <= drop.b;
             ++run)
          row.emplace_back(run->second, 1.0);
        lp_.add_row(0, kInfinity, row);
      }
    }
  }

  void build_chains() {
    std::vector<Moment> points;
    for (const Slot& slot : slots_)
      for (Moment point : {slot.fullest - 1, slot.fullest, slot.end}) points.push_back(point);
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    for (Chain* chain : {&released_, &over_, &started_dirty_, &started_clean_, &due_dirty_,
                         &due_clean_, &dropped_})
      chain->build(lp_, points, largest_sum_);
    rerun_cost_.build(lp_, points, 0);
    const std::vector<int32_t>& sums = rerun_cost_.columns();
    rerun_.insert(rerun_.end(), sums.begin(), sums.end());
  }

  void add_rows() {
    int32_t reruns_before = kNoColumn;
    for (size_t k = 0; k < slots_.size(); ++k) {
      add_time_rows(k, reruns_before);
      const int32_t out = out_[k];
      const Moment end = slots_[k].end;
      lp_.add_row(-kInfinity, 0, {{out, 1.0}, {released_.at(end), -1.0}});
      for (const auto& [in, due, started] :
           {std::tuple{in_dirty_[k], due_dirty_.at(end), started_dirty_.at(end)},
            std::tuple{in_clean_[k], due_clean_.at(end), started_clean_.at(end)}}) {
        lp_.add_row(0, kInfinity, {{in, 1.0}, {due, -1.0}});
        lp_.add_row(-kInfinity, 0, {{in, 1.0}, {started, -1.0}});
      }
      add_memory_rows(k);
    }
    // The step repeats: what it moves is what its own gaps ask for.
    std::vector<Term> row{{out_.back(), 1.0}, {out_start_, -1.0}};
    for (int32_t column : written_) row.emplace_back(column, -1.0);
    lp_.add_row(0, 0, row);
    const Moment end = slots_.back().end;
    lp_.add_row(0, 0,
                {{in_dirty_.back(), 1.0}, {in_dirty_start_, -1.0}, {due_dirty_.at(end), -1.0}});
    lp_.add_row(0, 0,
                {{in_clean_.back(), 1.0}, {in_clean_start_, -1.0}, {due_clean_.at(end), -1.0}});
  }

  void add_time_rows(size_t k, int32_t& reruns_before) {
    const int32_t out = out_[k], dirty = in_dirty_[k], clean = in_clean_[k];
    const int32_t out0 = k > 0 ? out_[k - 1] : out_start_;
    const int32_t dirty0 = k > 0 ? in_dirty_[k - 1] : in_dirty_start_;
    const int32_t clean0 = k > 0 ? in_clean_[k - 1] : in_clean_start_;
    const double own = static_cast<double>(slots_[k].ns) / time_unit_;
    int32_t rerun = kNoColumn;
    if (!reruns_.empty()) {
      // Reruns take time of their own, by the end of the slot in which they are due.
      rerun = lp_.add_column(0, kInfinity, 0, 0);
      const int32_t sum = lp_.add_column(0, kInfinity, 0, 0);
      rerun_.push_back(rerun);
      rerun_.push_back(sum);
      lp_.add_row(own, kInfinity, {{duration_[k], 1.0}, {rerun, -1.0}});
      std::vector<Term> row{{sum, 1.0}, {rerun, -1.0}};
      if (reruns_before != kNoColumn) row.emplace_back(reruns_before, -1.0);
      lp_.add_row(0, 0, row);
      lp_.add_row(0, kInfinity, {{sum, 1.0}, {rerun_cost_.at(slots_[k].end), -1.0}});
      reruns_before = sum;
    }
    std::vector<Term> outward{{out, 1.0}, {out0, -1.0}};
    std::vector<Term> inward{{dirty, 1.0}, {clean, 1.0}, {dirty0, -1.0}, {clean0, -1.0}};
    std::vector<Term> both = outward;
    both.insert(both.end(), inward.begin(), inward.end());
    if (rates_.sync()) {
      // Copies in the compute stream, one at a time, take time that ops leave.
      const int32_t sync_out = lp_.add_column(0, kInfinity, 0, 0);
      const int32_t sync_in = lp_.add_column(0, kInfinity, 0, 0);
      sync_.push_back(sync_out);
      sync_.push_back(sync_in);
      std::vector<Term> row{{sync_out, 1.0}, {sync_in, 1.0}, {duration_[k], -1.0}};
      if (rerun != kNoColumn) row.emplace_back(rerun, 1.0);
      lp_.add_row(-kInfinity, -own, row);
      outward.emplace_back(sync_out, -rate(rates_.sync_out));
      inward.emplace_back(sync_in, -rate(rates_.sync_in));
      both.emplace_back(sync_out, -rate(rates_.sync_both));
      both.emplace_back(sync_in, -rate(rates_.sync_both));
    }
    outward.emplace_back(duration_[k], -rate(rates_.out));
    inward.emplace_back(duration_[k], -rate(rates_.in));
    lp_.add_row(-kInfinity, 0, outward);
    lp_.add_row(-kInfinity, 0, inward);
    if (rates_.both > 0) {
      both.emplace_back(duration_[k], -rate(rates_.both));
      lp_.add_row(-kInfinity, 0, both);
    }
    lp_.add_row(0, kInfinity, {{out, 1.0}, {out0, -1.0}});
    lp_.add_row(0, kInfinity, {{dirty, 1.0}, {dirty0, -1.0}});
    lp_.add_row(0, kInfinity, {{clean, 1.0}, {clean0, -1.0}});
  }

  // At the slot's fullest op: what is away has been copied, has started and has not come back.
  void add_memory_rows(size_t k) {
    const Moment p = slots_[k].fullest;
    const int64_t excess = alive_[static_cast<size_t>(p)] - limits_.device_bytes;
    if (excess <= 0) return;
    const int32_t dirty0 = k > 0 ? in_dirty_[k - 1] : in_dirty_start_;
    const int32_t clean0 = k > 0 ? in_clean_[k - 1] : in_clean_start_;
    const int32_t away_dirty = lp_.add_column(0, kInfinity, 0, largest_sum_);
    const int32_t away_clean = lp_.add_column(0, kInfinity, 0, largest_sum_);
    lp_.add_row(-kInfinity, 0, {{away_dirty, 1.0}, {out_[k], -1.0}, {over_.at(p - 1), 1.0}});
    for (const auto& [away, started, due, in0] :
         {std::tuple{away_dirty, started_dirty_.at(p - 1), due_dirty_.at(p), dirty0},
          std::tuple{away_clean, started_clean_.at(p - 1), due_clean_.at(p), clean0}}) {
      lp_.add_row(-kInfinity, 0, {{away, 1.0}, {started, -1.0}, {in0, 1.0}});
      lp_.add_row(-kInfinity, 0, {{away, 1.0}, {started, -1.0}, {due, 1.0}});
    }
    memory_rows_.emplace_back(p, lp_.rows());
    lp_.add_row(scaled(excess), kInfinity,
                {{away_dirty, 1.0}, {away_clean, 1.0}, {dropped_.at(p), 1.0}});
    if (limits_.away_bytes >= 0)
      lp_.add_row(-kInfinity, scaled(limits_.away_bytes), {{away_dirty, 1.0}, {away_clean, 1.0}});
  }

  struct Drop {
    int32_t column;
    Moment a, b;
  };

  const Profile& profile_;
  const Rates& rates_;
  const StepLimits& limits_;
  const Moment ops_;
  const std::vector<Grain> grains_;
  std::vector<int64_t> alive_;
  int64_t peak_ = 0;
  std::vector<Slot> slots_;
  std::vector<Moment> full_;
  std::vector<Gap> gaps_;
  std::vector<int32_t> away_column_, dropped_column_;   // per gap; kNoColumn: can't be dropped
  std::vector<std::pair<Moment, size_t>> memory_rows_;  // fullest op, row
  double time_unit_ = 1, byte_unit_ = 1, largest_sum_ = 0;

  LinearProgram lp_;
  std::vector<int32_t> duration_, out_, in_dirty_, in_clean_, written_, sync_;
  std::vector<int32_t> rerun_;  // all columns that hold time run again
  int32_t out_start_ = 0, in_dirty_start_ = 0, in_clean_start_ = 0;
  std::map<Moment, std::vector<Drop>> reruns_;  // by the op that runs again
  Chain released_, over_, started_dirty_, started_clean_, due_dirty_, due_clean_, dropped_,
      rerun_cost_;
};

}  // namespace

StepBound bound_step(const Graph& graph, const Profile& profile, const Rates& rates,
                     const StepLimits& limits) {
  OUTSIZE_CHECK(profile.ops.size() == graph.ops.size(), "{} costs for {} ops", profile.ops.size(),
                graph.ops.size());
  return Builder(graph, profile, rates, limits).run();
}

}  // namespace outsize::bounding
