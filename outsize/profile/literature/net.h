// Builds training graphs layer by layer: each call adds forward ops and remembers what the backward
// pass will add for them; `finish` adds that, last layer first, and the updates.
//
//   Net net("example", 64);
//   Tensor x = net.input(bytes);
//   Tensor y = net.conv(x, {3, 64, 7, 7, 112});           // makes its weight
//   net.relu(y);                                          // in place
//   net.classify(net.pool(y, 64, 1), 64, 1000);
//   NetGraph g = net.finish();                            // forward, backward, SGD
//
// As MXNet has it: an activation and the sum of a residual overwrite their input, gradients of
// weights used several times are added in place, SGD keeps no state. Tensors are float32. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "outsize/graph/builder.h"

namespace outsize::literature {

struct NetGraph {
  Graph graph;
  std::vector<double> flops;  // per op
};

using Tensor = int32_t;
inline constexpr int64_t kFloat = 4;  // bytes

// A convolution: channels in and out, kernel, edge of the output; `groups` as usual.
struct Conv {
  int64_t in = 0, out = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t edge = 0;
  int64_t groups = 1;
  bool bias = false;
};

class Net {
 public:
  Net(std::string title, int64_t batch) : batch_(batch) { graph_.title(title); }

  int64_t batch() const { return batch_; }
  int64_t bytes(Tensor t) const { return tensors_[static_cast<size_t>(t)].bytes; }
  Tensor input(int64_t bytes);
  Tensor weight(int64_t bytes);
  // A square map of floats: `channels` x `edge` x `edge` per sample.
  Tensor map(int64_t channels, int64_t edge);

  // Layers of convolutional nets. `edge` is the output's.
  Tensor conv(Tensor x, const Conv& c);
  Tensor relu(Tensor x);       // in place
  Tensor relu_copy(Tensor x);  // where x is read by others as well
  Tensor pool(Tensor x, int64_t channels, int64_t edge);
  Tensor sum(Tensor a, Tensor b);  // into a
  Tensor concat(const std::vector<Tensor>& xs);
  // Softmax, its labels, and the loss's gradient.
  void loss(Tensor scores);
  // Fully connected and loss.
  void classify(Tensor x, int64_t features, int64_t classes);

  // Layers of recurrent nets. `bias` may be none.
  Tensor dense(Tensor x, Tensor weight, std::optional<Tensor> bias, int64_t out_bytes);
  Tensor unary(Tensor x);  // sigmoid, tanh: a copy
  Tensor product(Tensor a, Tensor b);
  Tensor plus(Tensor a, Tensor b);  // a copy
  std::vector<Tensor> split(Tensor x, int parts);

  NetGraph finish();

 private:
  enum class Kind { kInput, kWeight, kOther };
  struct Info {
    int64_t bytes;
    Kind kind;
  };
  Tensor add(int64_t bytes, Kind kind, Storage storage);
  Tensor other(int64_t bytes);
  Tensor like(Tensor t) { return other(bytes(t)); }
  Tensor output_like(Tensor t);
  static std::string name(Tensor t) { return "t" + std::to_string(t); }
  void op(const std::string& what, const std::vector<Tensor>& reads,
          const std::vector<Tensor>& makes, const std::vector<Tensor>& mutates, double flops = 0);
  // Hands a gradient of `t` to whoever made it; nothing for inputs.
  void give(Tensor t, Tensor gradient) { gradients_[t].push_back(gradient); }
  // The gradient of `t`, its contributions added up; none where nothing depends on it.
  std::optional<Tensor> take(Tensor t);
  bool is_input(Tensor t) const { return tensors_[static_cast<size_t>(t)].kind == Kind::kInput; }
  // `y` of `x` by a weight and perhaps a bias; backward takes as many operations for each of the
  // gradients of x and w.
  void weighted(const std::string& what, Tensor x, Tensor w, std::optional<Tensor> bias, Tensor y,
                double flops);
  // A gradient to be made or, the second time, added to.
  void weight_gradient(Tensor weight, std::vector<Tensor>& makes, std::vector<Tensor>& mutates);

  int64_t batch_;
  GraphBuilder graph_;
  std::string phase_ = "forward";
  std::vector<Info> tensors_;
  std::vector<double> flops_;
  std::vector<std::function<void()>> tape_;
  std::map<Tensor, std::vector<Tensor>> gradients_;
  std::map<Tensor, Tensor> weight_gradients_;
  std::vector<Tensor> updated_;  // weights, by when their gradients came
};

}  // namespace outsize::literature
