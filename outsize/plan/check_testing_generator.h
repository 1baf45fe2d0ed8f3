// Random tiny graphs with a legal sequential plan for each: swaps over host and disk, reruns,
// in-place ops, copies in pieces, homes on any tier. The plan has no waits; its list is a legal
// run.
//
//   Random random(7);
//   std::optional<PlanMaker> made = Generator(random).make();   // nothing: the device had no room
//
// One use per object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/base/random.h"
#include "outsize/plan/check_testing.h"
#include "outsize/plan/check_testing_oracle.h"

namespace outsize {

// Makes a random graph and, op by op, a sequential plan for it: storages come in when an op needs
// them and are moved out, dropped or left at random; places are free ones.
class Generator {
 public:
  explicit Generator(Random& random) : random_(random) {}

  // Nothing where the device had no room.
  std::optional<PlanMaker> make() {
    maker_.plan.budgets = {kTierBytes, kTierBytes, kTierBytes};
    if (!make_entries()) return std::nullopt;
    const int64_t ops = random_.between(2, 7);
    for (int64_t i = 0; i < ops; ++i)
      if (!make_op(i)) return std::nullopt;
    return finish() ? std::optional<PlanMaker>(maker_) : std::nullopt;
  }

 private:
  // Where the newest version of a storage lies.
  struct Place {
    StorageId storage;
    ResidencyId device, below;  // `below`: on the host or the disk; invalid: not there
    int64_t maker = -1;         // op that can make it again, all its inputs being here
    bool dropped = false;       // to be made again before its next use
  };

  bool make_entries() {
    const int64_t entries = random_.between(1, 4);
    for (int64_t i = 0; i < entries; ++i) {
      int flags = kEntry;
      if (random_.chance(0.5)) flags |= kExit | kPersistent;
      const StorageId id = maker_.storage(random_.between(1, 6), "s" + std::to_string(i), flags);
      Place place{id, {}, {}, -1, false};
      const bool home = (flags & kPersistent) != 0;
      if (random_.chance(0.5)) {
        place.device = new_on(Tier::kDevice, id);
        if (!place.device.valid()) return false;
        maker_.enter(place.device, home);
      }
      if (!place.device.valid() || random_.chance(0.2)) {
        const bool carried = place.device.valid();
        place.below = new_on(random_.chance(0.5) ? Tier::kHost : Tier::kDisk, id);
        if (!place.below.valid()) return false;
        maker_.enter(place.below, home && !carried);
      }
      places_.push_back(place);
    }
    return true;
  }

  int64_t bytes_of(StorageId id) const { return maker_.graph.storage(id).bytes; }

  bool is_free(Tier tier, Interval range) const {
    for (const Place& place : places_)
      for (const ResidencyId id : {place.device, place.below})
        if (id.valid() && maker_.plan.residency(id).tier == tier &&
            maker_.plan.residency(id).range().overlaps(range))
          return false;
    for (const Interval held : held_)
      if (tier == Tier::kDevice && held.overlaps(range)) return false;
    return true;
  }

  std::optional<Interval> find_free(Tier tier, int64_t bytes) {
    std::vector<Interval> free;
    for (int64_t at = 0; at + bytes <= kTierBytes; ++at)
      if (is_free(tier, {at, at + bytes})) free.push_back({at, at + bytes});
    if (free.empty()) return std::nullopt;
    return free[static_cast<size_t>(random_.below(static_cast<int64_t>(free.size())))];
  }

  // Invalid where the tier has no room.
  ResidencyId new_on(Tier tier, StorageId id) {
    const auto range = find_free(tier, bytes_of(id));
    return range ? maker_.on(tier, id, range->begin) : ResidencyId{};
  }

  void copy(ResidencyId from, ResidencyId to) {
    const Tier a = maker_.plan.residency(from).tier, b = maker_.plan.residency(to).tier;
    Stream stream = b == Tier::kDisk     ? Stream::kWrite
                    : a == Tier::kDisk   ? Stream::kRead
                    : a == Tier::kDevice ? Stream::kOut
                                         : Stream::kIn;
    if (random_.chance(0.1)) stream = Stream::kCompute;
    const int64_t bytes = maker_.plan.residency(to).part.bytes.size();
    if (bytes > 1 && random_.chance(0.3)) {
      const int64_t middle = random_.between(1, bytes);
      maker_.copy(stream, from, to, {}, {0, middle});
      maker_.copy(stream, from, to, {}, {middle, bytes});
    } else {
      maker_.copy(stream, from, to);
    }
  }

