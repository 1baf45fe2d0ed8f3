#include "outsize/planners/g10/evict.h"

#include <algorithm>
#include <map>
#include <queue>

#include "outsize/base/bytes.h"
#include "outsize/planners/g10/lane.h"
#include "outsize/planners/training.h"

namespace outsize::planning::g10 {
namespace {

// A tier below the device, and what it and its link still have room for.
struct Below {
  Lane out, in;
  Link out_link, in_link;
  int64_t budget = 0;
  std::vector<int64_t> used;  // per rank
};

// A period that may be chosen, and what it was worth when last looked at.
struct Candidate {
  Migration migration;
  int64_t bytes = 0;  // on the device
  double worth = 0;
};

class Chooser {
 public:
  Chooser(const Case& c, int64_t capacity, const Rules& rules)
      : c_(c),
        capacity_(capacity),
        rules_(rules),
        program_(plain_program(c)),
        ns_(op_times(c, program_)),
        kept_(usage_of(c, program_, timed_moves(c, program_, capacity))),
        pressure_(kept_) {
    const Problem& p = *c.problem;
    const Machine& m = *p.machine;
    const bool ssd =
        rules.ssd && p.budgets.disk > 0 && m.write.bytes_per_s > 0 && m.read.bytes_per_s > 0;
    if (ssd) add_tier(Tier::kDisk, m.write, m.read, p.budgets.disk);
    if (can_swap(p) && (rules.host || !ssd)) add_tier(Tier::kHost, m.out, m.in, p.budgets.host);
  }

  std::vector<Migration> run() {
    collect();
    // The most worthy first; what one is worth by now is looked at when it comes up.
    const auto less = [&](size_t a, size_t b) {
      const double worth = candidates_[a].worth, other = candidates_[b].worth;
      return worth != other ? worth < other : a > b;
    };
    std::priority_queue<size_t, std::vector<size_t>, decltype(less)> open(less);
    const auto offer = [&](size_t i) {
      weigh(candidates_[i]);
      if (candidates_[i].worth > 0) open.push(i);
    };
    for (const bool any : {false, true}) {
      any_border_ = any;
      for (size_t i = 0; i < candidates_.size(); ++i)
        if (!given_up(candidates_[i])) offer(i);
      while (!open.empty() && short_of_room()) {
        const size_t i = open.top();
        open.pop();
        if (given_up(candidates_[i])) continue;
        weigh(candidates_[i]);
        if (candidates_[i].worth <= 0) continue;
        if (!open.empty() && candidates_[i].worth < candidates_[open.top()].worth) {
          open.push(i);
          continue;
        }
        migrate(candidates_[i]);
        if (!candidates_[i].migration.whole) continue;
        // Now that its home is below, its periods within the step count by themselves.
        for (size_t j = 0; j < candidates_.size(); ++j)
          if (candidates_[j].migration.part == candidates_[i].migration.part &&
              !given_up(candidates_[j]))
            offer(j);
      }
    }
    in_turn();
    if (rules_.eager && rules_.prefetch) fetch_early();
    return std::move(chosen_);
  }

 private:
  int32_t end() const { return static_cast<int32_t>(program_.size()); }
  const PartInfo& part(const Migration& m) const { return c_.parts[m.part]; }
  Below& tier(Tier t) { return tiers_.at(t); }

  void add_tier(Tier t, const Link& out, const Link& in, int64_t budget) {
    tiers_.emplace(
        t, Below{Lane(ns_), Lane(ns_), out, in, budget, std::vector<int64_t>(program_.size(), 0)});
  }
  bool short_of_room() const {
    return *std::max_element(pressure_.begin(), pressure_.end()) > capacity_;
  }

  Stretch stretch_after(const Instance& in, size_t k) const {
    Stretch s;
    s.touch = static_cast<int32_t>(k);
    s.from = program_.rank(in.touches[k].step);
    const bool last = k + 1 == in.touches.size();
    s.to = last ? end() : program_.rank(in.touches[k + 1].step);
    s.in = !last;
    return s;
  }

