// outsize/simulate, outsize/bound, outsize/profile and the graph's liveness: what can be said
// before a step.
#include "outsize/bound/bounds.h"
#include "outsize/bound/floor.h"
#include "outsize/bound/holders.h"
#include "outsize/graph/graph_json.h"
#include "outsize/plan/plan_json.h"
#include "outsize/profile/links.h"
#include "outsize/profile/machine_json.h"
#include "outsize/simulate/simulate.h"
#include "python/bind/convert.h"

namespace outsize::bind {
namespace {

Profile read_profile_of(const Graph& graph, const std::string& text) {
  Profile profile = value_or_raise(profile_from_json(text));
  ok_or_raise(check_profile(graph, profile));
  return profile;
}

py::dict simulate_text(const std::string& graph_text, const std::string& profile_text,
                       const std::string& machine_text, const std::string& plan_text) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const Profile profile = read_profile_of(graph, profile_text);
  const Machine machine = value_or_raise(machine_from_json(machine_text));
  const Plan plan = value_or_raise(plan_from_json(plan_text));
  const Simulation s =
      value_or_raise(without_gil([&] { return simulate(graph, profile, machine, plan); }));
  py::dict d;
  d["step_ns"] = s.step_ns;
  d["compute_ns"] = s.compute_ns;
  d["recompute_ns"] = s.recompute_ns;
  d["stall_ns"] = s.stall_ns;
  py::dict busy;
  for (int k = 0; k < kStreams; ++k)
    busy[std::string(kStreamNames.name(Stream{k})).c_str()] = s.busy_ns[static_cast<size_t>(k)];
  d["busy_ns"] = busy;
  py::list spans;
  for (const Span& span : s.spans) spans.append(py::make_tuple(span.begin_ns, span.end_ns));
  d["times"] = spans;
  py::dict tiers;
  for (int k = 0; k < kTiers; ++k) {
    const TierUse& use = s.tiers[static_cast<size_t>(k)];
    py::list levels;
    for (const Level& level : use.levels) levels.append(py::make_tuple(level.ns, level.live_bytes));
    py::dict tier;
    tier["extent"] = use.extent;
    tier["peak_live_bytes"] = use.peak_live_bytes;
    tier["timeline"] = levels;
    tiers[std::string(kTierNames.name(Tier{k})).c_str()] = tier;
  }
  d["tiers"] = tiers;
  d["moved_out"] = s.moved_out;
  d["moved_in"] = s.moved_in;
  d["moved_write"] = s.moved_write;
  d["moved_read"] = s.moved_read;
  return d;
}

// Of the profile; {} where there is none.
std::vector<int64_t> read_workspaces(const Graph& graph, const std::string& profile_text) {
  if (profile_text.empty()) return {};
  return workspaces_of(read_profile_of(graph, profile_text));
}

py::dict floor_text(const std::string& graph_text, const std::string& profile_text) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const std::vector<int64_t> workspaces = read_workspaces(graph, profile_text);
  const Floor floor = floor_of(graph, workspaces);
  py::dict d;
  d["bytes"] = floor.bytes;
  d["op"] = floor.op.value;
  d["peak_program_order"] = peak_program_order(graph, workspaces);
  return d;
}

py::dict explain_text(const std::string& graph_text, const std::string& profile_text,
                      int64_t device_bytes) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const Explanation e = explain_bytes(graph, read_workspaces(graph, profile_text), device_bytes);
  py::dict d;
  d["peak_bytes"] = e.peak_bytes;
  d["peak_op"] = e.peak_op.value;
  d["floor_bytes"] = e.floor.bytes;
  d["floor_op"] = e.floor.op.value;
  d["below_floor"] = e.below_floor;
  d["op"] = e.at.value;
  d["workspace_bytes"] = e.workspace_bytes;
  py::list holders;
  for (const Holder& h : e.holders) {
    py::dict one;
    one["storage"] = h.storage.value;
    one["bytes"] = h.bytes;
    one["made_by"] = h.made_by.value;
    one["last_used"] = h.last_used.value;
    holders.append(one);
  }
  d["holders"] = holders;
  return d;
}

