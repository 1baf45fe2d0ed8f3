#include "outsize/bound/linear_program.h"

#include <highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "outsize/base/check.h"

namespace outsize::bounding {

static_assert(sizeof(HighsInt) == sizeof(int32_t));

namespace {

using Solver = std::unique_ptr<void, void (*)(void*)>;

// One thread: the order of events, and so the answer, is the same on any machine.
Solver quiet_solver(double seconds) {
  Solver highs(Highs_create(), Highs_destroy);
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  Highs_setIntOptionValue(highs.get(), "threads", 1);
  Highs_setDoubleOptionValue(highs.get(), "time_limit", seconds);
  return highs;
}

LpStatus status_of(const Solver& highs) {
  const HighsInt status = Highs_getModelStatus(highs.get());
  if (status == kHighsModelStatusOptimal) return LpStatus::kOptimal;
  if (status == kHighsModelStatusInfeasible) return LpStatus::kInfeasible;
  return LpStatus::kStopped;
}

}  // namespace

int32_t LinearProgram::add_column(double low, double high, double cost, double ceiling) {
  OUTSIZE_CHECK(std::isfinite(low) && std::isfinite(ceiling), "a column wants finite {} and {}",
                low, ceiling);
  low_.push_back(low);
  high_.push_back(high);
  cost_.push_back(cost);
  ceiling_.push_back(ceiling);
  integer_.push_back(0);
  return static_cast<int32_t>(low_.size() - 1);
}

void LinearProgram::add_row(double low, double high, const std::vector<Term>& terms) {
  std::vector<Term> sorted = terms;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Term& a, const Term& b) { return a.first < b.first; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    double sum = sorted[i].second;
    while (i + 1 < sorted.size() && sorted[i + 1].first == sorted[i].first)
      sum += sorted[++i].second;
    if (sum == 0) continue;
    index_.push_back(sorted[i].first);
    coefficient_.push_back(sum);
  }
  start_.push_back(static_cast<int32_t>(index_.size()));
  row_low_.push_back(low);
  row_high_.push_back(high);
}

LpStatus LinearProgram::solve(double seconds, int32_t iterations) {
  const Solver highs = quiet_solver(seconds);
  Highs_setStringOptionValue(highs.get(), "solver", "simplex");
  if (iterations >= 0) Highs_setIntOptionValue(highs.get(), "simplex_iteration_limit", iterations);
  solution_.assign(columns(), 0);
  multipliers_.assign(rows(), 0);
  value_ = 0;
  const HighsInt passed = Highs_passLp(
      highs.get(), static_cast<HighsInt>(columns()), static_cast<HighsInt>(rows()),
      static_cast<HighsInt>(entries()), kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0,
      cost_.data(), low_.data(), high_.data(), row_low_.data(), row_high_.data(), start_.data(),
      index_.data(), coefficient_.data());
  if (passed == kHighsStatusError) return LpStatus::kFailed;
  if (Highs_run(highs.get()) == kHighsStatusError) return LpStatus::kFailed;
  std::vector<double> reduced(columns()), activity(rows());
  Highs_getSolution(highs.get(), solution_.data(), reduced.data(), activity.data(),
                    multipliers_.data());
  value_ = Highs_getObjectiveValue(highs.get());
  return status_of(highs);
}

LpStatus LinearProgram::solve_integer(double seconds, int64_t nodes,
                                      const std::vector<double>& start) {
  const Solver highs = quiet_solver(seconds);
  const int64_t most = std::numeric_limits<HighsInt>::max();
  Highs_setIntOptionValue(highs.get(), "mip_max_nodes",
                          static_cast<HighsInt>(std::min(nodes, most)));
  Highs_setDoubleOptionValue(highs.get(), "mip_rel_gap", 1e-6);
  solution_.clear();
  value_ = integer_bound_ = 0;
  nodes_ = 0;
  const HighsInt passed = Highs_passMip(
      highs.get(), static_cast<HighsInt>(columns()), static_cast<HighsInt>(rows()),
      static_cast<HighsInt>(entries()), kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0,
      cost_.data(), low_.data(), high_.data(), row_low_.data(), row_high_.data(), start_.data(),
      index_.data(), coefficient_.data(), integer_.data());
  if (passed == kHighsStatusError) return LpStatus::kFailed;
  if (!start.empty()) {
    OUTSIZE_CHECK(start.size() == columns(), "a start of {} columns for {}", start.size(),
                  columns());
    Highs_setSolution(highs.get(), start.data(), nullptr, nullptr, nullptr);
  }
  if (Highs_run(highs.get()) == kHighsStatusError) return LpStatus::kFailed;
  Highs_getInt64InfoValue(highs.get(), "mip_node_count", &nodes_);
  Highs_getDoubleInfoValue(highs.get(), "mip_dual_bound", &integer_bound_);
  HighsInt found = 0;
  Highs_getIntInfoValue(highs.get(), "primal_solution_status", &found);
  if (found == kHighsSolutionStatusFeasible) {
    solution_.assign(columns(), 0);
    Highs_getSolution(highs.get(), solution_.data(), nullptr, nullptr, nullptr);
    value_ = Highs_getObjectiveValue(highs.get());
  }
  return status_of(highs);
}

double LinearProgram::bound() const {
  std::vector<double> reduced = cost_;
  double sum = 0;
  for (size_t r = 0; r < rows(); ++r) {
    const double m = multipliers_[r];
    // A multiplier may lean only on a side that the row has.
    const double side = m > 0 ? row_low_[r] : row_high_[r];
    if (m == 0 || !std::isfinite(m) || !std::isfinite(side)) continue;
    sum += m * side;
    for (int32_t i = start_[r]; i < start_[r + 1]; ++i) {
      const auto at = static_cast<size_t>(i);
      reduced[static_cast<size_t>(index_[at])] -= m * coefficient_[at];
    }
  }
  for (size_t c = 0; c < columns(); ++c)
    sum += reduced[c] > 0 ? reduced[c] * low_[c]
                          : reduced[c] * std::max(low_[c], std::min(high_[c], ceiling_[c]));
  return sum;
}

}  // namespace outsize::bounding
