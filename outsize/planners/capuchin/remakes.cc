#include "outsize/planners/capuchin/remakes.h"

#include <algorithm>

#include "outsize/base/check.h"

namespace outsize::planning::capuchin {
namespace {

// Whether a / b > c / d, for times that may be 0.
bool greater_ratio(int64_t a, int64_t b, int64_t c, int64_t d) {
  return static_cast<double>(a) * static_cast<double>(d) >
         static_cast<double>(c) * static_cast<double>(b);
}

// `from` is no longer there: what starts from it starts from its sources. True where it did.
bool start_earlier(Remake& remake, const Remake& from) {
  if (remake.sources.erase(from.tensor) == 0) return false;
  remake.sources.insert(from.sources.begin(), from.sources.end());
  return true;
}

}  // namespace

const Remake* Remakes::best() const {
  const Remake* found = nullptr;
  for (const Remake& r : left_)
    if (!found || greater_ratio(r.bytes, r.cost_ns(), found->bytes, found->cost_ns())) found = &r;
  return found;
}

const Remake* Remakes::find(int32_t tensor) const {
  auto at =
      std::find_if(left_.begin(), left_.end(), [&](const Remake& r) { return r.tensor == tensor; });
  return at == left_.end() ? nullptr : &*at;
}

void Remakes::choose(int32_t tensor) {
  const Remake* found = find(tensor);
  OUTSIZE_CHECK(found, "tensor {} is no candidate", tensor);
  const Remake t = *found;
  remove(tensor);
  int64_t times = 1;  // that it is made: for itself, and for each that starts from it
  if (update_)
    for (Remake& r : chosen_) times += start_earlier(r, t);
  chosen_.push_back(t);
  if (!update_) return;
  for (Remake& candidate : left_) {
    if (start_earlier(candidate, t)) {
      candidate.run_ns += t.run_ns;
      candidate.extra_ns = 0;
      for (const Remake& r : chosen_)
        if (r.sources.contains(candidate.tensor)) candidate.extra_ns += candidate.run_ns;
    }
    if (t.sources.contains(candidate.tensor)) candidate.extra_ns = times * candidate.run_ns;
  }
}

void Remakes::remove(int32_t tensor) {
  std::erase_if(left_, [&](const Remake& r) { return r.tensor == tensor; });
}

}  // namespace outsize::planning::capuchin
