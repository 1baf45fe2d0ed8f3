// The swap planner: walks the ops in order, gives each tensor room when it is needed, and decides
// who leaves for it (SwapAdvisor, ASPLOS'20, section 4.2; with other rules, its baseline ODSwap).
//
//   one class of two objects    f makes A   g makes B   h makes C   k reads A
//   h: full; A and B are there; A is needed at k, B never: B leaves     (Belady)
//   edges: g → copy B out → h. B's object is C's from then on, as nobody can claim it in between.
//
// A tensor that is never needed again gives its room back at once; a persistent one stays until
// somebody needs its room, or the end, and is copied out then if it was written. Twice: the first
// pass begins with no persistent storage on the device, and what is there at its end are the
// initial residents of the second. Where pressure comes up that the first pass had not, an initial
// resident is taken out. What stays one to the end has its home on the device. Unlike the paper's,
// a home here keeps its address between steps, so an initial resident that is swapped out later
// in the step stops being one.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "outsize/planners/realise.h"

namespace outsize::planning::swapadvisor {

struct SwapRules {
  // Who leaves: of those that the op doesn't touch, the one needed last; else the one used longest
  // ago.
  bool belady = true;
  // Only victims whose last use lies at least this many times their copy out and the newcomer's
  // copy in ago (counting the ops alone), if there is one. The paper gives no number.
  double recency = 1.0;
  // Begin with the persistent storages that the step ends with.
  bool double_pass = true;
  // Copies begin right after the victim's last use. Else: `ahead` ops before the one that needs
  // the room.
  bool early = true;
  int32_t ahead = 0;
  // What the host holds already isn't copied out again.
  bool drop_clean = true;
};

// Room on the device, by part: a class, and how much of its room the part takes.
struct Rooms {
  std::vector<int32_t> class_of;  // per part; -1: takes none (empty, or a settled device home)
  std::vector<int64_t> takes;     // per part
  std::vector<int64_t> room;      // per class
  // Rooms are equal objects, each part takes one, and `Swaps::objects` says which.
  bool objects = true;
};

struct Swaps {
  Decision decision;
  // Per part, per stay on the device: the object of its class that it lies in.
  std::vector<std::vector<int64_t>> objects;
  int64_t swapped = 0;  // gaps in which something is away, homes on the host included
};

// None where some op finds no room, and then `trouble` names it.
std::optional<Swaps> plan_swaps(const Case& c, const Rooms& rooms, const SwapRules& rules,
                                Trouble& trouble);

}  // namespace outsize::planning::swapadvisor
