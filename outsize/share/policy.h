// Who may use the memory when several jobs want more of it than there is: pure functions, used by
// the simulator and by whoever really divides a device.
//
//   lru          commands in order of arrival; the least recently used pages make room
//   mat          the same, but the job that thrashes is closed until what it lacks fits
//   fifo         a job starts, in order of arrival, when it fits beside those that run
//   round-robin  one job at a time has the whole device, for a quantum
//   swap-aware   the job that suffers most from sharing goes first; the others' share stays in swap
//   broker       each job offers time against budget; the choice that loses least in total
//
// `swap-aware` is the scheduler of Yang, Qiu and Chen (SAC'20), `mat` memory-aware throttling as
// they compare with it, `round-robin` the turns of nvshare. No function here keeps anything or
// reads a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "outsize/base/names.h"

namespace outsize::share {

enum class Policy { kLru, kMat, kFifo, kRoundRobin, kSwapAware, kBroker };

inline constexpr EnumNames<Policy, 6> kPolicyNames{{{{Policy::kLru, "lru"},
                                                     {Policy::kMat, "mat"},
                                                     {Policy::kFifo, "fifo"},
                                                     {Policy::kRoundRobin, "round-robin"},
                                                     {Policy::kSwapAware, "swap-aware"},
                                                     {Policy::kBroker, "broker"}}}};

// --- swap-aware ---------------------------------------------------------------------------------

struct Contention {
  int64_t alone_ns = 0;     // C_i(1): the job by itself
  int64_t together_ns = 0;  // C_i(N): beside all others, under `lru`
  int64_t subtasks = 1;     // n_i
};

// W_i = (C_i(N) - C_i(1)) / C_i(1) / n_i: how much sharing lengthens the job, for each sub-task.
// `for_each_subtask` false leaves n_i out. Requires: alone_ns > 0, subtasks > 0.
std::vector<double> contention_weights(std::span<const Contention> jobs,
                                       bool for_each_subtask = true);

// Rank 0 goes first: the largest weight; of equal ones the job named first.
std::vector<int> priority_ranks(std::span<const double> weights);

// Whole percents of each job's pages that stay in swap, from the lowest priority (the highest rank)
// up until the rest fits: alpha = 100 where all of it is wanted, else wanted / pages rounded up.
//
//   swap_percents({6, 6}, {0, 1}, 9): 3 are too many, the job of rank 1 gives ceil(3/6) -> {0, 50}
std::vector<int> swap_percents(std::span<const int64_t> pages, std::span<const int> ranks,
                               int64_t memory_pages);

// --- the memory queue ---------------------------------------------------------------------------

struct Queued {
  int job = 0;
  int64_t lacks_pages = 0;  // of what it must have in memory
};

struct QueueView {
  std::span<const Queued> commands;  // in order of arrival
  int64_t free_pages = 0;
  std::span<const int> ranks;     // per job; lower goes first
  std::optional<int> closed;      // the job that `mat` has closed
  bool others_unfinished = true;  // a job that is not closed still has work
};

// Whether the memory queue goes by rank: the swap-aware priority, or for the broker what a job uses
// in swap, least first. Else by arrival.
constexpr bool ranks_commands(Policy policy) {
  return policy == Policy::kSwapAware || policy == Policy::kBroker;
}

// Index of the command that memory serves next; nothing where all of them have to wait.
std::optional<size_t> next_command(Policy policy, const QueueView& queue);

// --- turns --------------------------------------------------------------------------------------

struct TurnView {
  int64_t now_ns = 0;
  int64_t granted_ns = 0;
  int64_t quantum_ns = 0;
  std::optional<int64_t> idle_since_ns;  // the holder has asked for nothing since then
  int64_t idle_release_ns = 0;           // 0: an idle holder keeps its turn
  bool others_wait = false;
};

// When the holder must give the device back, seen from now: now or earlier means at once. Nothing
// where no one waits. A quantum that nobody waited for begins again where it ended.
std::optional<int64_t> turn_ends_ns(const TurnView& turn);

// --- fifo ---------------------------------------------------------------------------------------

// How many of `waiting_pages`, from the front, may start beside `used_pages`. One that is larger
// than the memory starts when it is alone.
size_t admitted(std::span<const int64_t> waiting_pages, int64_t used_pages, int64_t memory_pages);

// --- broker -------------------------------------------------------------------------------------

struct Offer {
  int64_t pages = 0;
  int64_t time_ns = 0;       // of the job, or of one of its steps
  int64_t link_ppm = 0;      // share of that time during which it has the link to itself
  int64_t swap_percent = 0;  // of the job's pages, used in swap
};

// One offer for each job such that pages and link suffice and the sum of time / best time - 1 is
// the least; of equal ones, the first offers. Exact: partial choices that another beats in pages,
// link and loss at once are dropped. Nothing where no choice fits. Requires: time_ns > 0.
struct Choice {
  std::vector<size_t> offers;  // per job
  double loss = 0;
  bool operator==(const Choice&) const = default;
};
std::optional<Choice> choose_offers(std::span<const std::vector<Offer>> jobs, int64_t memory_pages,
                                    int64_t link_ppm);

// Which of the jobs that wait start now, beside those that run: as many, from the front, as lose
// least in total: a job that goes on waiting loses the time until the first of the others ends.
// None is an answer only where some run. `offers` of the answer has one entry for each job that
// starts.
struct Running {
  int64_t pages = 0, link_ppm = 0;
  int64_t ends_in_ns = 0;  // as far as is known
};
Choice start_jobs(std::span<const std::vector<Offer>> waiting, std::span<const Running> running,
                  int64_t memory_pages, int64_t link_ppm);

}  // namespace outsize::share