py::dict bounds_text(const std::string& graph_text, const std::string& profile_text,
                     const std::string& machine_text, const py::dict& dict) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const Profile profile = read_profile_of(graph, profile_text);
  const Machine machine = value_or_raise(machine_from_json(machine_text));
  BoundOptions options;
  Options given(dict);
  options.budgets.device = given.get<int64_t>("device", machine.device_bytes);
  options.budgets.host = given.get<int64_t>("host", machine.host_bytes);
  options.budgets.disk = given.get<int64_t>("disk", machine.disk_bytes);
  options.swap = given.get<bool>("swap", options.swap);
  options.recompute = given.get<bool>("recompute", options.recompute);
  options.reorder = given.get<bool>("reorder", options.reorder);
  options.most_slots = given.get<int64_t>("most_slots", options.most_slots);
  options.seconds = given.get<double>("seconds", options.seconds);
  given.finish();
  const Bounds b = without_gil([&] { return bounds_of(graph, profile, machine, options); });
  py::dict d;
  d["floor_bytes"] = b.floor.bytes;
  d["floor_op"] = b.floor.op.value;
  d["peak_program_order"] = b.peak_program_order;
  d["compute_ns"] = b.compute_ns;
  d["best_ns"] = b.best_ns;
  d["infeasible"] = b.infeasible;
  py::list list;
  for (const Bound& bound : b.bounds) {
    py::dict one;
    one["name"] = bound.name;
    one["holds_for"] = std::string(kHoldsForNames.name(bound.holds_for));
    one["ns"] = bound.ns;
    list.append(one);
  }
  d["bounds"] = list;
  return d;
}

py::dict liveness_text(const std::string& graph_text, const std::string& profile_text) {
  const Graph graph = value_or_raise(graph_from_json(graph_text));
  const std::vector<int64_t> workspaces = read_workspaces(graph, profile_text);
  const Liveness l = liveness_of(graph, workspaces);
  py::dict d;
  d["live_bytes"] = l.live_bytes;
  py::list touched;
  for (const auto& ops : l.touched_by) {
    py::list ids;
    for (const OpId op : ops) ids.append(op.value);
    touched.append(ids);
  }
  d["touched_by"] = touched;
  d["peak_bytes"] = l.peak_bytes;
  d["peak_op"] = l.peak_op.value;
  d["largest_working_set"] = l.largest_working_set;
  d["largest_op"] = l.largest_op.value;
  d["persistent_bytes"] = l.persistent_bytes;
  return d;
}

}  // namespace

void bind_study(py::module_& module) {
  module.def("simulate", &simulate_text, py::arg("graph"), py::arg("profile"), py::arg("machine"),
             py::arg("plan"));
  module.def("floor", &floor_text, py::arg("graph"), py::arg("profile") = "");
  module.def("explain", &explain_text, py::arg("graph"), py::arg("profile"),
             py::arg("device_bytes"));
  module.def("bounds", &bounds_text, py::arg("graph"), py::arg("profile"), py::arg("machine"),
             py::arg("options") = py::dict());
  module.def("liveness", &liveness_text, py::arg("graph"), py::arg("profile") = "");
  module.def(
      "machine",
      [](const std::string& name_or_path) {
        return to_json(value_or_raise(find_machine(name_or_path)));
      },
      py::arg("name_or_path"));
  module.def(
      "machine_with_links",
      [](const std::string& here_text, const std::string& name_or_path) {
        const Machine here = value_or_raise(machine_from_json(here_text));
        return to_json(
            value_or_raise(with_links_of(here, value_or_raise(find_machine(name_or_path)))));
      },
      py::arg("here"), py::arg("links_of"));
  module.def("machine_names", [] {
    std::vector<std::string> names;
    for (const Machine& machine : preset_machines()) names.push_back(machine.name);
    return names;
  });
}

}  // namespace outsize::bind