  // Periods of activations, each by itself; of weights, with the one between the steps: a weight is
  // away in the step only if it is at home below.
  void collect() {
    for (size_t p = 0; p < program_.instances().size(); ++p) {
      const Instance& in = program_.instances()[p];
      const PartInfo& info = c_.parts.parts[p];
      if (info.bytes() == 0 || in.touches.empty()) continue;
      const bool weight = info.persistent;
      if (weight && (!rules_.weights || !in.entry || !in.exit || c_.homes[p] != 0)) continue;
      std::vector<Stretch> home;
      if (weight) {
        Stretch before;
        before.to = program_.rank(in.touches[0].step);
        before.out = false;
        before.in = needs_content(in.touches[0]);
        home = {before, stretch_after(in, in.touches.size() - 1)};
        home.back().out = in.touches.back().after != 0;
        add(p, true, home);
      }
      for (size_t k = 0; k + 1 < in.touches.size(); ++k) {
        Stretch inner = stretch_after(in, k);
        if (inner.to - inner.from < 2 || !needs_content(in.touches[k + 1])) continue;
        if (weight) inner.out = in.touches[k].after != 0;
        add(p, false, {inner});
        if (weight) {
          std::vector<Stretch> with_home = home;
          with_home.push_back(inner);
          add(p, true, with_home);
        }
      }
    }
  }
  void add(size_t p, bool whole, std::vector<Stretch> stretches) {
    Candidate candidate;
    candidate.migration.part = static_cast<int32_t>(p);
    candidate.migration.whole = whole;
    candidate.migration.stretches = std::move(stretches);
    candidate.bytes = device_bytes_of(c_, c_.parts.parts[p]);
    candidates_.push_back(std::move(candidate));
  }

  // What the choices so far leave no sense in: periods that are chosen, a home that has moved.
  bool given_up(const Candidate& candidate) const {
    const auto taken = taken_.find(candidate.migration.part);
    if (taken == taken_.end()) return false;
    if (candidate.migration.whole) return true;
    const int32_t touch = candidate.migration.stretches[0].touch;
    return std::find(taken->second.begin(), taken->second.end(), touch) != taken->second.end();
  }
  bool needs_home(const Candidate& candidate) const {
    return part(candidate.migration).persistent && !candidate.migration.whole &&
           !taken_.contains(candidate.migration.part);
  }

  // The destination (algorithm 1, lines 7 to 17); none where no tier has room.
  std::optional<Tier> destination(const Candidate& candidate) {
    const auto known = tier_of_.find(candidate.migration.part);
    if (known != tier_of_.end()) return known->second;
    const bool ssd = tiers_.contains(Tier::kDisk) && has_room(candidate, Tier::kDisk);
    const bool host = tiers_.contains(Tier::kHost) && has_room(candidate, Tier::kHost);
    if (!ssd) return host ? std::optional(Tier::kHost) : std::nullopt;
    if (!host) return Tier::kDisk;
    if (!rules_.ssd_first) return Tier::kHost;
    const Stretch& leaves = candidate.migration.stretches.back();
    const Below& disk = tier(Tier::kDisk);
    const int64_t ns = copy_ns_of(disk.out_link, part(candidate.migration).bytes());
    return disk.out.full(leaves.from + 1, ns) ? Tier::kHost : Tier::kDisk;
  }
  int64_t bytes_below(const Candidate& candidate) const {
    const int64_t block =
        std::max(c_.problem->machine->disk_alignment, c_.problem->machine->alignment);
    return round_up(part(candidate.migration).bytes(), block);
  }
  // Held from the first time it leaves on: what it is copied from again.
  bool has_room(const Candidate& candidate, Tier t) {
    const Below& below = tier(t);
    const int64_t bytes = bytes_below(candidate);
    const int32_t from = candidate.migration.whole ? 0 : candidate.migration.stretches[0].from + 1;
    return std::all_of(below.used.begin() + from, below.used.end(),
                       [&](int64_t used) { return used + bytes <= below.budget; });
  }

