#include "outsize/profile/literature/models.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "outsize/base/names.h"

namespace outsize::literature {
namespace {

constexpr int64_t kGB = 1'000'000'000;

std::vector<LiteratureModel> models() {
  const std::vector<Published> wide{{16, 3.85}, {32, 4.07}, {64, 4.21}};
  return {
      {"wresnet-152-10", [](int64_t b) { return wide_resnet(10, b); }, wide, 64, 882, 26,
       180 * kGB},
      {"wresnet-152-4", [](int64_t b) { return wide_resnet(4, b); }, {}, 0, 0, 0, 0},
      {"inception-4",
       [](int64_t b) { return inception(4, b); },
       {{16, 12.7}, {32, 13.8}, {64, 14.2}},
       64,
       830,
       64,
       71 * kGB},
      {"nasnet-25",
       [](int64_t b) { return nasnet(25, b); },
       {{16, 7.06}, {32, 8.82}, {64, 9.46}},
       64,
       5533,
       65,
       193 * kGB},
      {"rnn-8-8k",
       [](int64_t b) { return lstm(8, 8192, b); },
       {{128, 14.5}, {256, 14.7}},
       256,
       8594,
       7,
       118 * kGB},
      {"brnn-4-8k",
       [](int64_t b) { return bidirectional_lstm(4, 8192, b); },
       {{64, 7.97}, {128, 10.9}},
       128,
       9034,
       9,
       99 * kGB},
  };
}

// Published time over the roofline's, of the nearest batch.
double scale_of(const LiteratureModel& model, int64_t batch, const Machine& machine) {
  const Published* nearest = nullptr;
  for (const Published& p : model.ideals)
    if (!nearest || std::abs(p.batch - batch) < std::abs(nearest->batch - batch)) nearest = &p;
  if (!nearest) return 1.0;
  double published = 1e9 * static_cast<double>(nearest->batch) / nearest->ideal_per_s;
  return published /
         static_cast<double>(compute_ns(roofline(model.build(nearest->batch), machine)));
}

}  // namespace

const std::vector<LiteratureModel>& literature_models() {
  static const std::vector<LiteratureModel> all = models();
  return all;
}

std::vector<std::string> literature_names() {
  std::vector<std::string> names;
  for (const LiteratureModel& m : literature_models()) names.emplace_back(m.name);
  return names;
}

int64_t distinct_sizes(const Graph& graph) {
  std::set<int64_t> sizes;
  for (const Storage& s : graph.storages) sizes.insert(s.bytes);
  return static_cast<int64_t>(sizes.size());
}

int64_t total_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Storage& s : graph.storages) bytes += s.bytes;
  return bytes;
}

Profile roofline(const NetGraph& net, const Machine& machine) {
  Profile profile;
  profile.how = "roofline";
  profile.machine = machine.name;
  auto rate = machine.flops_per_s.find("float32");
  double flops_per_s =
      rate == machine.flops_per_s.end() ? 0 : rate->second * machine.achieved_fraction;
  for (size_t i = 0; i < net.graph.ops.size(); ++i) {
    const Op& op = net.graph.ops[i];
    int64_t bytes = 0;
    for (const auto* accesses : {&op.reads, &op.makes, &op.mutates})
      for (const Access& access : *accesses) bytes += access.bytes.size();
    for (const Access& access : op.mutates) bytes += access.bytes.size();  // read and written
    double s = 0;
    if (flops_per_s > 0) s = net.flops[i] / flops_per_s;
    if (machine.memory_bytes_per_s > 0)
      s = std::max(s, static_cast<double>(bytes) / static_cast<double>(machine.memory_bytes_per_s));
    OpCost cost;
    cost.ns = machine.launch_ns + std::llround(s * 1e9);
    profile.ops.push_back(cost);
  }
  return profile;
}

Result<GraphFile> literature_graph(const std::string& name, int64_t batch, const Machine& machine) {
  const std::vector<LiteratureModel>& all = literature_models();
  auto model = std::find_if(all.begin(), all.end(),
                            [&](const LiteratureModel& m) { return name == m.name; });
  if (model == all.end()) {
    const std::vector<std::string> names = literature_names();
    return bad_input("no model '{}' to generate{}; there are {}", name, suggestion(name, names),
                     fmt::join(names, ", "));
  }
  if (batch < 1 || batch > 4096) return bad_input("a batch of {}; wanted 1 to 4096", batch);
  NetGraph net = model->build(batch);
  Profile profile = roofline(net, machine);
  // WResNet-152-4 has no row of its own; it is scaled as the wider one.
  const LiteratureModel& like = model->ideals.empty() ? all.front() : *model;
  double scale = scale_of(like, batch, machine);
  for (OpCost& cost : profile.ops)
    cost.ns = std::max<int64_t>(1, std::llround(static_cast<double>(cost.ns) * scale));
  return GraphFile{std::move(net.graph), std::move(profile)};
}

}  // namespace outsize::literature
