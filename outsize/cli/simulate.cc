// outsize simulate GRAPH PLAN --machine M [--reference]
#include "outsize/simulate/simulate.h"

#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"
#include "outsize/simulate/reference.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  std::string plan;
  bool reference = false;
};

Result<Answer> run(const Options& options) {
  const Result<Case> loaded = load_graph_and_machine(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  const Result<Plan> plan = load_plan(options.plan);
  if (!plan.ok()) return plan.error();
  const Result<Simulation> simulated =
      options.reference ? simulate_reference(c.graph, c.profile, c.machine, *plan)
                        : simulate(c.graph, c.profile, c.machine, *plan);
  if (!simulated.ok()) return simulated.error();
  const Simulation& s = *simulated;

  Answer answer;
  answer.fields.set("step_ns", s.step_ns).set("compute_ns", s.compute_ns);
  answer.fields.set("recompute_ns", s.recompute_ns).set("stall_ns", s.stall_ns);
  JsonObject busy;
  Facts facts;
  facts.add("step",
            fmt::format("{} = ops {} + recomputation {} + stall {}", format_ns(s.step_ns),
                        format_ns(s.compute_ns), format_ns(s.recompute_ns), format_ns(s.stall_ns)));
  Table streams({"stream", ">busy", ">of the step"});
  for (const auto& [stream, name] : kStreamNames.entries) {
    const int64_t ns = s.busy_ns[static_cast<size_t>(stream)];
    busy.set(name, ns);
    const double share =
        s.step_ns > 0 ? static_cast<double>(ns) / static_cast<double>(s.step_ns) : 0;
    streams.row({std::string(name), format_ns(ns), fmt::format("{:.1f}%", 100 * share)});
  }
  answer.fields.set("busy_ns", busy);
  answer.fields.set("peak", tiers_object(s.tiers[0].extent, s.tiers[1].extent, s.tiers[2].extent));
  answer.fields.set("peak_live",
                    tiers_object(s.tiers[0].peak_live_bytes, s.tiers[1].peak_live_bytes,
                                 s.tiers[2].peak_live_bytes));
  answer.fields.set("moved", moved_object(s.moved_out, s.moved_in, s.moved_write, s.moved_read));
  facts.add("peak", fmt::format("device {}, host {}, disk {}", format_bytes(s.tiers[0].extent),
                                format_bytes(s.tiers[1].extent), format_bytes(s.tiers[2].extent)));
  facts.add("moved", fmt::format("out {}, in {}, to disk {}, from disk {}",
                                 format_bytes(s.moved_out), format_bytes(s.moved_in),
                                 format_bytes(s.moved_write), format_bytes(s.moved_read)));
  answer.text = facts.text() + "\n" + streams.text();
  return answer;
}

}  // namespace

void add_simulate(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand("simulate", "Says what a plan would do on a machine.");
  command.input_file("GRAPH", options->of.graph, "a graph with its profile; - is standard input");
  command.input_file("PLAN", options->plan, "the plan; - is standard input");
  command.option("--machine", "NAME|FILE", options->of.machine,
                 "a preset (outsize machine list) or a file");
  command.flag("--reference", options->reference, "by the slow, plain second simulator");
  command.does([options] { return run(*options); });
}

}  // namespace outsize::cli
