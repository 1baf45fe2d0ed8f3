// outsize/planners and outsize/plan: planning and checking.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "outsize/graph/graph_json.h"
#include "outsize/plan/check.h"
#include "outsize/plan/plan_json.h"
#include "outsize/planners/planner.h"
#include "outsize/profile/machine_json.h"
#include "python/bind/convert.h"

namespace outsize::bind {
namespace {

using BorderList = std::vector<std::tuple<int64_t, std::string, int64_t>>;
using ReservedList = std::vector<std::tuple<std::string, int64_t, int64_t>>;

// What a planning call holds on to while it runs.
struct PlanCall {
  Graph graph;
  Profile profile;
  Machine machine;
  Problem problem;
  std::string planner;
  double seconds = 0;
  int64_t work = 0;
  py::object on_better;
};

void read_options(PlanCall& call, Options& options) {
  call.planner = options.get<std::string>("planner", "outsize");
  Problem& p = call.problem;
  p.graph = &call.graph;
  p.profile = &call.profile;
  p.machine = &call.machine;
  p.budgets.device = options.get<int64_t>("device", call.machine.device_bytes);
  p.budgets.host = options.get<int64_t>("host", call.machine.host_bytes);
  p.budgets.disk = options.get<int64_t>("disk", 0);
  p.seed = options.get<uint64_t>("seed", 1);
  p.threads = options.get<int>("threads", 1);
  call.seconds = options.get<double>("seconds", 1e18);
  call.work = options.get<int64_t>("work", std::numeric_limits<int64_t>::max());
  call.on_better = options.get<py::object>("on_better", py::none());
  if (const auto allow = options.get<std::optional<std::vector<std::string>>>("allow", {})) {
    p.allow = {false, false, false, false};
    for (const std::string& word : *allow) {
      if (word == "swap")
        p.allow.swap = true;
      else if (word == "recompute")
        p.allow.recompute = true;
      else if (word == "reorder")
        p.allow.reorder = true;
      else if (word == "split")
        p.allow.split = true;
      else
        raise(bad_input("option 'allow': '{}' is not swap, recompute, reorder or split", word));
    }
  }
  for (const auto& [storage, tier, address] : options.get<BorderList>("border", {}))
    p.border.push_back({StorageId{storage}, tier_of(tier), address});
  for (const auto& [tier, begin, end] : options.get<ReservedList>("reserved", {}))
    p.reserved.emplace_back(tier_of(tier), Interval{begin, end});
  options.finish();
}

// Plans on a thread of its own, so that this one can see Ctrl-C. Without the GIL while it waits.
Result<Planned> run_interruptibly(PlanCall& call) {
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::optional<Result<Planned>> planned;
  std::exception_ptr thrown, thrown_by_callback;

  Deadline deadline = Deadline::of(call.seconds, call.work, &cancelled);
  call.problem.deadline = &deadline;
  if (!call.on_better.is_none())
    call.problem.on_better = [&](double seconds, int64_t step_ns) {
      const py::gil_scoped_acquire gil;
      try {
        call.on_better(seconds, step_ns);
      } catch (...) {
        thrown_by_callback = std::current_exception();
        cancelled = true;
      }
    };
  std::thread planner([&] {
    try {
      planned.emplace(run_planner(call.planner, call.problem));
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  bool interrupted = false;
  {
    const py::gil_scoped_release release;
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return done; })) {
      lock.unlock();
      {
        const py::gil_scoped_acquire gil;
        if (!interrupted && PyErr_CheckSignals() != 0) interrupted = cancelled = true;
      }
      lock.lock();
    }
    lock.unlock();
    planner.join();
  }
  if (interrupted) throw py::error_already_set();
  if (thrown_by_callback) std::rethrow_exception(thrown_by_callback);
  if (thrown) std::rethrow_exception(thrown);
  return std::move(*planned);
}

py::dict to_dict(const Planned& planned) {
  py::dict d;
  d["plan"] = to_json(planned.plan);
  d["planner"] = planned.planner;
  d["step_ns"] = planned.step_ns;
  d["compute_ns"] = planned.compute_ns;
  d["recompute_ns"] = planned.recompute_ns;
  d["stall_ns"] = planned.stall_ns;
  d["bound_ns"] = planned.bound_ns;
  d["bound_holds_for"] = std::string(kHoldsForNames.name(planned.bound_holds_for));
  d["floor_bytes"] = planned.floor_bytes;
  py::dict peak, extent;
  for (int t = 0; t < kTiers; ++t) {
    const std::string tier(kTierNames.name(Tier{t}));
    peak[tier.c_str()] = planned.peak[t];
    extent[tier.c_str()] = planned.statistics.extent[t];
  }
  d["peak"] = peak;
  d["extent"] = extent;
  d["moved_out"] = planned.statistics.moved_out;
  d["moved_in"] = planned.statistics.moved_in;
  d["moved_write"] = planned.statistics.moved_write;
  d["moved_read"] = planned.statistics.moved_read;
  d["reruns"] = planned.statistics.reruns;
  d["copies"] = planned.statistics.copies;
  d["seconds"] = planned.seconds;
  d["work"] = planned.work;
  d["first_plan_seconds"] = planned.first_plan_seconds;
  d["history"] = planned.history;
  return d;
}

py::dict plan(const std::string& graph, const std::string& profile, const std::string& machine,
              const py::dict& options) {
  PlanCall call;
  call.graph = value_or_raise(without_gil([&] { return graph_from_json(graph); }));
  call.profile = value_or_raise(without_gil([&] { return profile_from_json(profile); }));
  call.machine = value_or_raise(machine_from_json(machine));
  ok_or_raise(check_profile(call.graph, call.profile));
  Options given(options);
  read_options(call, given);
  return to_dict(value_or_raise(run_interruptibly(call)));
}

py::dict check(const std::string& graph_text, const std::string& profile_text,
               const std::string& plan_text, const py::dict& options) {
  Options given(options);
  const auto alignment = given.get<int64_t>("alignment", 64);
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const Plan plan = value_or_raise(plan_from_json(plan_text));
  std::vector<int64_t> workspaces;
  if (!profile_text.empty()) {
    const Profile profile = value_or_raise(profile_from_json(profile_text));
    ok_or_raise(check_profile(graph, profile));
    workspaces = workspaces_of(profile);
  }
  Budgets budgets = plan.budgets;
  budgets.device = given.get<int64_t>("device", budgets.device);
  budgets.host = given.get<int64_t>("host", budgets.host);
  budgets.disk = given.get<int64_t>("disk", budgets.disk);
  given.finish();
  const Violation violation =
      without_gil([&] { return check_plan(graph, workspaces, plan, budgets, alignment); });
  py::dict d;
  d["ok"] = violation.ok();
  d["kind"] = std::string(kViolationKindNames.name(violation.kind));
  d["where"] = violation.where;
  d["witness"] = violation.witness;
  return d;
}

}  // namespace

void bind_plan(py::module_& module) {
  module.def(
      "check_graph",
      [](const std::string& graph) {
        const Result<Graph> result = without_gil([&] { return graph_from_json(graph); });
        if (!result.ok()) raise(result.error());
      },
      py::arg("graph"));
  module.def("planner_names", &planner_names);
  module.def("plan", &plan, py::arg("graph"), py::arg("profile"), py::arg("machine"),
             py::arg("options") = py::dict());
  module.def("check_plan", &check, py::arg("graph"), py::arg("profile"), py::arg("plan"),
             py::arg("options") = py::dict());
}

}  // namespace outsize::bind
