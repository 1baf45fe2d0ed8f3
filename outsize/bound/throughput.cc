#include "outsize/bound/throughput.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "outsize/graph/forward.h"

namespace outsize {
namespace {

double rate_per_ns(const Link& link, const Machine& machine) {
  return static_cast<double>(link.bytes_per_s) / 1e9 *
         static_cast<double>(machine.copy_permille_beside_compute) / 1000.0;
}

// Which ops wrote each storage in the forward pass, and who can run again.
class Lineage {
 public:
  Lineage(const Graph& graph, const Profile& profile, size_t forward)
      : graph_(graph),
        profile_(profile),
        writers_(graph.storages.size()),
        outlives_(graph.storages.size(), false) {
    for (size_t i = 0; i < forward; ++i) {
      for (const Access& a : graph.ops[i].makes) writers_[a.storage.index()].push_back(i);
      for (const Access& a : graph.ops[i].mutates) writers_[a.storage.index()].push_back(i);
    }
    for (size_t i = forward; i < graph.ops.size(); ++i)
      for (const auto* list : {&graph.ops[i].reads, &graph.ops[i].makes, &graph.ops[i].mutates})
        for (const Access& a : *list) outlives_[a.storage.index()] = true;
  }

  // Nanoseconds; negative where it can't be made again.
  double remake_ns(StorageId storage) const {
    std::set<size_t> ops;
    if (graph_.storage(storage).entry || !collect(storage, ops)) return -1;
    double ns = 0;
    for (size_t i : ops) ns += static_cast<double>(profile_.ops[i].ns);
    return ns;
  }

 private:
  bool rerunnable(const Op& op) const {
    return !op.collective && !op.host_sync &&
           std::none_of(op.mutates.begin(), op.mutates.end(),
                        [&](const Access& a) { return graph_.storage(a.storage).entry; });
  }
  bool collect(StorageId storage, std::set<size_t>& ops) const {
    if (writers_[storage.index()].empty()) return false;
    for (size_t i : writers_[storage.index()]) {
      if (!ops.insert(i).second) continue;
      const Op& op = graph_.ops[i];
      if (!rerunnable(op)) return false;
      for (const Access& a : op.reads) {
        const Storage& source = graph_.storage(a.storage);
        if (source.persistent || source.entry || outlives_[a.storage.index()]) continue;
        if (!collect(a.storage, ops)) return false;
      }
    }
    return true;
  }

  const Graph& graph_;
  const Profile& profile_;
  std::vector<std::vector<size_t>> writers_;
  std::vector<bool> outlives_;  // touched in the backward pass
};

double between(double x0, double y0, double x1, double y1, double x) {
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

// The corners of R: bytes remade so far, ns so far.
struct Corner {
  double bytes, ns;
};

std::vector<Corner> corners_of(const std::vector<Remake>& remakes) {
  std::vector<Corner> corners{{0, 0}};
  for (const Remake& r : remakes)
    corners.push_back(
        {corners.back().bytes + static_cast<double>(r.bytes), corners.back().ns + r.ns});
  return corners;
}

double remake_ns_of(const std::vector<Corner>& corners, double bytes) {
  const auto above = std::lower_bound(corners.begin(), corners.end(), bytes,
                                      [](const Corner& c, double b) { return c.bytes < b; });
  if (above == corners.begin()) return 0;
  if (above == corners.end()) return corners.back().ns;
  const Corner& below = *(above - 1);
  return between(below.bytes, below.ns, above->bytes, above->ns, bytes);
}

}  // namespace

std::vector<Stash> stashes_of(const Graph& graph) {
  const auto forward = static_cast<int64_t>(forward_ops(graph));
  const Liveness live = liveness_of(graph, {});
  std::vector<Stash> stashes;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    if (graph.storages[s].persistent || graph.storages[s].bytes == 0) continue;
    OpId before, after;
    for (OpId op : live.touched_by[s]) {
      if (op.value < forward) before = op;
      if (op.value >= forward && !after.valid()) after = op;
    }
    if (before.valid() && after.valid() && after.value - before.value >= 2)
      stashes.push_back({StorageId(static_cast<int64_t>(s)), before, after});
  }
  return stashes;
}

StepShape shape_of(const Graph& graph, const Profile& profile, int64_t batch) {
  StepShape shape;
  shape.batch = batch;
  const size_t forward = forward_ops(graph);
  for (size_t i = 0; i < profile.ops.size(); ++i)
    (i < forward ? shape.forward_ns : shape.backward_ns) += static_cast<double>(profile.ops[i].ns);
  const Liveness live = liveness_of(graph, workspaces_of(profile));
  shape.peak_bytes = live.peak_bytes;
  const Lineage lineage(graph, profile, forward);
  std::vector<int64_t> away(graph.ops.size() + 1, 0);
  for (const Stash& stash : stashes_of(graph)) {
    const int64_t bytes = graph.storage(stash.storage).bytes;
    away[stash.last_forward.index() + 1] += bytes;
    away[stash.first_backward.index()] -= bytes;
    const double ns = lineage.remake_ns(stash.storage);
    if (ns >= 0) shape.remakes.push_back({stash.storage, bytes, ns});
  }
  int64_t gone = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i)
    shape.least_bytes = std::max(shape.least_bytes, live.live_bytes[i] - (gone += away[i]));
  std::stable_sort(
      shape.remakes.begin(), shape.remakes.end(),
      [](const Remake& a, const Remake& b) { return a.ns_per_byte() < b.ns_per_byte(); });
  return shape;
}

