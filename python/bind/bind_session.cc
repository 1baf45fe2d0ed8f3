// outsize/torch/session.h: the memory, the plans in it and the steps.
#include <chrono>

#include "outsize/graph/graph_json.h"
#include "outsize/plan/plan_json.h"
#include "outsize/profile/machine_json.h"
#include "outsize/run/undo.h"
#include "outsize/torch/session.h"
#include "python/bind/convert.h"
#include "python/bind/tensor.h"

namespace outsize::bind {
namespace {

std::map<std::string, Number> numbers_of(const py::dict& dict) {
  std::map<std::string, Number> numbers;
  for (const auto& [key, value] : dict) {
    const auto name = py::str(key).cast<std::string>();
    numbers[name] = number_of(value, fmt::format("scalar '{}'", name));
  }
  return numbers;
}

std::map<StorageId, at::Tensor> tensors_of(const py::object& pairs) {
  std::map<StorageId, at::Tensor> tensors;
  const py::object items = py::isinstance<py::dict>(pairs) ? pairs.attr("items")() : pairs;
  for (const py::handle item : items) {
    const auto [id, object] = item.cast<std::pair<int64_t, py::object>>();
    const bool fresh =
        tensors.emplace(StorageId{id}, tensor_of(object, fmt::format("input {}", id))).second;
    if (!fresh) raise(bad_input("input {} is given twice", id));
  }
  return tensors;
}

int64_t load(Session& session, const std::string& graph_text, const std::string& profile_text,
             const std::string& plan_text, const py::dict& dict) {
  LoadOptions options;
  Options given(dict);
  options.alignment = given.get<int64_t>("alignment", options.alignment);
  options.executor.record_times = given.get<bool>("record_times", false);
  options.executor.clock_mode = given.get<bool>("clock_mode", false);
  options.executor.seed = given.get<uint64_t>("seed", 1);
  options.executor.longest_delay_ns = given.get<int64_t>("longest_delay_ns", 0);
  options.faulty = given.get<bool>("faulty", false);
  const auto rollback = given.get<std::string>("rollback", "");
  if (!rollback.empty()) options.rollback = tier_of(rollback);
  const auto links_of = given.get<std::string>("links_of", "");  // a machine's text
  given.finish();
  if (!links_of.empty()) {
    const Machine machine = value_or_raise(machine_from_json(links_of));
    options.links = LinkLimits{machine.out, machine.in, machine.both_bytes_per_s};
  }
  return value_or_raise(without_gil([&]() -> Result<int64_t> {
    Result<Graph> graph = graph_from_json(graph_text);
    if (!graph.ok()) return graph.error();
    Result<Profile> profile = profile_from_json(profile_text);
    if (!profile.ok()) return profile.error();
    Result<Plan> plan = plan_from_json(plan_text);
    if (!plan.ok()) return plan.error();
    return session.load(std::move(*graph), std::move(*profile), std::move(*plan), options);
  }));
}

// Asks a Python callable whether the step is to stop, at most every kPause. Signals' handlers run
// then, if this is the main thread; what one raises stops the step and becomes `stop.raised`.
class Stopper {
 public:
  explicit Stopper(const py::object& stop) : stop_(stop) {}
  Status operator()() {
    const auto now = std::chrono::steady_clock::now();
    if (asked_ && now - *asked_ < kPause) return Done{};
    asked_ = now;
    const py::gil_scoped_acquire acquire;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!stop_().cast<bool>()) return Done{};
      return Error{ErrorKind::kCancelled, "interrupted before it began"};
    } catch (const py::error_already_set& raised) {
      stop_.attr("raised") = raised.value();
      return Error{ErrorKind::kCancelled,
                   fmt::format("interrupted before it began: {}", raised.what())};
    }
  }

 private:
  static constexpr std::chrono::milliseconds kPause{50};
  const py::object& stop_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
};

py::dict report_of(const StepResult& result) {
  py::dict d;
  d["step_ns"] = result.report.step_ns;
  d["copy_in_ns"] = result.copy_in_ns;
  d["copy_out_ns"] = result.copy_out_ns;
  d["moved_out"] = result.report.moved_out;
  d["moved_in"] = result.report.moved_in;
  d["moved_write"] = result.report.moved_write;
  d["moved_read"] = result.report.moved_read;
  py::dict swapped;
  for (const auto& [role, bytes] : result.report.swapped)
    swapped[std::string(kRoleNames.name(role)).c_str()] = bytes;
  d["swapped"] = swapped;
  py::list rerun_ops;
  for (const OpId op : result.report.rerun_ops) rerun_ops.append(op.value);
  d["rerun_ops"] = rerun_ops;
  d["arena_highest"] = result.arena_highest;
  d["requests"] = result.requests;
  py::dict peak;
  for (int t = 0; t < kTiers; ++t)
    peak[std::string(kTierNames.name(Tier{t})).c_str()] = result.live_peak[t];
  d["live_peak"] = peak;
  py::list times;
  for (const InstructionTimes& t : result.report.times)
    times.append(py::make_tuple(t.begin_ns, t.end_ns));
  d["times"] = times;
  d["timeline"] = result.live_levels;
  return d;
}

