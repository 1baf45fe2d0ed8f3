#include "outsize/simulate/reference.h"

#include <algorithm>
#include <map>
#include <vector>

#include "outsize/simulate/work.h"

namespace outsize {
namespace {

__extension__ using Big = __int128;

// One instruction as it stands now. `waiting` counts down first, then `left`.
struct State {
  bool begun = false;
  bool ended = false;
  int64_t waiting = 0;  // ns of latency
  Big left = 0;         // millionths of an op's us, or billionths of a byte
  Span span;
};

class Reference {
 public:
  Reference(const Graph& graph, const Machine& machine, const Plan& plan, std::vector<Work> works)
      : graph_(graph), machine_(machine), plan_(plan), works_(std::move(works)) {
    for (const Work& work : works_) {
      State state;
      if (work.road == Road::kNone)
        state.left = Big{1000} * work.ns;
      else
        state.waiting = work.ns, state.left = Big{1'000'000'000} * work.bytes;
      states_.push_back(state);
    }
    touchers_.resize(plan.residencies.size());
    writers_.resize(plan.residencies.size());
    for (size_t i = 0; i < states_.size(); ++i) note_touches(i);
  }

  Result<Simulation> run() {
    for (const BorderItem& item : plan_.entry) entered_.push_back(item.residency.index());
    note_levels(true);
    note_levels(false);
    while (true) {
      bool changed = true;
      while (changed) {
        changed = end_some();
        changed = begin_some() || changed;
      }
      if (std::all_of(states_.begin(), states_.end(), [](const State& s) { return s.ended; }))
        break;
      if (std::none_of(states_.begin(), states_.end(), active))
        return Error{ErrorKind::kIllegal, "the plan waits for ever"};
      advance();
    }
    return finish();
  }

 private:
  static bool active(const State& state) { return state.begun && !state.ended; }
  static bool working(const State& state) { return active(state) && state.waiting == 0; }
  bool is_copy(size_t i) const { return works_[i].road != Road::kNone; }

  void note_touches(size_t i) {
    const Instruction& instruction = plan_.instructions[i];
    std::vector<std::pair<ResidencyId, bool>> touched;
    if (instruction.kind == InstructionKind::kCopy) {
      touched = {{instruction.from, false}, {instruction.to, true}};
    } else {
      const auto accesses = accesses_of(graph_.op(instruction.op));
      for (size_t k = 0; k < instruction.operands.size(); ++k)
        touched.push_back({instruction.operands[k], accesses[k].writes});
    }
    for (const auto& [id, writes] : touched) {
      touchers_[id.index()].push_back(i);
      if (writes) writers_[id.index()].push_back(i);
    }
  }

  bool end_some() {
    bool some = false;
    for (int stream = 0; stream < kStreams; ++stream)
      for (size_t i = 0; i < states_.size(); ++i) {
        State& state = states_[i];
        if (static_cast<int>(plan_.instructions[i].stream) != stream) continue;
        if (!working(state) || state.left > 0) continue;
        state.ended = true;
        state.span.end_ns = now_;
        note_levels(false);
        some = true;
        break;
      }
    return some;
  }

  bool begin_some() {
    bool some = false;
    for (int stream = 0; stream < kStreams; ++stream)
      for (size_t i = 0; i < states_.size(); ++i) {
        if (static_cast<int>(plan_.instructions[i].stream) != stream || states_[i].ended) continue;
        // The first of its stream that has not ended: it starts, or none of this stream does.
        if (!states_[i].begun && waits_are_over(i)) {
          states_[i].begun = true;
          states_[i].span.begin_ns = now_;
          note_levels(false);
          some = true;
        }
        break;
      }
    return some;
  }

  bool waits_are_over(size_t i) const {
    for (const InstructionId wait : plan_.instructions[i].waits)
      if (!states_[wait.index()].ended) return false;
    return true;
  }

  std::vector<size_t> moving() const {
    std::vector<size_t> all;
    for (size_t i = 0; i < states_.size(); ++i)
      if (working(states_[i]) && is_copy(i)) all.push_back(i);
    return all;
  }

  static int64_t part(int64_t rate, int64_t by, int64_t over) {
    const Big exact = Big{rate} * by / over;
    return exact < 1 ? 1 : static_cast<int64_t>(exact);
  }

  // What each working instruction advances by in 1 ns.
  std::map<size_t, int64_t> rates() const {
    std::map<size_t, int64_t> result;
    const std::vector<size_t> copies = moving();
    for (const size_t i : copies) {
      int64_t fastest = 0, sum = 0;
      for (const size_t k : copies)
        if (works_[k].road == works_[i].road) {
          fastest = std::max(fastest, works_[k].bytes_per_s);
          sum += works_[k].bytes_per_s;
        }
      result[i] = fastest == sum ? sum : part(works_[i].bytes_per_s, fastest, sum);
    }
    share(copies, Road::kOut, Road::kIn, machine_.both_bytes_per_s, result);
    share(copies, Road::kWrite, Road::kRead, machine_.disk_both_bytes_per_s, result);
    bool computing = false;
    for (size_t i = 0; i < states_.size(); ++i)
      if (working(states_[i]) && !is_copy(i)) {
        computing = true;
        result[i] = 1000;
        for (const size_t k : copies)
          result[i] = std::max<int64_t>(
              1,
              std::min(result[i], is_disk(works_[k].road) ? machine_.compute_permille_beside_disk
                                                          : machine_.compute_permille_beside_copy));
      }
    if (computing)
      for (const size_t i : copies)
        result[i] = part(result[i],
                         is_disk(works_[i].road) ? machine_.disk_permille_beside_compute
                                                 : machine_.copy_permille_beside_compute,
                         1000);
    return result;
  }

  void share(const std::vector<size_t>& copies, Road one, Road other, int64_t both,
             std::map<size_t, int64_t>& result) const {
    std::vector<size_t> members;
    bool has_one = false, has_other = false;
    int64_t sum = 0, limit = both;
    for (const size_t i : copies) {
      has_one |= works_[i].road == one;
      has_other |= works_[i].road == other;
      if (works_[i].road != one && works_[i].road != other) continue;
      members.push_back(i);
      sum += result[i];
      limit = std::max(limit, works_[i].bytes_per_s);
    }
    if (both == 0 || !has_one || !has_other || sum <= limit) return;
    for (const size_t i : members) result[i] = part(result[i], limit, sum);
  }

  // To the first moment at which some latency or some work is over.
  void advance() {
    const std::map<size_t, int64_t> speed = rates();
    Big step = -1;
    const auto offer = [&](Big ns) {
      if (step < 0 || ns < step) step = ns;
    };
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!active(states_[i])) continue;
      if (states_[i].waiting > 0)
        offer(states_[i].waiting);
      else
        offer((states_[i].left + speed.at(i) - 1) / speed.at(i));
    }
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!active(states_[i])) continue;
      if (states_[i].waiting > 0)
        states_[i].waiting -= static_cast<int64_t>(step);
      else
        states_[i].left -= step * speed.at(i);
    }
    now_ += static_cast<int64_t>(step);
  }

  bool is_live(size_t r) const {
    const auto begun = [&](size_t i) { return states_[i].begun; };
    const auto ended = [&](size_t i) { return states_[i].ended; };
    const auto& starters = writers_[r].empty() ? touchers_[r] : writers_[r];
    const bool there = is_entered(r) || std::any_of(starters.begin(), starters.end(), begun);
    const bool done = std::all_of(touchers_[r].begin(), touchers_[r].end(), ended);
    return there && (leaves(r) || !done);
  }
  bool is_entered(size_t r) const {
    return std::find(entered_.begin(), entered_.end(), r) != entered_.end();
  }
  bool leaves(size_t r) const {
    return std::any_of(plan_.exit.begin(), plan_.exit.end(),
                       [&](const BorderItem& item) { return item.residency.index() == r; });
  }

  // Notes what every tier holds now; at entry all entry content, wanted or not.
  void note_levels(bool at_entry) {
    std::array<int64_t, kTiers> live = {};
    for (size_t r = 0; r < plan_.residencies.size(); ++r)
      if (at_entry ? is_entered(r) : is_live(r)) {
        const auto tier = static_cast<size_t>(plan_.residencies[r].tier);
        live[tier] += plan_.residencies[r].range().size();
        reach(tier, plan_.residencies[r].range().end);
      }
    for (size_t i = 0; i < states_.size(); ++i)
      if (active(states_[i]) && !is_copy(i) && !plan_.instructions[i].workspace.empty()) {
        live[0] += plan_.instructions[i].workspace.size();
        reach(0, plan_.instructions[i].workspace.end);
      }
    for (size_t tier = 0; tier < kTiers; ++tier) {
      auto& levels = result_.tiers[tier].levels;
      if (levels.empty() || levels.back().live_bytes != live[tier])
        levels.push_back({now_, live[tier]});
    }
  }

  void reach(size_t tier, int64_t end) {
    used_[tier] = true;
    result_.tiers[tier].extent = std::max(result_.tiers[tier].extent, end);
  }

  Simulation finish() {
    result_.step_ns = now_;
    for (size_t i = 0; i < states_.size(); ++i) {
      const Span span = states_[i].span;
      result_.spans.push_back(span);
      const auto stream = static_cast<size_t>(plan_.instructions[i].stream);
      result_.busy_ns[stream] += span.end_ns - span.begin_ns;
      const InstructionKind kind = plan_.instructions[i].kind;
      if (kind == InstructionKind::kRun) result_.compute_ns += works_[i].ns;
      if (kind == InstructionKind::kRerun) result_.recompute_ns += works_[i].ns;
      if (works_[i].road == Road::kOut) result_.moved_out += works_[i].bytes;
      if (works_[i].road == Road::kIn) result_.moved_in += works_[i].bytes;
      if (works_[i].road == Road::kWrite) result_.moved_write += works_[i].bytes;
      if (works_[i].road == Road::kRead) result_.moved_read += works_[i].bytes;
    }
    result_.stall_ns = now_ - result_.compute_ns - result_.recompute_ns;
    for (size_t tier = 0; tier < kTiers; ++tier) {
      if (!used_[tier]) result_.tiers[tier].levels.clear();
      for (const Level& level : result_.tiers[tier].levels)
        result_.tiers[tier].peak_live_bytes =
            std::max(result_.tiers[tier].peak_live_bytes, level.live_bytes);
    }
    return result_;
  }

  const Graph& graph_;
  const Machine& machine_;
  const Plan& plan_;
  const std::vector<Work> works_;
  std::vector<State> states_;
  std::vector<std::vector<size_t>> touchers_, writers_;  // per residency: instructions
  std::vector<size_t> entered_;
  std::array<bool, kTiers> used_ = {};
  int64_t now_ = 0;
  Simulation result_;
};

}  // namespace

Result<Simulation> simulate_reference(const Graph& graph, const Profile& profile,
                                      const Machine& machine, const Plan& plan) {
  Result<std::vector<Work>> works = works_of(graph, profile, machine, plan);
  if (!works.ok()) return works.error();
  return Reference(graph, machine, plan, std::move(*works)).run();
}

}  // namespace outsize
