// outsize compare GRAPH --machine M --device B [--planners a,b...]
#include <algorithm>
#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  SearchOptions search;
  std::string planners, allow;
};

// Those asked for; all where none are. An unknown one is an error before any has run.
Result<std::vector<std::string>> read_planners(const std::string& text) {
  if (text.empty()) return planner_names();
  Result<std::vector<std::string>> asked = split_list("--planners", text);
  if (!asked.ok()) return asked;
  for (const std::string& name : *asked)
    if (Status known = check_planner("--planners", name); !known.ok()) return known.error();
  return asked;
}

Result<Answer> compare(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound.error();
  const Result<std::vector<std::string>> planners = read_planners(options.planners);
  if (!planners.ok()) return planners.error();
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  const Result<Case> loaded = load_case(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  std::vector<Row> rows;
  std::vector<JsonObject> objects;
  const std::atomic<bool>* interrupt = interrupted_flag();
  for (const std::string& planner : *planners) {
    if (interrupt->load()) break;
    rows.push_back(plan_row(
        c, {.planner = planner, .budgets = c.budgets, .allow = *allow, .search = &options.search}));
    objects.push_back(fields_of(c.graph, rows.back()));
    if (const auto& error = rows.back().error) {
      if (error->kind != ErrorKind::kInfeasible && error->kind != ErrorKind::kBadInput)
        return *error;
      objects.back().set(
          "error", JsonObject().set("kind", name_of(error->kind)).set("message", error->message));
    }
  }
  Answer answer;
  answer.fields.set("budget", tiers_object(c.budgets.device, c.budgets.host, c.budgets.disk));
  answer.fields.set("peak_program_order", c.peak).set("rows", objects);
  if (interrupt->load()) answer.fields.set("interrupted", true);
  answer.text = table_of(rows);
  const bool none = std::none_of(rows.begin(), rows.end(),
                                 [](const Row& row) { return row.planned.has_value(); });
  if (none) {
    if (rows.empty()) return Error{ErrorKind::kCancelled, "interrupted before any planner had run"};
    answer.error = infeasible("none of these planners has a plan in {} on the device: {}",
                              format_bytes(c.budgets.device), rows.front().error->message);
    answer.error_fields.set("floor", rows.front().floor.bytes);
    answer.error_fields.set("at", place_of(c.graph, rows.front().floor.op));
  }
  return answer;
}

}  // namespace

void add_compare(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand("compare", "Plans with several planners; a row for each.");
  options->of.declare(command);
  command.option("--planners", "LIST", options->planners,
                 fmt::format("of {}; all by default", fmt::join(planner_names(), ",")));
  declare_allow(command, options->allow);
  options->search.declare(command);
  command.does([options] { return compare(*options); });
}

}  // namespace outsize::cli
