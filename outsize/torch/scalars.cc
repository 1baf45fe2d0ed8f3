#include "outsize/torch/scalars.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>

namespace outsize {
namespace {

bool is_float(const Number& n) { return std::holds_alternative<double>(n); }

// Requires: not a float. Python's bool is an int.
int64_t int_of(const Number& n) {
  if (const bool* b = std::get_if<bool>(&n)) return *b ? 1 : 0;
  return std::get<int64_t>(n);
}

double float_of(const Number& n) {
  return is_float(n) ? std::get<double>(n) : static_cast<double>(int_of(n));
}

bool truth_of(const Number& n) { return is_float(n) ? std::get<double>(n) != 0.0 : int_of(n) != 0; }

// Python compares an int and a float exactly; 80-bit floats hold both.
long double exact_of(const Number& n) {
  static_assert(std::numeric_limits<long double>::digits >= 64);
  return is_float(n) ? static_cast<long double>(std::get<double>(n))
                     : static_cast<long double>(int_of(n));
}

template <typename... Args>
Error step_error(fmt::format_string<Args...> text, Args&&... args) {
  return device_error("scalar: {}", fmt::format(text, std::forward<Args>(args)...));
}

Result<Number> int_result(bool overflowed, int64_t value, const char* what) {
  if (overflowed) return step_error("{} of integers leaves 64 bits", what);
  return Number{value};
}

Result<Number> add(const Number& a, const Number& b) {
  if (is_float(a) || is_float(b)) return Number{float_of(a) + float_of(b)};
  int64_t r = 0;
  const bool overflowed = __builtin_add_overflow(int_of(a), int_of(b), &r);
  return int_result(overflowed, r, "sum");
}

Result<Number> subtract(const Number& a, const Number& b) {
  if (is_float(a) || is_float(b)) return Number{float_of(a) - float_of(b)};
  int64_t r = 0;
  const bool overflowed = __builtin_sub_overflow(int_of(a), int_of(b), &r);
  return int_result(overflowed, r, "difference");
}

Result<Number> multiply(const Number& a, const Number& b) {
  if (is_float(a) || is_float(b)) return Number{float_of(a) * float_of(b)};
  int64_t r = 0;
  const bool overflowed = __builtin_mul_overflow(int_of(a), int_of(b), &r);
  return int_result(overflowed, r, "product");
}

Result<Number> true_divide(const Number& a, const Number& b) {
  if (!truth_of(b)) return step_error("division by zero");
  if (is_float(a) || is_float(b)) return Number{float_of(a) / float_of(b)};
  constexpr int64_t kExact = int64_t{1} << 53;
  const int64_t x = int_of(a), y = int_of(b);
  if (-kExact <= x && x <= kExact && -kExact <= y && y <= kExact)
    return Number{static_cast<double>(x) / static_cast<double>(y)};
  // Python rounds the true quotient of large ints once.
  return Number{static_cast<double>(static_cast<__float128>(x) / static_cast<__float128>(y))};
}

// CPython's float divmod (Objects/floatobject.c semantics): the remainder has the divisor's sign.
std::pair<double, double> float_divmod(double x, double y) {
  double mod = std::fmod(x, y);
  double div = (x - mod) / y;
  if (mod != 0.0) {
    if ((y < 0) != (mod < 0)) {
      mod += y;
      div -= 1.0;
    }
  } else {
    mod = std::copysign(0.0, y);
  }
  double floored = std::copysign(0.0, x / y);
  if (div != 0.0) {
    floored = std::floor(div);
    if (div - floored > 0.5) floored += 1.0;
  }
  return {floored, mod};
}

Result<Number> floor_divide(const Number& a, const Number& b, bool want_mod) {
  if (!truth_of(b)) return step_error("division by zero");
  if (is_float(a) || is_float(b)) {
    const auto [div, mod] = float_divmod(float_of(a), float_of(b));
    return Number{want_mod ? mod : div};
  }
  const int64_t x = int_of(a), y = int_of(b);
  if (y == -1) {  // x / -1 may overflow; x % -1 is undefined then
    if (want_mod) return Number{int64_t{0}};
    int64_t r = 0;
    const bool overflowed = __builtin_sub_overflow(int64_t{0}, x, &r);
    return int_result(overflowed, r, "quotient");
  }
  int64_t div = x / y, mod = x % y;
  if (mod != 0 && (mod < 0) != (y < 0)) {
    mod += y;
    div -= 1;
  }
  return Number{want_mod ? mod : div};
}

Result<Number> float_power(double x, double y) {
  if (x == 0.0 && y < 0.0) return step_error("0.0 cannot be raised to a negative power");
  if (x < 0.0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y))
    return step_error("a negative number to the power {} is complex", y);
  const double r = std::pow(x, y);
  if (std::isinf(r) && std::isfinite(x) && std::isfinite(y))
    return step_error("{} ** {} is too large", x, y);
  return Number{r};
}

Result<Number> power(const Number& a, const Number& b) {
  if (is_float(a) || is_float(b)) return float_power(float_of(a), float_of(b));
  int64_t exponent = int_of(b);
  if (exponent < 0) return float_power(float_of(a), float_of(b));
  int64_t base = int_of(a), r = 1;
  bool overflowed = false;
  while (exponent > 0) {
    if (exponent & 1) overflowed |= __builtin_mul_overflow(r, base, &r);
    exponent >>= 1;
    if (exponent > 0) overflowed |= __builtin_mul_overflow(base, base, &base);
  }
  return int_result(overflowed, r, "power");
}

Result<Number> to_int(const Number& a) {
  if (!is_float(a)) return Number{int_of(a)};
  const double x = std::trunc(std::get<double>(a));
  if (!(x >= -0x1p63 && x < 0x1p63)) return step_error("int({}) leaves 64 bits", float_of(a));
  return Number{static_cast<int64_t>(x)};
}

Result<Number> negate(const Number& a) {
  if (is_float(a)) return Number{-std::get<double>(a)};
  return subtract(Number{int64_t{0}}, a);
}

Result<Number> unary(const std::string& function, const Number& a) {
  if (function == "neg") return negate(a);
  if (function == "abs") {
    if (is_float(a)) return Number{std::fabs(std::get<double>(a))};
    return int_of(a) < 0 ? negate(a) : Result<Number>(Number{int_of(a)});
  }
  if (function == "sqrt") {
    if (float_of(a) < 0.0) return step_error("sqrt({})", float_of(a));
    return Number{std::sqrt(float_of(a))};
  }
  if (function == "float") return Number{float_of(a)};
  if (function == "int") return to_int(a);
  if (function == "not") return Number{!truth_of(a)};
  return bad_input("scalar function '{}' does not take 1 argument", function);
}

Result<Number> binary(const std::string& function, const Number& a, const Number& b) {
  if (function == "add") return add(a, b);
  if (function == "sub") return subtract(a, b);
  if (function == "mul") return multiply(a, b);
  if (function == "truediv") return true_divide(a, b);
  if (function == "floordiv") return floor_divide(a, b, false);
  if (function == "mod") return floor_divide(a, b, true);
  if (function == "pow") return power(a, b);
  if (function == "and") return truth_of(a) ? b : a;
  if (function == "or") return truth_of(a) ? a : b;
  const long double x = exact_of(a), y = exact_of(b);
  if (function == "min") return y < x ? b : a;
  if (function == "max") return y > x ? b : a;
  if (function == "eq") return Number{x == y};
  if (function == "ne") return Number{x != y};
  if (function == "lt") return Number{x < y};
  if (function == "le") return Number{x <= y};
  if (function == "gt") return Number{x > y};
  if (function == "ge") return Number{x >= y};
  return bad_input("scalar function '{}' does not take 2 arguments", function);
}

bool holds(const Number& outcome, const Number& value) {
  if (const bool* wanted = std::get_if<bool>(&outcome)) return truth_of(value) == *wanted;
  return exact_of(outcome) == exact_of(value);
}

std::string scalar_name(const Graph& graph, size_t scalar) {
  const Scalar& s = graph.scalars[scalar];
  if (!s.name.empty()) return fmt::format("scalar {} '{}'", scalar, s.name);
  return s.function.empty() ? fmt::format("scalar {}", scalar)
                            : fmt::format("scalar {} ({})", scalar, s.function);
}

}  // namespace

