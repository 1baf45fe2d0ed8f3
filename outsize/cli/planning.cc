#include "outsize/cli/planning.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "outsize/base/bytes.h"
#include "outsize/base/names.h"
#include "outsize/cli/table.h"

namespace outsize::cli {
namespace {

// Planners say the least budget in their message, "(6442450944 bytes)" at its end.
std::optional<int64_t> least_budget_in(const std::string& message) {
  constexpr std::string_view kEnd = " bytes)";
  if (!message.ends_with(kEnd)) return std::nullopt;
  const size_t begin = message.rfind('(') + 1;
  if (begin == 0) return std::nullopt;
  return parse_number<int64_t>(
      std::string_view(message).substr(begin, message.size() - kEnd.size() - begin));
}

double ratio(int64_t a, int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 1.0;
}

}  // namespace

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

Status check_planner(const std::string& option, const std::string& name) {
  const std::vector<std::string> known = planner_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return Done{};
  return bad_input("{}: no planner is called '{}'{}; there are {}", option, name,
                   suggestion(name, known), fmt::join(known, ", "));
}

Row plan_row(const Case& c, const Request& request) {
  Row row;
  row.planner = request.planner;
  row.budgets = request.budgets;
  row.floor = floor_of(c.graph, c.workspaces);
  row.compute_ns = compute_ns(c.profile);
  Deadline deadline = request.search->deadline(interrupted_flag());
  Problem problem;
  problem.graph = &c.graph;
  problem.profile = &c.profile;
  problem.machine = &c.machine;
  problem.budgets = request.budgets;
  problem.border = request.border;
  problem.allow = request.allow;
  problem.seed = request.search->seed_value();
  problem.threads = request.search->thread_count();
  problem.deadline = &deadline;
  const bool progress = stderr_is_terminal();
  if (progress)
    problem.on_better = [&](double seconds, int64_t step_ns) {
      fmt::print(stderr, "\r\033[K{}: {:.1f} s, step {}", request.planner, seconds,
                 format_ns(step_ns));
      std::fflush(stderr);
    };
  Result<Planned> planned = run_planner(request.planner, problem);
  if (progress) fmt::print(stderr, "\r\033[K");
  row.interrupted = deadline.cancelled();
  row.seconds = deadline.seconds();
  row.work = deadline.work_done();
  if (planned.ok()) {
    row.planned = *std::move(planned);
    row.bound_ns = row.planned->bound_ns;
    return row;
  }
  row.error = planned.error();
  row.least_budget = least_budget_in(row.error->message);
  row.bound_ns = row.compute_ns;
  return row;
}

JsonObject tiers_object(int64_t device, int64_t host, int64_t disk) {
  JsonObject object;
  object.set("device", device).set("host", host).set("disk", disk);
  return object;
}

JsonObject moved_object(int64_t out, int64_t in, int64_t write, int64_t read) {
  JsonObject object;
  object.set("out", out).set("in", in).set("write", write).set("read", read);
  return object;
}

JsonObject place_of(const Graph& graph, OpId op) {
  JsonObject place;
  if (!op.valid()) return place;
  const Op& o = graph.op(op);
  place.set("op", op.value).set("name", o.name).set("module", o.site.module);
  place.set("file", o.site.file).set("line", o.site.line).set("phase", o.site.phase);
  return place;
}

std::string words_of(const Graph& graph, OpId op) {
  if (!op.valid()) return "no op";
  const Op& o = graph.op(op);
  std::string site = o.site.module;
  if (!o.site.file.empty())
    site += fmt::format("{}{}:{}", site.empty() ? "" : ", ", o.site.file, o.site.line);
  return fmt::format("op {} {}{}", op.value, o.name, site.empty() ? "" : " (" + site + ")");
}

JsonObject fields_of(const Graph& graph, const Row& row) {
  JsonObject fields;
  fields.set("planner", row.planner).set("feasible", row.planned.has_value());
  fields.set("budget", tiers_object(row.budgets.device, row.budgets.host, row.budgets.disk));
  if (!row.planned) {
    // The names that a plan would have, so that rows can be read alike.
    constexpr std::optional<int64_t> kNone;
    fields.set("step_ns", kNone).set("compute_ns", row.compute_ns);
    fields.set("recompute_ns", kNone).set("stall_ns", kNone).set("bound_ns", row.bound_ns);
    fields.set("bound_holds_for", kHoldsForNames.name(HoldsFor::kAnyOrder));
    fields.set("gap", kNone).set("ideal", kNone).set("peak", kNone);
    fields.set("floor", row.floor.bytes).set("at", place_of(graph, row.floor.op));
    fields.set("moved", kNone).set("least_budget", row.least_budget);
    fields.set("seconds", row.seconds).set("work", row.work).set("first_plan_seconds", kNone);
    if (row.interrupted) fields.set("interrupted", true);
    return fields;
  }
  const Planned& p = *row.planned;
  fields.set("step_ns", p.step_ns).set("compute_ns", p.compute_ns);
  fields.set("recompute_ns", p.recompute_ns).set("stall_ns", p.stall_ns);
  fields.set("bound_ns", row.bound_ns).set("gap", ratio(p.step_ns, row.bound_ns));
  fields.set("bound_holds_for", kHoldsForNames.name(p.bound_holds_for));
  fields.set("ideal", ratio(p.compute_ns, p.step_ns));
  fields.set("peak", tiers_object(p.peak[0], p.peak[1], p.peak[2]));
  fields.set("floor", row.floor.bytes).set("at", place_of(graph, row.floor.op));
  const PlanStatistics& s = p.statistics;
  fields.set("moved", moved_object(s.moved_out, s.moved_in, s.moved_write, s.moved_read));
  fields.set("reruns", s.reruns).set("copies", s.copies);
  fields.set("seconds", p.seconds).set("work", p.work);
  fields.set("first_plan_seconds", p.first_plan_seconds).set("history", p.history);
  if (row.interrupted) fields.set("interrupted", true);
  return fields;
}

std::string text_of(const Graph& graph, const Row& row) {
  OUTSIZE_CHECK(row.planned.has_value(), "no plan to print");
  const Planned& p = *row.planned;
  const PlanStatistics& s = p.statistics;
  Facts facts;
  facts.add("planner", fmt::format("{}, {:.2f} s, {} units of work{}", p.planner, p.seconds, p.work,
                                   row.interrupted ? ", interrupted: the best so far" : ""));
  facts.add("step", fmt::format("{} ({:.1f}% of the speed without limits)", format_ns(p.step_ns),
                                100 * ratio(p.compute_ns, p.step_ns)));
  facts.add("of it",
            fmt::format("ops {}, recomputation {} ({} ops), stall {}", format_ns(p.compute_ns),
                        format_ns(p.recompute_ns), s.reruns, format_ns(p.stall_ns)));
  facts.add("bound", fmt::format("{}: the plan takes at most {:.3f} times the best there can be{}",
                                 format_ns(row.bound_ns), ratio(p.step_ns, row.bound_ns),
                                 p.bound_holds_for == HoldsFor::kAnyOrder ? "" : " in its order"));
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const int64_t peak = p.peak[static_cast<size_t>(tier)];
    if (peak == 0 && row.budgets.of(tier) == 0) continue;
    facts.add(fmt::format("{} peak", kTierNames.name(tier)),
              fmt::format("{} of {}", format_bytes(peak), format_bytes(row.budgets.of(tier))));
  }
  facts.add("floor", fmt::format("{}, set by {}", format_bytes(row.floor.bytes),
                                 words_of(graph, row.floor.op)));
  std::string moved =
      fmt::format("out {}, in {}", format_bytes(s.moved_out), format_bytes(s.moved_in));
  if (s.moved_write + s.moved_read > 0)
    moved += fmt::format(", to disk {}, from disk {}", format_bytes(s.moved_write),
                         format_bytes(s.moved_read));
  facts.add("moved", fmt::format("{}; {} copies", moved, s.copies));
  return facts.text();
}

std::string table_of(const std::vector<Row>& rows) {
  Table table({"planner", ">step", ">of ideal", ">gap", ">device peak", ">out", ">in", ">recompute",
               ">stall", ">seconds"});
  for (const Row& row : rows) {
    if (!row.planned) {
      const std::string why =
          row.least_budget ? "needs " + format_bytes(*row.least_budget) : "no plan";
      table.row({row.planner, "-", "-", "-", why, "-", "-", "-", "-", "-"});
      continue;
    }
    const Planned& p = *row.planned;
    table.row({row.planner, format_ns(p.step_ns),
               fmt::format("{:.1f}%", 100 * ratio(p.compute_ns, p.step_ns)),
               fmt::format("{:.3f}", ratio(p.step_ns, row.bound_ns)), format_bytes(p.peak[0]),
               format_bytes(p.statistics.moved_out), format_bytes(p.statistics.moved_in),
               format_ns(p.recompute_ns), format_ns(p.stall_ns), fmt::format("{:.2f}", p.seconds)});
  }
  return table.text();
}

}  // namespace outsize::cli
