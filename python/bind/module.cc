// The Python extension `outsize_core`. Bindings hold no logic: they parse the text forms of
// docs/formats, call the core without the GIL, and give back plain dictionaries.
// python/outsize_core.pyi says what each function takes and gives.
#include "outsize/torch/allocator.h"
#include "python/bind/convert.h"

PYBIND11_MODULE(outsize_core, module) {
  using namespace outsize::bind;
  module.doc() = "The core of Outsize: plans, checks, simulates and runs training steps.";
  module.attr("__version__") = OUTSIZE_VERSION;
  define_errors(module);
  // Needs torch's CPU allocator to be there: the package imports torch first.
  outsize::install_allocator();
  bind_plan(module);
  bind_study(module);
  bind_allocator(module);
  bind_session(module);
  bind_measure(module);
  bind_split(module);
}
