#include "outsize/torch/openmp.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace outsize {
namespace {

template <typename Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

}  // namespace

OpenMp::OpenMp() {
  // The thread count that the user set binds per thread and is set lazily by ATen.
  void* library = dlopen("libgomp.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) library = RTLD_DEFAULT;
  look_up(library, "GOMP_parallel", parallel_);
  look_up(library, "omp_get_thread_num", thread_num_);
  look_up(library, "omp_get_num_threads", num_threads_);
  if (parallel_ == nullptr || thread_num_ == nullptr || num_threads_ == nullptr) {
    parallel_ = nullptr;
    thread_num_ = nullptr;
    num_threads_ = nullptr;
  }
}

const OpenMp& OpenMp::get() {
  static const OpenMp instance;
  return instance;
}

void OpenMp::run_on_all(const std::function<void(int, int)>& body) const {
  at::internal::lazy_init_num_threads();
  if (parallel_ == nullptr || at::in_parallel_region() || at::get_num_threads() <= 1) {
    body(0, 1);
    return;
  }
  struct Context {
    const OpenMp* self;
    const std::function<void(int, int)>* body;
  } context{this, &body};
  // No num_threads clause (0): a team of another size would end threads of the pool.
  parallel_(
      [](void* argument) {
        const auto* c = static_cast<Context*>(argument);
        (*c->body)(c->self->thread_num_(), c->self->num_threads_());
      },
      &context, 0, 0);
}

}  // namespace outsize
