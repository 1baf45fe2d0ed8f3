#include "outsize/planners/swapadvisor/scan.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <set>

namespace outsize::planning::swapadvisor {
namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct Spot {
  int64_t object = 0;
  int32_t free_from = 0;  // rank: whoever had it is done with it before this one
};

// Where an instance stands during the scan.
struct State {
  bool here = false;
  bool initial = false;  // on the device from the beginning
  size_t next = 0;       // touches done
  int64_t object = 0;
  int32_t since = 0;  // rank from which its present stay's room was free
};

class Scan {
 public:
  Scan(const Case& c, const Rooms& rooms, const SwapRules& rules, const std::vector<bool>& initial)
      : c_(c),
        rooms_(rooms),
        rules_(rules),
        program_(plain_program(c)),
        starts_(starts_of(c, program_)) {
    size_t n = program_.instances().size();
    states_.resize(n);
    objects_.resize(n);
    releases_.resize(n);
    arrivals_.resize(n);
    used_.assign(rooms.room.size(), 0);
    fresh_.assign(rooms.room.size(), 0);
    free_.resize(rooms.room.size());
    residents_.resize(rooms.room.size());
    for (size_t i = 0; i < n; ++i) {
      size_t touches = program_.instance(id(i)).touches.size();
      releases_[i].assign(touches + 1, kNone);
      arrivals_[i].assign(touches + 1, kNone);
      states_[i].initial = initial[i];
    }
  }

  // Pressure (rank, instance) of an earlier pass, or null in the first one.
  bool run(const std::set<std::pair<int32_t, int32_t>>* known, Trouble& trouble) {
    known_ = known;
    if (!enter(trouble)) return false;
    for (int32_t r = 0; r < end(); ++r)
      if (!step(r)) {
        trouble = no_room(step_at(r).op);
        return false;
      }
    return true;
  }

  const std::set<std::pair<int32_t, int32_t>>& pressure() const { return pressure_; }

  // Persistent storages on the device at the end whose home may be there.
  std::vector<bool> residents() const {
    std::vector<bool> out(states_.size(), false);
    for (size_t i = 0; i < states_.size(); ++i)
      out[i] = states_[i].here && may_stay(i) && program_.instances()[i].exit;
    return out;
  }

  Swaps result() {
    leave();
    std::vector<Move> moves = moves_of(program_);
    for (Move& m : moves) {
      size_t i = static_cast<size_t>(m.instance), gap = static_cast<size_t>(m.touch + 1);
      if (m.touch >= 0) {
        m.release = releases_[i][gap];
        m.out_after = rules_.early ? m.from : m.release - 1;
        m.copy_clean = !rules_.drop_clean;
      }
      if (!m.returns || arrivals_[i][gap] == kNone) continue;
      m.arrive = arrivals_[i][gap];
      if (!rules_.early && m.arrive > 0) m.in_after = m.arrive - 1;
    }
    int64_t swapped = static_cast<int64_t>(moves.size());
    return {{std::move(program_), std::move(moves)}, std::move(objects_), swapped};
  }

 private:
  static int32_t id(size_t i) { return static_cast<int32_t>(i); }
  int32_t end() const { return static_cast<int32_t>(program_.size()); }
  const Step& step_at(int32_t rank) const {
    return program_.step(program_.order()[static_cast<size_t>(rank)]);
  }
  const PartInfo& part(size_t i) const { return program_.part_of(id(i)); }
  int32_t class_of(size_t i) const { return rooms_.class_of[static_cast<size_t>(index(i))]; }
  int32_t index(size_t i) const { return program_.instances()[i].part; }
  int64_t takes(size_t i) const { return rooms_.takes[static_cast<size_t>(index(i))]; }
  int8_t settled(size_t i) const { return c_.homes[static_cast<size_t>(index(i))]; }
  // A persistent storage that isn't bound to the host.
  bool may_stay(size_t i) const { return part(i).persistent && settled(i) != 2; }
  bool roomless(size_t i) const { return class_of(i) < 0; }

  int32_t rank_of(size_t i, size_t touch) const {
    return program_.rank(program_.instances()[i].touches[touch].step);
  }
  int32_t last_rank(size_t i) const {
    return states_[i].next == 0 ? -1 : rank_of(i, states_[i].next - 1);
  }
  bool done(size_t i) const { return states_[i].next == program_.instances()[i].touches.size(); }
  // Rank of the next use; one iteration on for initial residents that are done.
  int64_t next_use(size_t i) const {
    if (!done(i)) return rank_of(i, states_[i].next);
    if (states_[i].initial) return end() + rank_of(i, 0);
    return kNever;
  }

