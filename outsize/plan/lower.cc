#include "outsize/plan/lower.h"

#include <algorithm>
#include <array>
#include <map>

namespace outsize {
namespace {

constexpr int32_t kNone = -1;
using Clock =
    std::array<int32_t, kStreams>;  // per stream: the last instruction known to have ended

Clock empty_clock() {
  Clock clock;
  clock.fill(kNone);
  return clock;
}

// Who touched the bytes from a segment's begin to the next segment's begin last.
struct Segment {
  int32_t writer = kNone;
  Clock readers = empty_clock();  // per stream, since that write; the stream's last is enough
};

// The touches of one tier, as a map from each segment's begin. Bytes past the last one are
// untouched.
class Touches {
 public:
  Touches() { segments_[0]; }

  void read(Interval range, int32_t at, int stream, std::vector<int32_t>& conflicts) {
    if (range.empty()) return;
    cut(range.begin);
    cut(range.end);
    for (auto it = segments_.find(range.begin); it->first < range.end; ++it) {
      if (it->second.writer != kNone) conflicts.push_back(it->second.writer);
      it->second.readers[static_cast<size_t>(stream)] = at;
    }
  }

  void write(Interval range, int32_t at, std::vector<int32_t>& conflicts) {
    if (range.empty()) return;
    cut(range.begin);
    cut(range.end);
    auto it = segments_.find(range.begin);
    while (it->first < range.end) {
      if (it->second.writer != kNone) conflicts.push_back(it->second.writer);
      for (int32_t reader : it->second.readers)
        if (reader != kNone) conflicts.push_back(reader);
      it = segments_.erase(it);
    }
    segments_[range.begin].writer = at;
  }

 private:
  // Makes `at` the begin of a segment.
  void cut(int64_t at) {
    auto it = std::prev(segments_.upper_bound(at));
    if (it->first != at) segments_.emplace_hint(std::next(it), at, it->second);
  }

  std::map<int64_t, Segment> segments_;
};

Interval bytes_in(const Residency& residency, Interval bytes) {
  return bytes.shifted(residency.address - residency.part.bytes.begin);
}

struct Streams {
  const Plan& plan;
  std::vector<Clock> known;    // per instruction: what has ended when it ends, itself included
  Clock last = empty_clock();  // per stream: its last instruction so far

  size_t stream_of(int32_t at) const {
    return static_cast<size_t>(plan.instructions[static_cast<size_t>(at)].stream);
  }

  // Keeps of `conflicts` those that don't follow from the stream's own order or from one another.
  std::vector<InstructionId> waits_for(size_t at, std::vector<int32_t>& conflicts) {
    size_t own = static_cast<size_t>(plan.instructions[at].stream);
    Clock clock = last[own] == kNone ? empty_clock() : known[static_cast<size_t>(last[own])];
    Clock wanted = empty_clock();
    for (int32_t c : conflicts) wanted[stream_of(c)] = std::max(wanted[stream_of(c)], c);
    std::vector<int32_t> open;
    for (size_t s = 0; s < kStreams; ++s)
      if (s != own && wanted[s] > clock[s]) open.push_back(wanted[s]);
    std::vector<InstructionId> waits;
    for (int32_t c : open) {
      bool follows = std::any_of(open.begin(), open.end(), [&](int32_t other) {
        return other != c && known[static_cast<size_t>(other)][stream_of(c)] >= c;
      });
      if (!follows) waits.emplace_back(c);
    }
    for (int32_t c : open)
      for (size_t s = 0; s < kStreams; ++s)
        clock[s] = std::max(clock[s], known[static_cast<size_t>(c)][s]);
    clock[own] = static_cast<int32_t>(at);
    known.push_back(clock);
    last[own] = static_cast<int32_t>(at);
    std::sort(waits.begin(), waits.end());
    return waits;
  }
};

}  // namespace

Plan lower(const Graph& graph, Plan sequence) {
  std::array<Touches, kTiers> tiers;
  Streams streams{sequence, {}};
  streams.known.reserve(sequence.instructions.size());
  std::vector<std::vector<InstructionId>> waits;
  waits.reserve(sequence.instructions.size());
  std::vector<int32_t> conflicts;
  for (size_t i = 0; i < sequence.instructions.size(); ++i) {
    const Instruction& instruction = sequence.instructions[i];
    int32_t at = static_cast<int32_t>(i);
    int stream = static_cast<int>(instruction.stream);
    conflicts.clear();
    auto touches_on = [&](Tier tier) -> Touches& { return tiers[static_cast<size_t>(tier)]; };
    if (instruction.kind == InstructionKind::kCopy) {
      const Residency& from = sequence.residency(instruction.from);
      const Residency& to = sequence.residency(instruction.to);
      touches_on(from.tier).read(bytes_in(from, instruction.bytes), at, stream, conflicts);
      touches_on(to.tier).write(bytes_in(to, instruction.bytes), at, conflicts);
    } else {
      std::vector<OperandAccess> accesses = accesses_of(graph.op(instruction.op));
      OUTSIZE_CHECK(accesses.size() == instruction.operands.size(),
                    "instruction {} has {} operands, its op {} accesses", i,
                    instruction.operands.size(), accesses.size());
      for (size_t k = 0; k < accesses.size(); ++k) {
        const Residency& residency = sequence.residency(instruction.operands[k]);
        Interval range = bytes_in(residency, accesses[k].access.bytes);
        if (accesses[k].writes)
          touches_on(residency.tier).write(range, at, conflicts);
        else
          touches_on(residency.tier).read(range, at, stream, conflicts);
      }
      touches_on(Tier::kDevice).write(instruction.workspace, at, conflicts);
    }
    // An op that reads what it also writes meets itself.
    std::erase(conflicts, at);
    waits.push_back(streams.waits_for(i, conflicts));
  }
  for (size_t i = 0; i < waits.size(); ++i) sequence.instructions[i].waits = std::move(waits[i]);
  return sequence;
}

}  // namespace outsize
