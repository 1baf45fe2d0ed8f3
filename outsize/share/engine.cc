#include "outsize/share/engine.h"

#include <algorithm>

#include "outsize/base/check.h"

namespace outsize::share {

namespace {

constexpr int64_t kWholeLinkPpm = 1'000'000;

int64_t pages_in_swap(int64_t pages, int64_t percent) { return (pages * percent + 99) / 100; }

}  // namespace

Engine::Engine(const Workload& workload, Setup setup)
    : workload_(&workload), device_(workload.device), setup_(std::move(setup)) {
  free_pages_ = device_.pages();
  const size_t count = workload.jobs.size();
  if (setup_.ranks.empty()) setup_.ranks.assign(count, 0);
  if (setup_.swap_percents.empty()) setup_.swap_percents.assign(count, 0);
  jobs_.resize(count);
  outcome_.policy = setup_.options.policy;
  outcome_.jobs.resize(count);
  for (size_t j = 0; j < count; ++j) {
    const Job& job = workload.jobs[j];
    JobState& state = jobs_[j];
    state.unfinished = job.subtasks;
    for (int64_t k = 0; k < job.subtasks; ++k) {
      Subtask subtask;
      subtask.job = static_cast<int>(j);
      subtask.index = k;
      const int64_t pages = pages_of(job.subtask_bytes, device_);
      subtask.swap_pages = pages_in_swap(pages, setup_.swap_percents[j]);
      subtask.pages = pages - subtask.swap_pages;
      subtask.rounds_left = job.rounds;
      subtask.burst_left_ns = job.burst_ns(k);
      state.pages += subtask.pages;
      state.subtasks.push_back(static_cast<int>(subtasks_.size()));
      subtasks_.push_back(subtask);
    }
    schedule(job.arrives_ns + job.host_first_ns, EventKind::kArrive, static_cast<int64_t>(j));
  }
}

Outcome Engine::run() {
  int64_t first_ns = workload_->jobs.front().arrives_ns;
  for (const Job& job : workload_->jobs) first_ns = std::min(first_ns, job.arrives_ns);
  while (!events_.empty()) {
    // All that happens at one moment happens before anything is decided.
    now_ns_ = events_.top().at_ns;
    while (!events_.empty() && events_.top().at_ns == now_ns_) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
    }
    admit();
    update_turns();
    grant_slots();
    serve_memory();
  }
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const JobState& state = jobs_[j];
    OUTSIZE_CHECK(state.unfinished == 0, "{}: job '{}' has {} sub-tasks that wait for ever",
                  kPolicyNames.name(outcome_.policy), workload_->jobs[j].name, state.unfinished);
    JobOutcome& job = outcome_.jobs[j];
    job.response_ns = state.end_ns - workload_->jobs[j].arrives_ns;
    if (state.touched_pages > 0)
      job.swap_share =
          static_cast<double>(state.swap_pages) / static_cast<double>(state.touched_pages);
    outcome_.makespan_ns = std::max(outcome_.makespan_ns, state.end_ns - first_ns);
  }
  return outcome_;
}

void Engine::schedule(int64_t at_ns, EventKind kind, int64_t subject) {
  events_.push({at_ns, next_order_++, kind, subject});
}

void Engine::handle(const Event& event) {
  const int subject = static_cast<int>(event.subject);
  switch (event.kind) {
    case EventKind::kArrive:
      arrive(subject);
      break;
    case EventKind::kMemory:
      if (event.subject == memory_generation_) memory_done();
      break;
    case EventKind::kCompute:
      compute_done(subject);
      break;
    case EventKind::kHost: {
      Subtask& subtask = at(subject);
      const int64_t chosen_ns = job(subtask.job).burst_ns;
      subtask.burst_left_ns = chosen_ns >= 0 ? chosen_ns : job_of(subtask).burst_ns(subtask.index);
      want_slot(subject);
      break;
    }
    case EventKind::kTurn:  // only so that something is decided now
      break;
  }
}

// --- sub-tasks
// ------------------------------------------------------------------------------------

void Engine::arrive(int index) {
  job(index).arrived = true;
  waiting_.push_back(index);
}

