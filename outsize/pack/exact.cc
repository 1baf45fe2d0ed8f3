#include "outsize/pack/exact.h"

#include <algorithm>
#include <limits>

namespace outsize::packing {
namespace {

// A stretch of time in which no buffer begins or ends.
struct Section {
  int64_t floor = 0;    // nothing can be placed lower here
  int64_t waiting = 0;  // bytes of those not yet placed
};

struct Item {
  uint32_t buffer = 0;
  size_t begin = 0, end = 0;  // sections
  int64_t size = 0, alignment = 1;
};

constexpr size_t kMostBuffers = 3000;

enum class Outcome { kFound, kNone, kStopped };

class Search {
 public:
  // `rank`: the order in which those of equal offset are tried.
  Search(const Instance& instance, const std::vector<uint32_t>& rank, int64_t capacity,
         int64_t most_work, Deadline& deadline)
      : capacity_(capacity),
        most_work_(most_work),
        deadline_(deadline),
        offsets_(instance.size(), 0) {
    std::vector<int64_t> times;
    for (uint32_t b : rank) {
      times.push_back(instance.buffer(b).life.begin);
      times.push_back(instance.buffer(b).life.end);
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    sections_.resize(times.size());
    lowest_.resize(times.size());
    const auto section = [&](int64_t time) {
      return static_cast<size_t>(std::lower_bound(times.begin(), times.end(), time) -
                                 times.begin());
    };
    for (uint32_t b : rank) {
      const Buffer& buffer = instance.buffer(b);
      Item item{b, section(buffer.life.begin), section(buffer.life.end), buffer.size,
                buffer.alignment};
      for (size_t s = item.begin; s < item.end; ++s) sections_[s].waiting += item.size;
      items_.push_back(item);
    }
  }

  Outcome run() {
    std::vector<uint32_t> all(items_.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    return solve_apart(std::move(all), 0, 0);
  }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t work() const { return work_; }

 private:
  struct Candidate {
    int64_t offset;
    uint32_t item;
  };

  // Those that no waiting buffer ties together in time are solved on their own.
  Outcome solve_apart(std::vector<uint32_t> waiting, int64_t last_offset, uint32_t last_item) {
    std::sort(waiting.begin(), waiting.end(), [&](uint32_t a, uint32_t b) {
      return items_[a].begin != items_[b].begin ? items_[a].begin < items_[b].begin : a < b;
    });
    std::vector<std::vector<uint32_t>> parts;
    size_t reach = 0;
    for (uint32_t i : waiting) {
      if (parts.empty() || items_[i].begin >= reach) parts.emplace_back();
      parts.back().push_back(i);
      reach = std::max(reach, items_[i].end);
    }
    // A part that was solved stays placed; if a later one fails it must be taken back.
    std::vector<Section> before;
    if (parts.size() > 1) {
      // Speed: a part that cannot be packed is seen before another is solved for nothing.
      std::vector<Candidate> ignored;
      for (const auto& part : parts)
        if (!look(part, last_offset, last_item, ignored)) return Outcome::kNone;
      std::stable_sort(parts.begin(), parts.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
      before = sections_;
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      std::sort(parts[p].begin(), parts[p].end());
      const Outcome outcome = solve(parts[p], last_offset, last_item);
      if (outcome == Outcome::kFound) continue;
      if (p > 0) sections_ = before;
      return outcome;
    }
    return Outcome::kFound;
  }

  Outcome solve(const std::vector<uint32_t>& waiting, int64_t last_offset, uint32_t last_item) {
    const int64_t work = 1 + static_cast<int64_t>(waiting.size()) / 32;
    work_ += work;
    deadline_.spend(work);
    if (work_ >= most_work_ || deadline_.reached()) return Outcome::kStopped;
    std::vector<Candidate> candidates;
    if (!look(waiting, last_offset, last_item, candidates)) return Outcome::kNone;
    for (const Candidate& candidate : candidates) {
      const Item& item = items_[candidate.item];
      std::vector<int64_t> floors(item.end - item.begin);
      for (size_t s = item.begin; s < item.end; ++s) {
        floors[s - item.begin] = sections_[s].floor;
        sections_[s].floor = candidate.offset + item.size;
        sections_[s].waiting -= item.size;
      }
      offsets_[item.buffer] = candidate.offset;
      std::vector<uint32_t> rest;
      rest.reserve(waiting.size() - 1);
      for (uint32_t i : waiting)
        if (i != candidate.item) rest.push_back(i);
      const Outcome outcome = solve_apart(std::move(rest), candidate.offset, candidate.item);
      if (outcome == Outcome::kFound) return outcome;
      for (size_t s = item.begin; s < item.end; ++s) {
        sections_[s].floor = floors[s - item.begin];
        sections_[s].waiting += item.size;
      }
      if (outcome == Outcome::kStopped) return outcome;
    }
    return Outcome::kNone;
  }

  // Who may come next, lowest first; false if some section cannot hold what still waits for it.
  bool look(const std::vector<uint32_t>& waiting, int64_t last_offset, uint32_t last_item,
            std::vector<Candidate>& candidates) {
    constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
    size_t low_section = sections_.size(), high_section = 0;
    for (uint32_t i : waiting) {
      low_section = std::min(low_section, items_[i].begin);
      high_section = std::max(high_section, items_[i].end);
    }
    std::fill(lowest_.begin() + static_cast<int64_t>(low_section),
              lowest_.begin() + static_cast<int64_t>(high_section), kHigh);
    int64_t least_top = kHigh;
    for (uint32_t i : waiting) {
      const Item& item = items_[i];
      int64_t offset = 0;
      for (size_t s = item.begin; s < item.end; ++s) offset = std::max(offset, sections_[s].floor);
      offset = align_up(offset, item.alignment);
      // Passed over at its place, it can only lie higher later, when something has come under it.
      const bool passed = offset < last_offset || (offset == last_offset && i < last_item);
      const int64_t at_least = std::max(offset, align_up(last_offset, item.alignment));
      if (at_least + item.size > capacity_) return false;
      for (size_t s = item.begin; s < item.end; ++s) lowest_[s] = std::min(lowest_[s], at_least);
      least_top = std::min(least_top, at_least + item.size);
      if (!passed) candidates.push_back({offset, i});
    }
    for (size_t s = low_section; s < high_section; ++s)
      if (sections_[s].waiting > 0 &&
          std::max(sections_[s].floor, lowest_[s]) + sections_[s].waiting > capacity_)
        return false;
    // Whoever starts above another's top comes after it.
    std::erase_if(candidates, [&](const Candidate& c) { return c.offset >= least_top; });
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.item < b.item;
    });
    return true;
  }

  const int64_t capacity_;
  const int64_t most_work_;
  Deadline& deadline_;
  int64_t work_ = 0;
  std::vector<Item> items_;  // by rank
  std::vector<Section> sections_;
  std::vector<int64_t> lowest_;  // scratch of look
  std::vector<int64_t> offsets_;
};

// Ranks to try: the most contended first, then by what else makes a buffer hard to place.
std::vector<std::vector<uint32_t>> ranks_of(const Instance& instance) {
  std::vector<uint32_t> all;
  for (uint32_t b = 0; b < instance.size(); ++b)
    if (!instance.empty(b)) all.push_back(b);
  const auto area = [&](uint32_t b) {
    return static_cast<double>(instance.buffer(b).size) *
           static_cast<double>(instance.buffer(b).life.size());
  };
  const auto contention = [&](uint32_t b) { return instance.contention()[b]; };
  const auto length = [&](uint32_t b) { return instance.buffer(b).life.size(); };
  std::vector<std::vector<uint32_t>> ranks(4, all);
  std::stable_sort(ranks[0].begin(), ranks[0].end(), [&](uint32_t a, uint32_t b) {
    return contention(a) != contention(b) ? contention(a) > contention(b) : area(a) > area(b);
  });
  std::stable_sort(ranks[1].begin(), ranks[1].end(), [&](uint32_t a, uint32_t b) {
    return contention(a) != contention(b) ? contention(a) > contention(b) : length(a) > length(b);
  });
  std::stable_sort(ranks[2].begin(), ranks[2].end(), [&](uint32_t a, uint32_t b) {
    return length(a) != length(b) ? length(a) > length(b) : area(a) > area(b);
  });
  std::stable_sort(ranks[3].begin(), ranks[3].end(),
                   [&](uint32_t a, uint32_t b) { return area(a) > area(b); });
  return ranks;
}

}  // namespace

bool exact_applies(const Instance& instance) {
  if (instance.size() > kMostBuffers) return false;
  for (size_t b = 0; b < instance.size(); ++b)
    if (!instance.free(b) || !instance.buffer(b).gaps.empty()) return false;
  return true;
}

ExactResult search_exact(const Instance& instance, int64_t capacity, int64_t most_work,
                         Deadline& deadline) {
  ExactResult result;
  const auto ranks = ranks_of(instance);
  int64_t work = 0;
  // Rising limits, ranks in turn: a rank that goes astray early costs little.
  for (int64_t limit = 10'000;; limit *= 4) {
    for (const auto& rank : ranks) {
      if (work >= most_work || deadline.reached()) return result;
      Search search(instance, rank, capacity, std::min(limit, most_work - work), deadline);
      const Outcome outcome = search.run();
      work += search.work();
      if (outcome == Outcome::kFound) {
        result.offsets = search.offsets();
        return result;
      }
      if (outcome == Outcome::kNone) {
        result.proved_infeasible = true;
        return result;
      }
    }
  }
}

}  // namespace outsize::packing
