// outsize sweep GRAPH --machine M --device LO:HI:N [...]
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
  std::string planner = "outsize";
  std::string range, allow;
};

struct Range {
  std::string low, high;
  int64_t count = 0;
};
constexpr int64_t kMostPoints = 10'000;

Result<Range> read_range(const std::string& text) {
  const auto wrong = [&] {
    return bad_input("--device: '{}' is no range; write LO:HI:N, such as 2GiB:8GiB:7", text);
  };
  const size_t first = text.find(':');
  const size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos) return wrong();
  Range range;
  range.low = text.substr(0, first);
  range.high = text.substr(first + 1, second - first - 1);
  const auto count = parse_number<int64_t>(std::string_view(text).substr(second + 1));
  if (!count) return wrong();
  range.count = *count;
  if (range.count < 1 || range.count > kMostPoints)
    return bad_input("--device: wanted 1 to {} budgets, had {}", kMostPoints, range.count);
  return range;
}

// N budgets from low to high, both there, evenly apart.
std::vector<int64_t> budgets_of(int64_t low, int64_t high, int64_t count) {
  std::vector<int64_t> budgets;
  for (int64_t i = 0; i < count; ++i) {
    const __int128 part = static_cast<__int128>(high - low) * i;
    budgets.push_back(count == 1 ? low : low + static_cast<int64_t>(part / (count - 1)));
  }
  return budgets;
}

Result<Answer> sweep(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound.error();
  const Result<Range> range = read_range(options.range);
  if (!range.ok()) return range.error();
  const Result<Freedoms> allow = read_freedoms(options.allow);
  if (!allow.ok()) return allow.error();
  CaseOptions of = options.of;
  of.device = range->high;
  Result<Case> loaded = load_case(of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  const Result<int64_t> low = read_budget("--device", range->low, c.peak);
  if (!low.ok()) return low.error();
  if (*low > c.budgets.device)
    return bad_input("--device: {} is more than {}; the lower budget comes first", range->low,
                     range->high);

  const std::atomic<bool>* interrupt = interrupted_flag();
  Answer answer;
  std::vector<JsonObject> objects;
  Table table({">device", ">step", ">of ideal", ">bound", "planned"});
  std::optional<Row> best;  // the fastest plan so far: a plan for less memory is one for more
  std::optional<Row> first_failure;
  for (const int64_t device : budgets_of(*low, c.budgets.device, range->count)) {
    if (interrupt->load()) break;
    Budgets budgets = c.budgets;
    budgets.device = device;
    Row row = plan_row(c, {.planner = options.planner,
                           .budgets = budgets,
                           .allow = *allow,
                           .search = &options.search});
    if (row.error && row.error->kind != ErrorKind::kInfeasible) return *row.error;
    const int64_t bound_ns = row.bound_ns;
    if (!row.planned && !first_failure) first_failure = row;
    if (row.planned && (!best || row.planned->step_ns < best->planned->step_ns)) best = row;
    JsonObject object;
    object.set("device", device).set("feasible", best.has_value());
    if (!best) {
      constexpr std::optional<int64_t> kNone;
      object.set("step_ns", kNone).set("ideal", kNone).set("bound_ns", bound_ns);
      object.set("least_budget", row.least_budget);
      table.row({format_bytes(device), "-", "-", format_ns(bound_ns),
                 row.least_budget ? "no: needs " + format_bytes(*row.least_budget) : "no"});
    } else {
      const Planned& p = *best->planned;
      const double ideal =
          p.step_ns > 0 ? static_cast<double>(p.compute_ns) / static_cast<double>(p.step_ns) : 1;
      object.set("step_ns", p.step_ns).set("ideal", ideal).set("bound_ns", bound_ns);
      // Where a plan for less memory was taken over, this says which.
      object.set("planned_for", best->budgets.device).set("peak", p.peak[0]);
      const PlanStatistics& s = p.statistics;
      object.set("moved", moved_object(s.moved_out, s.moved_in, s.moved_write, s.moved_read));
      table.row(
          {format_bytes(device), format_ns(p.step_ns), fmt::format("{:.1f}%", 100 * ideal),
           format_ns(bound_ns),
           best->budgets.device == device ? "yes" : "as at " + format_bytes(best->budgets.device)});
    }
    objects.push_back(std::move(object));
  }
  answer.fields.set("planner", options.planner).set("peak_program_order", c.peak);
  answer.fields.set("floor", floor_of(c.graph, c.workspaces).bytes).set("rows", objects);
  if (interrupt->load()) answer.fields.set("interrupted", true);
  answer.text = table.text();
  if (!best) {
    if (!first_failure) return Error{ErrorKind::kCancelled, "interrupted before the first plan"};
    answer.error = first_failure->error;
    answer.error_fields.set("floor", first_failure->floor.bytes);
    answer.error_fields.set("at", place_of(c.graph, first_failure->floor.op));
    answer.error_fields.set("least_budget", first_failure->least_budget);
  }
  return answer;
}

}  // namespace

void add_sweep(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command =
      parent.subcommand("sweep", "Time against budget: a plan for each of N budgets.");
  options->of.declare_graph(command);
  options->of.declare_machine(command);
  command.option("--device", "LO:HI:N", options->range, "N budgets from LO to HI: 25%:100%:4");
  options->of.declare_lower_tiers(command);
  command.option("--planner", "NAME", options->planner,
                 fmt::format("{}; outsize by default", fmt::join(planner_names(), ", ")));
  declare_allow(command, options->allow);
  options->search.declare(command);
  command.does([options] { return sweep(*options); });
}

}  // namespace outsize::cli