  // Leaves the device free of it, with a copy below unless it can be made again.
  bool evict(Place& place) {
    const bool again = place.maker >= 0 && !place.below.valid() && random_.chance(0.5);
    if (again) {
      place.dropped = true;
    } else if (!place.below.valid()) {
      place.below = new_on(random_.chance(0.5) ? Tier::kHost : Tier::kDisk, place.storage);
      if (!place.below.valid()) return false;
      copy(place.device, place.below);
    }
    place.device = {};
    return true;
  }

  bool bring(Place& place) {
    if (place.device.valid()) return true;
    if (place.dropped && place.maker < 0) return false;  // an input has changed since
    if (place.dropped) {
      std::vector<ResidencyId> operands;
      const Op op = maker_.graph.ops[static_cast<size_t>(place.maker)];
      for (const Access& access : op.reads) {
        Place& input = places_[access.storage.index()];
        if (!bring(input)) return false;
        held_.push_back(maker_.plan.residency(input.device).range());
        operands.push_back(input.device);
      }
      place.device = new_on(Tier::kDevice, place.storage);
      if (!place.device.valid()) return false;
      operands.push_back(place.device);
      maker_.rerun(place.maker, operands);
      place.dropped = false;
      return true;
    }
    place.device = new_on(Tier::kDevice, place.storage);
    if (!place.device.valid()) return false;
    copy(place.below, place.device);
    if (random_.chance(0.3) && !is_home(place)) place.below = {};
    return true;
  }

  bool is_home(const Place& place) const { return maker_.graph.storage(place.storage).persistent; }

  bool make_op(int64_t index) {
    held_.clear();
    for (Place& place : places_)
      if (place.device.valid() && random_.chance(0.35) && !evict(place)) return false;
    std::vector<PlanMaker::Touches> reads, makes, mutates;
    std::vector<ResidencyId> read_at, changed_at;
    bool whole = true;
    for (Place& place : places_) {
      if (!random_.chance(0.35)) continue;
      if (!bring(place)) return false;
      held_.push_back(maker_.plan.residency(place.device).range());
      const int64_t bytes = bytes_of(place.storage);
      const int64_t begin = random_.chance(0.7) ? 0 : random_.below(bytes);
      const PlanMaker::Touches touches(place.storage, begin, bytes);
      if (random_.chance(0.25)) {
        mutates.push_back(touches);
        changed_at.push_back(place.device);
        whole = false;
      } else {
        reads.push_back(touches);
        read_at.push_back(place.device);
      }
    }
    const int64_t bytes = random_.between(1, 6);
    const StorageId made =
        maker_.storage(bytes, "t" + std::to_string(index), random_.chance(0.3) ? kExit : 0);
    Place place{made, new_on(Tier::kDevice, made), {}, whole ? index : -1, false};
    if (!place.device.valid()) return false;
    held_.push_back(maker_.plan.residency(place.device).range());
    std::vector<ResidencyId> operands = read_at;
    operands.push_back(place.device);
    operands.insert(operands.end(), changed_at.begin(), changed_at.end());
    const auto workspace =
        random_.chance(0.4) ? find_free(Tier::kDevice, random_.between(1, 4)) : std::nullopt;
    makes.push_back(made);
    const OpId op = maker_.op("op" + std::to_string(index), reads, makes, mutates);
    maker_.graph.ops[op.index()].uses_rng = random_.chance(0.6);
    maker_.run(op.value, operands, {}, workspace.value_or(Interval{}));
    for (const auto& touches : mutates) mutated(touches.storage);
    places_.push_back(place);
    return true;
  }

  // Copies elsewhere are of an old version now, and what was made from it can't be made again.
  void mutated(StorageId id) {
    places_[id.index()].below = {};
    places_[id.index()].maker = -1;
    for (Place& place : places_) {
      if (place.maker < 0) continue;
      for (const Access& access : maker_.graph.ops[static_cast<size_t>(place.maker)].reads) {
        if (access.storage != id) continue;
        place.maker = -1;
      }
    }
  }

  bool finish() {
    held_.clear();
    for (Place& place : places_) {
      const Storage& storage = maker_.graph.storage(place.storage);
      if (!storage.exit) continue;
      if (place.dropped && !bring(place)) return false;
      const ResidencyId at = place.device.valid() ? place.device : place.below;
      maker_.leave(at, storage.persistent);
      held_.push_back(maker_.plan.residency(at).range());
    }
    return true;
  }

  Random& random_;
  PlanMaker maker_;
  std::vector<Place> places_;   // per storage
  std::vector<Interval> held_;  // device ranges of the op at hand
};

}  // namespace outsize
