#include "outsize/pack/core.h"

#include <algorithm>

namespace outsize::packing {
namespace {

// Up to this many sections, all of them are the core's from the start.
constexpr size_t kFewSections = 400;
// Work of the shortest run before the search starts again with another order of choices, beside one
// and a half times straight to the end.
constexpr int64_t kShortRun = 2'000;

// 1 1 2 1 1 2 4 1 1 2 ...: the lengths of runs that suit when nothing is known about how long a
// lucky one takes.
int64_t luby(uint64_t i) {
  uint64_t k = 1;
  while ((uint64_t{1} << k) - 1 < i) ++k;
  if ((uint64_t{1} << k) - 1 == i) return int64_t{1} << (k - 1);
  return luby(i - (uint64_t{1} << (k - 1)) + 1);
}

}  // namespace

bool CoreSearch::applies(const Instance& instance) {
  int64_t alignment = 0;
  for (size_t b = 0; b < instance.size(); ++b) {
    if (instance.empty(b)) continue;
    const Buffer& buffer = instance.buffer(b);
    if (buffer.offset || !buffer.gaps.empty()) return false;
    if (alignment != 0 && buffer.alignment != alignment) return false;
    alignment = buffer.alignment;
  }
  return true;
}

CoreSearch::CoreSearch(const Instance& instance, int64_t capacity, uint64_t seed)
    : instance_(instance), capacity_(capacity), seed_(seed), offsets_(instance.size(), 0) {
  bool multiples = true;
  for (size_t b = 0; b < instance.size(); ++b) {
    if (instance.empty(b)) continue;
    alignment_ = instance.buffer(b).alignment;
    multiples = multiples && instance.buffer(b).size % alignment_ == 0;
  }
  // Sizes are rounded up to the alignment: nothing lost below others, but perhaps at the very top.
  proves_ = multiples || capacity % alignment_ == 0;
  choose_sections();
}

void CoreSearch::choose_sections() {
  struct Event {
    int64_t time;
    bool begins;
    int64_t bytes;
  };
  std::vector<Event> events;
  for (size_t b = 0; b < instance_.size(); ++b) {
    if (instance_.empty(b)) continue;
    const Buffer& buffer = instance_.buffer(b);
    events.push_back({buffer.life.begin, true, buffer.size});
    events.push_back({buffer.life.end, false, buffer.size});
  }
  std::sort(events.begin(), events.end(), [](const Event& x, const Event& y) {
    return x.time != y.time ? x.time < y.time : x.begins < y.begins;
  });
  // A section that nobody else's contains ends where someone ends after someone has begun.
  int64_t load = 0;
  bool grown = false;
  int64_t begin = 0;
  for (const Event& event : events) {
    if (event.begins) {
      load += event.bytes;
      grown = true;
      begin = event.time;
      continue;
    }
    if (grown) {
      sections_.begin.push_back(begin);
      sections_.load.push_back(load);
    }
    grown = false;
    load -= event.bytes;
  }
  sections_.first.assign(instance_.size(), 0);
  sections_.last.assign(instance_.size(), 0);
  const auto index = [&](int64_t time) {
    return static_cast<uint32_t>(
        std::lower_bound(sections_.begin.begin(), sections_.begin.end(), time) -
        sections_.begin.begin());
  };
  for (size_t b = 0; b < instance_.size(); ++b) {
    if (instance_.empty(b)) continue;
    sections_.first[b] = index(instance_.buffer(b).life.begin);
    sections_.last[b] = index(instance_.buffer(b).life.end);
  }
  chosen_.assign(sections_.load.size(), 1);
  if (chosen_.size() <= kFewSections) return;
  // The fullest hundred, less whoever is only as full as the next one.
  std::vector<int64_t> loads = sections_.load;
  std::nth_element(loads.begin(), loads.begin() + kFewSections / 4, loads.end(), std::greater<>());
  const int64_t least = loads[kFewSections / 4];
  for (size_t s = 0; s < chosen_.size(); ++s) chosen_[s] = sections_.load[s] > least;
}

void CoreSearch::make_core() {
  std::vector<uint32_t> place(chosen_.size() + 1, 0);  // chosen sections before this one
  for (size_t s = 0; s < chosen_.size(); ++s) place[s + 1] = place[s] + (chosen_[s] ? 1 : 0);
  members_.clear();
  std::vector<SkylineItem> items;
  for (uint32_t b = 0; b < instance_.size(); ++b) {
    if (instance_.empty(b)) continue;
    const uint32_t begin = place[sections_.first[b]], end = place[sections_.last[b]];
    if (begin == end) continue;
    members_.push_back(b);
    items.push_back({begin, end, (instance_.buffer(b).size + alignment_ - 1) / alignment_});
  }
  search_ = std::make_unique<SkylineSearch>(items, capacity_ / alignment_);
  const auto straight = static_cast<int64_t>(items.size() * (1 + place.back() / 64));
  run_length_ = kShortRun + straight + straight / 2;
}

// Puts everyone outside the core where there is room, and those of the core that meet another one
// in a section that was not chosen. False if someone ends above the capacity; then the fullest
// section of each such life is chosen as well.
bool CoreSearch::fill(Deadline& deadline) {
  Placer placer(instance_);
  std::vector<uint32_t> others;
  std::vector<char> member(instance_.size(), 0);
  std::vector<int64_t> offsets(instance_.size(), 0);
  for (size_t i = 0; i < members_.size(); ++i) {
    member[members_[i]] = 1;
    offsets[members_[i]] = search_->offsets()[i] * alignment_;
  }
  // The largest stay where they are.
  const auto larger = [&](uint32_t a, uint32_t b) {
    const Buffer &x = instance_.buffer(a), &y = instance_.buffer(b);
    return x.size != y.size ? x.size > y.size : x.life.size() > y.life.size();
  };
  std::stable_sort(members_.begin(), members_.end(), larger);
  for (uint32_t b : members_) {
    if (placer.fits(b, offsets[b]))
      placer.put(b, offsets[b]);
    else
      others.push_back(b);
  }
  for (uint32_t b = 0; b < instance_.size(); ++b)
    if (!member[b] && !instance_.empty(b)) others.push_back(b);
  std::stable_sort(others.begin(), others.end(), larger);
  bool fits = true;
  for (uint32_t b : others) {
    const int64_t at = placer.find(b, Fit::kFirst);
    placer.put(b, at);
    if (at + instance_.buffer(b).size <= capacity_) continue;
    fits = false;
    choose_fullest(b);
  }
  deadline.spend(placer.work());
  if (fits) offsets_ = placer.offsets();
  return fits;
}

void CoreSearch::choose_fullest(uint32_t b) {
  size_t fullest = chosen_.size();
  for (size_t s = sections_.first[b]; s < sections_.last[b]; ++s)
    if (!chosen_[s] && (fullest == chosen_.size() || sections_.load[s] > sections_.load[fullest]))
      fullest = s;
  // Another one may have chosen the last of them.
  if (fullest < chosen_.size()) chosen_[fullest] = 1;
}

CoreSearch::Outcome CoreSearch::turn(int64_t most_work, Deadline& deadline) {
  const int64_t stop_at = deadline.work_done() + most_work;
  while (outcome_ == Outcome::kStopped && deadline.work_done() < stop_at && !deadline.reached()) {
    if (!search_) make_core();
    const int64_t length =
        std::min(run_length_ * luby(++restarts_), stop_at - deadline.work_done());
    const Outcome outcome = search_->run(seed_ * 0x10000 + restarts_ - 1, length, deadline);
    if (outcome == Outcome::kNone) {
      outcome_ = Outcome::kNone;
      break;
    }
    if (outcome == Outcome::kFound) {
      if (fill(deadline)) outcome_ = Outcome::kFound;
      search_.reset();
    }
  }
  return outcome_;
}

}  // namespace outsize::packing