py::dict step(Session& session, int64_t handle, const py::object& inputs, const py::dict& scalars,
              const py::object& stop) {
  const auto tensors = tensors_of(inputs);
  const auto numbers = numbers_of(scalars);
  Stopper stopper(stop);
  Executor::Between between;
  if (!stop.is_none()) between = [&] { return stopper(); };
  const Result<StepResult> result =
      without_gil([&] { return session.step(handle, tensors, numbers, between); });
  if (!result.ok()) {
    const StepFailure& failure = session.last_failure();
    if (failure.error == result.error())
      raise_step_error(failure.error, failure.undone, failure.mixed, failure.instruction.value);
    raise(result.error());
  }
  py::dict outputs;
  for (const auto& [storage, tensor] : result->outputs)
    outputs[py::int_(storage.value)] = object_of(tensor);
  py::list values;
  for (const std::optional<Number>& number : result->scalars)
    values.append(number ? object_of(*number) : py::none());
  py::dict d;
  d["outputs"] = outputs;
  d["scalars"] = values;
  d["report"] = report_of(*result);
  return d;
}

py::tuple place_of(const HomePlace& place) {
  return py::make_tuple(std::string(kTierNames.name(place.tier)), place.address, place.bytes);
}

}  // namespace

void bind_session(py::module_& module) {
  module.def(
      "rollback_bytes",
      [](const std::string& graph_text, const std::string& plan_text) {
        return value_or_raise(without_gil([&]() -> Result<int64_t> {
          Result<Graph> graph = graph_from_json(graph_text);
          if (!graph.ok()) return graph.error();
          Result<Plan> plan = plan_from_json(plan_text);
          if (!plan.ok()) return plan.error();
          return undo_bytes(*graph, *plan);
        }));
      },
      py::arg("graph"), py::arg("plan"));
  py::class_<Session>(module, "Session")
      .def(py::init([](int64_t device, int64_t host, int64_t disk, const std::string& disk_dir) {
             return value_or_raise(
                 without_gil([&] { return Session::create({device, host, disk}, disk_dir); }));
           }),
           py::arg("device_bytes"), py::arg("host_bytes") = 0, py::arg("disk_bytes") = 0,
           py::arg("disk_dir") = "")
      .def("load", &load, py::arg("graph"), py::arg("profile"), py::arg("plan"),
           py::arg("options") = py::dict())
      .def(
          "unload", [](Session& s, int64_t handle) { ok_or_raise(s.unload(handle)); },
          py::arg("handle"))
      .def("step", &step, py::arg("handle"), py::arg("inputs") = py::dict(),
           py::arg("scalars") = py::dict(), py::arg("stop") = py::none())
      .def(
          "set_fault",
          [](Session& s, int64_t handle, int64_t call, bool late, bool throws) {
            ok_or_raise(s.set_fault(handle, {call, late, throws}));
          },
          py::arg("handle"), py::arg("call"), py::arg("late") = false, py::arg("throws") = false)
      .def(
          "device_calls",
          [](const Session& s, int64_t handle) { return value_or_raise(s.device_calls(handle)); },
          py::arg("handle"))
      .def(
          "failed_guard",
          [](const Session& s, int64_t handle, const py::dict& scalars) {
            return value_or_raise(s.failed_guard(handle, numbers_of(scalars)));
          },
          py::arg("handle"), py::arg("scalars"))
      .def(
          "adopt",
          [](Session& s, const py::object& tensor, const std::string& tier, int64_t address) {
            ok_or_raise(s.homes().adopt(tensor_of(tensor, "adopt"), tier_of(tier), address));
          },
          py::arg("tensor"), py::arg("tier"), py::arg("address"))
      .def(
          "move",
          [](Session& s, const py::list& moves) {
            std::vector<HomeMove> wanted;
            for (const py::handle item : moves) {
              const auto [tensor, tier, address] =
                  item.cast<std::tuple<py::object, std::string, int64_t>>();
              wanted.push_back({tensor_of(tensor, "move"), tier_of(tier), address});
            }
            ok_or_raise(s.homes().move(wanted));
          },
          py::arg("moves"))
      .def(
          "repoint",
          [](Session& s, const py::object& tensor, const std::string& tier, int64_t address) {
            ok_or_raise(s.homes().repoint(tensor_of(tensor, "repoint"), tier_of(tier), address));
          },
          py::arg("tensor"), py::arg("tier"), py::arg("address"))
      .def(
          "release",
          [](Session& s, const py::object& tensor) {
            ok_or_raise(s.homes().release(tensor_of(tensor, "release")));
          },
          py::arg("tensor"))
      .def(
          "home_of",
          [](Session& s, const py::object& tensor) -> py::object {
            const auto place = s.homes().home_of(tensor_of(tensor, "home_of"));
            return place ? py::object(place_of(*place)) : py::none();
          },
          py::arg("tensor"))
      .def(
          "at",
          [](Session& s, const std::string& tier, int64_t address, int64_t bytes) {
            return object_of(value_or_raise(s.homes().at(tier_of(tier), address, bytes)));
          },
          py::arg("tier"), py::arg("address"), py::arg("bytes"))
      .def("adopted",
           [](Session& s) {
             py::list list;
             for (const HomePlace& place : s.homes().adopted()) list.append(place_of(place));
             return list;
           })
      .def_property_readonly("poisoned", &Session::poisoned)
      .def_property_readonly("mixed", [](const Session& s) { return s.last_failure().mixed; })
      .def("mark_restored", &Session::mark_restored)
      .def("set_poison", &Session::set_poison, py::arg("on"));
}

}  // namespace outsize::bind
