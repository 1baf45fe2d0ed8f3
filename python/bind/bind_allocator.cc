// outsize/torch/allocator.h: the hook's counters and the limit of the default path.
#include "outsize/torch/allocator.h"
#include "python/bind/convert.h"

namespace outsize::bind {

void bind_allocator(py::module_& module) {
  module.def("install_allocator", &install_allocator);
  module.def("counters", [] {
    const AllocatorCounters c = allocator_counters();
    py::dict d;
    d["planned_requests"] = c.planned_requests;
    d["planned_live"] = c.planned_live;
    d["planned_live_peak"] = c.planned_live_peak;
    d["planned_highest"] = c.planned_highest;
    d["default_requests"] = c.default_requests;
    d["default_live"] = c.default_live;
    d["default_live_peak"] = c.default_live_peak;
    d["default_limit"] = c.default_limit;
    return d;
  });
  module.def("reset_counters", &reset_default_counters);
  module.def("set_limit", &set_allocator_limit, py::arg("bytes"));
}

}  // namespace outsize::bind
