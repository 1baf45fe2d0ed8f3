// Realising: from what a planner decided (a program, and when the bytes of each swapped gap leave
// and return) to a plan with addresses and waits, or what doesn't fit. A planner from the
// literature is a pure "decide" on top of this.
//
//   op0 makes A, op1, op2, op3 reads A (ranks 0 to 3); A is to be away from op0 to op3:
//
//   Program program = plain_program(c);
//   program.instance(a).touches[0].away = true;
//   std::vector<Move> moves = moves_of(program);      // one per gap: here from 0 to 3
//   moves[0].release = 2;                             // A's bytes are free before op2 ...
//   moves[0].out_after = 0, moves[0].out_by = 2;      // copied out beside op1; op2 waits for it
//   moves[0].arrive = 2, moves[0].in_after = 1;       // ... and taken again before op2: the copy
//   moves[0].in_by = 3;                               // in begins after op1, and op3 waits for it
//   std::optional<Plan> plan = realise(c, {program, moves}, trouble);
//
// Recomputation is in the program (Program::draft_drop, drop); make all drops first, then set
// `away` flags, then take moves_of: ranks and touches must not change after that. A version that
// the tier below holds already is not copied out again. What a move leaves at kAnyTime starts as
// soon as its stream, its data and its bytes allow. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "outsize/planners/schedule.h"
#include "outsize/planners/search.h"

namespace outsize::planning {

struct Decision {
  Program program;
  std::vector<Move> moves;  // as moves_of(program) has them, with the planner's times
};

// Gives the sequence's residencies and workspaces addresses. For planners with an allocator of
// their own; `height` over the budget of a tier means that it doesn't fit.
using Placer = std::function<Placement(const Problem& problem, Sequence& sequence)>;

struct RealiseOptions {
  CopyStyle copies = CopyStyle::kWriteBehind;  // on the streams of the links
  Effort effort = Effort::kQuick;              // of the packer
  Placer placer;                               // empty: the packer
};

// The plan, lowered; none where a tier's budget is too small, and `trouble` says which.
std::optional<Plan> realise(const Case& c, const Decision& decision, Trouble& trouble,
                            const RealiseOptions& options = {});

// What a planner decides so that no more than `capacity` bytes lie on the device at any step; none
// where it can't, and then `trouble` says what is short.
using Decide = std::function<std::optional<Decision>(int64_t capacity, Trouble& trouble)>;

// Decides for the budget, then for a little less while addresses (fragmentation) don't fit it.
std::optional<Plan> realise_within(const Case& c, const Decide& decide, Trouble& trouble,
                                   const RealiseOptions& options = {});

// Per rank: how long its step takes alone. Nanoseconds.
std::vector<int64_t> op_times(const Case& c, const Program& program);
// Per rank: when its step starts if nothing waits; and the end. Nanoseconds.
std::vector<int64_t> starts_of(const Case& c, const Program& program);

// Per rank: bytes on the device while its step runs, workspaces and what is on its way included.
std::vector<int64_t> usage_of(const Case& c, const Program& program,
                              const std::vector<Move>& moves);
// The most of them.
int64_t peak_of(const Case& c, const Program& program, const std::vector<Move>& moves);

// Where `usage` (as above) is highest, if it is over `capacity`.
std::optional<Shortfall> shortfall_of(const Program& program, const std::vector<int64_t>& usage,
                                      int64_t capacity);

// Aligned bytes of a part on the device.
int64_t device_bytes_of(const Case& c, const PartInfo& part);

// How long a copy of `bytes` takes on a link, alone.
int64_t copy_ns_of(const Link& link, int64_t bytes);

// moves_of with times as good as they get without a planner's own rule: out as soon as written, in
// as late as is safe, what is in the way at steps over `capacity` earlier or later.
std::vector<Move> timed_moves(const Case& c, const Program& program, int64_t capacity,
                              double slack = 1.1);

// For Search::infeasible: whether `plans` finds a plan for this case at another device budget.
std::function<bool(int64_t device_budget)> works_at(const Case& c,
                                                    std::function<bool(const Case&)> plans);

}  // namespace outsize::planning
