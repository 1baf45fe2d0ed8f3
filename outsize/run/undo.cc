#include "outsize/run/undo.h"

#include <algorithm>

#include "outsize/base/check.h"
#include "outsize/base/interval_set.h"
#include "outsize/run/program.h"

namespace outsize {
namespace {

constexpr int64_t kBounce = int64_t{4} << 20;

struct TierWrite {
  InstructionId instruction;
  Tier tier = Tier::kDevice;
  Interval range;
};

// The parts of homes at entry that instructions write over, instruction by instruction.
std::vector<TierWrite> home_writes(const Graph& graph, const Plan& plan) {
  std::array<IntervalSet, kTiers> homes;
  for (const BorderItem& item : plan.entry) {
    const Residency& r = plan.residency(item.residency);
    if (item.home) homes[static_cast<size_t>(r.tier)].add(r.range());
  }
  std::vector<TierWrite> writes;
  for (size_t i = 0; i < plan.instructions.size(); ++i) {
    const InstructionId id{static_cast<int64_t>(i)};
    for (const Touch& touch : touches_of(graph, plan, id)) {
      if (!touch.writes) continue;
      const IntervalSet& home = homes[static_cast<size_t>(touch.tier)];
      Interval left = touch.range;
      for (Interval part = home.first_common(left); !part.empty(); part = home.first_common(left)) {
        writes.push_back({id, touch.tier, part});
        left.begin = part.end;
      }
    }
  }
  return writes;
}

}  // namespace

int64_t undo_bytes(const Graph& graph, const Plan& plan) {
  std::array<IntervalSet, kTiers> written;
  for (const TierWrite& write : home_writes(graph, plan))
    written[static_cast<size_t>(write.tier)].add(write.range);
  int64_t bytes = 0;
  for (const IntervalSet& set : written) bytes += set.size();
  return bytes;
}

UndoDevice::UndoDevice(const Graph& graph, const Plan& plan, Device& inner, const Tiers& tiers,
                       TierMemory& shadow)
    : inner_(inner), tiers_(tiers), shadow_(shadow), written_(plan.instructions.size()) {
  const std::vector<TierWrite> writes = home_writes(graph, plan);
  int64_t shadow_end = 0;
  for (int t = 0; t < kTiers; ++t) {
    const Tier tier{t};
    // Cut at every place where a write begins or ends.
    IntervalSet all;
    std::vector<int64_t> cuts;
    for (const TierWrite& write : writes) {
      if (write.tier != tier) continue;
      all.add(write.range);
      cuts.push_back(write.range.begin);
      cuts.push_back(write.range.end);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const size_t first = pieces_.size();
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      const Interval range{cuts[c], cuts[c + 1]};
      if (all.first_common(range).empty()) continue;
      pieces_.push_back({tier, range, shadow_end});
      shadow_end += range.size();
    }
    for (const TierWrite& write : writes) {
      if (write.tier != tier) continue;
      const auto from = std::partition_point(
          pieces_.begin() + static_cast<int64_t>(first), pieces_.end(),
          [&](const Piece& piece) { return piece.range.begin < write.range.begin; });
      for (auto piece = from; piece != pieces_.end() && piece->range.end <= write.range.end;
           ++piece)
        written_[write.instruction.index()].push_back(static_cast<size_t>(piece - pieces_.begin()));
    }
  }
  OUTSIZE_CHECK(shadow_end <= shadow.bytes(), "the shadow has {} bytes, {} are needed",
                shadow.bytes(), shadow_end);
  for (const Piece& piece : pieces_)
    OUTSIZE_CHECK(tiers_[static_cast<size_t>(piece.tier)] != nullptr, "no {} tier",
                  kTierNames.name(piece.tier));
  kept_.assign(pieces_.size(), 0);
}

Status UndoDevice::begin_step() {
  std::fill(kept_.begin(), kept_.end(), uint8_t{0});
  return inner_.begin_step();
}

Status UndoDevice::run_op(const RunCall& call) {
  if (Status kept = keep(call.instruction); !kept.ok()) return kept;
  return inner_.run_op(call);
}

Status UndoDevice::copy(const CopyCall& call) {
  if (Status kept = keep(call.instruction); !kept.ok()) return kept;
  return inner_.copy(call);
}

Status UndoDevice::keep(InstructionId instruction) {
  for (const size_t index : written_[instruction.index()]) {
    if (kept_[index] != 0) continue;
    if (Status moved = move(pieces_[index], false); !moved.ok())
      return Error{moved.error().kind, "keeping what the step changes: " + moved.error().message};
    kept_[index] = 1;
  }
  return Done{};
}

// Between a piece's place in its tier and its place in the shadow.
Status UndoDevice::move(const Piece& piece, bool back) {
  TierMemory& tier = *tiers_[static_cast<size_t>(piece.tier)];
  TierMemory& from = back ? shadow_ : tier;
  TierMemory& to = back ? tier : shadow_;
  const int64_t source = back ? piece.shadow_address : piece.range.begin;
  const int64_t target = back ? piece.range.begin : piece.shadow_address;
  // Speed: straight between the tier's memory and the shadow. Not a disk's mapping, which would
  // bring what it reads into the page cache.
  if (piece.tier != Tier::kDisk && tier.base() != nullptr)
    return back ? shadow_.read(source, tier.base() + target, piece.range.size())
                : shadow_.write(target, tier.base() + source, piece.range.size());
  std::vector<std::byte> bounce(static_cast<size_t>(std::min(kBounce, piece.range.size())));
  for (int64_t at = 0; at < piece.range.size(); at += kBounce) {
    const int64_t bytes = std::min(kBounce, piece.range.size() - at);
    if (Status read = from.read(source + at, bounce.data(), bytes); !read.ok()) return read;
    if (Status written = to.write(target + at, bounce.data(), bytes); !written.ok()) return written;
  }
  return Done{};
}

Status UndoDevice::undo() {
  for (size_t index = 0; index < pieces_.size(); ++index) {
    if (kept_[index] == 0) continue;
    if (Status moved = move(pieces_[index], true); !moved.ok()) return moved;
  }
  std::fill(kept_.begin(), kept_.end(), uint8_t{0});
  return Done{};
}

int64_t UndoDevice::kept_bytes() const {
  int64_t bytes = 0;
  for (size_t index = 0; index < pieces_.size(); ++index)
    if (kept_[index] != 0) bytes += pieces_[index].range.size();
  return bytes;
}

}  // namespace outsize
