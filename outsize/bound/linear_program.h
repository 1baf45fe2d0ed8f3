// A linear program, solved by HiGHS, with a lower bound on its value that does not rest on the
// solver.
//
//   minimise x + y  where  x + 2y >= 4,  0 <= x <= 3, y >= 0        value 2 (x 0, y 2)
//   with any multiplier m >= 0 of the row, every solution costs at least
//   4m + min (1 - m) x + min (1 - 2m) y;  at m = 1/2: 2 + 0 + 0 = 2
//
// The solver only proposes the multipliers. `bound` evaluates that sum itself, so a tolerance, a
// time limit or a fault in the solver can make it low, never too high. For this each column states
// a `ceiling` that no solution of interest exceeds, also where the program itself has no upper
// limit. Not thread-safe; owns the solver during `solve` only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace outsize::bounding {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class LpStatus { kOptimal, kInfeasible, kStopped, kFailed };

class LinearProgram {
 public:
  using Term = std::pair<int32_t, double>;  // column, coefficient

  // Returns the new column. `high` may be kInfinity, `ceiling` may not.
  int32_t add_column(double low, double high, double cost, double ceiling);
  // low <= sum of terms <= high; terms of one column add up.
  void add_row(double low, double high, const std::vector<Term>& terms);
  void set_ceiling(int32_t column, double ceiling) {
    ceiling_[static_cast<size_t>(column)] = ceiling;
  }

  // At most `seconds` and `iterations` of the simplex method (< 0: no limit; the same limit gives
  // the same answer on any machine); afterwards `value`, `solution` and `bound` are of the last
  // point reached.
  LpStatus solve(double seconds, int32_t iterations = -1);

  double value() const { return value_; }
  const std::vector<double>& solution() const { return solution_; }
  // Per row: what a unit more of the side that binds costs.
  const std::vector<double>& multipliers() const { return multipliers_; }
  // A lower bound on the cost of every solution within the ceilings. Requires: solve() was called.
  double bound() const;

  size_t columns() const { return low_.size(); }
  size_t rows() const { return row_low_.size(); }
  size_t entries() const { return index_.size(); }

 private:
  std::vector<double> low_, high_, cost_, ceiling_;
  std::vector<double> row_low_, row_high_;
  std::vector<int32_t> start_{0}, index_;
  std::vector<double> coefficient_;
  double value_ = 0;
  std::vector<double> solution_, multipliers_;
};

}  // namespace outsize::bounding
