#include "outsize/torch/live_bytes.h"

#include <algorithm>

namespace outsize {

LiveBytes::LiveBytes(const Plan& plan, bool record_levels) : record_levels_(record_levels) {
  for (const Residency& r : plan.residencies)
    stays_.push_back({r.tier, r.part.bytes.size(), 0, false, false});
  for (const BorderItem& item : plan.entry) stays_[item.residency.index()].entry = true;
  for (const BorderItem& item : plan.exit) stays_[item.residency.index()].exit = true;
  for (const Instruction& instruction : plan.instructions) {
    Touch touch{{}, instruction.workspace.size()};
    const auto add = [&](ResidencyId id) { touch.residencies.push_back(id.value); };
    if (instruction.kind == InstructionKind::kCopy) {
      add(instruction.from);
      add(instruction.to);
    } else {
      for (const ResidencyId id : instruction.operands) add(id);
    }
    std::sort(touch.residencies.begin(), touch.residencies.end());
    touch.residencies.erase(std::unique(touch.residencies.begin(), touch.residencies.end()),
                            touch.residencies.end());
    for (const int32_t r : touch.residencies) ++stays_[static_cast<size_t>(r)].touches;
    touches_.push_back(std::move(touch));
  }
}

void LiveBytes::begin_step() {
  const std::lock_guard lock(mutex_);
  left_.assign(stays_.size(), 0);
  here_.assign(stays_.size(), false);
  live_ = {};
  for (size_t r = 0; r < stays_.size(); ++r) {
    const Stay& stay = stays_[r];
    left_[r] = stay.touches;
    here_[r] = stay.entry;
    if (stay.entry) live_[static_cast<size_t>(stay.tier)] += stay.bytes;
  }
  peak_ = live_;
  begun_ = std::chrono::steady_clock::now();
  levels_.clear();
  note_level();
}

// Requires: mutex_ is held.
void LiveBytes::note_level() {
  if (!record_levels_) return;
  if (!levels_.empty() && levels_.back().second == live_[0]) return;
  const auto since = std::chrono::steady_clock::now() - begun_;
  levels_.emplace_back(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count(),
                       live_[0]);
}

std::vector<std::pair<int64_t, int64_t>> LiveBytes::levels() const {
  const std::lock_guard lock(mutex_);
  return levels_;
}

void LiveBytes::begin(InstructionId id) {
  const Touch& touch = touches_[id.index()];
  const std::lock_guard lock(mutex_);
  for (const int32_t k : touch.residencies) {
    const auto r = static_cast<size_t>(k);
    if (here_[r]) continue;
    here_[r] = true;
    live_[static_cast<size_t>(stays_[r].tier)] += stays_[r].bytes;
  }
  live_[0] += touch.workspace;
  for (size_t t = 0; t < kTiers; ++t) peak_[t] = std::max(peak_[t], live_[t]);
  note_level();
}

void LiveBytes::end(InstructionId id) {
  const Touch& touch = touches_[id.index()];
  const std::lock_guard lock(mutex_);
  live_[0] -= touch.workspace;
  for (const int32_t k : touch.residencies) {
    const auto r = static_cast<size_t>(k);
    if (--left_[r] > 0 || stays_[r].exit) continue;
    live_[static_cast<size_t>(stays_[r].tier)] -= stays_[r].bytes;
  }
  note_level();
}

int64_t LiveBytes::peak(Tier tier) const {
  const std::lock_guard lock(mutex_);
  return peak_[static_cast<size_t>(tier)];
}

}  // namespace outsize
