#include "outsize/planners/capuchin/policy.h"

#include <algorithm>
#include <limits>

#include "outsize/planners/lineage.h"
#include "outsize/planners/tensor_cache.h"

namespace outsize::planning::capuchin {
namespace {

std::vector<int64_t> kept_usage(const Case& c, const Program& program, int64_t capacity) {
  return usage_of(c, program, timed_moves(c, program, capacity));
}

// Bytes that leave the device where it runs out of memory and nothing is planned.
int64_t passive_bytes(const Case& c, int64_t capacity, bool swap) {
  const Program program = plain_program(c);
  const std::vector<int64_t> usage = kept_usage(c, program, capacity);
  const int64_t over = *std::max_element(usage.begin(), usage.end()) - capacity;
  if (over <= 0) return 0;
  std::vector<int32_t> sent;
  if (swap)
    for (const CacheStay& stay : run_cache(c, program, usage, capacity).away)
      sent.push_back(stay.gap.instance);
  std::sort(sent.begin(), sent.end());
  sent.erase(std::unique(sent.begin(), sent.end()), sent.end());
  int64_t bytes = 0;
  for (int32_t i : sent) bytes += device_bytes_of(c, program.part_of(i));
  return std::max(bytes, over);
}

// The swaps chosen so far on their lanes.
class Lanes {
 public:
  void add(const Pair& pair) {
    const auto id = pairs_.size();
    pairs_.push_back(pair);
    out_ends_.push_back(0);
    by_leaving_.insert(
        std::upper_bound(by_leaving_.begin(), by_leaving_.end(), id,
                         [&](size_t a, size_t b) { return pairs_[a].leaves < pairs_[b].leaves; }),
        id);
    by_return_.insert(
        std::upper_bound(by_return_.begin(), by_return_.end(), id,
                         [&](size_t a, size_t b) { return pairs_[a].back > pairs_[b].back; }),
        id);
  }
  void drop_last() {
    std::erase(by_leaving_, pairs_.size() - 1);
    std::erase(by_return_, pairs_.size() - 1);
    pairs_.pop_back();
    out_ends_.pop_back();
  }
  // How long accesses wait: out as soon as the lane is free, in as late as is in time.
  int64_t exposed() {
    int64_t total = 0, out_free = 0, in_busy = std::numeric_limits<int64_t>::max();
    for (size_t i : by_leaving_)
      out_free = out_ends_[i] = std::max(out_free, pairs_[i].leaves) + pairs_[i].out_ns;
    for (size_t i : by_return_) {
      in_busy = std::min(in_busy, pairs_[i].back) - pairs_[i].in_ns;
      total += std::max<int64_t>(0, out_ends_[i] - in_busy);
    }
    return total;
  }

 private:
  std::vector<Pair> pairs_;
  std::vector<int64_t> out_ends_;               // per pair
  std::vector<size_t> by_leaving_, by_return_;  // pairs, first to leave first; last back first
};

class Chooser {
 public:
  Chooser(const Case& c, std::vector<Pair> pairs, const Rules& rules)
      : rules_(rules), pairs_(std::move(pairs)) {
    std::stable_sort(pairs_.begin(), pairs_.end(), [&](const Pair& a, const Pair& b) {
      return rules.free_time ? a.free_ns() > b.free_ns() : a.gap.from < b.gap.from;
    });
    remakes_.emplace(rules.recompute ? remakes_of(c, pairs_) : std::vector<Remake>{}, rules.update);
  }

  Choice choose(int64_t bytes) {
    missing_ = bytes;
    if (rules_.swap) swap_hidden();
    while (missing_ > 0 && choose_cheaper()) {
    }
    return std::move(choice_);
  }

 private:
  // The swap's own overhead: what it adds to how long accesses wait.
  int64_t overhead_of(const Pair& pair) {
    if (!rules_.lanes) return std::max<int64_t>(0, -pair.free_ns());
    lanes_.add(pair);
    const int64_t with = lanes_.exposed();
    lanes_.drop_last();
    return with - exposed_;
  }
  void swap(const Pair& pair, int64_t overhead) {
    exposed_ += overhead;
    const Pair swapped = pair;
    choice_.swaps.push_back(swapped);
    lanes_.add(swapped);
    remakes_->remove(swapped.gap.instance);
    settle(swapped);
  }
  void settle(const Pair& pair) {
    missing_ -= pair.bytes;
    const int32_t part = pair.gap.instance;
    std::erase_if(pairs_, [&](const Pair& other) { return other.gap.instance == part; });
  }