  Trouble no_room(OpId op) const {
    const int64_t budget = c_.problem->budgets.device;
    return {Shortfall{op, budget + 1, budget}, 0, Tier::kDevice, {}};
  }

  bool enter(Trouble& trouble) {
    for (size_t i = 0; i < states_.size(); ++i) {
      Instance& in = program_.instance(id(i));
      if (roomless(i)) {
        states_[i].here = settled(i) != 2;  // its room is its own
        continue;
      }
      if (part(i).persistent && !states_[i].initial) {
        in.away_at_entry = in.entry;
        continue;
      }
      bool at_start = states_[i].initial || (in.entry && !part(i).persistent);
      if (!at_start) continue;
      size_t k = static_cast<size_t>(class_of(i));
      if (used_[k] + takes(i) > rooms_.room[k]) {
        if (!states_[i].initial) {
          trouble = no_room(OpId(0));
          return false;
        }
        states_[i].initial = false;
        in.away_at_entry = in.entry;
        continue;
      }
      settle(i, {fresh_[k]++, 0});
    }
    return true;
  }

  // Gives `i` the room of `spot`.
  void settle(size_t i, const Spot& spot) {
    size_t k = static_cast<size_t>(class_of(i));
    used_[k] += takes(i);
    states_[i].here = true;
    states_[i].object = spot.object;
    states_[i].since = spot.free_from;
    objects_[i].push_back(spot.object);
    residents_[k].push_back(id(i));
  }

  void vacate(size_t i) {
    size_t k = static_cast<size_t>(class_of(i));
    used_[k] -= takes(i);
    states_[i].here = false;
    std::vector<int32_t>& here = residents_[k];
    here.erase(std::find(here.begin(), here.end(), id(i)));
  }

  bool evictable(size_t i, const std::vector<int32_t>& working) const {
    if (std::find(working.begin(), working.end(), id(i)) != working.end()) return false;
    const Instance& in = program_.instances()[i];
    // What the step hands out stays where it is; so does a batch that nobody has touched yet.
    if (!part(i).persistent && done(i)) return false;
    return part(i).persistent || !in.entry || states_[i].next > 0;
  }

  bool recent(size_t i, int32_t rank, size_t newcomer) const {
    if (rules_.recency <= 0 || states_[i].next == 0) return false;
    const Machine& machine = *c_.problem->machine;
    double ns = static_cast<double>(copy_ns_of(machine.out, part(i).bytes()) +
                                    copy_ns_of(machine.in, part(newcomer).bytes()));
    int64_t since =
        starts_[static_cast<size_t>(rank)] - starts_[static_cast<size_t>(last_rank(i)) + 1];
    return static_cast<double>(since) < rules_.recency * ns;
  }

  // An initial resident that leaves before its first use need never have been there.
  std::optional<size_t> spare_initial(size_t k, const std::vector<int32_t>& working) const {
    std::optional<size_t> best;
    for (int32_t v : residents_[k]) {
      size_t i = static_cast<size_t>(v);
      if (!states_[i].initial || !evictable(i, working)) continue;
      bool better = !best;
      if (best) {
        bool mine = states_[i].next == 0, its = states_[*best].next == 0;
        better = mine != its ? mine : next_use(i) > next_use(*best);
      }
      if (better) best = i;
    }
    return best;
  }

  std::optional<size_t> victim(size_t k, int32_t rank, size_t newcomer,
                               const std::vector<int32_t>& working) {
    pressure_.emplace(rank, id(newcomer));
    if (known_ && !known_->count({rank, id(newcomer)}))
      if (std::optional<size_t> spare = spare_initial(k, working)) return spare;
    std::optional<size_t> best;
    bool best_recent = false;
    for (int32_t v : residents_[k]) {
      size_t i = static_cast<size_t>(v);
      if (!evictable(i, working)) continue;
      bool late = recent(i, rank, newcomer);
      bool better = !best || (late != best_recent ? best_recent : precedes(i, *best));
      if (better) best = i, best_recent = late;
    }
    return best;
  }

  bool precedes(size_t a, size_t b) const {
    if (rules_.belady) {
      int64_t x = next_use(a), y = next_use(b);
      if (x != y) return x > y;
    }
    int32_t x = last_rank(a), y = last_rank(b);
    return x != y ? x < y : a < b;
  }

  // The rank before which a copy that the op at `rank` needs begins, where not as early as safe.
  int32_t on_demand(int32_t rank, int32_t not_before) const {
    return std::max(not_before, rank - rules_.ahead);
  }

