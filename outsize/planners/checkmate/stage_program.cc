#include "outsize/planners/checkmate/stage_program.h"

#include <algorithm>
#include <cmath>

namespace outsize::planning {
namespace {

constexpr double kScale = 1000;
using Term = bounding::LinearProgram::Term;
using bounding::LpStatus;

}  // namespace

StageProgram::StageProgram(const Stages& stages, int64_t capacity, bool free)
    : stages_(stages), capacity_(capacity), free_(free) {
  int64_t total = 0;
  for (const Stages::Node& node : stages.nodes) total += node.ns;
  per_ns_ = kScale / static_cast<double>(std::max<int64_t>(total, 1));
  per_byte_ = kScale / static_cast<double>(std::max<int64_t>(capacity, 1));
  for (int32_t t = 0; t < stages.count(); ++t) add_stage_columns(t);
  for (int32_t t = 0; t < stages.count(); ++t) add_stage_rows(t);
  for (size_t v = 0; v < stages.values.size(); ++v) {
    const Stages::Value& value = stages.values[v];
    const auto id = static_cast<int32_t>(v);
    const int32_t last = stages.count() - 1;
    if (value.exit) at_most(-1, {{run(last, value.maker), -1}, {save(last, id), -1}});
  }
}

void StageProgram::add_stage_columns(int32_t t) {
  for (int32_t i = 0; i < t; ++i) {
    const Stages::Node& node = stages_.nodes[static_cast<size_t>(i)];
    if (t > node.last_rerun) continue;
    const int32_t column = program_.add_column(0, 1, static_cast<double>(node.ns) * per_ns_, 1);
    program_.set_integer(column);
    runs_[{t, i}] = column;
  }
  for (size_t v = 0; v < stages_.values.size(); ++v) {
    const Stages::Value& value = stages_.values[v];
    if (t <= value.maker || t > value.last_stage) continue;
    const int32_t column = program_.add_column(0, 1, 0, 1);
    program_.set_integer(column);
    saves_[{t, static_cast<int32_t>(v)}] = column;
  }
}

int32_t StageProgram::run(int32_t t, int32_t i) const {
  if (t == i) return kOne;
  const auto at = runs_.find({t, i});
  return at == runs_.end() ? kZero : at->second;
}

int32_t StageProgram::save(int32_t t, int32_t v) const {
  if (t == stages_.count()) return stages_.values[static_cast<size_t>(v)].exit ? kOne : kZero;
  const auto at = saves_.find({t, v});
  return at == saves_.end() ? kZero : at->second;
}

void StageProgram::at_most(double limit, const std::vector<Term>& terms) {
  std::vector<Term> left;
  double least = 0;
  for (const Term& term : terms) {
    if (term.first == kOne) limit -= term.second;
    if (term.first < 0) continue;
    left.push_back(term);
    if (term.second > 0) least += term.second;
  }
  // Columns of these rows are from 0 to 1: what always holds is no row.
  if (left.empty() && limit >= 0) return;
  if (least <= limit) return;
  program_.add_row(-bounding::kInfinity, limit, left);
}

void StageProgram::add_stage_rows(int32_t t) {
  for (int32_t i = 0; i <= t; ++i) {
    if (run(t, i) == kZero) continue;
    for (int32_t v : stages_.nodes[static_cast<size_t>(i)].reads) {
      const int32_t maker = stages_.values[static_cast<size_t>(v)].maker;
      at_most(0, {{run(t, i), 1}, {run(t, maker), -1}, {save(t, v), -1}});
    }
  }
  for (size_t i = 0; i < stages_.values.size(); ++i) {
    const auto v = static_cast<int32_t>(i);
    if (save(t, v) == kZero) continue;
    at_most(0, {{save(t, v), 1}, {run(t - 1, stages_.values[i].maker), -1}, {save(t - 1, v), -1}});
  }
  add_memory(t);
}

// FREE[t,v,k]: its column with the bytes it gives back; kZero where it can't be.
Term StageProgram::add_free(int32_t t, int32_t v, int32_t k) {
  const Stages::Value& value = stages_.values[static_cast<size_t>(v)];
  const int32_t kept = save(t + 1, v);
  if (!free_ || kept == kOne) return {kZero, 0};
  std::vector<int32_t> hazards;
  for (int32_t j : value.readers) {
    if (j <= k || j > t || run(t, j) == kZero) continue;
    if (run(t, j) == kOne) return {kZero, 0};
    hazards.push_back(run(t, j));
  }
  const int32_t column = program_.add_column(0, 1, 0, 1);
  at_most(0, {{column, 1}, {run(t, k), -1}});
  at_most(1, {{column, 1}, {kept, 1}});
  for (int32_t hazard : hazards) at_most(1, {{column, 1}, {hazard, 1}});
  return {column, static_cast<double>(value.bytes) * per_byte_};
}

void StageProgram::add_memory(int32_t t) {
  std::vector<Term> held;  // what adds up to U, but for a column that stands for the ops before
  double always = 0;
  auto hold = [&](int32_t column, double bytes) {
    if (column == kOne) always += bytes;
    if (column >= 0) held.emplace_back(column, bytes);
  };
  for (size_t v = 0; v < stages_.values.size(); ++v)
    hold(save(t, static_cast<int32_t>(v)),
         static_cast<double>(stages_.values[v].bytes) * per_byte_);
  for (int32_t k = 0; k <= t; ++k) {
    if (run(t, k) == kZero) continue;
    const Stages::Node& node = stages_.nodes[static_cast<size_t>(k)];
    for (int32_t v : node.makes)
      hold(run(t, k),
           static_cast<double>(stages_.values[static_cast<size_t>(v)].bytes) * per_byte_);
    // U <= what is left of the budget; as a column, so that the next op's row is short.
    const auto at = static_cast<size_t>(t);
    const int64_t beside = k == t ? stages_.beside_op[at] : stages_.beside_reruns[at];
    const double most = static_cast<double>(capacity_ - beside) * per_byte_;
    const int32_t used = program_.add_column(0, bounding::kInfinity, 0, 2 * kScale);
    std::vector<Term> row = held;
    row.emplace_back(used, -1);
    program_.add_row(-always, -always, row);
    const double workspace = static_cast<double>(node.workspace) * per_byte_;
    if (k == t)
      program_.add_row(-bounding::kInfinity, most - workspace, {{used, 1}});
    else
      program_.add_row(-bounding::kInfinity, most, {{used, 1}, {run(t, k), workspace}});
    held = {{used, 1}};
    always = 0;
    std::vector<int32_t> touched = node.reads;
    touched.insert(touched.end(), node.makes.begin(), node.makes.end());
    for (int32_t v : touched) {
      const auto [column, bytes] = add_free(t, v, k);
      hold(column, -bytes);
    }
  }
}

std::optional<std::vector<std::vector<double>>> StageProgram::relaxed(double seconds,
                                                                      int32_t iterations) {
  if (program_.solve(seconds, iterations) != LpStatus::kOptimal) return std::nullopt;
  std::vector<std::vector<double>> out(stages_.nodes.size() + 1,
                                       std::vector<double>(stages_.values.size(), 0));
  for (const auto& [at, column] : saves_)
    out[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)] =
        program_.solution()[static_cast<size_t>(column)];
  return out;
}

StageProgram::Solved StageProgram::solved(double seconds, int64_t nodes,
                                          const std::optional<Staged>& start) {
  std::vector<double> from;
  if (start) {
    from.assign(program_.columns(), 0);
    for (const auto& [at, column] : runs_)
      from[static_cast<size_t>(column)] =
          start->runs[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)];
    for (const auto& [at, column] : saves_)
      from[static_cast<size_t>(column)] =
          start->saved[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)];
  }
  const LpStatus status = program_.solve_integer(seconds, nodes, from);
  Solved out;
  out.nodes = program_.nodes();
  out.proved = status == LpStatus::kOptimal || status == LpStatus::kInfeasible;
  if (program_.solution().empty()) return out;
  if (std::isfinite(program_.integer_bound()))
    out.bound_ns = static_cast<int64_t>(std::floor(program_.integer_bound() / per_ns_ + 0.5));
  Saved saved(stages_.nodes.size() + 1, std::vector<char>(stages_.values.size(), 0));
  for (const auto& [at, column] : saves_)
    saved[static_cast<size_t>(at.first)][static_cast<size_t>(at.second)] =
        program_.solution()[static_cast<size_t>(column)] > 0.5;
  out.saved = std::move(saved);
  return out;
}

}  // namespace outsize::planning
