// The events behind simulate.h: one run under one policy whose priorities and shares are known.
//
// Not part of the folder's interface.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "outsize/share/simulate.h"

namespace outsize::share {

// What a policy settled before the first event.
struct Setup {
  Options options;
  std::vector<int> ranks;          // per job; empty: all equal
  std::vector<int> swap_percents;  // per job; empty: all 0
  // The broker's: per job without a curve, its time by itself with each whole percent in swap.
  std::vector<std::vector<int64_t>> swap_times_ns;
};

class Engine {
 public:
  // Borrows the workload.
  Engine(const Workload& workload, Setup setup);
  // Once.
  Outcome run();

 private:
  enum class Stage { kClosed, kAllocate, kWantSlot, kRead, kCompute, kWrite, kHost, kDone };
  struct Subtask {
    int job = 0;
    int64_t index = 0;
    int64_t pages = 0;       // in memory, when it has them all
    int64_t swap_pages = 0;  // used in swap
    int64_t resident = 0;
    int64_t last_use = 0;
    int64_t rounds_left = 0;
    int64_t burst_left_ns = 0;
    Stage stage = Stage::kClosed;
  };
  struct JobState {
    std::vector<int> subtasks;
    bool arrived = false;
    bool open = false;       // its sub-tasks have been started
    int64_t unfinished = 0;  // sub-tasks
    int64_t in_flight = 0;   // allocating, or with a slot
    int64_t want_slot = 0;   // sub-tasks
    int64_t slots = 0;
    int64_t pages = 0;     // in memory, when it has them all
    int64_t link_ppm = 0;  // broker: what it was promised
    int64_t expected_end_ns = 0;
    int64_t burst_ns = -1;  // broker: of the chosen point
    int64_t end_ns = 0;
    int64_t touched_pages = 0, swap_pages = 0;
  };
  struct Command {
    int subtask = 0;
    int64_t remaining_ns = -1;  // -1: not begun
  };
  enum class EventKind { kArrive, kMemory, kCompute, kHost, kTurn };
  struct Event {
    int64_t at_ns;
    int64_t order;
    EventKind kind;
    int64_t subject;  // job, sub-task, or generation
    bool operator>(const Event& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  void schedule(int64_t at_ns, EventKind kind, int64_t subject);
  void handle(const Event& event);
  void arrive(int job);
  // Starts every sub-task of these jobs, the k-th of each before the next of any.
  void open_jobs(const std::vector<int>& jobs);
  void enqueue(int subtask, Stage stage);
  void want_slot(int subtask);
  void grant_slots();
  bool may_start(const Subtask& subtask) const;
  void release_slot(Subtask& subtask);
  void serve_memory();
  int64_t begin(int subtask);
  int64_t make_room(int subtask, int64_t pages);
  void memory_done();
  void compute(int subtask);
  void compute_done(int subtask);
  void end_round(int subtask);
  void finish(int subtask);
  void admit();
  void admit_fifo();
  void admit_broker();
  std::vector<Offer> offers_of(int job) const;
  int64_t slower_swap_rate() const;
  void accept(int job, const Offer& offer, size_t index);
  void update_turns();
  void grant_turn();
  bool wants_turn(int job) const;
  int64_t lacks(const Subtask& subtask) const;
  bool others_unfinished(int job) const;
  bool by_rank() const;
  bool preempts(int subtask) const;
  const Job& job_of(const Subtask& subtask) const {
    return workload_->jobs[static_cast<size_t>(subtask.job)];
  }
  Subtask& at(int subtask) { return subtasks_[static_cast<size_t>(subtask)]; }
  const Subtask& at(int subtask) const { return subtasks_[static_cast<size_t>(subtask)]; }
  JobState& job(int index) { return jobs_[static_cast<size_t>(index)]; }
  const JobState& job(int index) const { return jobs_[static_cast<size_t>(index)]; }

  const Workload* workload_;
  const SharedDevice& device_;
  Setup setup_;
  int64_t now_ns_ = 0, next_order_ = 0, uses_ = 0, free_pages_ = 0;
  std::vector<Subtask> subtasks_;
  std::vector<JobState> jobs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Command> queue_;   // waiting for memory, in order of arrival
  std::vector<int> slot_queue_;  // sub-tasks, in order of arrival
  std::vector<int> waiting_;     // jobs that wait to be admitted, or for a turn
  std::optional<Command> serving_;
  int64_t served_since_ns_ = 0, memory_generation_ = 0;
  bool shortage_ = false;              // what is being served had to make room
  std::optional<int> closed_;          // mat
  std::optional<int> holder_;          // round-robin
  std::optional<int64_t> idle_since_;  // of the holder
  int64_t granted_ns_ = 0;
  bool dropping_ = false;  // the holder's turn has ended, its work in flight has not
  int64_t slots_ = 0;
  Outcome outcome_;
};

}  // namespace outsize::share
