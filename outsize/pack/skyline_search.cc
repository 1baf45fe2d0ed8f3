#include "outsize/pack/skyline_search.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "outsize/base/check.h"
#include "outsize/base/random.h"

namespace outsize::packing {
namespace {

constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

// Two hashes, so that two states are never taken for one in practice.
struct Key {
  uint64_t low = 0, high = 0;
  bool operator==(const Key&) const = default;
};

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// States that failed, in a table of bounded size: a newer one takes an older one's place.
class FailedStates {
 public:
  bool holds(const Key& key) const {
    return !table_.empty() && table_[key.low & (table_.size() - 1)] == key;
  }
  void add(const Key& key) {
    if (2 * added_ >= table_.size() && table_.size() < kMost) grow();
    table_[key.low & (table_.size() - 1)] = key;
    ++added_;
  }

 private:
  static constexpr size_t kLeast = size_t{1} << 12, kMost = size_t{1} << 22;
  void grow() {
    std::vector<Key> larger(std::max(kLeast, 4 * table_.size()));
    for (const Key& key : table_)
      if (key != Key{}) larger[key.low & (larger.size() - 1)] = key;
    table_ = std::move(larger);
  }
  std::vector<Key> table_;
  size_t added_ = 0;
};

struct Item {
  uint32_t begin = 0, end = 0;  // sections
  uint32_t given = 0;           // position in what was given
  uint32_t kind = 0;            // those alike in life and size have one kind
  int64_t size = 0;
  uint64_t key = 0;  // of its kind
};

}  // namespace

class SkylineSearch::Impl {
 public:
  Impl(const std::vector<SkylineItem>& items, int64_t capacity)
      : capacity_(capacity), offsets_(items.size(), 0) {
    make_items(items);
    floor_.assign(sections_, 0);
    least_.assign(sections_, 0);
    count_.assign(sections_ + 1, 0);
    plateau_.assign(sections_, 0);
    waiting_.assign(sections_, 0);
    rest_.assign(items_.size(), 0);
    rank_.assign(items_.size(), 0);
    for (const Item& item : items_)
      for (size_t s = item.begin; s < item.end; ++s) waiting_[s] += item.size;
  }

  Outcome run(uint64_t seed, int64_t most_work, Deadline& deadline) {
    deadline_ = &deadline;
    stop_at_ = work_ + most_work;
    undo_to({});
    rank_choices(seed);
    std::vector<uint32_t> all(items_.size());
    std::iota(all.begin(), all.end(), 0u);
    return solve_apart(all);
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t work() const { return work_; }

 private:
  struct Change {
    uint32_t at;
    int64_t before;
  };
  // How far the records below went.
  struct Mark {
    size_t floors = 0, rests = 0, placed = 0;
  };

  void make_items(const std::vector<SkylineItem>& items) {
    for (uint32_t i = 0; i < items.size(); ++i) {
      items_.push_back({items[i].begin, items[i].end, i, 0, items[i].size, 0});
      sections_ = std::max<size_t>(sections_, items[i].end);
    }
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      if (a.begin != b.begin) return a.begin < b.begin;
      if (a.end != b.end) return a.end < b.end;
      return a.size < b.size;
    });
    for (size_t i = 0; i < items_.size(); ++i) {
      const bool same = i > 0 && items_[i].begin == items_[i - 1].begin &&
                        items_[i].end == items_[i - 1].end && items_[i].size == items_[i - 1].size;
      items_[i].kind = i == 0 ? 0 : items_[i - 1].kind + (same ? 0 : 1);
      items_[i].key = mixed(0x9e3779b97f4a7c15ull * (items_[i].kind + 1));
    }
  }