void Engine::open_jobs(const std::vector<int>& jobs) {
  size_t most = 0;
  for (const int index : jobs) {
    job(index).open = true;
    most = std::max(most, job(index).subtasks.size());
  }
  for (size_t k = 0; k < most; ++k)
    for (const int index : jobs)
      if (k < job(index).subtasks.size()) {
        ++job(index).in_flight;
        enqueue(job(index).subtasks[k], Stage::kAllocate);
      }
}

void Engine::enqueue(int subtask, Stage stage) {
  at(subtask).stage = stage;
  queue_.push_back({subtask, -1});
}

void Engine::want_slot(int subtask) {
  at(subtask).stage = Stage::kWantSlot;
  ++job(at(subtask).job).want_slot;
  slot_queue_.push_back(subtask);
}

bool Engine::may_start(const Subtask& subtask) const {
  const Policy policy = setup_.options.policy;
  if (policy == Policy::kRoundRobin && (holder_ != subtask.job || dropping_)) return false;
  if (policy == Policy::kMat && closed_ == subtask.job && others_unfinished(subtask.job) &&
      lacks(subtask) > free_pages_)
    return false;
  if (device_.compute_units > 0 && slots_ >= device_.compute_units) return false;
  const int64_t job_units = job_of(subtask).compute_units;
  return job_units == 0 || job(subtask.job).slots < job_units;
}

void Engine::grant_slots() {
  std::vector<int> order = slot_queue_;
  if (by_rank())
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return setup_.ranks[static_cast<size_t>(at(a).job)] <
             setup_.ranks[static_cast<size_t>(at(b).job)];
    });
  std::vector<int> granted;
  for (const int id : order) {
    Subtask& subtask = at(id);
    if (!may_start(subtask)) continue;
    JobState& state = job(subtask.job);
    ++slots_;
    ++state.slots;
    ++state.in_flight;
    --state.want_slot;
    granted.push_back(id);
    enqueue(id, Stage::kRead);
  }
  if (granted.empty()) return;
  std::sort(granted.begin(), granted.end());
  std::erase_if(slot_queue_,
                [&](int id) { return std::binary_search(granted.begin(), granted.end(), id); });
}

void Engine::release_slot(Subtask& subtask) {
  --slots_;
  --job(subtask.job).slots;
  --job(subtask.job).in_flight;
}

void Engine::compute(int id) {
  Subtask& subtask = at(id);
  subtask.stage = Stage::kCompute;
  const int64_t slice = device_.slice_ns > 0 ? std::min(device_.slice_ns, subtask.burst_left_ns)
                                             : subtask.burst_left_ns;
  subtask.burst_left_ns -= slice;
  schedule(now_ns_ + slice, EventKind::kCompute, id);
}

void Engine::compute_done(int id) {
  Subtask& subtask = at(id);
  if (subtask.burst_left_ns > 0) {
    release_slot(subtask);
    want_slot(id);
  } else if (job_of(subtask).writes) {
    enqueue(id, Stage::kWrite);
  } else {
    end_round(id);
  }
}

void Engine::end_round(int id) {
  Subtask& subtask = at(id);
  release_slot(subtask);
  if (--subtask.rounds_left == 0) {
    finish(id);
    return;
  }
  subtask.stage = Stage::kHost;
  schedule(now_ns_ + job_of(subtask).host_ns, EventKind::kHost, id);
}

void Engine::finish(int id) {
  Subtask& subtask = at(id);
  subtask.stage = Stage::kDone;
  free_pages_ += subtask.resident;
  subtask.resident = 0;
  JobState& state = job(subtask.job);
  if (--state.unfinished > 0) return;
  state.end_ns = now_ns_;
  if (closed_ == subtask.job) closed_.reset();
}

// --- memory
// ---------------------------------------------------------------------------------------

int64_t Engine::lacks(const Subtask& subtask) const { return subtask.pages - subtask.resident; }

bool Engine::others_unfinished(int index) const {
  for (size_t j = 0; j < jobs_.size(); ++j)
    if (static_cast<int>(j) != index && jobs_[j].open && jobs_[j].unfinished > 0) return true;
  return false;
}

