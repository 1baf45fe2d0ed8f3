#include "outsize/planners/lineage.h"

#include <algorithm>

namespace outsize::planning {
namespace {

class Walk {
 public:
  Walk(const Case& c, const Program& program, const std::vector<Gap>& gaps)
      : c_(c), program_(program), candidate_(c.parts.parts.size(), false) {
    for (const Gap& gap : gaps) candidate_[static_cast<size_t>(gap.instance)] = true;
  }

  Lineage lineage(const Gap& gap) {
    out_ = {};
    tensor_ = gap.instance;
    back_ = gap.to;
    seen_.assign(c_.parts.of_op.size(), false);
    make(tensor_);
    return std::move(out_);
  }

 private:
  bool there(int32_t part) const {
    const PartInfo& info = c_.parts[part];
    if (info.persistent || info.exit) return true;
    const std::vector<Touch>& touches = program_.instance(part).touches;
    return !touches.empty() && program_.rank(touches.back().step) >= back_;
  }

  void make(int32_t part) {
    for (OpId writer : c_.parts[part].writers) {
      const size_t op = writer.index();
      if (program_.rank(static_cast<int32_t>(writer.value)) >= back_) break;
      if (seen_[op]) continue;
      seen_[op] = true;
      out_.run_ns += c_.problem->profile->ops[op].ns;
      for (size_t k = 0; k < c_.parts.of_op[op].size(); ++k) {
        const int32_t source = c_.parts.of_op[op][k];
        if (source == part || !c_.parts.use_of_op[op][k].reads) continue;
        if (source != tensor_ && candidate_[static_cast<size_t>(source)])
          out_.sources.insert(source);
        else if (!there(source))
          make(source);
      }
    }
  }

  const Case& c_;
  const Program& program_;
  std::vector<bool> candidate_;  // per part
  Lineage out_;
  int32_t tensor_ = 0, back_ = 0;
  std::vector<bool> seen_;  // per op
};

}  // namespace

std::vector<std::optional<Lineage>> lineages_of(const Case& c, const std::vector<Gap>& gaps) {
  const Program program = plain_program(c);
  Walk walk(c, program, gaps);
  std::vector<std::optional<Lineage>> out;
  for (const Gap& gap : gaps) {
    out.emplace_back();
    if (draft_remake(c, program, gap.instance, gap.from)) out.back() = walk.lineage(gap);
  }
  return out;
}

size_t touch_at(const Program& program, int32_t instance, int32_t step) {
  const std::vector<Touch>& touches = program.instance(instance).touches;
  const auto at =
      std::find_if(touches.begin(), touches.end(), [&](const Touch& t) { return t.step == step; });
  OUTSIZE_CHECK(at != touches.end(), "instance {} is not touched by step {}", instance, step);
  return static_cast<size_t>(at - touches.begin());
}

std::optional<Program::Draft> draft_remake(const Case& c, const Program& program, int32_t instance,
                                           int32_t from) {
  const auto hold = [](int32_t, int32_t, int64_t) { return kNeverNs; };
  std::optional<Program::Draft> draft =
      program.draft_drop(instance, touch_at(program, instance, from), run_times(c), hold);
  if (draft && draft->hold_ns >= kNeverNs) return std::nullopt;
  return draft;
}

}  // namespace outsize::planning
