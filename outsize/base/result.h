// Expected outcomes: a value, or an Error that says what was wanted, what was had and what to do.
//
//   Result<Graph> g = graph_from_json(text);
//   if (!g.ok()) return g.error();
//   use(*g);
//
// `Error::kind` maps to the command line's exit codes: kInfeasible 1, kBadInput 2, others 3.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "outsize/base/check.h"

namespace outsize {

enum class ErrorKind {
  kInfeasible,  // no plan inside these budgets (by this planner, or by any; the message says which)
  kIllegal,     // a plan that the checker refuses
  kBadInput,    // a file, field, option or call that can't be taken
  kCancelled,   // interrupted before there was an answer
  kDevice,      // a tier or device failed: disk full, short read, allocation outside the plan
  kInternal,
};

// "infeasible", "illegal", "bad input", "cancelled", "device", "internal".
inline const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInfeasible:
      return "infeasible";
    case ErrorKind::kIllegal:
      return "illegal";
    case ErrorKind::kBadInput:
      return "bad input";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
  bool operator==(const Error&) const = default;
};

template <typename... Args>
Error bad_input(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorKind::kBadInput, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
Error infeasible(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorKind::kInfeasible, fmt::format(text, std::forward<Args>(args)...)};
}
template <typename... Args>
Error device_error(fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorKind::kDevice, fmt::format(text, std::forward<Args>(args)...)};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  // Requires: ok().
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& value() {
    OUTSIZE_CHECK(ok(), "value of a failed result: {}", std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  const T& value() const {
    OUTSIZE_CHECK(ok(), "value of a failed result: {}", std::get<Error>(state_).message);
    return std::get<T>(state_);
  }
  // Requires: !ok().
  const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success with nothing to say.
struct Done {
  bool operator==(const Done&) const = default;
};
using Status = Result<Done>;

}  // namespace outsize
