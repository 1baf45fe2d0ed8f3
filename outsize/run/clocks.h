// Clock mode's books: for every byte range of every tier, which instruction wrote it last and which
// have read it since, and for every stream what it knows to have ended. An access that its
// stream does not know to come after the ones it conflicts with is reported, whatever the clock
// on the wall said.
//
//   compute #0 writes [0, 64);  out #1 waits for #0 and reads [0, 64): known, fine;
//   compute #2 writes [0, 64) without a wait for #1: "#2 writes ... not ordered after #1's read"
//
// Shares nothing with the checker: it sees only what streams do and wait for while they run.
// Threads: `begin` and `end` may be called from several at once; one lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "outsize/plan/plan.h"
#include "outsize/run/program.h"

namespace outsize {

// Per stream, how many of its instructions are known to have ended.
using StreamClock = std::array<int64_t, kStreams>;

struct Conflict {
  InstructionId earlier;  // begun earlier by the wall clock; not ordered before `later`
  InstructionId later;
  Tier tier = Tier::kDevice;
  Interval range;
  bool earlier_writes = false;
  bool later_writes = false;
};

class AccessClocks {
 public:
  // A step begins: everything before it has ended.
  void reset();
  // `stream` begins its `count`th instruction (from 1) after having waited for `waits`. Returns the
  // first conflict among its touches.
  std::optional<Conflict> begin(Stream stream, int64_t count, InstructionId instruction,
                                const std::vector<WaitFor>& waits,
                                const std::vector<Touch>& touches);
  void end(Stream stream, int64_t count);

 private:
  struct Mark {  // the `count`th instruction of a stream; count 0: none
    int64_t count = 0;
    InstructionId instruction;
  };
  struct Range {
    int64_t end = 0;
    Stream writer = Stream::kCompute;
    Mark write;
    std::array<Mark, kStreams> reads;  // since the write, the last of each stream
  };
  using Ranges = std::map<int64_t, Range>;  // by begin; disjoint; gaps were never touched

  std::optional<Conflict> touch(const Touch& touch, Stream stream, const Mark& mark,
                                const StreamClock& clock);
  static void split_at(Ranges& ranges, int64_t address);

  std::mutex mutex_;  // guards all below
  std::array<Ranges, kTiers> tiers_;
  std::array<StreamClock, kStreams> clocks_{};            // of each stream now
  std::array<std::vector<StreamClock>, kStreams> ended_;  // of each ended instruction
};

}  // namespace outsize
