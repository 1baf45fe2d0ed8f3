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

  // Only whole numbers, for solve_integer; bound() and multipliers() know nothing of it.
  void set_integer(int32_t column) { integer_[static_cast<size_t>(column)] = 1; }

  // At most `seconds` and `iterations` of the simplex method (< 0: no limit; the same limit gives
  // the same answer on any machine); afterwards `value`, `solution` and `bound` are of the last
  // point reached.
  LpStatus solve(double seconds, int32_t iterations = -1);

  // By branch and bound, at most `seconds` and `nodes` of it (the same nodes give the same answer
  // on any machine), from the solution `start` if it is not empty: what its integer columns say;
  // the rest is filled in. kOptimal: proved to one part in a million. kStopped: `solution` is the
  // best one found, empty where there is none.
  LpStatus solve_integer(double seconds, int64_t nodes, const std::vector<double>& start = {});
  // Of the last solve_integer: what no solution costs less than, and the nodes it took.
  double integer_bound() const { return integer_bound_; }
  int64_t nodes() const { return nodes_; }

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
  std::vector<int32_t> integer_;  // per column: 1 for whole numbers
  double integer_bound_ = 0;
  int64_t nodes_ = 0;
};

}  // namespace outsize::bounding
