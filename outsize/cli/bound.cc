// outsize bound GRAPH --machine M --device B [--host B] [--disk B]
#include <algorithm>
#include <cmath>
#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/bound/bounds.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  std::string allow;
  std::optional<double> seconds;
};

// Device bytes in which the op's operands surely have a place: side by side, each at an aligned
// address, the one that would waste most at the end.
int64_t packed_working_set(const Graph& graph, OpId id, int64_t workspace, int64_t alignment) {
  std::vector<Access> touched;
  const Op& op = graph.op(id);
  for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
    touched.insert(touched.end(), accesses->begin(), accesses->end());
  std::sort(touched.begin(), touched.end(), [](const Access& a, const Access& b) {
    return a.storage != b.storage ? a.storage < b.storage : a.bytes < b.bytes;
  });
  std::vector<int64_t> sizes;
  if (workspace > 0) sizes.push_back(workspace);
  StorageId storage;
  Interval range;
  const auto close = [&] {
    if (!range.empty()) sizes.push_back(range.size());
  };
  for (const Access& access : touched) {
    if (access.storage == storage && access.bytes.begin <= range.end) {
      range.end = std::max(range.end, access.bytes.end);
      continue;
    }
    close();
    storage = access.storage;
    range = access.bytes;
  }
  close();
  int64_t sum = 0, most_saved = 0;
  for (const int64_t size : sizes) {
    sum += round_up(size, alignment);
    most_saved = std::max(most_saved, round_up(size, alignment) - size);
  }
  return sum - most_saved;
}

// Whether a plan at the floor surely exists: the one that moves everything out after each op and in
// before the next, whatever that takes.
bool floor_is_reached(const Case& c, const Floor& floor) {
  if (c.machine.out.bytes_per_s == 0 || c.machine.in.bytes_per_s == 0) return false;
  if (all_bytes(c.graph, c.machine.alignment) > c.budgets.host) return false;
  for (size_t t = 0; t < c.graph.ops.size(); ++t)
    if (packed_working_set(c.graph, OpId(static_cast<int64_t>(t)), c.workspaces[t],
                           c.machine.alignment) > floor.bytes)
      return false;
  return true;
}

Result<Answer> bound(const Options& options) {
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  if (options.seconds && !(std::isfinite(*options.seconds) && *options.seconds > 0))
    return bad_input("--seconds: wanted more than 0, had {}", *options.seconds);
  const Result<Case> loaded = load_case(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  BoundOptions asked;
  asked.budgets = c.budgets;
  asked.swap = allow->swap;
  asked.recompute = allow->recompute;
  asked.reorder = allow->reorder;
  if (options.seconds) asked.seconds = *options.seconds;
  const Bounds bounds = bounds_of(c.graph, c.profile, c.machine, asked);

  Answer answer;
  const bool reached = floor_is_reached(c, bounds.floor);
  answer.fields.set("peak_program_order", bounds.peak_program_order);
  answer.fields.set("floor", bounds.floor.bytes).set("floor_proved", reached);
  answer.fields.set("at", place_of(c.graph, bounds.floor.op));
  answer.fields.set("budget", tiers_object(c.budgets.device, c.budgets.host, c.budgets.disk));
  answer.fields.set("compute_ns", bounds.compute_ns);
  std::vector<JsonObject> rows;
  Table table({"bound", "holds for", ">step"});
  for (const Bound& bound : bounds.bounds) {
    JsonObject row;
    row.set("name", bound.name).set("holds_for", kHoldsForNames.name(bound.holds_for));
    rows.push_back(row.set("ns", bound.ns));
    table.row({bound.name, std::string(kHoldsForNames.name(bound.holds_for)), format_ns(bound.ns)});
  }
  answer.fields.set("bounds", rows).set("bound_ns", bounds.best_ns);
  if (!bounds.infeasible.empty()) {
    answer.error =
        c.budgets.device < bounds.floor.bytes
            ? infeasible(
                  "budget {} on the device: below the floor of any plan, {} ({} bytes), set by {}",
                  format_bytes(c.budgets.device), format_bytes(bounds.floor.bytes),
                  bounds.floor.bytes, words_of(c.graph, bounds.floor.op))
            : infeasible("{}", bounds.infeasible);
    answer.error_fields.set("floor", bounds.floor.bytes);
    answer.error_fields.set("at", place_of(c.graph, bounds.floor.op));
  }
  Facts facts;
  facts.add("peak in program order", format_exact_bytes(bounds.peak_program_order));
  facts.add("floor", fmt::format("{}, set by {}{}", format_exact_bytes(bounds.floor.bytes),
                                 words_of(c.graph, bounds.floor.op),
                                 reached ? "" : "; not known to be reached"));
  facts.add("budget", fmt::format("device {}, host {}, disk {}", format_bytes(c.budgets.device),
                                  format_bytes(c.budgets.host), format_bytes(c.budgets.disk)));
  facts.add("no plan beats", format_ns(bounds.best_ns));
  answer.text = facts.text() + "\n" + table.text();
  return answer;
}

}  // namespace

void add_bound(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command =
      parent.subcommand("bound", "Says what no plan can beat: in bytes, and in time at a budget.");
  options->of.declare(command);
  declare_allow(command, options->allow);
  command.option("--seconds", "S", options->seconds, "of each linear program; 60 by default");
  command.does([options] { return bound(*options); });
}

}  // namespace outsize::cli