Result<Number> apply_scalar_function(const std::string& function, const std::vector<Number>& args) {
  if (args.size() == 1) return unary(function, args[0]);
  if (args.size() == 2) return binary(function, args[0], args[1]);
  return bad_input("scalar function '{}' given {} arguments", function, args.size());
}

std::string describe_number(const Number& number) {
  if (const bool* b = std::get_if<bool>(&number)) return *b ? "True" : "False";
  if (const int64_t* i = std::get_if<int64_t>(&number)) return std::to_string(*i);
  return fmt::format("{}", std::get<double>(number));
}

ScalarProgram::ScalarProgram(const Graph& graph)
    : graph_(&graph), used_by_(graph.scalars.size()), guards_on_(graph.scalars.size()) {
  for (size_t s = 0; s < graph.scalars.size(); ++s)
    for (const Argument& arg : graph.scalars[s].args)
      if (const ScalarId* id = std::get_if<ScalarId>(&arg.data)) {
        OUTSIZE_CHECK(id->valid() && id->index() < s, "scalar {} takes a later one", s);
        std::vector<size_t>& users = used_by_[id->index()];
        if (users.empty() || users.back() != s) users.push_back(s);
      }
  for (size_t g = 0; g < graph.guards.size(); ++g)
    guards_on_[graph.guards[g].scalar.index()].push_back(g);
}

