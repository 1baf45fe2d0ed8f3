#include "outsize/plan/check_memory.h"

namespace outsize {

HappensBefore::HappensBefore(const std::vector<Instruction>& instructions) {
  std::array<int32_t, kStreams> none;
  none.fill(-1);
  std::array<int32_t, kStreams> last_of = none;
  stream_.reserve(instructions.size());
  clock_.reserve(instructions.size());
  for (size_t i = 0; i < instructions.size(); ++i) {
    std::array<int32_t, kStreams> clock = none;
    const auto join = [&](int32_t earlier) {
      const auto& theirs = clock_[static_cast<size_t>(earlier)];
      for (size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], theirs[s]);
      const auto stream = static_cast<size_t>(stream_[static_cast<size_t>(earlier)]);
      clock[stream] = std::max(clock[stream], earlier);
    };
    const auto own = static_cast<size_t>(instructions[i].stream);
    if (last_of[own] >= 0) join(last_of[own]);
    for (const InstructionId wait : instructions[i].waits) join(wait.value);
    last_of[own] = static_cast<int32_t>(i);
    stream_.push_back(instructions[i].stream);
    clock_.push_back(clock);
  }
}

}  // namespace outsize