Result<std::vector<StepShape>> shapes_from_csv(std::string_view text) {
  constexpr std::string_view kHeading = "batch,forward_ns,backward_ns,peak_bytes,least_bytes";
  std::vector<StepShape> shapes;
  int line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++line_number;
    if (line_number == 1) {
      if (line != kHeading)
        return bad_input("line 1: the heading is '{}'; wanted '{}'", line, kHeading);
      continue;
    }
    if (line.empty()) continue;
    int64_t numbers[5];
    const char* at = line.data();
    const char* const last = line.data() + line.size();
    for (size_t i = 0; i < 5; ++i) {
      const auto [stop, failure] = std::from_chars(at, last, numbers[i]);
      const bool ends_well = i == 4 ? stop == last : stop != last && *stop == ',';
      if (failure != std::errc() || !ends_well || numbers[i] < 0)
        return bad_input("line {}, column {}: wanted five whole numbers, had '{}'", line_number,
                         at - line.data() + 1, line);
      at = stop + 1;
    }
    if (numbers[3] < numbers[4])
      return bad_input("line {}: a peak of {} bytes is below the least, {}", line_number,
                       numbers[3], numbers[4]);
    StepShape shape{numbers[0],
                    static_cast<double>(numbers[1]),
                    static_cast<double>(numbers[2]),
                    numbers[3],
                    numbers[4],
                    {}};
    shape.remakes.push_back({StorageId(), shape.peak_bytes - shape.least_bytes, shape.forward_ns});
    shapes.push_back(std::move(shape));
  }
  if (shapes.empty()) return bad_input("no rows under the heading '{}'", kHeading);
  return shapes;
}

ThroughputPoint best_split(const StepShape& shape, const Machine& machine,
                           const ThroughputLimits& limits) {
  ThroughputPoint best;
  best.batch = shape.batch;
  const std::vector<Corner> corners = corners_of(shape.remakes);
  const double out = rate_per_ns(machine.out, machine), in = rate_per_ns(machine.in, machine);
  const double movable = static_cast<double>(shape.peak_bytes - shape.least_bytes);
  const double most_swapped = limits.swap && out > 0 && in > 0
                                  ? std::min(movable, static_cast<double>(limits.host_bytes))
                                  : 0;
  const double most_remade = limits.recompute ? std::min(movable, corners.back().bytes) : 0;
  best.least_budget =
      shape.peak_bytes - static_cast<int64_t>(std::min(movable, most_swapped + most_remade));
  if (limits.device_bytes < best.least_budget) return best;
  best.feasible = true;

  const double need =
      static_cast<double>(std::max<int64_t>(0, shape.peak_bytes - limits.device_bytes));
  const double low = std::max(0.0, need - most_swapped), high = std::min(need, most_remade);
  std::vector<double> tries{low, high, need - out * shape.forward_ns};
  for (size_t i = 0; i + 1 < corners.size(); ++i) {
    tries.push_back(corners[i + 1].bytes);
    const double bytes = corners[i + 1].bytes - corners[i].bytes;
    if (bytes <= 0) continue;
    const double slope = (corners[i + 1].ns - corners[i].ns) / bytes;
    // Where the copies back just hide: need - x = in (backward + R(x)).
    tries.push_back((need - in * (shape.backward_ns + corners[i].ns - slope * corners[i].bytes)) /
                    (1 + in * slope));
  }
  best.step_ns = INFINITY;
  for (double x : tries) {
    x = std::clamp(x, low, std::max(low, high));
    const double swapped = need - x, remaking = remake_ns_of(corners, x);
    const double exposed = swapped > 0
                               ? std::max(0.0, swapped / out - shape.forward_ns) +
                                     std::max(0.0, swapped / in - shape.backward_ns - remaking)
                               : 0;
    const double ns = shape.forward_ns + shape.backward_ns + remaking + exposed;
    if (ns >= best.step_ns) continue;
    best.step_ns = ns;
    best.recompute_bytes = std::llround(x);
    best.swap_bytes = std::llround(need) - best.recompute_bytes;
    best.recompute_ns = remaking;
    best.exposed_ns = exposed;
  }
  if (best.step_ns > 0) best.samples_per_s = static_cast<double>(shape.batch) * 1e9 / best.step_ns;
  return best;
}

