// The training graphs of SwapAdvisor's evaluation (Huang, Jin, Li, ASPLOS'20, section 6.1, Table
// 1), rebuilt: forward, backward and update as MXNet has them. What the paper doesn't publish
// (times of the recurrent nets, NASNet's filters, how large Inception's images are) is fitted to
// the ops, distinct sizes and bytes of its Table 1; docs/papers.md says how well.
//
//   Result<GraphFile> g = literature_graph("rnn-8-8k", 256, machine);
//
// Op times are rooflines of the machine (operations against bytes, and the launch), all scaled
// alike so that the ops' sum is the paper's `Ideal` for that model and batch; for a batch without
// one, by the scale of the nearest batch that has one. Pure functions.
#pragma once

#include "outsize/profile/graph_file.h"
#include "outsize/profile/literature/net.h"
#include "outsize/profile/machine.h"

namespace outsize::literature {

NetGraph wide_resnet(int64_t width, int64_t batch);  // ResNet-152, channels times `width`
NetGraph inception(int64_t width, int64_t batch);    // Inception-v4, channels times `width`
NetGraph nasnet(int repeats, int64_t batch);         // NASNet-A, `repeats` normal cells a stage
NetGraph lstm(int layers, int64_t units, int64_t batch);
NetGraph bidirectional_lstm(int layers, int64_t units, int64_t batch);

struct Published {
  int64_t batch;
  double ideal_per_s;  // samples per second, Figure 6's Ideal
};
struct LiteratureModel {
  const char* name;
  NetGraph (*build)(int64_t batch);
  std::vector<Published> ideals;
  // Table 1: at this batch, so many ops, distinct tensor sizes and bytes; 0: no row.
  int64_t batch = 0, ops = 0, sizes = 0, bytes = 0;
};
const std::vector<LiteratureModel>& literature_models();
std::vector<std::string> literature_names();

// Distinct sizes and sum of all storages.
int64_t distinct_sizes(const Graph& graph);
int64_t total_bytes(const Graph& graph);

// Roofline times on `machine`, unscaled.
Profile roofline(const NetGraph& net, const Machine& machine);
// The error names the nearest model there is.
Result<GraphFile> literature_graph(const std::string& name, int64_t batch, const Machine& machine);

}  // namespace outsize::literature