bool Engine::by_rank() const {
  return setup_.options.rules.priority && ranks_commands(setup_.options.policy);
}

bool Engine::preempts(int id) const {
  if (!by_rank()) return false;
  const auto rank = [&](int subtask) { return setup_.ranks[static_cast<size_t>(at(subtask).job)]; };
  return rank(id) < rank(serving_->subtask);
}

void Engine::serve_memory() {
  if (serving_) {
    const bool interrupted = std::any_of(queue_.begin(), queue_.end(), [&](const Command& command) {
      return preempts(command.subtask);
    });
    if (!interrupted) return;
    serving_->remaining_ns -= now_ns_ - served_since_ns_;
    queue_.insert(queue_.begin(), *serving_);
    serving_.reset();
    ++memory_generation_;
  }
  const Policy policy =
      ranks_commands(setup_.options.policy) && !by_rank() ? Policy::kLru : setup_.options.policy;
  std::vector<Queued> commands;
  for (const Command& command : queue_)
    commands.push_back({at(command.subtask).job, lacks(at(command.subtask))});
  const QueueView view{commands, free_pages_, setup_.ranks, closed_,
                       closed_ && others_unfinished(*closed_)};
  std::optional<size_t> next = next_command(policy, view);
  // A closed job may hold the compute unit that all others wait for: then it goes on.
  if (!next && !queue_.empty() && events_.empty()) next = 0;
  if (!next) return;
  if (closed_ == commands[*next].job && commands[*next].lacks_pages <= free_pages_) closed_.reset();
  Command command = queue_[*next];
  queue_.erase(queue_.begin() + static_cast<int64_t>(*next));
  if (command.remaining_ns < 0) command.remaining_ns = begin(command.subtask);
  serving_ = command;
  served_since_ns_ = now_ns_;
  schedule(now_ns_ + command.remaining_ns, EventKind::kMemory, ++memory_generation_);
}

// Does what the command does to memory; returns how long it takes.
int64_t Engine::begin(int id) {
  Subtask& subtask = at(id);
  const int64_t missing = lacks(subtask);
  int64_t ns = make_room(id, missing);
  shortage_ = ns > 0;
  free_pages_ -= missing;
  subtask.resident = subtask.pages;
  subtask.last_use = ++uses_;
  outcome_.peak_pages = std::max(outcome_.peak_pages, device_.pages() - free_pages_);
  if (subtask.stage == Stage::kAllocate) return ns;
  const int64_t page = device_.page_bytes;
  ns += transfer_ns(missing * page, device_.swap_in_bytes_per_s);
  ns += transfer_ns(subtask.pages * page, device_.memory_bytes_per_s);
  const bool reads = subtask.stage == Stage::kRead;
  ns += transfer_ns(subtask.swap_pages * page,
                    reads ? device_.swap_in_bytes_per_s : device_.swap_out_bytes_per_s);
  outcome_.swapped_in_bytes += (missing + (reads ? subtask.swap_pages : 0)) * page;
  outcome_.swapped_out_bytes += (reads ? 0 : subtask.swap_pages) * page;
  job(subtask.job).touched_pages += subtask.pages + subtask.swap_pages;
  job(subtask.job).swap_pages += missing + subtask.swap_pages;
  return ns;
}

// Writes out the least recently used pages of others until `pages` are free.
int64_t Engine::make_room(int id, int64_t pages) {
  int64_t written = 0;
  while (free_pages_ < pages) {
    Subtask* oldest = nullptr;
    for (Subtask& other : subtasks_)
      if (&other != &at(id) && other.resident > 0 &&
          (oldest == nullptr || other.last_use < oldest->last_use))
        oldest = &other;
    OUTSIZE_CHECK(oldest != nullptr, "{} pages are wanted, {} are free and none can be freed",
                  pages, free_pages_);
    const int64_t taken = std::min(oldest->resident, pages - free_pages_);
    oldest->resident -= taken;
    free_pages_ += taken;
    written += taken;
  }
  outcome_.swapped_out_bytes += written * device_.page_bytes;
  return transfer_ns(written * device_.page_bytes, device_.swap_out_bytes_per_s);
}

