// What all binding files share: errors of the core as Python exceptions, and Python's plain objects
// as the core's types and back. Everything here needs the GIL unless it says otherwise.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "outsize/base/result.h"
#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"
#include "outsize/profile/profile.h"
#include "outsize/profile/profile_json.h"

namespace outsize::bind {

namespace py = pybind11;

// Makes the exception types; called once, by the module.
void define_errors(py::module_& module);
// Raises the exception of the error's kind, with its whole text.
[[noreturn]] void raise(const Error& error);
// outsize_core.StepError with what a failed step left behind.
[[noreturn]] void raise_step_error(const Error& error, bool undone,
                                   const std::vector<std::string>& mixed, int64_t instruction);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(*result);
}
inline void ok_or_raise(const Status& status) {
  if (!status.ok()) raise(status.error());
}

// Runs `body` without the GIL.
template <typename Body>
auto without_gil(Body&& body) {
  const py::gil_scoped_release release;
  return body();
}

Tier tier_of(const std::string& name);
Number number_of(const py::handle& object, const std::string& what);
py::object object_of(const Number& number);

// A keyword dictionary read strictly: each key once, unknown ones refused with the nearest known.
class Options {
 public:
  explicit Options(py::dict dict) : dict_(std::move(dict)) {}

  template <typename T>
  T get(const char* key, T otherwise) {
    known_.emplace_back(key);
    if (!dict_.contains(key) || dict_[key].is_none()) return otherwise;
    try {
      return dict_[key].cast<T>();
    } catch (const py::cast_error&) {
      raise(bad_input("option '{}': can't take {}", key, py::repr(dict_[key]).cast<std::string>()));
    }
  }
  // Raises for a key that nobody asked for.
  void finish() const;

 private:
  py::dict dict_;
  std::vector<std::string> known_;
};

// One per file of bindings.
void bind_plan(py::module_& module);
void bind_study(py::module_& module);
void bind_allocator(py::module_& module);
void bind_session(py::module_& module);
void bind_measure(py::module_& module);
void bind_split(py::module_& module);

}  // namespace outsize::bind