  void swap_hidden() {
    for (size_t i = 0; i < pairs_.size() && missing_ > 0;) {
      const int64_t overhead = overhead_of(pairs_[i]);
      if (overhead > 0) {
        ++i;
        continue;
      }
      const int32_t part = pairs_[i].gap.instance;
      const auto before =
          std::count_if(pairs_.begin(), pairs_.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Pair& other) { return other.gap.instance == part; });
      swap(pairs_[i], overhead);
      i -= static_cast<size_t>(before);
    }
  }

  // The swap that comes next or the recomputation that does, whichever costs less.
  bool choose_cheaper() {
    constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    const Remake* remake = remakes_->best();
    const int64_t remake_ns = remake ? remake->cost_ns() : kNever;
    const bool can_swap = rules_.swap && !pairs_.empty();
    const int64_t swap_ns = can_swap ? overhead_of(pairs_.front()) : kNever;
    if (can_swap && swap_ns < remake_ns) {
      swap(pairs_.front(), swap_ns);
      return true;
    }
    if (!remake) return false;
    const int32_t part = remake->tensor;
    const auto pair = std::find_if(pairs_.begin(), pairs_.end(),
                                   [&](const Pair& p) { return p.gap.instance == part; });
    choice_.remakes.push_back(*pair);
    remakes_->choose(part);
    settle(choice_.remakes.back());
    return true;
  }

  const Rules& rules_;
  std::vector<Pair> pairs_;  // left to choose from
  std::optional<Remakes> remakes_;
  Choice choice_;
  Lanes lanes_;
  int64_t exposed_ = 0;  // ns, of the swaps chosen
  int64_t missing_ = 0;  // bytes
};

}  // namespace

int64_t exposed_ns(const std::vector<Pair>& swaps) {
  Lanes lanes;
  for (const Pair& pair : swaps) lanes.add(pair);
  return lanes.exposed();
}

std::vector<Pair> pairs_of(const Case& c, int64_t capacity) {
  const Program program = plain_program(c);
  const std::vector<int64_t> usage = kept_usage(c, program, capacity);
  const std::vector<int64_t> starts = starts_of(c, program);
  std::vector<int32_t> short_before{0};  // ranks where memory is short, counted
  for (int64_t used : usage) short_before.push_back(short_before.back() + (used > capacity));
  std::vector<Pair> pairs;
  for (const Gap& gap : activation_gaps(program)) {
    const PartInfo& part = program.part_of(gap.instance);
    const auto from = static_cast<size_t>(gap.from), to = static_cast<size_t>(gap.to);
    if (part.bytes() == 0 || short_before[to] == short_before[from + 1]) continue;
    Pair pair;
    pair.gap = gap;
    pair.bytes = device_bytes_of(c, part);
    pair.leaves = starts[from + 1];
    pair.back = starts[to];
    pair.out_ns = copy_ns_of(c.problem->machine->out, part.bytes());
    pair.in_ns = copy_ns_of(c.problem->machine->in, part.bytes());
    pairs.push_back(pair);
  }
  return pairs;
}

std::vector<Remake> remakes_of(const Case& c, const std::vector<Pair>& pairs) {
  std::vector<bool> seen(c.parts.parts.size(), false);
  std::vector<Gap> gaps;
  std::vector<Remake> remakes;
  for (const Pair& pair : pairs) {
    const auto part = static_cast<size_t>(pair.gap.instance);
    if (seen[part]) continue;
    seen[part] = true;
    gaps.push_back(pair.gap);
    remakes.push_back({pair.gap.instance, pair.bytes, {}, 0, 0});
  }
  const std::vector<std::optional<Lineage>> lineages = lineages_of(c, gaps);
  for (size_t i = 0; i < gaps.size(); ++i) {
    if (!lineages[i]) continue;
    remakes[i].sources = lineages[i]->sources;
    remakes[i].run_ns = lineages[i]->run_ns;
  }
  for (size_t i = gaps.size(); i-- > 0;)
    if (!lineages[i]) remakes.erase(remakes.begin() + static_cast<std::ptrdiff_t>(i));
  return remakes;
}

Choice choose(const Case& c, int64_t capacity, const Rules& rules, int64_t more) {
  const int64_t bytes = passive_bytes(c, capacity, rules.swap);
  if (bytes == 0) return {};
  return Chooser(c, pairs_of(c, capacity), rules).choose(bytes + more);
}

}  // namespace outsize::planning::capuchin
