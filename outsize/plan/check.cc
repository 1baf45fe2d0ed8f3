#include "outsize/plan/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "outsize/plan/check_memory.h"
#include "outsize/plan/check_shape.h"
#include "outsize/plan/check_text.h"
#include "outsize/plan/check_versions.h"

namespace outsize {
namespace {

// One range of addresses that an instruction touches. `storage` is -1 for a workspace.
struct Touch {
  Tier tier = Tier::kDevice;
  Interval range;
  bool writes = false;
  int32_t storage = -1;
  int64_t shift = 0;  // storage byte = address + shift
};

// Walks the list once: borders, races and versions.
// Requires: check_shape has passed.
class ByteChecker {
 public:
  ByteChecker(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  Violation check() {
    check_bytes();
    return violation_;
  }

 private:
  bool fail(ViolationKind kind, std::string where, std::string witness) {
    violation_ = {kind, std::move(where), std::move(witness)};
    return false;
  }
  bool fail_at(ViolationKind kind, InstructionId at, std::string witness) {
    return fail(kind, text_of_instruction(graph_, plan_, at), std::move(witness));
  }

  // --- bytes: races and versions ---

  bool check_bytes() {
    const HappensBefore before(plan_.instructions);
    const Versions versions(graph_);
    if (!enter()) return false;
    std::vector<Touch> touches;
    for (size_t i = 0; i < plan_.instructions.size(); ++i) {
      const InstructionId id{static_cast<int64_t>(i)};
      touches_of(plan_.instructions[i], touches);
      if (!check_self(id, touches) || !check_races(id, touches, before)) return false;
      const bool good = plan_.instructions[i].kind == InstructionKind::kCopy
                            ? move_bytes(id)
                            : run_bytes(id, versions);
      if (!good) return false;
    }
    return leave(versions);
  }

  TierMemory& memory(Tier tier) { return memory_[static_cast<size_t>(tier)]; }

  // Where the bytes `bytes` of its storage lie in a residency.
  static Interval range_in(const Residency& residency, Interval bytes) {
    return bytes.shifted(residency.address - residency.part.bytes.begin);
  }
  static int64_t shift_of(const Residency& residency) {
    return residency.part.bytes.begin - residency.address;
  }

  Touch touch_of(ResidencyId id, Interval bytes, bool writes) const {
    const Residency& residency = plan_.residency(id);
    return {residency.tier, range_in(residency, bytes), writes, residency.part.storage.value,
            shift_of(residency)};
  }

  void touches_of(const Instruction& instruction, std::vector<Touch>& touches) const {
    touches.clear();
    if (instruction.kind == InstructionKind::kCopy) {
      touches.push_back(touch_of(instruction.from, instruction.bytes, false));
      touches.push_back(touch_of(instruction.to, instruction.bytes, true));
    } else {
      const Op& op = graph_.op(instruction.op);
      for (size_t k = 0; k < instruction.operands.size(); ++k) {
        const AccessView view = access_at(op, k);
        touches.push_back(touch_of(instruction.operands[k], view.access.bytes, view.writes));
      }
      if (!instruction.workspace.empty())
        touches.push_back({Tier::kDevice, instruction.workspace, true, -1, 0});
    }
    std::erase_if(touches, [](const Touch& touch) { return touch.range.empty(); });
  }

  // An instruction may not touch one byte as two things, nor write one storage byte at one of two
  // places. Finds whether any ranges meet by a sweep, and looks at pairs only where some do.
  bool check_self(InstructionId id, const std::vector<Touch>& touches) {
    if (!some_meet(touches)) return true;
    const bool copy = plan_.instruction(id).kind == InstructionKind::kCopy;
    for (size_t a = 0; a < touches.size(); ++a)
      for (size_t b = a + 1; b < touches.size(); ++b) {
        const Touch& x = touches[a];
        const Touch& y = touches[b];
        if (!x.writes && !y.writes) continue;
        const bool same_storage = x.storage == y.storage && x.storage >= 0;
        const bool same_place = same_storage && x.tier == y.tier && x.shift == y.shift;
        if (same_place && !copy) continue;
        if (x.tier == y.tier && x.range.overlaps(y.range))
          return fail_at(ViolationKind::kRace, id,
                         fmt::format("touches {} {} as two things, writing at least one",
                                     kTierNames.name(x.tier), text_of(x.range.intersect(y.range))));
        const Interval bytes = x.range.shifted(x.shift).intersect(y.range.shifted(y.shift));
        if (same_storage && !bytes.empty() && !copy)
          return fail_at(
              ViolationKind::kMalformed, id,
              fmt::format("is given {} {} at two places and writes at one of them",
                          text_of_storage(graph_, StorageId{x.storage}), text_of(bytes)));
      }
    return true;
  }

  // Whether two touches of one instruction meet, in addresses or in storage bytes.
  bool some_meet(const std::vector<Touch>& touches) {
    sorted_.clear();
    for (const Touch& touch : touches) {
      // Addresses under keys -1, -2, -3 by tier, storage bytes under the storage's own id.
      sorted_.push_back({-1 - static_cast<int32_t>(touch.tier), touch.range});
      if (touch.storage >= 0) sorted_.push_back({touch.storage, touch.range.shifted(touch.shift)});
    }
    std::sort(sorted_.begin(), sorted_.end());
    for (size_t i = 1; i < sorted_.size(); ++i)
      if (sorted_[i].first == sorted_[i - 1].first &&
          sorted_[i].second.begin < sorted_[i - 1].second.end)
        return true;
    return false;
  }

  // Reads are compared with the last writer, writes with all readers since too; what was before
  // that is ordered before the last writer, or an earlier instruction would have failed.
  bool check_races(InstructionId id, const std::vector<Touch>& touches,
                   const HappensBefore& before) {
    const auto stream = static_cast<size_t>(plan_.instruction(id).stream);
    for (const Touch& touch : touches) {
      int32_t other = -1;
      Interval where;
      memory(touch.tier).touched.visit(touch.range, [&](Interval range, const Touched* touched) {
        if (touched == nullptr) return true;
        const auto unordered = [&](int32_t earlier) {
          if (earlier < 0 || earlier == id.value || before.ordered(earlier, id.value)) return false;
          other = earlier;
          where = range;
          return true;
        };
        if (unordered(touched->writer)) return false;
        return !touch.writes ||
               std::none_of(touched->readers.begin(), touched->readers.end(), unordered);
      });
      if (other >= 0)
        return fail_at(ViolationKind::kRace, id,
                       fmt::format("and {} both touch {} {}, one of them writing, and nothing "
                                   "orders them",
                                   text_of_instruction(graph_, plan_, InstructionId{other}),
                                   kTierNames.name(touch.tier), text_of(where)));
    }
    for (const Touch& touch : touches)
      if (!touch.writes)
        memory(touch.tier).touched.update(touch.range, Touched{}, [&](Touched& touched) {
          touched.readers[stream] = id.value;
        });
    for (const Touch& touch : touches)
      if (touch.writes)
        memory(touch.tier).touched.assign(touch.range, Touched{id.value, {-1, -1, -1, -1, -1}});
    return true;
  }

  // What is wrong with the bytes of `residency` for a reader that wants `wanted` there; empty if
  // nothing. A piece wanted as kNoVersion is wrong in itself unless `gaps_pass`.
  std::string mismatch(const Residency& residency, std::span<const WantedPiece> wanted,
                       bool gaps_pass) {
    std::string witness;
    for (const WantedPiece& piece : wanted) {
      if (piece.bytes.empty() || (gaps_pass && piece.version == kNoVersion)) continue;
      const StorageId storage = residency.part.storage;
      if (piece.version == kNoVersion)
        return fmt::format("{} {} is read before any op writes it",
                           text_of_storage(graph_, storage), text_of(piece.bytes));
      memory(residency.tier)
          .contents.visit(range_in(residency, piece.bytes), [&](Interval at, const Content* had) {
            if (had != nullptr && had->storage == storage.value &&
                had->shift == shift_of(residency) && had->version == piece.version)
              return true;
            witness = fmt::format(
                "{} {} must hold {}; {} {} holds {}", text_of_storage(graph_, storage),
                text_of(at.shifted(shift_of(residency))), text_of_version(graph_, piece.version),
                kTierNames.name(residency.tier), text_of(at), text_of_content(had, at));
            return false;
          });
      if (!witness.empty()) return witness;
    }
    return witness;
  }

  std::string text_of_content(const Content* content, Interval at) const {
    if (content == nullptr) return "nothing";
    return fmt::format("{} {} with {}", text_of_storage(graph_, StorageId{content->storage}),
                       text_of(at.shifted(content->shift)),
                       text_of_version(graph_, content->version));
  }

  void put(const Residency& residency, Interval bytes, int32_t version) {
    memory(residency.tier)
        .contents.assign(range_in(residency, bytes),
                         {residency.part.storage.value, shift_of(residency), version});
  }

  bool run_bytes(InstructionId id, const Versions& versions) {
    const Instruction& run = plan_.instruction(id);
    const Op& op = graph_.op(run.op);
    for (size_t k = 0; k < run.operands.size(); ++k) {
      if (!access_at(op, k).reads) continue;
      const std::string witness =
          mismatch(plan_.residency(run.operands[k]), versions.wanted(run.op, k), false);
      if (!witness.empty())
        return fail_at(ViolationKind::kStale, id,
                       fmt::format("operand {} ({}): {}", k, text_of_access(op, k), witness));
    }
    memory(Tier::kDevice).contents.erase(run.workspace);
    for (size_t k = 0; k < run.operands.size(); ++k) {
      const AccessView view = access_at(op, k);
      if (view.writes) put(plan_.residency(run.operands[k]), view.access.bytes, run.op.value);
    }
    return true;
  }

  bool move_bytes(InstructionId id) {
    const Instruction& copy = plan_.instruction(id);
    const Residency& from = plan_.residency(copy.from);
    const Residency& to = plan_.residency(copy.to);
    std::vector<WantedPiece> moved;
    std::string witness;
    memory(from.tier).contents.visit(
        range_in(from, copy.bytes), [&](Interval at, const Content* had) {
          if (had != nullptr && had->storage == from.part.storage.value &&
              had->shift == shift_of(from)) {
            moved.push_back({at.shifted(had->shift), had->version});
            return true;
          }
          witness = fmt::format("takes {} {} from {} {}, which holds {}",
                                text_of_storage(graph_, from.part.storage),
                                text_of(at.shifted(shift_of(from))), kTierNames.name(from.tier),
                                text_of(at), text_of_content(had, at));
          return false;
        });
    if (!witness.empty()) return fail_at(ViolationKind::kStale, id, std::move(witness));
    for (const WantedPiece& piece : moved) put(to, piece.bytes, piece.version);
    return true;
  }

  // --- the borders ---

  bool enter() {
    for (const BorderItem& item : plan_.entry) {
      const Residency& residency = plan_.residency(item.residency);
      std::string met;
      memory(residency.tier)
          .contents.visit(residency.range(), [&](Interval at, const Content* had) {
            if (had != nullptr)
              met = fmt::format("{} {} already holds {}", kTierNames.name(residency.tier),
                                text_of(at), text_of_content(had, at));
            return had == nullptr;
          });
      if (!met.empty())
        return fail(ViolationKind::kEntry, text_of_residency(graph_, plan_, item.residency), met);
      put(residency, residency.part.bytes, kEntryVersion);
    }
    return check_border(true);
  }

  bool leave(const Versions& versions) {
    for (const BorderItem& item : plan_.exit) {
      const Residency& residency = plan_.residency(item.residency);
      clipped_.clear();
      for (const WantedPiece& piece : versions.last(residency.part.storage))
        clipped_.push_back({piece.bytes.intersect(residency.part.bytes), piece.version});
      const std::string witness = mismatch(residency, clipped_, true);
      if (!witness.empty())
        return fail(ViolationKind::kExit, text_of_residency(graph_, plan_, item.residency),
                    witness);
    }
    return check_border(false);
  }

  // What holds for both borders: only storages that cross it, all their bytes, one home where there
  // is one.
  bool check_border(bool entry) {
    const ViolationKind kind = entry ? ViolationKind::kEntry : ViolationKind::kExit;
    std::vector<std::vector<Interval>> parts(graph_.storages.size());
    std::vector<std::vector<ResidencyId>> homes(graph_.storages.size());
    for (const BorderItem& item : entry ? plan_.entry : plan_.exit) {
      const Part& part = plan_.residency(item.residency).part;
      const Storage& storage = graph_.storage(part.storage);
      const auto where = [&] { return text_of_residency(graph_, plan_, item.residency); };
      if (!(entry ? storage.entry : storage.exit))
        return fail(kind, where(),
                    fmt::format("is listed at {}, where {} has no content",
                                entry ? "entry" : "exit", text_of_storage(graph_, part.storage)));
      if (item.home && !storage.persistent)
        return fail(kind, where(),
                    fmt::format("is listed as a home, and {} is not persistent",
                                text_of_storage(graph_, part.storage)));
      parts[part.storage.index()].push_back(part.bytes);
      if (item.home) homes[part.storage.index()].push_back(item.residency);
    }
    for (size_t s = 0; s < graph_.storages.size(); ++s) {
      const Storage& storage = graph_.storages[s];
      if (!(entry ? storage.entry : storage.exit)) continue;
      const StorageId id{static_cast<int64_t>(s)};
      const std::string where =
          fmt::format("{} at {}", text_of_storage(graph_, id), entry ? "entry" : "exit");
      std::sort(parts[s].begin(), parts[s].end());
      int64_t reached = 0;
      for (const Interval part : parts[s])
        if (part.begin <= reached) reached = std::max(reached, part.end);
      if (reached < storage.bytes)
        return fail(
            kind, where,
            fmt::format("no residency holds its byte {} (it has {})", reached, storage.bytes));
      if (storage.persistent && !check_home(kind, where, id, homes[s])) return false;
    }
    return true;
  }

  // A home may be in parts where they tile the storage, all on one tier.
  bool check_home(ViolationKind kind, const std::string& where, StorageId storage,
                  std::vector<ResidencyId> homes) {
    std::sort(homes.begin(), homes.end(), [&](ResidencyId a, ResidencyId b) {
      return plan_.residency(a).part.bytes < plan_.residency(b).part.bytes;
    });
    int64_t reached = 0;
    for (const ResidencyId id : homes) {
      const Residency& home = plan_.residency(id);
      if (home.part.bytes.empty() && graph_.storage(storage).bytes > 0) continue;
      if (home.part.bytes.begin < reached)
        return fail(kind, where,
                    fmt::format("has two homes for byte {}; one is {}", home.part.bytes.begin,
                                text_of_residency(graph_, plan_, id)));
      if (home.tier != plan_.residency(homes.front()).tier)
        return fail(kind, where,
                    fmt::format("has homes on two tiers: {} and {}",
                                text_of_residency(graph_, plan_, homes.front()),
                                text_of_residency(graph_, plan_, id)));
      if (home.part.bytes.begin > reached) break;
      reached = home.part.bytes.end;
    }
    if (reached < graph_.storage(storage).bytes)
      return fail(kind, where,
                  fmt::format("is persistent and has no home for byte {} of {}", reached,
                              graph_.storage(storage).bytes));
    return true;
  }

  const Graph& graph_;
  const Plan& plan_;
  std::array<TierMemory, kTiers> memory_;
  std::vector<std::pair<int32_t, Interval>> sorted_;  // scratch of some_meet
  std::vector<WantedPiece> clipped_;                  // scratch of leave
  Violation violation_;
};

}  // namespace

Violation check_plan(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                     const Plan& plan, const Budgets& budgets, int64_t alignment) {
  Violation shape = check_shape(graph, workspace_bytes, plan, budgets, alignment);
  return shape.ok() ? ByteChecker(graph, plan).check() : shape;
}

}  // namespace outsize
