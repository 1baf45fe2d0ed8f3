#include "outsize/simulate/engine.h"

#include <fmt/format.h>

#include <algorithm>

namespace outsize {
namespace {

constexpr int64_t kForever = int64_t{1} << 62;  // ns: 146 years
constexpr int64_t kFullSpeed = 1000;            // an op's rate
constexpr int64_t kNanobytes = 1'000'000'000;   // per byte

__extension__ using Wide = __int128;

int64_t scaled(int64_t rate, int64_t by, int64_t over) {
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<Wide>(rate) * by / over));
}

// ns until `remaining` is done at `rate`, at most kForever.
int64_t time_for(Wide remaining, int64_t rate) {
  if (remaining <= 0) return 0;
  if (remaining < kForever) {
    const auto left = static_cast<int64_t>(remaining);
    return left / rate + (left % rate != 0 ? 1 : 0);
  }
  const Wide ns = (remaining + rate - 1) / rate;
  return ns < kForever ? static_cast<int64_t>(ns) : kForever;
}

}  // namespace

Engine::Engine(const Machine& machine, const Plan& plan, const std::vector<Work>& works)
    : machine_(machine),
      plan_(plan),
      works_(works),
      ended_(plan.instructions.size(), 0),
      left_(plan.instructions.size()) {
  for (size_t i = 0; i < plan.instructions.size(); ++i)
    lanes_[static_cast<size_t>(plan.instructions[i].stream)].queue.push_back(
        static_cast<int32_t>(i));
}

Result<int64_t> Engine::run(std::vector<Event>* events) {
  while (true) {
    settle(events);
    if (left_ == 0) return now_;
    set_rates();
    int64_t next = kForever;
    bool busy = false;
    for (const Lane& lane : lanes_) {
      if (lane.phase == Phase::kIdle) continue;
      busy = true;
      next = std::min(next, lane.end_ns);
    }
    if (!busy) return stuck();
    if (next >= kForever)
      return bad_input("the step takes more than 2^62 ns on '{}'", machine_.name);
    now_ = next;
  }
}

// Ends what is done and starts what can, until nothing changes at this moment.
void Engine::settle(std::vector<Event>* events) {
  bool changed = true;
  while (changed) {
    changed = end_done(events);
    changed = begin_ready(events) || changed;
  }
}

bool Engine::end_done(std::vector<Event>* events) {
  bool changed = false;
  for (Lane& lane : lanes_) {
    if (lane.phase == Phase::kLatency && lane.end_ns <= now_) enter_work(lane);
    // Work that has just begun has no rate yet; it is done only if there is none of it.
    if (lane.phase != Phase::kWorking) continue;
    if (lane.rate == 0 ? lane.remaining > 0 : lane.end_ns > now_) continue;
    ended_[static_cast<size_t>(lane.current)] = 1;
    --left_;
    if (events != nullptr) events->push_back({now_, lane.current, false});
    lane.phase = Phase::kIdle;
    changed = true;
  }
  return changed;
}

bool Engine::begin_ready(std::vector<Event>* events) {
  bool changed = false;
  for (Lane& lane : lanes_) {
    if (lane.phase != Phase::kIdle || !is_ready(lane)) continue;
    begin(lane);
    if (events != nullptr) events->push_back({now_, lane.current, true});
    changed = true;
  }
  return changed;
}

bool Engine::is_ready(Lane& lane) const {
  if (lane.next == lane.queue.size()) return false;
  const auto& waits = plan_.instructions[static_cast<size_t>(lane.queue[lane.next])].waits;
  while (lane.wait < waits.size() && ended_[waits[lane.wait].index()]) ++lane.wait;
  return lane.wait == waits.size();
}

void Engine::begin(Lane& lane) {
  lane.current = lane.queue[lane.next++];
  lane.wait = 0;
  const Work& work = works_[static_cast<size_t>(lane.current)];
  lane.copies = work.road != Road::kNone;
  if (lane.copies && work.ns > 0) {
    lane.phase = Phase::kLatency;
    lane.end_ns = std::min(kForever, now_ + std::min(work.ns, kForever));
  } else {
    enter_work(lane);
  }
}

void Engine::enter_work(Lane& lane) {
  const Work& work = works_[static_cast<size_t>(lane.current)];
  lane.phase = Phase::kWorking;
  lane.remaining = lane.copies ? static_cast<Wide>(work.bytes) * kNanobytes
                               : static_cast<Wide>(work.ns) * kFullSpeed;
  lane.rate = 0;
  lane.since_ns = now_;
}