Status ScalarProgram::check_guards(const ScalarTable& table, size_t scalar) const {
  for (const size_t g : guards_on_[scalar]) {
    const Guard& guard = graph_->guards[g];
    if (holds(guard.outcome, *table[scalar])) continue;
    return bad_input("guard {}: {} is {}, the capture saw {} ({}:{}); capture the step again", g,
                     scalar_name(*graph_, scalar), describe_number(*table[scalar]),
                     describe_number(guard.outcome), guard.site.file, guard.site.line);
  }
  return Done{};
}

Status ScalarProgram::compute(ScalarTable& table, size_t scalar) const {
  const Scalar& s = graph_->scalars[scalar];
  if (s.kind != ScalarKind::kOp || table[scalar]) return Done{};
  std::vector<Number> args;
  for (const Argument& arg : s.args) {
    if (const ScalarId* id = std::get_if<ScalarId>(&arg.data)) {
      if (!table[id->index()]) return Done{};
      args.push_back(*table[id->index()]);
    } else if (const bool* b = std::get_if<bool>(&arg.data)) {
      args.emplace_back(*b);
    } else if (const int64_t* i = std::get_if<int64_t>(&arg.data)) {
      args.emplace_back(*i);
    } else if (const double* d = std::get_if<double>(&arg.data)) {
      args.emplace_back(*d);
    } else {
      return bad_input("{}: an argument that is no number", scalar_name(*graph_, scalar));
    }
  }
  Result<Number> value = apply_scalar_function(s.function, args);
  if (!value.ok())
    return Error{value.error().kind,
                 fmt::format("{}: {}", scalar_name(*graph_, scalar), value.error().message)};
  table[scalar] = *value;
  return check_guards(table, scalar);
}

Result<ScalarTable> ScalarProgram::start(const std::map<std::string, Number>& inputs) const {
  ScalarTable table(graph_->scalars.size());
  size_t known = 0;
  for (size_t s = 0; s < table.size(); ++s) {
    const Scalar& scalar = graph_->scalars[s];
    if (scalar.kind == ScalarKind::kInput) {
      const auto found = inputs.find(scalar.name);
      if (found == inputs.end()) return bad_input("scalar input '{}' was not given", scalar.name);
      table[s] = found->second;
      ++known;
      if (Status status = check_guards(table, s); !status) return status.error();
    } else if (Status status = compute(table, s); !status) {
      return status.error();
    }
  }
  if (known != inputs.size())
    for (const auto& [name, number] : inputs) {
      const bool wanted = std::any_of(
          graph_->scalars.begin(), graph_->scalars.end(),
          [&n = name](const Scalar& s) { return s.kind == ScalarKind::kInput && s.name == n; });
      if (!wanted) return bad_input("scalar input '{}' is none of this graph's", name);
    }
  return table;
}

Status ScalarProgram::settle(ScalarTable& table, ScalarId item) const {
  OUTSIZE_CHECK(table[item.index()].has_value(), "scalar {} is not known", item.value);
  if (Status status = check_guards(table, item.index()); !status) return status;
  // Ids rise along uses, so a sweep upwards from the item settles everything that hangs on it.
  std::vector<size_t> open = used_by_[item.index()];
  for (size_t k = 0; k < open.size(); ++k) {
    const bool known = table[open[k]].has_value();
    if (Status status = compute(table, open[k]); !status) return status;
    if (known || !table[open[k]]) continue;
    for (const size_t user : used_by_[open[k]]) open.push_back(user);
  }
  return Done{};
}

Result<int64_t> ScalarProgram::first_failed_guard(
    const std::map<std::string, Number>& inputs) const {
  ScalarTable table(graph_->scalars.size());
  for (size_t s = 0; s < table.size(); ++s) {
    const Scalar& scalar = graph_->scalars[s];
    if (scalar.kind == ScalarKind::kInput) {
      const auto found = inputs.find(scalar.name);
      if (found == inputs.end()) return bad_input("scalar input '{}' was not given", scalar.name);
      table[s] = found->second;
    } else if (Status status = compute(table, s); !status && !table[s]) {
      return status.error();
    }
    if (!table[s]) continue;
    for (const size_t g : guards_on_[s])
      if (!holds(graph_->guards[g].outcome, *table[s])) return static_cast<int64_t>(g);
  }
  return int64_t{-1};
}

}  // namespace outsize
