#include "outsize/run/executor.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "outsize/base/random.h"
#include "outsize/plan/check.h"
#include "outsize/run/clocks.h"
#include "outsize/run/executor_unchecked.h"
#include "outsize/run/failure.h"
#include "outsize/run/program.h"
#include "outsize/run/streams.h"

namespace outsize {
namespace {

using Clock = std::chrono::steady_clock;

// Calls into the device and turns whatever it throws into an error.
template <typename F>
Status guarded(F&& call) {
  try {
    return call();
  } catch (const InternalError& e) {
    return Error{ErrorKind::kInternal, e.what()};
  } catch (const std::exception& e) {
    return device_error("the device threw: {}", e.what());
  } catch (...) {
    return device_error("the device threw something that is no std::exception");
  }
}

class StreamExecutor : public Executor {
 public:
  StreamExecutor(const Graph& graph, const Plan& plan, Device& device, Program program,
                 const ExecutorOptions& options)
      : graph_(graph),
        plan_(plan),
        device_(device),
        program_(std::move(program)),
        options_(options) {
    for (int s = 0; s < kStreams; ++s)
      delays_[static_cast<size_t>(s)] = Random(options.seed * kStreams + static_cast<uint64_t>(s));
  }

  // Starts the copy streams' threads.
  Status start() {
    for (int s = 0; s < kStreams; ++s) {
      const auto stream = static_cast<Stream>(s);
      if (stream == Stream::kCompute || program_.of(stream).empty()) continue;
      // Signals are for the user's threads (Python's handlers run on its main thread).
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      Status started = Done{};
      try {
        workers_.emplace_back([this, stream] { work(stream); });
        const std::string name = fmt::format("outsize-{}", kStreamNames.name(stream));
        pthread_setname_np(workers_.back().native_handle(), name.c_str());
      } catch (const std::system_error& e) {
        started = device_error("no thread for stream {}: {}", kStreamNames.name(stream), e.what());
      }
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      if (!started.ok()) return started;
    }
    return Done{};
  }

  ~StreamExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    turn_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  Result<StepReport> step(const Between& between) override {
    begin();
    between_ = between;
    if (Status begun = guarded([&] { return device_.begin_step(); }); !begun.ok())
      return failed(InstructionId{}, begun.error(), "beginning the step: ");
    if (!workers_.empty()) {
      {
        const std::lock_guard lock(mutex_);
        ++turn_number_;
        working_ = workers_.size();
      }
      turn_.notify_all();
    }
    run_stream(Stream::kCompute);
    if (!workers_.empty()) {
      std::unique_lock lock(mutex_);
      idle_.wait(lock, [&] { return working_ == 0; });
    }
    const int64_t step_ns = now_ns();
    const Status ended = guarded([&] { return device_.end_step(); });
    {
      const std::lock_guard lock(error_mutex_);
      if (error_) return failed(error_->first, error_->second, "");
    }
    if (!ended.ok()) return failed(InstructionId{}, ended.error(), "ending the step: ");

    StepReport report = counted();
    report.step_ns = step_ns;
    report.times = times_;
    return report;
  }

  const Failure& failure() const override {
    OUTSIZE_CHECK(failure_.has_value(), "no step has failed");
    return *failure_;
  }

  Failure failure_at_end() const override {
    std::array<int64_t, kStreams> all{};
    for (size_t s = 0; s < all.size(); ++s)
      all[s] = static_cast<int64_t>(program_.streams[s].size());
    return failure_after(graph_, plan_, program_, all);
  }

 private:
  // How long the compute stream waits for a copy before it asks `between_` again.
  static constexpr std::chrono::milliseconds kLongestWait{100};

  void begin() {
    counts_.reset();
    begun_ = {};
    done_ = {};
    failure_.reset();
    {
      const std::lock_guard lock(error_mutex_);
      error_.reset();
    }
    if (options_.record_times)
      times_.assign(static_cast<size_t>(program_.instructions), InstructionTimes{});
    if (options_.clock_mode) clocks_.reset();
    start_ = Clock::now();
  }

  int64_t now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  // A copy stream's thread: one turn per step.
  void work(Stream stream) {
    int64_t turns_done = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        turn_.wait(lock, [&] { return closing_ || turn_number_ > turns_done; });
        if (closing_) return;
        turns_done = turn_number_;
      }
      run_stream(stream);
      // The lock is held while notifying: once `working_` is 0 the executor may be destroyed.
      const std::lock_guard lock(mutex_);
      if (--working_ == 0) idle_.notify_one();
    }
  }

  void run_stream(Stream stream) {
    InstructionId at;
    const Status done = guarded([&]() -> Status {
      for (const ProgramStep& step : program_.of(stream)) {
        if (stream == Stream::kCompute && between_) {
          at = step.instruction;
          if (Status go = await(step.waits); !go.ok()) return go;
        } else {
          for (const WaitFor& wait : step.waits)
            if (!counts_.wait(wait)) return Done{};
        }
        if (counts_.stopped()) return Done{};
        at = step.instruction;
        ++begun_[static_cast<size_t>(stream)];
        if (Status ended = options_.clock_mode ? clocked(stream, step) : timed(step); !ended.ok())
          return ended;
        count(step, done_[static_cast<size_t>(stream)]);
        counts_.advance(stream);
      }
      return Done{};
    });
    if (done.ok()) return;
    {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = {at, done.error()};
    }
    counts_.stop();
  }

  // Until all have happened or the step was stopped; asks `between_` first and meanwhile.
  Status await(const std::vector<WaitFor>& waits) {
    if (Status go = between_(); !go.ok()) return go;
    for (const WaitFor& wait : waits)
      while (!counts_.wait_for(wait, kLongestWait))
        if (Status go = between_(); !go.ok()) return go;
    return Done{};
  }

