#include "outsize/planners/tensor_cache.h"

#include <algorithm>
#include <map>
#include <set>

#include "outsize/planners/realise.h"

namespace outsize::planning {
namespace {

class Cache {
 public:
  Cache(const Case& c, const Program& program, std::vector<int64_t> usage, int64_t capacity,
        const std::vector<int32_t>& fetch_at)
      : c_(c),
        program_(program),
        usage_(std::move(usage)),
        capacity_(capacity),
        fetch_at_(fetch_at) {
    for (const Gap& gap : activation_gaps(program))
      if (!program.instance(gap.instance).touches[static_cast<size_t>(gap.touch)].away)
        gaps_[{gap.instance, gap.from}] = gap;
  }

  CacheRun run() {
    for (int32_t r = 0; r < static_cast<int32_t>(program_.size()); ++r) {
      const std::vector<int32_t>& touched = step(r).operands;
      for (int32_t i : touched) forget(i);
      if (std::binary_search(fetch_at_.begin(), fetch_at_.end(), r)) fetch_ahead(r);
      auto due = pending_.equal_range(r);
      pending_.erase(due.first, due.second);  // they arrive here, as planned
      while (usage_[static_cast<size_t>(r)] > capacity_)
        if (!evict(r)) {
          out_.shortfall = {step(r).op, usage_[static_cast<size_t>(r)], capacity_};
          return std::move(out_);
        }
      for (int32_t i : touched) remember(i, r);
    }
    return std::move(out_);
  }

 private:
  const Step& step(int32_t rank) const {
    return program_.step(program_.order()[static_cast<size_t>(rank)]);
  }
  int64_t bytes_of(int32_t instance) const {
    return device_bytes_of(c_, program_.part_of(instance));
  }
  void add(int32_t from, int32_t to, int64_t bytes) {
    for (int32_t r = from; r < to; ++r) usage_[static_cast<size_t>(r)] += bytes;
  }

  void forget(int32_t instance) {
    auto at = held_.find(instance);
    if (at == held_.end()) return;
    by_use_.erase({at->second.from, instance});
    held_.erase(at);
  }
  void remember(int32_t instance, int32_t rank) {
    auto gap = gaps_.find({instance, rank});
    if (gap == gaps_.end() || held_.contains(instance)) return;
    held_[instance] = gap->second;
    by_use_.insert({rank, instance});
  }
  bool evict(int32_t rank) {
    if (by_use_.empty()) return false;
    int32_t instance = by_use_.begin()->second;
    Gap gap = held_[instance];
    forget(instance);
    add(rank, gap.to, -bytes_of(instance));
    pending_.emplace(gap.to, out_.away.size());
    out_.away.push_back({gap, rank, gap.to});
    return true;
  }
  // What is needed up to the next such rank comes back now where there is room.
  void fetch_ahead(int32_t rank) {
    auto next = std::upper_bound(fetch_at_.begin(), fetch_at_.end(), rank);
    int32_t last = next == fetch_at_.end() ? static_cast<int32_t>(program_.size()) : *next;
    for (auto at = pending_.upper_bound(rank); at != pending_.end() && at->first <= last;) {
      CacheStay& stay = out_.away[at->second];
      int64_t bytes = bytes_of(stay.gap.instance);
      bool room = std::all_of(usage_.begin() + rank, usage_.begin() + stay.gap.to,
                              [&](int64_t used) { return used + bytes <= capacity_; });
      if (!room) {
        ++at;
        continue;
      }
      stay.arrive = rank;
      add(rank, stay.gap.to, bytes);
      at = pending_.erase(at);
    }
  }

  const Case& c_;
  const Program& program_;
  std::vector<int64_t> usage_;
  int64_t capacity_;
  const std::vector<int32_t>& fetch_at_;
  std::map<std::pair<int32_t, int32_t>, Gap> gaps_;  // by instance and rank of the touch before
  std::map<int32_t, Gap> held_;                      // per cached instance: the gap it is in
  std::set<std::pair<int32_t, int32_t>> by_use_;     // last use, instance
  std::multimap<int32_t, size_t> pending_;           // by when it is needed: indices into away
  CacheRun out_;
};

}  // namespace

CacheRun run_cache(const Case& c, const Program& program, std::vector<int64_t> usage,
                   int64_t capacity, const std::vector<int32_t>& fetch_at) {
  return Cache(c, program, std::move(usage), capacity, fetch_at).run();
}

void time_stays(const std::vector<CacheStay>& stays, std::vector<Move>& moves) {
  for (const CacheStay& stay : stays) {
    Move* move = move_of(moves, stay.gap);
    move->release = stay.release;
    move->out_after = stay.release - 1;
    move->out_by = stay.release;
    move->arrive = stay.arrive;
    move->in_after = stay.arrive - 1;
    move->in_by = stay.gap.to;
  }
}

}  // namespace outsize::planning
