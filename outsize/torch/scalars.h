// The numbers of a step that are known only when it runs: inputs (a learning rate), items read from
// tensors, and what is computed from them, with Python's meaning and bits.
//
//   lr = input;  s1 = op pow(beta, s0);  s2 = op truediv(lr, s1)
//   ScalarProgram p(graph);  table = p.start({{"lr", 0.1}});  table[s0] = 3.0;  p.settle(table)
//
// `settle` computes every op whose arguments are known and checks every guard whose scalar is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"

namespace outsize {

// Per scalar of the graph; empty until it is known.
using ScalarTable = std::vector<std::optional<Number>>;

// One function with Python's meaning. kDevice (an error of the step) where Python would raise
// (division by zero, overflow of 64 bits, an int's negative power of zero).
Result<Number> apply_scalar_function(const std::string& function, const std::vector<Number>& args);

// A guard whose scalar turned out otherwise: the graph does not hold for this step.
std::string describe_number(const Number& number);

class ScalarProgram {
 public:
  // `graph` must outlive this.
  explicit ScalarProgram(const Graph& graph);

  // A table with the inputs filled in and what follows from them. kBadInput: an input is missing or
  // unknown; kBadInput too (naming the guard's line) if a guard fails.
  Result<ScalarTable> start(const std::map<std::string, Number>& inputs) const;

  // After `item` was put into the table: computes what follows, checks guards.
  Status settle(ScalarTable& table, ScalarId item) const;

  // Guards that only inputs decide, checked without running anything: the index of the first that
  // fails, or -1.
  Result<int64_t> first_failed_guard(const std::map<std::string, Number>& inputs) const;

 private:
  Status compute(ScalarTable& table, size_t scalar) const;
  Status check_guards(const ScalarTable& table, size_t scalar) const;

  const Graph* graph_;
  std::vector<std::vector<size_t>> used_by_;    // per scalar: op scalars that take it, ascending
  std::vector<std::vector<size_t>> guards_on_;  // per scalar
};

}  // namespace outsize