Result<ThroughputModel> ThroughputModel::fit(std::vector<StepShape> shapes, const Machine& machine,
                                             const ThroughputLimits& limits) {
  if (shapes.empty()) return bad_input("the throughput model needs a step at one batch at least");
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const StepShape& a, const StepShape& b) { return a.batch < b.batch; });
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].batch < 1)
      return bad_input("a batch of {} samples; wanted 1 or more", shapes[i].batch);
    if (i > 0 && shapes[i].batch == shapes[i - 1].batch)
      return bad_input("two steps have a batch of {}; wanted different batches", shapes[i].batch);
  }
  return ThroughputModel(std::move(shapes), machine, limits);
}

StepShape ThroughputModel::shape_at(int64_t batch) const {
  const auto nearest =
      std::min_element(shapes_.begin(), shapes_.end(), [&](const StepShape& a, const StepShape& b) {
        return std::abs(a.batch - batch) < std::abs(b.batch - batch);
      });
  if (shapes_.size() == 1 || nearest->batch == batch) return *nearest;
  auto above = std::find_if(shapes_.begin() + 1, shapes_.end() - 1,
                            [&](const StepShape& s) { return s.batch >= batch; });
  const StepShape& a = *(above - 1);
  const StepShape& b = *above;
  const auto at = [&](auto StepShape::* field) {
    return std::max(0.0, between(static_cast<double>(a.batch), static_cast<double>(a.*field),
                                 static_cast<double>(b.batch), static_cast<double>(b.*field),
                                 static_cast<double>(batch)));
  };
  StepShape shape;
  shape.batch = batch;
  shape.forward_ns = at(&StepShape::forward_ns);
  shape.backward_ns = at(&StepShape::backward_ns);
  shape.least_bytes = std::llround(at(&StepShape::least_bytes));
  shape.peak_bytes = std::max<int64_t>(shape.least_bytes, std::llround(at(&StepShape::peak_bytes)));
  const double waiting = static_cast<double>(nearest->peak_bytes - nearest->least_bytes);
  const double bytes_scale =
      waiting > 0 ? static_cast<double>(shape.peak_bytes - shape.least_bytes) / waiting : 0;
  const double ns_scale = nearest->forward_ns > 0 ? shape.forward_ns / nearest->forward_ns : 0;
  for (const Remake& r : nearest->remakes)
    shape.remakes.push_back(
        {r.storage, std::llround(static_cast<double>(r.bytes) * bytes_scale), r.ns * ns_scale});
  return shape;
}

ThroughputPoint ThroughputModel::at(int64_t batch) const {
  return best_split(shape_at(batch), machine_, limits_);
}

ThroughputPoint ThroughputModel::best() const {
  if (shapes_.size() == 1) return at(shapes_.front().batch);
  ThroughputPoint best;
  const auto consider = [&](int64_t batch) {
    const ThroughputPoint point = at(batch);
    const bool better = point.feasible != best.feasible
                            ? point.feasible
                            : (point.feasible ? point.samples_per_s > best.samples_per_s
                                              : point.least_budget < best.least_budget);
    if (best.batch == 0 || better) best = point;
  };
  const int64_t last = shapes_.back().batch * kReach;
  for (int64_t batch = 1; batch <= last; batch += std::max<int64_t>(1, batch / 256))
    consider(batch);
  for (const StepShape& shape : shapes_) consider(shape.batch);
  return best;
}

}  // namespace outsize