  bool must_copy_out(const Candidate& candidate, const Stretch& s) const {
    if (!s.out) return false;
    const auto held = held_.find(candidate.migration.part);
    if (held == held_.end()) return true;
    const Instance& in = program_.instance(candidate.migration.part);
    const int32_t version = in.touches[static_cast<size_t>(s.touch)].after;
    return std::find(held->second.begin(), held->second.end(), version) == held->second.end();
  }

  // When its bytes are free, and what that is worth per ns of copying.
  void weigh(Candidate& candidate) {
    candidate.worth = 0;
    if (needs_home(candidate)) return;
    const std::optional<Tier> to = destination(candidate);
    if (!to) return;
    candidate.migration.to = *to;
    const Below& below = tier(*to);
    const int64_t bytes = part(candidate.migration).bytes();
    const int64_t out_ns = copy_ns_of(below.out_link, bytes);
    const int64_t in_ns = copy_ns_of(below.in_link, bytes);
    double area = 0;
    int64_t cost = 0;
    for (Stretch& s : candidate.migration.stretches) {
      s.release = s.from + 1;
      s.arrive = s.to;
      if (must_copy_out(candidate, s)) {
        s.release = std::min(below.out.end_of(s.from + 1, out_ns) + 1, s.to);
        cost += out_ns;
        if (!any_border_ && !s.in && !below.out.fits(s.from + 1, s.to, out_ns)) return;
      }
      if (s.in) {
        if (rules_.prefetch) s.arrive = below.in.begin_of(s.to, in_ns);
        cost += in_ns;
        if (!any_border_ && s.touch < 0 && !below.in.fits(0, s.to, in_ns)) return;
      }
      s.arrive = std::max(s.arrive, s.release);
      for (int32_t r = s.release; r < s.arrive; ++r) {
        const auto at = static_cast<size_t>(r);
        const int64_t over = std::min(candidate.bytes, pressure_[at] - capacity_);
        if (over > 0)
          area += static_cast<double>(over) * static_cast<double>(std::max<int64_t>(1, ns_[at]));
      }
    }
    if (area <= 0) return;
    candidate.worth = rules_.benefit ? area / static_cast<double>(std::max<int64_t>(1, cost))
                                     : static_cast<double>(candidate.bytes);
  }

  void migrate(const Candidate& candidate) {
    const Migration& m = candidate.migration;
    Below& below = tier(m.to);
    const int64_t out_ns = copy_ns_of(below.out_link, part(m).bytes());
    const int64_t in_ns = copy_ns_of(below.in_link, part(m).bytes());
    for (const Stretch& s : m.stretches) {
      if (must_copy_out(candidate, s)) below.out.take_from(s.from + 1, out_ns);
      if (s.in) below.in.take_before(s.to, in_ns);
      for (int32_t r = s.release; r < s.arrive; ++r)
        pressure_[static_cast<size_t>(r)] -= candidate.bytes;
    }
    if (!tier_of_.contains(m.part)) {
      const int32_t from = m.whole ? 0 : m.stretches[0].from + 1;
      for (size_t r = static_cast<size_t>(from); r < below.used.size(); ++r)
        below.used[r] += bytes_below(candidate);
    }
    tier_of_[m.part] = m.to;
    for (const Stretch& s : m.stretches) {
      taken_[m.part].push_back(s.touch);
      const Instance& in = program_.instance(m.part);
      held_[m.part].push_back(s.touch < 0 ? 0 : in.touches[static_cast<size_t>(s.touch)].after);
    }
    chosen_.push_back(m);
  }

