// outsize check GRAPH PLAN --machine M [--device B] [--host B] [--disk B]
#include "outsize/plan/check.h"

#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  std::string plan;
};

Result<Answer> check(const Options& options) {
  const Result<Case> loaded = load_graph_and_machine(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  const Result<Plan> plan = load_plan(options.plan);
  if (!plan.ok()) return plan.error();
  Budgets budgets = plan->budgets;
  struct Given {
    const char* option;
    const std::string& text;
    int64_t& into;
  };
  for (const Given& given : {Given{"--device", options.of.device, budgets.device},
                             Given{"--host", options.of.host, budgets.host},
                             Given{"--disk", options.of.disk, budgets.disk}}) {
    if (given.text.empty()) continue;
    const Result<int64_t> bytes = read_budget(given.option, given.text, c.peak);
    if (!bytes.ok()) return bytes.error();
    given.into = *bytes;
  }
  const Violation violation =
      check_plan(c.graph, c.workspaces, *plan, budgets, c.machine.alignment);
  Answer answer;
  answer.fields.set("legal", violation.ok());
  std::optional<JsonObject> found;
  if (!violation.ok()) {
    found.emplace().set("kind", kViolationKindNames.name(violation.kind));
    found->set("where", violation.where).set("witness", violation.witness);
    answer.error = Error{ErrorKind::kIllegal,
                         fmt::format("{}: {}: {}", kViolationKindNames.name(violation.kind),
                                     violation.where, violation.witness)};
  }
  answer.fields.set("violation", found);
  answer.fields.set("budget", tiers_object(budgets.device, budgets.host, budgets.disk));
  if (violation.ok())
    answer.text = fmt::format(
        "legal, for every timing: {} instructions inside device {}, host {}, "
        "disk {}\n",
        plan->instructions.size(), format_bytes(budgets.device), format_bytes(budgets.host),
        format_bytes(budgets.disk));
  return answer;
}

}  // namespace

void add_check(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand(
      "check",
      "Proves that a plan is legal for every timing of its streams, or shows why it is not.");
  command.input_file("GRAPH", options->of.graph, "a graph with its profile; - is standard input");
  command.input_file("PLAN", options->plan, "the plan; - is standard input");
  command.option("--machine", "NAME|FILE", options->of.machine,
                 "a preset (outsize machine list) or a file");
  options->of.declare_budgets(command);
  command.does([options] { return check(*options); });
}

}  // namespace outsize::cli