void Engine::memory_done() {
  const int id = serving_->subtask;
  serving_.reset();
  Subtask& subtask = at(id);
  const Options& options = setup_.options;
  if (options.policy == Policy::kMat && options.rules.close && shortage_ && !closed_ &&
      others_unfinished(subtask.job))
    closed_ = subtask.job;
  switch (subtask.stage) {
    case Stage::kAllocate:
      --job(subtask.job).in_flight;
      want_slot(id);
      break;
    case Stage::kRead:
      compute(id);
      break;
    default:
      end_round(id);
  }
}

// --- who may start
// --------------------------------------------------------------------------------

void Engine::admit() {
  switch (setup_.options.policy) {
    case Policy::kRoundRobin:
      return;
    case Policy::kFifo:
      return admit_fifo();
    case Policy::kBroker:
      return admit_broker();
    default:
      open_jobs(std::exchange(waiting_, {}));
  }
}

void Engine::admit_fifo() {
  int64_t used = 0;
  for (const JobState& state : jobs_)
    if (state.open && state.unfinished > 0) used += state.pages;
  std::vector<int64_t> pages;
  for (const int index : waiting_) pages.push_back(job(index).pages);
  const auto count = static_cast<int64_t>(admitted(pages, used, device_.pages()));
  const std::vector<int> chosen(waiting_.begin(), waiting_.begin() + count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  open_jobs(chosen);
}

// Beside what the running jobs were promised.
void Engine::admit_broker() {
  if (waiting_.empty()) return;
  std::vector<Running> running;
  for (const JobState& state : jobs_)
    if (state.open && state.unfinished > 0)
      running.push_back(
          {state.pages, state.link_ppm, std::max<int64_t>(1, state.expected_end_ns - now_ns_)});
  std::vector<std::vector<Offer>> offers;
  for (const int index : waiting_) offers.push_back(offers_of(index));
  const int64_t link_ppm = setup_.options.rules.link_limit ? kWholeLinkPpm : int64_t{1} << 60;
  const Choice choice = start_jobs(offers, running, device_.pages(), link_ppm);
  const auto count = static_cast<int64_t>(choice.offers.size());
  const std::vector<int> started(waiting_.begin(), waiting_.begin() + count);
  OUTSIZE_CHECK(!started.empty() || !running.empty(), "nothing runs, and job '{}' can't start",
                workload_->jobs[static_cast<size_t>(waiting_.front())].name);
  waiting_.erase(waiting_.begin(), waiting_.begin() + count);
  for (size_t i = 0; i < started.size(); ++i)
    accept(started[i], offers[i][choice.offers[i]], choice.offers[i]);
  open_jobs(started);
}

// Of a job with a curve, its points; of another, each whole percent in swap.
std::vector<Offer> Engine::offers_of(int index) const {
  const Job& job = workload_->jobs[static_cast<size_t>(index)];
  const auto share = [](int64_t link_ns, int64_t time_ns) {
    return static_cast<int64_t>(static_cast<__int128>(link_ns) * kWholeLinkPpm / time_ns);
  };
  std::vector<Offer> offers;
  for (const CurvePoint& point : job.curve) {
    const int64_t link_ns = job.rounds * transfer_ns(point.moved_bytes, slower_swap_rate());
    const int64_t burst_ns = job.rounds * point.burst_ns;
    const int64_t time_ns = std::max(burst_ns, link_ns) + (job.rounds - 1) * job.host_ns;
    offers.push_back({pages_of(point.budget_bytes, device_), time_ns, share(link_ns, time_ns)});
  }
  if (!offers.empty()) return offers;
  const std::vector<int64_t>& times_ns = setup_.swap_times_ns[static_cast<size_t>(index)];
  const int64_t pages = pages_of(job.subtask_bytes, device_);
  for (int64_t percent = 0; percent <= 100; ++percent) {
    const int64_t in_swap = pages_in_swap(pages, percent);
    if ((pages - in_swap) * job.subtasks > device_.pages()) continue;
    const int64_t bytes = in_swap * device_.page_bytes;
    int64_t link_ns = transfer_ns(bytes, device_.swap_in_bytes_per_s);
    if (job.writes) link_ns += transfer_ns(bytes, device_.swap_out_bytes_per_s);
    link_ns *= job.subtasks * job.rounds;
    const int64_t time_ns = std::max<int64_t>(1, times_ns[static_cast<size_t>(percent)]);
    offers.push_back({(pages - in_swap) * job.subtasks, time_ns, share(link_ns, time_ns), percent});
  }
  return offers;
}

int64_t Engine::slower_swap_rate() const {
  return std::min(device_.swap_in_bytes_per_s, device_.swap_out_bytes_per_s);
}

void Engine::accept(int index, const Offer& offer, size_t chosen) {
  const Job& described = workload_->jobs[static_cast<size_t>(index)];
  JobState& state = job(index);
  JobOutcome& outcome = outcome_.jobs[static_cast<size_t>(index)];
  state.link_ppm = offer.link_ppm;
  state.pages = offer.pages;
  state.expected_end_ns = now_ns_ + offer.time_ns;
  outcome.swap_percent = static_cast<int>(offer.swap_percent);
  setup_.ranks[static_cast<size_t>(index)] = outcome.swap_percent;
  for (const int id : state.subtasks) {
    Subtask& subtask = at(id);
    const int64_t all = pages_of(described.subtask_bytes, device_);
    if (described.curve.empty()) {
      subtask.swap_pages = pages_in_swap(all, outcome.swap_percent);
      subtask.pages = all - subtask.swap_pages;
      continue;
    }
    outcome.budget_bytes = described.curve[chosen].budget_bytes;
    subtask.pages = offer.pages;
    state.burst_ns = std::max(described.curve[chosen].burst_ns,
                              transfer_ns(described.curve[chosen].moved_bytes, slower_swap_rate()));
    subtask.burst_left_ns = state.burst_ns;
  }
}

// --- turns
// ----------------------------------------------------------------------------------------

bool Engine::wants_turn(int index) const {
  const JobState& state = job(index);
  return state.arrived && (!state.open || state.want_slot > 0);
}

void Engine::update_turns() {
  if (setup_.options.policy != Policy::kRoundRobin) return;
  for (size_t j = 0; j < jobs_.size(); ++j) {
    const int index = static_cast<int>(j);
    if (holder_ != index && wants_turn(index) &&
        std::find(waiting_.begin(), waiting_.end(), index) == waiting_.end())
      waiting_.push_back(index);
  }
  if (holder_) {
    const JobState& state = job(*holder_);
    const bool idle = state.in_flight == 0 && state.want_slot == 0;
    if (!idle) idle_since_.reset();
    if (idle && !idle_since_) idle_since_ = now_ns_;
    const Rules& rules = setup_.options.rules;
    const TurnView turn{now_ns_,
                        granted_ns_,
                        setup_.options.quantum_ns,
                        idle_since_,
                        rules.early_release ? device_.idle_release_ns : 0,
                        !waiting_.empty()};
    const std::optional<int64_t> end = turn_ends_ns(turn);
    dropping_ = dropping_ || (end && *end <= now_ns_);
    if (state.unfinished == 0 || (dropping_ && state.in_flight == 0)) {
      const int last = *holder_;
      holder_.reset();
      if (wants_turn(last) && state.unfinished > 0) waiting_.push_back(last);
    } else if (end && !dropping_) {
      schedule(*end, EventKind::kTurn, 0);
    }
  }
  if (!holder_ && !waiting_.empty()) grant_turn();
}

void Engine::grant_turn() {
  holder_ = waiting_.front();
  waiting_.erase(waiting_.begin());
  granted_ns_ = now_ns_;
  idle_since_.reset();
  dropping_ = false;
  ++outcome_.turns;
  schedule(now_ns_ + setup_.options.quantum_ns, EventKind::kTurn, 0);
  if (!job(*holder_).open) open_jobs({*holder_});
}

}  // namespace outsize::share