  // Sends `i` away; the spot that it leaves.
  Spot evict(size_t i, int32_t rank) {
    Instance& in = program_.instance(id(i));
    State& s = states_[i];
    int32_t after = last_rank(i) + 1;
    if (!rules_.early) after = on_demand(rank, after);
    Spot spot{s.object, after};
    if (s.initial) {
      s.initial = false;
      in.away_at_entry = in.entry;
      if (s.next == 0) {  // it was never there
        objects_[i].pop_back();
        spot.free_from = 0;
        vacate(i);
        return spot;
      }
      if (in.entry) arrivals_[i][0] = 0;
    }
    in.touches[s.next - 1].away = true;
    releases_[i][s.next] = after;
    vacate(i);
    return spot;
  }

  bool acquire(size_t i, int32_t rank, const std::vector<int32_t>& working) {
    size_t k = static_cast<size_t>(class_of(i));
    std::optional<Spot> spot;
    int32_t latest = 0;
    while (used_[k] + takes(i) > rooms_.room[k]) {
      std::optional<size_t> v = victim(k, rank, i, working);
      if (!v) return false;
      spot = evict(*v, rank);
      latest = std::max(latest, spot->free_from);
    }
    if (!spot && rooms_.objects) {
      if (fresh_[k] < rooms_.room[k]) {
        spot = Spot{fresh_[k]++, 0};
      } else {
        spot = free_[k].front();
        free_[k].pop_front();
      }
    }
    if (!spot) spot = Spot{};
    if (!rooms_.objects) spot->free_from = latest;
    settle(i, *spot);
    return true;
  }

  bool step(int32_t rank) {
    std::vector<int32_t> working = step_at(rank).operands;
    std::sort(working.begin(), working.end());
    working.erase(std::unique(working.begin(), working.end()), working.end());
    for (int32_t w : working) {
      size_t i = static_cast<size_t>(w);
      State& s = states_[i];
      if (s.here) continue;
      if (!roomless(i)) {
        if (!acquire(i, rank, working)) return false;
      } else {
        s.here = true;
      }
      const Instance& in = program_.instance(w);
      bool comes = s.next > 0 || (in.entry && in.away_at_entry);
      if (comes && needs_content(in.touches[s.next])) {
        int32_t earliest = s.next > 0 ? releases_[i][s.next] + 1 : 0;
        int32_t at = std::max(earliest, s.since);
        if (!rules_.early) at = on_demand(rank, at);
        arrivals_[i][s.next] = std::min(at, rank);
      }
    }
    for (int32_t w : working) {
      size_t i = static_cast<size_t>(w);
      ++states_[i].next;
      if (!done(i) || roomless(i) || program_.instance(w).exit) continue;
      vacate(i);
      if (rooms_.objects)
        free_[static_cast<size_t>(class_of(i))].push_back({states_[i].object, rank + 1});
    }
    return true;
  }

  // Persistent storages whose home isn't on the device go there after their last use.
  void leave() {
    for (size_t i = 0; i < states_.size(); ++i) {
      Instance& in = program_.instance(id(i));
      if (!part(i).persistent || !in.exit || states_[i].initial) continue;
      if (roomless(i) && settled(i) != 2) continue;
      if (in.touches.empty()) continue;
      size_t last = in.touches.size();
      in.touches.back().away = true;
      if (releases_[i][last] == kNone) releases_[i][last] = rank_of(i, last - 1) + 1;
    }
  }

  const Case& c_;
  const Rooms& rooms_;
  const SwapRules& rules_;
  Program program_;
  std::vector<int64_t> starts_;  // per rank, and the end
  std::vector<State> states_;
  std::vector<std::vector<int64_t>> objects_;
  std::vector<std::vector<int32_t>> releases_, arrivals_;  // per instance, per gap (touch + 1)
  std::vector<int64_t> used_;                              // per class
  std::vector<int64_t> fresh_;                             // per class: objects never used yet
  std::vector<std::deque<Spot>> free_;                     // per class, longest free first
  std::vector<std::vector<int32_t>> residents_;            // per class
  const std::set<std::pair<int32_t, int32_t>>* known_ = nullptr;
  std::set<std::pair<int32_t, int32_t>> pressure_;
};

}  // namespace

std::optional<Swaps> plan_swaps(const Case& c, const Rooms& rooms, const SwapRules& rules,
                                Trouble& trouble) {
  std::vector<bool> none(c.parts.parts.size(), false);
  Scan first(c, rooms, rules, none);
  if (!first.run(nullptr, trouble)) return std::nullopt;
  if (!rules.double_pass) return first.result();
  Scan second(c, rooms, rules, first.residents());
  if (!second.run(&first.pressure(), trouble)) return std::nullopt;
  return second.result();
}

}  // namespace outsize::planning::swapadvisor
