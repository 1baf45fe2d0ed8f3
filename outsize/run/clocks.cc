#include "outsize/run/clocks.h"

#include <algorithm>

namespace outsize {

void AccessClocks::reset() {
  const std::lock_guard lock(mutex_);
  for (Ranges& ranges : tiers_) ranges.clear();
  clocks_ = {};
  for (auto& ended : ended_) ended.clear();
}

std::optional<Conflict> AccessClocks::begin(Stream stream, int64_t count, InstructionId instruction,
                                            const std::vector<WaitFor>& waits,
                                            const std::vector<Touch>& touches) {
  const std::lock_guard lock(mutex_);
  StreamClock& clock = clocks_[static_cast<size_t>(stream)];
  for (const WaitFor& wait : waits) {
    const auto& ended = ended_[static_cast<size_t>(wait.stream)];
    OUTSIZE_CHECK(wait.count <= static_cast<int64_t>(ended.size()),
                  "instruction {} began although stream {} has ended only {} of {} instructions",
                  instruction.value, kStreamNames.name(wait.stream), ended.size(), wait.count);
    const StreamClock& other = ended[static_cast<size_t>(wait.count - 1)];
    for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
  }
  std::optional<Conflict> first;
  for (const Touch& t : touches) {
    if (t.range.empty()) continue;
    std::optional<Conflict> conflict = touch(t, stream, {count, instruction}, clock);
    if (!first) first = conflict;
  }
  return first;
}

void AccessClocks::end(Stream stream, int64_t count) {
  const std::lock_guard lock(mutex_);
  StreamClock& clock = clocks_[static_cast<size_t>(stream)];
  clock[static_cast<size_t>(stream)] = count;
  ended_[static_cast<size_t>(stream)].push_back(clock);
}

void AccessClocks::split_at(Ranges& ranges, int64_t address) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return;
  auto at = std::prev(after);
  if (at->first == address || at->second.end <= address) return;
  Range right = at->second;
  at->second.end = address;
  ranges.emplace(address, right);
}

std::optional<Conflict> AccessClocks::touch(const Touch& touch, Stream stream, const Mark& mark,
                                            const StreamClock& clock) {
  Ranges& ranges = tiers_[static_cast<size_t>(touch.tier)];
  split_at(ranges, touch.range.begin);
  split_at(ranges, touch.range.end);
  std::optional<Conflict> first;
  const auto report = [&](const Mark& earlier, bool writes, Interval range) {
    // An instruction may touch the same bytes twice.
    if (first || earlier.instruction == mark.instruction) return;
    first =
        Conflict{earlier.instruction, mark.instruction, touch.tier, range, writes, touch.writes};
  };
  const auto own = static_cast<size_t>(stream);
  int64_t at = touch.range.begin;
  auto next = ranges.lower_bound(at);
  while (at < touch.range.end) {
    if (next == ranges.end() || next->first > at) {  // never touched: fill the gap
      const int64_t end =
          next == ranges.end() ? touch.range.end : std::min(touch.range.end, next->first);
      Range fresh;
      fresh.end = end;
      next = ranges.emplace_hint(next, at, fresh);
    }
    Range& range = next->second;
    const Interval here{at, range.end};
    if (range.write.count > clock[static_cast<size_t>(range.writer)] && range.writer != stream)
      report(range.write, true, here);
    if (touch.writes) {
      for (size_t s = 0; s < range.reads.size(); ++s)
        if (s != own && range.reads[s].count > clock[s]) report(range.reads[s], false, here);
      range.writer = stream;
      range.write = mark;
      range.reads = {};
    } else {
      range.reads[own] = mark;
    }
    at = range.end;
    ++next;
  }
  return first;
}

}  // namespace outsize
