// Lets time pass over a plan's instructions: the event loop of the simulator. simulate.h has the
// rules.
//
//   Engine engine(machine, plan, works);
//   Result<int64_t> step_ns = engine.run(&events);   // events: {0 begin #0}, {10 end #0}, ...
//
// Between two events rates stand still, so what remains of an instruction is brought up to date
// only when its own rate changes. One use per object; machine, plan and works must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/simulate/work.h"

namespace outsize {

struct Event {
  int64_t ns = 0;
  int32_t instruction = -1;
  bool begins = false;  // else ends
};

class Engine {
 public:
  Engine(const Machine& machine, const Plan& plan, const std::vector<Work>& works);

  // The step's length. Appends all events, in their order, to `events` unless it is null.
  Result<int64_t> run(std::vector<Event>* events);

 private:
  __extension__ using Wide = __int128;

  enum class Phase { kIdle, kLatency, kWorking };

  // One stream and the instruction it is busy with.
  struct Lane {
    std::vector<int32_t> queue;
    size_t next = 0;  // in queue
    size_t wait = 0;  // waits of the next instruction known to have ended
    int32_t current = -1;
    Phase phase = Phase::kIdle;
    bool copies = false;  // current is a copy
    Wide remaining = 0;   // at since_ns: ns * 1000 of an op, bytes * 1e9 of a copy
    int64_t rate = 0;     // per ns; 0: not set yet
    int64_t since_ns = 0;
    int64_t end_ns = 0;  // of this phase, at this rate
  };

  void settle(std::vector<Event>* events);
  bool end_done(std::vector<Event>* events);
  bool begin_ready(std::vector<Event>* events);
  bool is_ready(Lane& lane) const;
  void begin(Lane& lane);
  void enter_work(Lane& lane);
  void set_rates();
  void share_roads(std::array<int64_t, kStreams>& rates) const;
  void share_pair(Road one, Road other, int64_t both_bytes_per_s,
                  std::array<int64_t, kStreams>& rates) const;
  void set_rate(Lane& lane, int64_t rate);
  Road road_at(size_t lane) const;
  Result<int64_t> stuck() const;

  const Machine& machine_;
  const Plan& plan_;
  const std::vector<Work>& works_;
  std::array<Lane, kStreams> lanes_;
  std::vector<char> ended_;  // per instruction
  size_t left_ = 0;          // instructions that have not ended
  int64_t now_ = 0;
};

}  // namespace outsize
