// outsize explain GRAPH --machine M --device B [...]
#include <algorithm>
#include <memory>

#include "outsize/base/bytes.h"
#include "outsize/bound/holders.h"
#include "outsize/cli/command.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/planning.h"
#include "outsize/cli/table.h"

namespace outsize::cli {
namespace {

struct Options {
  CaseOptions of;
  SearchOptions search;
  std::optional<int64_t> most_holders;
};
constexpr int64_t kMostHolders = 10;

struct Way {
  const char* name;
  Freedoms allow;
  Row row;
  int64_t budget = 0;  // at which it was planned
  int64_t saves = 0;
};

// Plans this way at the budget, or else at the least budget that would do.
void plan_way(const Case& c, Request request, Way& way) {
  request.allow = way.allow;
  way.row = plan_row(c, request);
  way.budget = request.budgets.device;
  if (!way.row.planned && way.row.least_budget && *way.row.least_budget > way.budget) {
    request.budgets.device = way.budget = *way.row.least_budget;
    way.row = plan_row(c, request);
  }
  if (way.row.planned) way.saves = c.peak - way.row.planned->peak[0];
}

Result<Answer> explain(const Options& options) {
  if (Status sound = options.search.check(); !sound.ok()) return sound.error();
  if (options.most_holders && *options.most_holders < 0)
    return bad_input("--holders: wanted 0 or more, had {}", *options.most_holders);
  const Result<Case> loaded = load_case(options.of);
  if (!loaded.ok()) return loaded.error();
  const Case& c = *loaded;
  // Below the floor no plan helps, and the op that sets it is what to look at.
  const Explanation found = explain_bytes(c.graph, c.workspaces, c.budgets.device);
  const OpId at = found.at;

  Answer answer;
  answer.fields.set("peak", c.peak).set("floor", found.floor.bytes);
  answer.fields.set("budget", tiers_object(c.budgets.device, c.budgets.host, c.budgets.disk));
  answer.fields.set("sets", found.below_floor ? "floor" : "peak").set("at", place_of(c.graph, at));
  std::string text;
  {
    Facts facts;
    facts.add("peak", fmt::format("{} in program order, at {}", format_exact_bytes(c.peak),
                                  words_of(c.graph, found.peak_op)));
    facts.add("floor", fmt::format("{}, set by {}", format_exact_bytes(found.floor.bytes),
                                   words_of(c.graph, found.floor.op)));
    facts.add("budget", format_exact_bytes(c.budgets.device));
    text += facts.text();
  }

  const std::vector<Holder>& holders = found.holders;
  const size_t shown =
      std::min(holders.size(), static_cast<size_t>(options.most_holders.value_or(kMostHolders)));
  std::vector<JsonObject> holder_objects;
  Table holder_table({">bytes", "storage", "role", "made by", "last used by"});
  int64_t rest = 0;
  for (size_t i = 0; i < holders.size(); ++i) {
    const Holder& h = holders[i];
    if (i >= shown) {
      rest += h.bytes;
      continue;
    }
    const Storage& storage = c.graph.storage(h.storage);
    JsonObject object;
    object.set("storage", h.storage.value).set("name", storage.name);
    object.set("role", kRoleNames.name(storage.role)).set("bytes", h.bytes);
    object.set("made_by", place_of(c.graph, h.made_by));
    object.set("last_used_by", place_of(c.graph, h.last_used));
    holder_objects.push_back(std::move(object));
    holder_table.row({format_bytes(h.bytes),
                      storage.name.empty() ? fmt::format("{}", h.storage.value) : storage.name,
                      std::string(kRoleNames.name(storage.role)),
                      h.made_by.valid() ? words_of(c.graph, h.made_by) : "before the step",
                      words_of(c.graph, h.last_used)});
  }
  answer.fields.set("holders", holder_objects).set("other_holders_bytes", rest);
  answer.fields.set("workspace_bytes", found.workspace_bytes);
  text += fmt::format("\nheld while {} runs{}:\n{}", words_of(c.graph, at),
                      found.workspace_bytes > 0 ? fmt::format(" (and {} of workspace)",
                                                              format_bytes(found.workspace_bytes))
                                                : "",
                      holder_table.text());
  if (rest > 0)
    text += fmt::format("and {} in {} more\n", format_bytes(rest), holders.size() - shown);

  const std::atomic<bool>* interrupt = interrupted_flag();
  const Request request{.planner = "outsize", .budgets = c.budgets, .search = &options.search};
  std::vector<Way> ways = {
      {"swap", {.swap = true, .recompute = false, .reorder = false, .split = false}, {}},
      {"recompute", {.swap = false, .recompute = true, .reorder = false, .split = false}, {}},
      {"all together", {}, {}}};
  for (Way& way : ways)
    if (!interrupt->load()) plan_way(c, request, way);
  std::stable_sort(ways.begin(), ways.end(),
                   [](const Way& a, const Way& b) { return a.saves > b.saves; });
  std::vector<JsonObject> way_objects;
  Table way_table({"way out", ">saves", ">step", ">of ideal", ">budget", "at your budget"});
  for (const Way& way : ways) {
    if (!way.row.planned) continue;
    const Planned& p = *way.row.planned;
    const bool fits = way.budget <= c.budgets.device;
    JsonObject object;
    object.set("way", way.name).set("saves_bytes", way.saves).set("step_ns", p.step_ns);
    object.set("budget", way.budget).set("fits", fits).set("peak", p.peak[0]);
    way_objects.push_back(std::move(object));
    way_table.row({way.name, format_bytes(way.saves), format_ns(p.step_ns),
                   fmt::format("{:.1f}%", p.step_ns > 0 ? 100 * static_cast<double>(p.compute_ns) /
                                                              static_cast<double>(p.step_ns)
                                                        : 100.0),
                   format_bytes(way.budget), fits ? "yes" : "no"});
  }
  answer.fields.set("ways_out", way_objects);
  if (interrupt->load()) answer.fields.set("interrupted", true);
  answer.text = text + "\n" + way_table.text();
  return answer;
}

}  // namespace

void add_explain(Command& parent) {
  auto options = std::make_shared<Options>();
  Command command = parent.subcommand(
      "explain", "What sets the peak or the floor, and the ways out, each found by planning it.");
  options->of.declare(command);
  command.option("--holders", "N", options->most_holders,
                 "how many storages to list; 10 by default");
  options->search.declare(command);
  command.does([options] { return explain(*options); });
}

}  // namespace outsize::cli
