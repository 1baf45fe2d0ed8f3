#include "outsize/planners/home/evaluate.h"

#include <algorithm>
#include <deque>

namespace outsize::planning::home {
namespace {

class Evaluator {
 public:
  Evaluator(const Stages& stages, const Policy& policy, int64_t capacity, const Rules& rules)
      : s_(stages),
        policy_(policy),
        capacity_(capacity),
        rules_(rules),
        out_ends_(stages.tensors.size(), 0),
        in_ends_(stages.tensors.size(), 0),
        met_in_(stages.tensors.size(), 0) {}

  Score run(const Score& limit) {
    for (size_t r = 0; r < s_.ns.size(); ++r) {
      if (r > 0)
        for (size_t t : s_.leave[r - 1]) leave(t);
      if (rules_.prefetch && r + 1 < s_.ns.size()) prefetch(r + 1);
      for (size_t t : s_.enter[r])  // from here on they are among the stage's own bytes
        if (policy_[t] == Action::kKeep || (policy_[t] == Action::kSwap && rules_.prefetch))
          held_ -= tensor(t).bytes;
      make_room(s_.bytes[r]);
      for (size_t t : s_.enter[r]) enter(t, static_cast<int32_t>(r));
      score_.ns += s_.ns[r];
      if (score_ > limit) break;
    }
    return score_;
  }

 private:
  const Tensor& tensor(size_t t) const { return s_.tensors[t]; }

  void leave(size_t t) {
    if (policy_[t] == Action::kRecompute) return;
    held_ += tensor(t).bytes;
    if (policy_[t] == Action::kKeep) return;
    out_free_ = out_ends_[t] = std::max(out_free_, score_.ns) + tensor(t).out_ns;
    leaving_.push_back(t);
    if (!rules_.asynchronous) wait_for_copy_out();
  }

  void wait_for_copy_out() {
    const size_t t = leaving_.front();
    leaving_.pop_front();
    score_.ns = std::max(score_.ns, out_ends_[t]);
    held_ -= tensor(t).bytes;
  }

  void start_in(size_t t) {
    const int64_t start = std::max({in_free_, score_.ns, out_ends_[t]});
    in_free_ = in_ends_[t] = start + tensor(t).in_ns;
  }

  void prefetch(size_t rank) {
    for (size_t t : s_.enter[rank])
      if (policy_[t] == Action::kSwap) {
        start_in(t);
        held_ += tensor(t).bytes;
      }
  }

  void make_room(int64_t bytes) {
    while (!leaving_.empty() && out_ends_[leaving_.front()] <= score_.ns) wait_for_copy_out();
    while (bytes + held_ > capacity_) {
      if (leaving_.empty()) {
        score_.excess += bytes + held_ - capacity_;
        return;
      }
      wait_for_copy_out();
    }
  }

  void enter(size_t t, int32_t rank) {
    if (policy_[t] == Action::kRecompute) return remake(t, rank);
    if (policy_[t] == Action::kKeep) return;
    if (!rules_.prefetch) start_in(t);
    score_.ns = std::max(score_.ns, in_ends_[t]);
  }

  // From what is there; what else it needs is copied in, or made again first, and not kept.
  void remake(size_t tensor_id, int32_t rank) {
    ++remakes_;
    std::vector<size_t> open{tensor_id};
    while (!open.empty()) {
      const size_t t = open.back();
      open.pop_back();
      score_.ns += tensor(t).remake_ns;
      for (size_t source : tensor(t).sources) {
        if (met_in_[source] == remakes_) continue;
        met_in_[source] = remakes_;
        const bool over = tensor(source).last < rank;
        const bool back = tensor(source).gap.to <= rank || policy_[source] == Action::kKeep;
        if (!over && back) continue;
        if (over || policy_[source] == Action::kRecompute) {
          open.push_back(source);
        } else {
          start_in(source);
          score_.ns = std::max(score_.ns, in_ends_[source]);
        }
      }
    }
  }

  const Stages& s_;
  const Policy& policy_;
  int64_t capacity_;
  const Rules& rules_;
  std::vector<int64_t> out_ends_, in_ends_;  // per tensor
  std::vector<int64_t> met_in_;              // per tensor: the last remake that asked for it
  int64_t remakes_ = 0;
  std::deque<size_t> leaving_;
  int64_t out_free_ = 0, in_free_ = 0;
  int64_t held_ = 0;  // bytes of tensors in their gaps
  Score score_;
};

}  // namespace

Stages stages_of(const Case& c, int64_t capacity) {
  Program program = plain_program(c);
  const auto forward = static_cast<int32_t>(forward_ops(*c.problem->graph));
  const std::vector<Gap> gaps = stashed_gaps(program, forward);
  const std::vector<std::optional<Lineage>> lineages = lineages_of(c, gaps);
  std::vector<size_t> tensor_of(c.parts.parts.size(), gaps.size());
  for (size_t i = 0; i < gaps.size(); ++i) tensor_of[static_cast<size_t>(gaps[i].instance)] = i;
  Stages out;
  out.leave.resize(program.size());
  out.enter.resize(program.size());
  out.ns = op_times(c, program);
  const std::vector<Move> homes = timed_moves(c, program, capacity);  // of parameters, if settled
  std::vector<int64_t> bytes = usage_of(c, program, homes);
  for (size_t i = 0; i < gaps.size(); ++i) {
    const Gap& gap = gaps[i];
    const PartInfo& part = program.part_of(gap.instance);
    Tensor tensor;
    tensor.gap = gap;
    tensor.bytes = device_bytes_of(c, part);
    tensor.out_ns = copy_ns_of(c.problem->machine->out, part.bytes());
    tensor.in_ns = copy_ns_of(c.problem->machine->in, part.bytes());
    tensor.last = program.rank(program.instance(gap.instance).touches.back().step);
    if (part.exit) tensor.last = static_cast<int32_t>(program.size());
    tensor.remakable = lineages[i].has_value();
    if (lineages[i]) {
      tensor.remake_ns = lineages[i]->run_ns;
      for (int32_t source : lineages[i]->sources)
        tensor.sources.push_back(tensor_of[static_cast<size_t>(source)]);
    }
    for (int32_t r = gap.from + 1; r < gap.to; ++r) bytes[static_cast<size_t>(r)] -= tensor.bytes;
    out.leave[static_cast<size_t>(gap.from)].push_back(i);
    out.enter[static_cast<size_t>(gap.to)].push_back(i);
    out.tensors.push_back(std::move(tensor));
  }
  out.bytes = std::move(bytes);
  return out;
}

Score evaluate(const Stages& stages, const Policy& policy, int64_t capacity, const Rules& rules,
               const Score& limit) {
  return Evaluator(stages, policy, capacity, rules).run(limit);
}

}  // namespace outsize::planning::home
