#include "outsize/planners/copy_timing.h"

#include <algorithm>

namespace outsize::planning {
namespace {

class Room {
 public:
  Room(const Case& c, const Program& program, const std::vector<Move>& moves, int64_t capacity)
      : c_(c), program_(program), capacity_(capacity), usage_(usage_of(c, program, moves)) {}

  int32_t ranks() const { return static_cast<int32_t>(usage_.size()); }
  bool short_at(int32_t rank) const { return usage_[static_cast<size_t>(rank)] > capacity_; }

  void change(Move& m, int32_t release, int32_t arrive) {
    hold(m, -1);
    m.release = release;
    m.arrive = arrive;
    hold(m, 1);
  }

 private:
  void hold(const Move& m, int64_t sign) {
    const int64_t bytes = sign * device_bytes_of(c_, program_.part_of(m.instance));
    const bool never_away = m.returns && m.release >= m.arrive;
    add(m.from + 1, never_away ? m.to : m.release, bytes);
    if (m.returns && !never_away) add(m.arrive, m.to, bytes);
  }
  void add(int32_t from, int32_t to, int64_t bytes) {
    for (int32_t r = from; r < to; ++r) usage_[static_cast<size_t>(r)] += bytes;
  }

  const Case& c_;
  const Program& program_;
  int64_t capacity_;
  std::vector<int64_t> usage_;
};

}  // namespace

std::vector<Move*> leaving_activations(const Program& program, std::vector<Move>& moves) {
  std::vector<Move*> out;
  for (Move& m : moves)
    if (m.touch >= 0 && !program.part_of(m.instance).persistent) out.push_back(&m);
  std::stable_sort(out.begin(), out.end(),
                   [](const Move* a, const Move* b) { return a->from < b->from; });
  return out;
}

void leave_in_turn(const Case& c, const Program& program, const std::vector<Move*>& leaving,
                   bool decoupled) {
  const std::vector<int64_t> starts = starts_of(c, program);
  int64_t free = 0;
  for (Move* m : leaving) {
    free = std::max(free, starts[static_cast<size_t>(m->from) + 1]) +
           copy_ns_of(c.problem->machine->out, program.part_of(m->instance).bytes());
    const auto ended = std::lower_bound(starts.begin(), starts.end() - 1, free);
    m->out_after = m->from;
    m->release = std::clamp(static_cast<int32_t>(ended - starts.begin()), m->from + 1, m->to);
    if (!decoupled) m->release = m->out_by = m->from + 1;
  }
}

void make_room(const Case& c, const Program& program, const std::vector<Move>& moves,
               const std::vector<Move*>& leaving, int64_t capacity, bool delay) {
  Room room(c, program, moves, capacity);
  std::vector<Move*> coming = leaving;
  std::stable_sort(coming.begin(), coming.end(),
                   [](const Move* a, const Move* b) { return a->to > b->to; });
  for (int32_t r = 0; r < room.ranks(); ++r) {
    for (Move* m : leaving)
      if (room.short_at(r) && m->from < r && r < std::min(m->release, m->arrive))
        room.change(*m, r, m->arrive);
    for (Move* m : coming)
      if (delay && room.short_at(r) && m->returns && m->arrive <= r && r < m->to &&
          m->from + 1 < r + 1)
        room.change(*m, std::min(m->release, r), r + 1);
  }
}

void settle_arrivals(const std::vector<Move*>& leaving) {
  for (Move* m : leaving) {
    m->arrive = std::max(m->arrive, m->release);
    m->in_after = m->arrive - 1;
  }
}

}  // namespace outsize::planning
