// outsize plan GRAPH --machine M --device B [...] -o PLAN
#include "outsize/plan/plan.h"

#include <memory>

#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"
#include "outsize/plan/plan_json.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  SearchOptions search;
  std::string planner = "outsize";
  std::string allow, border, output;
};

// Where persistent storages lie when `path`'s plan ends.
Result<std::vector<Home>> read_border(const std::string& path, const Graph& graph) {
  const Result<Plan> plan = load_plan(path);
  if (!plan.ok()) return plan.error();
  std::vector<Home> homes;
  for (size_t i = 0; i < plan->exit.size(); ++i) {
    const BorderItem& item = plan->exit[i];
    if (!item.home) continue;
    if (!item.residency.valid() || item.residency.index() >= plan->residencies.size())
      return bad_input("{}: exit[{}].residency: there is no residency {}", path, i,
                       item.residency.value);
    const Residency& residency = plan->residency(item.residency);
    const StorageId storage = residency.part.storage;
    if (!storage.valid() || storage.index() >= graph.storages.size() ||
        residency.part.bytes != Interval{0, graph.storage(storage).bytes})
      return bad_input(
          "{}: exit[{}]: storage {} [{}, {}) is no whole storage of this graph; is it "
          "another graph's plan?",
          path, i, storage.value, residency.part.bytes.begin, residency.part.bytes.end);
    homes.push_back({storage, residency.tier, residency.address});
  }
  return homes;
}

Result<Answer> plan(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound.error();
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  if (Status writable = check_output(options.output); !writable.ok()) return writable.error();
  // From here on Ctrl-C asks for the best plan so far, also while a large graph is still being
  // read.
  interrupted_flag();
  const Result<Case> loaded = load_case(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  Request request{
      .planner = options.planner, .budgets = c.budgets, .allow = *allow, .search = &options.search};
  if (!options.border.empty()) {
    Result<std::vector<Home>> border = read_border(options.border, c.graph);
    if (!border.ok()) return border.error();
    request.border = *std::move(border);
  }
  const Row row = plan_row(c, request);
  Answer answer;
  if (!row.planned) {
    if (row.error->kind != ErrorKind::kInfeasible) return *row.error;
    answer.fields = fields_of(c.graph, row);
    answer.error = row.error;
    answer.error_fields.set("floor", row.floor.bytes).set("at", place_of(c.graph, row.floor.op));
    answer.error_fields.set("least_budget", row.least_budget);
    return answer;
  }
  answer.fields = fields_of(c.graph, row);
  answer.text = text_of(c.graph, row);
  if (!options.output.empty()) {
    if (Status written = write_output(options.output, to_json(row.planned->plan)); !written.ok())
      return written.error();
    Facts facts;
    facts.add("written", options.output);
    answer.text += facts.text();
  }
  return answer;
}

}  // namespace

void add_plan(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand(
      "plan", "Plans a step inside the budgets. Ctrl-C ends the search with the best plan so far.");
  options->of.declare(command);
  command.option("--planner", "NAME", options->planner,
                 fmt::format("{}; outsize by default", fmt::join(planner_names(), ", ")));
  command.option("--allow", "LIST", options->allow,
                 "what the plan may do: swap,recompute,reorder,split or none; all by default");
  command.option("--border", "PLAN", options->border,
                 "start from the homes in which this plan leaves the persistent storages");
  options->search.declare(command);
  command.output_file(options->output, "the plan; - is standard output");
  command.does([options] { return plan(*options); });
}

}  // namespace outsize::cli
