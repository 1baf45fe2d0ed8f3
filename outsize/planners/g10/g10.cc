#include "outsize/planners/g10/g10.h"

#include <algorithm>

#include "outsize/planners/copy_timing.h"
#include "outsize/planners/plan_once.h"
#include "outsize/planners/tensor_cache.h"

namespace outsize::planning::g10 {
namespace {

void mark(Program& program, const Migration& migration) {
  Instance& in = program.instance(migration.part);  // of the plain program: instances are parts
  if (migration.whole) {
    in.home = migration.to;
    in.away_at_entry = true;
    in.touches.back().away = true;
  }
  for (const Stretch& s : migration.stretches)
    if (s.touch >= 0) in.touches[static_cast<size_t>(s.touch)].away = true;
}

void time(const Migration& migration, std::vector<Move>& moves) {
  for (const Stretch& s : migration.stretches) {
    Move* move = move_of(moves, {migration.part, s.touch, s.from, s.to});
    if (!move) continue;  // no step in it
    move->below = migration.to;
    move->release = s.release;
    move->arrive = s.arrive;
    if (s.touch >= 0) move->out_after = s.from;
  }
}

}  // namespace

std::optional<Decision> decide(const Case& c, int64_t capacity, const Rules& rules,
                               Trouble& trouble) {
  const std::vector<Migration> migrations = choose_migrations(c, capacity, rules);
  Program program = plain_program(c);
  for (const Migration& m : migrations) mark(program, m);
  const auto timed = [&] {
    std::vector<Move> moves = timed_moves(c, program, capacity);
    for (const Migration& m : migrations) time(m, moves);
    return moves;
  };
  std::vector<Move> planned = timed();
  std::vector<Move*> leaving = leaving_activations(program, planned);
  make_room(c, program, planned, leaving, capacity, true);
  const std::vector<int64_t> usage = usage_of(c, program, planned);
  trouble.shortfall = shortfall_of(program, usage, capacity);
  std::vector<CacheStay> faults;
  if (trouble.shortfall) {
    CacheRun run = run_cache(c, program, usage, capacity);
    trouble.shortfall = run.shortfall;
    if (trouble.shortfall) return std::nullopt;
    faults = std::move(run.away);
    for (const CacheStay& stay : faults) mark_away(program, stay.gap);
  }
  std::vector<Move> moves = timed();
  for (const Move& m : planned)
    if (Move* move = move_of(moves, {m.instance, m.touch, m.from, m.to})) *move = m;
  time_stays(faults, moves);
  for (Move& m : moves)
    if (m.returns && m.arrive > 0) m.in_after = m.arrive - 1;
  return Decision{std::move(program), std::move(moves)};
}

Status plan_with(Search& search, const Rules& rules) {
  const Problem& problem = search.problem();
  if (!can_swap(problem))
    return bad_input(
        "planner g10 only swaps, and there is no swapping here; allow it, and give a "
        "host or a disk");
  return plan_once(search, "g10", [&](const Case& c, Trouble& trouble) {
    return realise_within(
        c, [&](int64_t capacity, Trouble& why) { return decide(c, capacity, rules, why); }, trouble,
        {CopyStyle::kWriteBehind, Effort::kThorough, {}});
  });
}

}  // namespace outsize::planning::g10

namespace outsize::planning {

Status plan_g10(Search& search) { return g10::plan_with(search, {}); }

}  // namespace outsize::planning