  // A link carries its copies one after the other: out in the order in which they can begin, in, as
  // late as is safe, in the order in which they are asked for.
  void in_turn() {
    const std::vector<int64_t> starts = starts_of(c_, program_);
    const auto start = [&](int32_t rank) { return starts[static_cast<size_t>(rank)]; };
    for (auto& [t, below] : tiers_) {
      std::vector<std::pair<Stretch*, int64_t>> out, in;  // and how long its copy takes
      for (Migration& m : chosen_)
        for (Stretch& s : m.stretches) {
          if (m.to != t) continue;
          const int64_t bytes = part(m).bytes();
          if (s.release > s.from + 1) out.emplace_back(&s, copy_ns_of(below.out_link, bytes));
          if (s.in && rules_.prefetch) in.emplace_back(&s, copy_ns_of(below.in_link, bytes));
        }
      std::stable_sort(out.begin(), out.end(),
                       [](const auto& a, const auto& b) { return a.first->from < b.first->from; });
      std::stable_sort(in.begin(), in.end(),
                       [](const auto& a, const auto& b) { return a.first->to > b.first->to; });
      int64_t free = 0, busy = starts.back();
      for (auto& [s, ns] : out) {
        free = std::max(free, start(s->from + 1)) + ns;
        const auto ended = std::lower_bound(starts.begin(), starts.end() - 1, free);
        s->release = std::min(static_cast<int32_t>(ended - starts.begin()), s->to);
      }
      for (auto& [s, ns] : in) {
        busy = std::min(busy, start(s->to)) - ns;
        const auto after = std::upper_bound(starts.begin(), starts.end() - 1, busy);
        s->arrive = std::max(static_cast<int32_t>(after - starts.begin()) - 1, 0);
      }
    }
    pressure_ = kept_;
    for (Migration& m : chosen_)
      for (Stretch& s : m.stretches) {
        s.arrive = std::max(s.arrive, s.release);
        for (int32_t r = s.release; r < s.arrive; ++r)
          pressure_[static_cast<size_t>(r)] -= device_bytes_of(c_, part(m));
      }
  }

  // Each fetch begins as early as its bytes fit from there on (section 4.4), in the order in which
  // they must have begun; a link keeps that order.
  void fetch_early() {
    std::vector<std::pair<Stretch*, const Migration*>> fetches;
    for (Migration& m : chosen_)
      for (Stretch& s : m.stretches)
        if (s.in && s.arrive > s.release) fetches.emplace_back(&s, &m);
    std::stable_sort(fetches.begin(), fetches.end(), [](const auto& a, const auto& b) {
      return a.first->arrive < b.first->arrive;
    });
    std::map<Tier, int32_t> earliest;
    for (auto& [s, m] : fetches) {
      const int64_t bytes = device_bytes_of(c_, part(*m));
      const int32_t from = std::max(s->release, earliest[m->to]);
      while (s->arrive > from && pressure_[static_cast<size_t>(s->arrive) - 1] + bytes <= capacity_)
        pressure_[static_cast<size_t>(--s->arrive)] += bytes;
      earliest[m->to] = std::max(earliest[m->to], s->arrive);
    }
  }

  const Case& c_;
  int64_t capacity_;
  const Rules& rules_;
  Program program_;  // plain: instances are parts
  std::vector<int64_t> ns_;
  std::vector<int64_t> kept_, pressure_;  // bytes per rank, with nothing away; by now
  std::map<Tier, Below> tiers_;
  std::vector<Candidate> candidates_;
  std::vector<Migration> chosen_;
  std::map<int32_t, std::vector<int32_t>> taken_;  // per part: touches before its periods
  std::map<int32_t, std::vector<int32_t>> held_;   // per part: versions on its tier
  std::map<int32_t, Tier> tier_of_;                // per part
  // Weights may migrate whose copies the step has no time for at its start or its end. First
  // without.
  bool any_border_ = false;
};

}  // namespace

std::vector<Migration> choose_migrations(const Case& c, int64_t capacity, const Rules& rules) {
  return Chooser(c, capacity, rules).run();
}

}  // namespace outsize::planning::g10
