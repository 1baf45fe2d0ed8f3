#include "outsize/run/throttle.h"

#include <algorithm>
#include <thread>

#include "outsize/base/check.h"

namespace outsize {
namespace {

// Bytes below this are rounding, not work: a link moves thousands of times as many in a ns.
constexpr double kNothing = 1e-6;

double per_ns(const Link& link) { return static_cast<double>(link.bytes_per_s) / 1e9; }

}  // namespace

int64_t SharedLinks::begin(double now, bool out, int64_t bytes) {
  advance(now);
  moving_[next_] = {out, static_cast<double>(bytes)};
  return next_++;
}

double SharedLinks::end_of(double now, int64_t copy) {
  advance(now);
  SharedLinks ahead = *this;
  const auto left = [&] { return ahead.moving_.at(copy).left; };
  while (left() > kNothing) {
    const std::optional<double> step = ahead.until_next_end();
    OUTSIZE_CHECK(step.has_value(), "a copy that moves and has no end");
    ahead.move_for(*step);
  }
  return ahead.now_;
}

void SharedLinks::advance(double now) {
  while (now_ < now) {
    const double all = now - now_;
    const std::optional<double> step = until_next_end();
    if (!step) {
      now_ = now;
      return;
    }
    move_for(std::min(all, *step));
  }
}

double SharedLinks::rate(bool out) const {
  int copies[2] = {0, 0};  // by direction
  for (const auto& [name, moving] : moving_)
    if (moving.left > kNothing) ++copies[moving.out ? 1 : 0];
  const double links[2] = {per_ns(limits_.in), per_ns(limits_.out)};
  const double sum = links[0] + links[1];
  const double both = static_cast<double>(limits_.both_bytes_per_s) / 1e9;
  double share = 1;
  if (both > 0 && copies[0] > 0 && copies[1] > 0)
    share = std::min(1.0, std::max({both, links[0], links[1]}) / sum);
  return links[out ? 1 : 0] * share / std::max(1, copies[out ? 1 : 0]);
}

std::optional<double> SharedLinks::until_next_end() const {
  std::optional<double> least;
  for (const auto& [name, moving] : moving_)
    if (moving.left > kNothing) {
      const double ns = moving.left / rate(moving.out);
      least = least ? std::min(*least, ns) : ns;
    }
  return least;
}

void SharedLinks::move_for(double ns) {
  const double rates[2] = {rate(false), rate(true)};  // as they are before any is done
  for (auto& [name, moving] : moving_)
    moving.left = std::max(0.0, moving.left - ns * rates[moving.out ? 1 : 0]);
  now_ += ns;
}

// A copy on its way over the links, from when its bytes begin to move until it is destroyed.
class ThrottledDevice::Crossing {
 public:
  Crossing(ThrottledDevice& device, bool out, int64_t bytes) : device_(device) {
    const std::unique_lock lock(device_.mutex_);
    copy_ = device_.links_.begin(device_.now(), out, bytes);
    device_.changed_.notify_all();
  }
  ~Crossing() {
    const std::unique_lock lock(device_.mutex_);
    device_.links_.forget(copy_);
    device_.changed_.notify_all();
  }
  Crossing(const Crossing&) = delete;
  Crossing& operator=(const Crossing&) = delete;

  void wait_for_end() {
    std::unique_lock lock(device_.mutex_);
    for (;;) {
      const double present = device_.now();
      const double end = device_.links_.end_of(present, copy_);
      if (end <= present) return;
      device_.changed_.wait_until(lock, device_.at(end));
    }
  }

 private:
  ThrottledDevice& device_;
  int64_t copy_ = 0;
};

double ThrottledDevice::now() const {
  return std::chrono::duration<double, std::nano>(Clock::now() - origin_).count();
}

Status ThrottledDevice::copy(const CopyCall& call) {
  const bool out = call.from == Tier::kDevice && call.to == Tier::kHost;
  const bool in = call.from == Tier::kHost && call.to == Tier::kDevice;
  if (!out && !in) return inner_.copy(call);
  const Link& link = out ? limits_.out : limits_.in;
  std::this_thread::sleep_for(std::chrono::nanoseconds(link.latency_ns));
  Crossing crossing(*this, out, call.bytes);
  Status done = inner_.copy(call);
  if (done.ok()) crossing.wait_for_end();
  return done;
}

}  // namespace outsize
