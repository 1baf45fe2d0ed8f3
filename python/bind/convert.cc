#include "python/bind/convert.h"

#include <algorithm>

namespace outsize::bind {
namespace {

// Exception types live as long as the interpreter.
struct ErrorTypes {
  py::handle base, infeasible, illegal, bad_input, cancelled, device, internal, step;
};
ErrorTypes types;

py::handle type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInfeasible:
      return types.infeasible;
    case ErrorKind::kIllegal:
      return types.illegal;
    case ErrorKind::kBadInput:
      return types.bad_input;
    case ErrorKind::kCancelled:
      return types.cancelled;
    case ErrorKind::kDevice:
      return types.device;
    case ErrorKind::kInternal:
      return types.internal;
  }
  return types.internal;
}

py::handle define(py::module_& module, const char* name, py::handle base, const char* text) {
  const std::string full = std::string("outsize_core.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), text, base.ptr(), nullptr);
  if (type == nullptr) throw py::error_already_set();
  module.add_object(name, type);
  return type;
}

[[noreturn]] void raise_object(py::handle type, const py::object& exception) {
  PyErr_SetObject(type.ptr(), exception.ptr());
  throw py::error_already_set();
}

}  // namespace

void define_errors(py::module_& module) {
  types.base = define(module, "Error", PyExc_Exception, "Everything that the core raises.");
  types.infeasible = define(module, "InfeasibleError", types.base, "No plan fits the budgets.");
  types.illegal = define(module, "IllegalPlanError", types.base, "The checker refuses the plan.");
  types.bad_input =
      define(module, "BadInputError", types.base, "A text, option or call that can't be taken.");
  types.cancelled = define(module, "CancelledError", types.base, "Interrupted before an answer.");
  types.device = define(module, "DeviceError", types.base,
                        "Memory, disk or an op failed, or an op left the plan.");
  types.internal = define(module, "InternalError", types.base, "A broken invariant: a bug.");
  types.step = define(module, "StepError", types.device,
                      "A step failed. undone: the state is what it was before; otherwise `mixed` "
                      "names the storages that hold a mix of two steps.");
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const outsize::InternalError& e) {
      PyErr_SetString(types.internal.ptr(), e.what());
    }
  });
}

void raise(const Error& error) {
  const py::handle type = type_of(error.kind);
  raise_object(type, type(error.message));
}

void raise_step_error(const Error& error, bool undone, const std::vector<std::string>& mixed,
                      int64_t instruction) {
  const py::object exception = types.step(error.message);
  exception.attr("undone") = undone;
  exception.attr("mixed") = mixed;
  exception.attr("kind") = name_of(error.kind);
  exception.attr("instruction") = instruction >= 0 ? py::object(py::int_(instruction)) : py::none();
  raise_object(types.step, exception);
}

Tier tier_of(const std::string& name) {
  if (const auto tier = kTierNames.find(name)) return *tier;
  raise(bad_input("tier '{}': wanted device, host or disk", name));
}

Number number_of(const py::handle& object, const std::string& what) {
  if (py::isinstance<py::bool_>(object)) return object.cast<bool>();
  try {
    if (py::isinstance<py::int_>(object)) return object.cast<int64_t>();
  } catch (const py::cast_error&) {
    raise(bad_input("{}: an integer beyond 64 bits", what));
  }
  if (py::isinstance<py::float_>(object)) return object.cast<double>();
  raise(bad_input("{}: wanted a bool, int or float, had {}", what,
                  py::repr(object).cast<std::string>()));
}

py::object object_of(const Number& number) {
  return std::visit([](auto n) -> py::object { return py::cast(n); }, number);
}

void Options::finish() const {
  for (const auto& [key, value] : dict_) {
    const auto name = py::str(key).cast<std::string>();
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string near = nearest_match(name, known_);
    raise(bad_input("unknown option '{}'{}", name,
                    near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
  }
}

}  // namespace outsize::bind