  void count(const ProgramStep& step, StepReport& done) {
    if (step.kind == InstructionKind::kRerun) done.rerun_ops.push_back(step.op);
    if (step.kind != InstructionKind::kCopy) return;
    const CopyCall& copy = step.copy;
    (copy.to == Tier::kDisk       ? done.moved_write
     : copy.from == Tier::kDisk   ? done.moved_read
     : copy.from == Tier::kDevice ? done.moved_out
                                  : done.moved_in) += copy.bytes;
    const ResidencyId from = plan_.instruction(step.instruction).from;
    done.swapped[graph_.storage(plan_.residency(from).part.storage).role] += copy.bytes;
  }

  // All streams' counts together.
  StepReport counted() const {
    StepReport all;
    for (const StepReport& done : done_) {
      all.moved_out += done.moved_out;
      all.moved_in += done.moved_in;
      all.moved_write += done.moved_write;
      all.moved_read += done.moved_read;
      all.rerun_ops.insert(all.rerun_ops.end(), done.rerun_ops.begin(), done.rerun_ops.end());
      for (const auto& [role, bytes] : done.swapped) all.swapped[role] += bytes;
    }
    return all;
  }

  Status timed(const ProgramStep& step) {
    if (!options_.record_times) return carry_out(step);
    InstructionTimes& times = times_[step.instruction.index()];
    times.begin_ns = now_ns();
    Status done = carry_out(step);
    times.end_ns = now_ns();
    return done;
  }

  Status clocked(Stream stream, const ProgramStep& step) {
    if (options_.longest_delay_ns > 0) {
      const int64_t delay =
          delays_[static_cast<size_t>(stream)].below(options_.longest_delay_ns + 1);
      std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
    }
    const int64_t count = begun_[static_cast<size_t>(stream)];
    if (const std::optional<Conflict> conflict =
            clocks_.begin(stream, count, step.instruction, step.waits,
                          touches_of(graph_, plan_, step.instruction)))
      return Error{ErrorKind::kIllegal,
                   fmt::format("{} {} [{}, {}), not ordered after the {} by {}",
                               conflict->later_writes ? "writes" : "reads",
                               kTierNames.name(conflict->tier), conflict->range.begin,
                               conflict->range.end, conflict->earlier_writes ? "write" : "read",
                               describe_instruction(graph_, plan_, conflict->earlier))};
    Status done = timed(step);
    if (done.ok()) clocks_.end(stream, count);
    return done;
  }

  Status carry_out(const ProgramStep& step) {
    if (step.kind == InstructionKind::kCopy) return device_.copy(step.copy);
    const RunCall call{.instruction = step.instruction,
                       .op = step.op,
                       .rerun = step.kind == InstructionKind::kRerun,
                       .addresses = step.addresses,
                       .workspace = step.workspace};
    if (step.saves_generator)
      if (Status saved = device_.save_generator(step.op); !saved.ok()) return saved;
    if (!step.rewinds_generator) return device_.run_op(call);
    if (Status rewound = device_.rewind_generator(step.op); !rewound.ok()) return rewound;
    // The generator goes on from where it was even if the op fails.
    Status run = guarded([&] { return device_.run_op(call); });
    Status resumed = device_.resume_generator();
    return run.ok() ? resumed : run;
  }

  Error failed(InstructionId instruction, const Error& error, const std::string& doing) {
    failure_ = failure_after(graph_, plan_, program_, begun_);
    failure_->instruction = instruction;
    const std::string where =
        instruction.valid() ? describe_instruction(graph_, plan_, instruction) + ": " : doing;
    return {error.kind, where + error.message};
  }

  const Graph& graph_;
  const Plan& plan_;
  Device& device_;
  const Program program_;
  const ExecutorOptions options_;
  Between between_;  // of the step that runs

  // Written by each stream's own thread at its own place; read when all are idle.
  std::array<int64_t, kStreams> begun_{};
  std::array<StepReport, kStreams> done_{};
  std::vector<InstructionTimes> times_;
  std::array<Random, kStreams> delays_{Random(0), Random(0), Random(0), Random(0), Random(0)};

  StreamCounts counts_;
  AccessClocks clocks_;
  Clock::time_point start_;

  std::mutex error_mutex_;  // guards error_
  std::optional<std::pair<InstructionId, Error>> error_;
  std::optional<Failure> failure_;

  std::mutex mutex_;  // guards the four below
  int64_t turn_number_ = 0;
  size_t working_ = 0;
  bool closing_ = false;
  std::condition_variable turn_, idle_;
  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace

Result<std::unique_ptr<Executor>> unchecked_executor(const Graph& graph, const Plan& plan,
                                                     Device& device,
                                                     const ExecutorOptions& options) {
  Result<Program> program = program_of(graph, plan);
  if (!program.ok()) return program.error();
  auto executor =
      std::make_unique<StreamExecutor>(graph, plan, device, std::move(*program), options);
  if (Status started = executor->start(); !started.ok()) return started.error();
  return std::unique_ptr<Executor>(std::move(executor));
}

Result<std::unique_ptr<Executor>> Executor::create(const Graph& graph, const Profile& profile,
                                                   const Plan& plan, Device& device,
                                                   int64_t alignment,
                                                   const ExecutorOptions& options) {
  if (Status fits = check_profile(graph, profile); !fits.ok()) return fits.error();
  const Violation violation =
      check_plan(graph, workspaces_of(profile), plan, plan.budgets, alignment);
  if (!violation.ok())
    return Error{ErrorKind::kIllegal, fmt::format("the plan is refused ({}): {}: {}",
                                                  kViolationKindNames.name(violation.kind),
                                                  violation.where, violation.witness)};
  return unchecked_executor(graph, plan, device, options);
}

}  // namespace outsize