  // The order in which those that may rest on one floor are tried.
  void rank_choices(uint64_t seed) {
    Random random(seed);
    std::vector<double> value(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      const double size = static_cast<double>(item.size);
      const double length = static_cast<double>(item.end - item.begin);
      int64_t most = 0;
      for (uint32_t t = item.begin; t < item.end; ++t) most = std::max(most, waiting_[t]);
      const double load = static_cast<double>(most);
      switch (seed % 4) {
        case 0:
          value[i] = size * length;
          break;
        case 1:
          value[i] = length * 1e12 + size;
          break;
        case 2:
          value[i] = load * 1e6 + length;
          break;
        default:
          value[i] = size;
      }
      if (seed >= 4) value[i] *= 0.5 + random.uniform();
    }
    std::vector<uint32_t> order(items_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return value[a] > value[b]; });
    for (uint32_t r = 0; r < order.size(); ++r) rank_[order[r]] = r;
  }

  // Those that no waiting item ties together in time are solved on their own. `items` by begin.
  Outcome solve_apart(const std::vector<uint32_t>& items) {
    struct Part {
      size_t first, last;
    };
    std::vector<Part> parts;
    uint32_t reach = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const Item& item = items_[items[i]];
      if (parts.empty() || item.begin >= reach) {
        if (!parts.empty()) parts.back().last = i;
        parts.push_back({i, items.size()});
      }
      reach = std::max(reach, item.end);
    }
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.last - a.first < b.last - b.first;
    });
    for (const Part& part : parts) {
      const std::vector<uint32_t> own(items.begin() + static_cast<int64_t>(part.first),
                                      items.begin() + static_cast<int64_t>(part.last));
      const Outcome outcome = solve(own);
      if (outcome != Outcome::kFound) return outcome;
    }
    return Outcome::kFound;
  }

  // One stretch of time. Its floors and rests are left changed on kFound alone.
  Outcome solve(const std::vector<uint32_t>& items) {
    const uint32_t low = items_[items.front()].begin;
    uint32_t high = low;
    for (uint32_t i : items) high = std::max(high, items_[i].end);
    const int64_t work = 1 + (high - low) / 64;
    work_ += work;
    deadline_->spend(work);
    if (work_ >= stop_at_ || deadline_->reached()) return Outcome::kStopped;

    const Mark before = mark();
    const Outcome outcome = decide(items, low, high);
    if (outcome != Outcome::kFound) undo_to(before);
    return outcome;
  }

  // One section of the stretch, every way. Leaves its changes.
  Outcome decide(const std::vector<uint32_t>& items, uint32_t low, uint32_t high) {
    if (!raise_floors(items, low, high)) return Outcome::kNone;
    const Key key = key_of(items, low, high);
    if (failed_.holds(key)) return Outcome::kNone;
    std::vector<uint32_t> choices;
    const uint32_t section = choose_section(items, low, high, choices);
    const int64_t floor = floor_[section];
    std::vector<uint32_t> rest;
    rest.reserve(items.size());
    uint32_t last_kind = std::numeric_limits<uint32_t>::max();
    const Mark here = mark();
    for (uint32_t chosen : choices) {
      const Item& item = items_[chosen];
      if (item.kind == last_kind) continue;
      last_kind = item.kind;
      rest.clear();
      for (uint32_t i : items)
        if (i != chosen) rest.push_back(i);
      place(chosen, floor, rest);
      const Outcome outcome = solve_apart(rest);
      if (outcome != Outcome::kNone) return outcome;
      undo_to(here);
    }
    const int64_t next = next_height(items, section, choices);
    if (next != kHigh && next + waiting_[section] <= capacity_) {
      set_floor(section, next);
      for (uint32_t i : items)
        if (items_[i].begin <= section && section < items_[i].end && rest_[i] < next)
          set_rest(i, next);
      const Outcome outcome = solve(items);
      if (outcome != Outcome::kNone) return outcome;
    }
    failed_.add(key);
    return Outcome::kNone;
  }

  // A section's floor is no lower than the least that anyone waiting there can rest on. False if
  // some section cannot hold what waits in it.
  bool raise_floors(const std::vector<uint32_t>& items, uint32_t low, uint32_t high) {
    std::fill(least_.begin() + low, least_.begin() + high, kHigh);
    for (uint32_t i : items) {
      const Item& item = items_[i];
      const int64_t rest = rest_[i];
      if (rest + item.size > capacity_) return false;
      for (size_t s = item.begin; s < item.end; ++s) least_[s] = std::min(least_[s], rest);
    }
    for (uint32_t s = low; s < high; ++s) {
      if (least_[s] + waiting_[s] > capacity_) return false;
      if (least_[s] != floor_[s]) set_floor(s, least_[s]);
    }
    return true;
  }

  Key key_of(const std::vector<uint32_t>& items, uint32_t low, uint32_t high) const {
    Key key;
    for (uint32_t i : items) key.low += items_[i].key;
    key.high = mixed(key.low + 0x1234567);
    int64_t before = -1;
    for (uint32_t s = low; s < high; ++s) {
      if (floor_[s] == before) continue;
      before = floor_[s];
      const uint64_t value = static_cast<uint64_t>(before) * 0x9e3779b97f4a7c15ull + s;
      key.low = mixed(key.low ^ value);
      key.high = mixed(key.high + value);
    }
    return key;
  }

  // The section of a valley with the fewest choices, and those choices in the order to try.
  uint32_t choose_section(const std::vector<uint32_t>& items, uint32_t low, uint32_t high,
                          std::vector<uint32_t>& choices) {
    // plateau_[s]: the first section of the valley that s is in, or kNowhere.
    constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
    for (uint32_t s = low; s < high;) {
      uint32_t end = s + 1;
      while (end < high && floor_[end] == floor_[s]) ++end;
      const bool valley =
          (s == low || floor_[s - 1] > floor_[s]) && (end == high || floor_[end] > floor_[s]);
      std::fill(plateau_.begin() + s, plateau_.begin() + end, valley ? s : kNowhere);
      s = end;
    }
    std::fill(count_.begin() + low, count_.begin() + high + 1, 0);
    for (uint32_t i : items) {
      const Item& item = items_[i];
      if (plateau_[item.begin] == kNowhere || plateau_[item.begin] != plateau_[item.end - 1])
        continue;
      ++count_[item.begin];
      --count_[item.end];
    }
    uint32_t best = low;
    int64_t best_choices = kHigh, best_slack = kHigh;
    int32_t count = 0;
    for (uint32_t s = low; s < high; ++s) {
      count += count_[s];
      if (plateau_[s] == kNowhere) continue;
      const int64_t slack = capacity_ - floor_[s] - waiting_[s];
      const int64_t number = 2 * count + (slack > 0 ? 1 : 0);
      if (number > best_choices || (number == best_choices && slack >= best_slack)) continue;
      best = s;
      best_choices = number;
      best_slack = slack;
    }
    for (uint32_t i : items) {
      const Item& item = items_[i];
      if (item.begin <= best && best < item.end && rest_[i] == floor_[best]) choices.push_back(i);
    }
    std::sort(choices.begin(), choices.end(),
              [&](uint32_t a, uint32_t b) { return rank_[a] < rank_[b]; });
    return best;
  }

  // The lowest that anyone could lie in `section` if nobody there rests on its floor.
  int64_t next_height(const std::vector<uint32_t>& items, uint32_t section,
                      const std::vector<uint32_t>& choices) const {
    int64_t next = kHigh;
    for (uint32_t i : items) {
      const Item& item = items_[i];
      if (item.begin <= section && section < item.end && rest_[i] > floor_[section])
        next = std::min(next, rest_[i]);
    }
    // One of the choices may lie on someone beside the section.
    for (uint32_t c : choices)
      for (uint32_t i : items) {
        const Item& item = items_[i];
        if (item.begin <= section && section < item.end) continue;
        if (item.begin < items_[c].end && items_[c].begin < item.end)
          next = std::min(next, rest_[i] + item.size);
      }
    return next;
  }

  void place(uint32_t chosen, int64_t floor, const std::vector<uint32_t>& others) {
    const Item& item = items_[chosen];
    offsets_[item.given] = floor;
    const int64_t top = floor + item.size;
    placed_.push_back(chosen);
    for (uint32_t s = item.begin; s < item.end; ++s) {
      set_floor(s, top);
      waiting_[s] -= item.size;
    }
    for (uint32_t i : others)
      if (items_[i].begin < item.end && item.begin < items_[i].end && rest_[i] < top)
        set_rest(i, top);
  }

  void set_floor(uint32_t s, int64_t floor) {
    floor_changes_.push_back({s, floor_[s]});
    floor_[s] = floor;
  }
  void set_rest(uint32_t i, int64_t rest) {
    rest_changes_.push_back({i, rest_[i]});
    rest_[i] = rest;
  }
  Mark mark() const { return {floor_changes_.size(), rest_changes_.size(), placed_.size()}; }
  void undo_to(const Mark& mark) {
    for (; floor_changes_.size() > mark.floors; floor_changes_.pop_back())
      floor_[floor_changes_.back().at] = floor_changes_.back().before;
    for (; rest_changes_.size() > mark.rests; rest_changes_.pop_back())
      rest_[rest_changes_.back().at] = rest_changes_.back().before;
    for (; placed_.size() > mark.placed; placed_.pop_back()) {
      const Item& item = items_[placed_.back()];
      for (uint32_t s = item.begin; s < item.end; ++s) waiting_[s] += item.size;
    }
  }

  const int64_t capacity_;
  size_t sections_ = 0;
  std::vector<Item> items_;  // by begin
  std::vector<uint32_t> rank_;
  std::vector<int64_t> floor_;    // per section
  std::vector<int64_t> waiting_;  // per section: bytes of those not yet placed
  std::vector<int64_t> rest_;     // per item: the highest floor under it
  // What has been done, to be undone.
  std::vector<Change> floor_changes_, rest_changes_;
  std::vector<uint32_t> placed_;
  std::vector<int64_t> least_;     // scratch of raise_floors
  std::vector<int32_t> count_;     // scratch of choose_section
  std::vector<uint32_t> plateau_;  // likewise
  FailedStates failed_;
  std::vector<int64_t> offsets_;
  Deadline* deadline_ = nullptr;
  int64_t work_ = 0, stop_at_ = 0;
};

SkylineSearch::SkylineSearch(const std::vector<SkylineItem>& items, int64_t capacity)
    : impl_(std::make_unique<Impl>(items, capacity)) {}
SkylineSearch::~SkylineSearch() = default;
SkylineSearch::Outcome SkylineSearch::run(uint64_t seed, int64_t most_work, Deadline& deadline) {
  return impl_->run(seed, most_work, deadline);
}
const std::vector<int64_t>& SkylineSearch::offsets() const { return impl_->offsets(); }
int64_t SkylineSearch::work() const { return impl_->work(); }

}  // namespace outsize::packing
