// What plan, compare, sweep and explain share: one planner run, and its row in both forms.
//
//   Row row = plan_row(c, {.planner = "outsize", .budgets = c.budgets, .search = &options.search});
//   row.planned->step_ns;  fields_of(c.graph, row);  if (!row.planned) row.error->message
//
// Pure but for the clock, Ctrl-C, and the line on a terminal that says how far a search is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "outsize/bound/bounds.h"
#include "outsize/cli/inputs.h"
#include "outsize/cli/json_object.h"
#include "outsize/planners/planner.h"
#include "outsize/simulate/simulate.h"

namespace outsize::cli {

struct Request {
  std::string planner;
  Budgets budgets;
  Freedoms allow = {};
  const SearchOptions* search = nullptr;  // not null
  std::vector<Home> border = {};
};

struct Row {
  std::string planner;
  Budgets budgets;
  std::optional<Planned> planned;
  std::optional<Error> error;           // where there is no plan
  std::optional<int64_t> least_budget;  // infeasible: the least device bytes that would do
  int64_t compute_ns = 0;
  int64_t bound_ns = 0;
  Floor floor;
  double seconds = 0;
  int64_t work = 0;
  bool interrupted = false;
};

// Refuses a planner that is not there; the error names `option`.
Status check_planner(const std::string& option, const std::string& name);

// Ctrl-C ends the search with the best so far. Other errors than "infeasible" (an unknown planner)
// are the row's as well.
Row plan_row(const Case& c, const Request& request);

// The fields of `plan`; where infeasible, null but for those that are known.
JsonObject fields_of(const Graph& graph, const Row& row);
// {"op", "name", "module", "file", "line", "phase"}; empty where `op` is none.
JsonObject place_of(const Graph& graph, OpId op);
// "op 17 aten.mm.default (transformer.h.3.mlp, train.py:12)".
std::string words_of(const Graph& graph, OpId op);
// The same as facts, for people.
std::string text_of(const Graph& graph, const Row& row);

// {"device", "host", "disk"}.
JsonObject tiers_object(int64_t device, int64_t host, int64_t disk);
// {"out", "in", "write", "read"}, bytes.
JsonObject moved_object(int64_t out, int64_t in, int64_t write, int64_t read);

// A table of rows, and what it says of each in JSON.
std::string table_of(const std::vector<Row>& rows);

// Whether to redraw a line on standard error.
bool stderr_is_terminal();

}  // namespace outsize::cli