void Engine::set_rates() {
  std::array<int64_t, kStreams> rates = {};
  bool copying = false;
  int64_t op_rate = kFullSpeed;  // beside what is copied now
  for (size_t s = 0; s < kStreams; ++s) {
    const Lane& lane = lanes_[s];
    if (lane.phase != Phase::kWorking || !lane.copies) continue;
    rates[s] = works_[static_cast<size_t>(lane.current)].bytes_per_s;
    copying = true;
    op_rate = std::min(op_rate, is_disk(road_at(s)) ? machine_.compute_permille_beside_disk
                                                    : machine_.compute_permille_beside_copy);
  }
  Lane& compute = lanes_[static_cast<size_t>(Stream::kCompute)];
  const bool computing = compute.phase == Phase::kWorking && !compute.copies;
  if (copying) {
    share_roads(rates);
    share_pair(Road::kOut, Road::kIn, machine_.both_bytes_per_s, rates);
    share_pair(Road::kWrite, Road::kRead, machine_.disk_both_bytes_per_s, rates);
    for (size_t s = 0; s < kStreams; ++s) {
      if (rates[s] == 0) continue;
      if (computing)
        rates[s] = scaled(rates[s],
                          is_disk(road_at(s)) ? machine_.disk_permille_beside_compute
                                              : machine_.copy_permille_beside_compute,
                          1000);
      set_rate(lanes_[s], rates[s]);
    }
  }
  // A copy in the compute stream leaves no op to be slowed.
  if (computing) set_rate(compute, std::max<int64_t>(1, op_rate));
}

Road Engine::road_at(size_t lane) const {
  return works_[static_cast<size_t>(lanes_[lane].current)].road;
}

// Copies on one road: the compute stream may hold one beside the road's own stream's.
void Engine::share_roads(std::array<int64_t, kStreams>& rates) const {
  std::array<int64_t, kRoads> sum = {}, fastest = {};
  for (size_t s = 0; s < kStreams; ++s) {
    if (rates[s] == 0) continue;
    const auto road = static_cast<size_t>(road_at(s));
    sum[road] += rates[s];
    fastest[road] = std::max(fastest[road], rates[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) {
    if (rates[s] == 0) continue;
    const auto road = static_cast<size_t>(road_at(s));
    if (sum[road] > fastest[road]) rates[s] = scaled(rates[s], fastest[road], sum[road]);
  }
}

void Engine::share_pair(Road one, Road other, int64_t both_bytes_per_s,
                        std::array<int64_t, kStreams>& rates) const {
  if (both_bytes_per_s <= 0) return;
  bool moves_one = false, moves_other = false;
  int64_t sum = 0, most = both_bytes_per_s;
  for (size_t s = 0; s < kStreams; ++s) {
    if (rates[s] == 0) continue;
    const Road road = road_at(s);
    if (road != one && road != other) continue;
    (road == one ? moves_one : moves_other) = true;
    sum += rates[s];
    most = std::max(most, works_[static_cast<size_t>(lanes_[s].current)].bytes_per_s);
  }
  if (!moves_one || !moves_other || sum <= most) return;
  for (size_t s = 0; s < kStreams; ++s)
    if (rates[s] != 0 && (road_at(s) == one || road_at(s) == other))
      rates[s] = scaled(rates[s], most, sum);
}

void Engine::set_rate(Lane& lane, int64_t rate) {
  if (lane.rate == rate) return;
  lane.remaining -= static_cast<Wide>(now_ - lane.since_ns) * lane.rate;
  lane.since_ns = now_;
  lane.rate = rate;
  lane.end_ns = std::min(kForever, now_ + time_for(lane.remaining, rate));
}

Result<int64_t> Engine::stuck() const {
  for (const Lane& lane : lanes_)
    if (lane.next < lane.queue.size()) {
      const int32_t first = lane.queue[lane.next];
      return Error{
          ErrorKind::kIllegal,
          fmt::format("instruction {} waits for ever for instruction {}", first,
                      plan_.instructions[static_cast<size_t>(first)].waits[lane.wait].value)};
    }
  OUTSIZE_CHECK(false, "{} instructions left and no stream has any", left_);
}

}  // namespace outsize
