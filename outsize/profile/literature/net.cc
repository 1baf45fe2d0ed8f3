#include "outsize/profile/literature/net.h"

#include <utility>

namespace outsize::literature {

Tensor Net::add(int64_t bytes, Kind kind, Storage storage) {
  Tensor t = static_cast<Tensor>(tensors_.size());
  tensors_.push_back({bytes, kind});
  graph_.storage(name(t), std::move(storage));
  return t;
}

Tensor Net::input(int64_t bytes) {
  return add(bytes, Kind::kInput, {bytes, Role::kInput, true, false, false, ""});
}

Tensor Net::weight(int64_t bytes) {
  std::string unique = "w" + std::to_string(tensors_.size());
  return add(bytes, Kind::kWeight, {bytes, Role::kParameter, true, true, true, unique});
}

Tensor Net::other(int64_t bytes) {
  Role role = phase_ == "forward" ? Role::kActivation : Role::kGradient;
  return add(bytes, Kind::kOther, {bytes, role, false, false, false, ""});
}

Tensor Net::output_like(Tensor t) {
  return add(bytes(t), Kind::kOther, {bytes(t), Role::kOutput, false, true, false, ""});
}

Tensor Net::map(int64_t channels, int64_t edge) {
  return other(kFloat * batch_ * channels * edge * edge);
}

void Net::op(const std::string& what, const std::vector<Tensor>& reads,
             const std::vector<Tensor>& makes, const std::vector<Tensor>& mutates, double flops) {
  GraphBuilder::OpBuilder o = graph_.op(what);
  o.phase(phase_);
  for (Tensor t : reads) o.reads(name(t));
  for (Tensor t : makes) o.makes(name(t));
  for (Tensor t : mutates) o.mutates(name(t));
  flops_.push_back(flops);
}

std::optional<Tensor> Net::take(Tensor t) {
  auto found = gradients_.find(t);
  if (found == gradients_.end()) return std::nullopt;
  std::vector<Tensor> parts = std::move(found->second);
  gradients_.erase(found);
  for (size_t i = 1; i < parts.size(); ++i) op("grad_add", {parts[i]}, {}, {parts[0]});
  return parts[0];
}

void Net::weight_gradient(Tensor weight, std::vector<Tensor>& makes, std::vector<Tensor>& mutates) {
  auto found = weight_gradients_.find(weight);
  if (found != weight_gradients_.end()) {
    mutates.push_back(found->second);
    return;
  }
  Tensor gradient = like(weight);
  weight_gradients_[weight] = gradient;
  updated_.push_back(weight);
  makes.push_back(gradient);
}

void Net::weighted(const std::string& what, Tensor x, Tensor w, std::optional<Tensor> bias,
                   Tensor y, double flops) {
  std::vector<Tensor> reads{x, w};
  if (bias) reads.push_back(*bias);
  op(what, reads, {y}, {}, flops);
  tape_.push_back([this, what, x, w, bias, y, flops] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    std::vector<Tensor> makes, mutates;
    weight_gradient(w, makes, mutates);
    if (bias) weight_gradient(*bias, makes, mutates);
    if (!is_input(x)) {
      makes.push_back(like(x));
      give(x, makes.back());
    }
    op("_backward_" + what, {*dy, x, w}, makes, mutates, flops * (is_input(x) ? 1 : 2));
  });
}

Tensor Net::conv(Tensor x, const Conv& c) {
  Tensor w = weight(kFloat * c.in / c.groups * c.out * c.kernel_h * c.kernel_w);
  std::optional<Tensor> bias;
  if (c.bias) bias = weight(kFloat * c.out);
  Tensor y = map(c.out, c.edge);
  double flops = 2.0 * static_cast<double>(bytes(y) / kFloat) *
                 static_cast<double>(c.in / c.groups * c.kernel_h * c.kernel_w);
  weighted("Convolution", x, w, bias, y, flops);
  return y;
}

Tensor Net::relu(Tensor x) {
  op("Activation", {}, {}, {x});
  tape_.push_back([this, x] {
    std::optional<Tensor> dy = take(x);
    if (!dy) return;
    op("_backward_Activation", {x}, {}, {*dy});
    give(x, *dy);
  });
  return x;
}

Tensor Net::relu_copy(Tensor x) { return unary(x); }

Tensor Net::unary(Tensor x) {
  Tensor y = like(x);
  op("Activation", {x}, {y}, {});
  tape_.push_back([this, x, y] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    op("_backward_Activation", {y}, {}, {*dy});
    give(x, *dy);
  });
  return y;
}

Tensor Net::pool(Tensor x, int64_t channels, int64_t edge) {
  Tensor y = map(channels, edge);
  op("Pooling", {x}, {y}, {});
  tape_.push_back([this, x, y] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    Tensor dx = like(x);
    op("_backward_Pooling", {*dy, x, y}, {dx}, {});
    give(x, dx);
  });
  return y;
}

Tensor Net::sum(Tensor a, Tensor b) {
  op("elemwise_add", {b}, {}, {a});
  tape_.push_back([this, a, b] {
    std::optional<Tensor> dy = take(a);
    if (!dy) return;
    Tensor db = like(b);
    op("_backward_add", {*dy}, {db}, {});
    give(a, *dy);
    give(b, db);
  });
  return a;
}

Tensor Net::plus(Tensor a, Tensor b) {
  Tensor y = like(a);
  op("elemwise_add", {a, b}, {y}, {});
  tape_.push_back([this, a, b, y] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    Tensor db = like(b);
    op("_backward_add", {*dy}, {db}, {});
    give(a, *dy);
    give(b, db);
  });
  return y;
}

Tensor Net::product(Tensor a, Tensor b) {
  Tensor y = like(a);
  op("elemwise_mul", {a, b}, {y}, {});
  tape_.push_back([this, a, b, y] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    Tensor da = like(a), db = like(b);
    op("_backward_mul", {*dy, b}, {da}, {});
    op("_backward_mul", {*dy, a}, {db}, {});
    give(a, da);
    give(b, db);
  });
  return y;
}

Tensor Net::concat(const std::vector<Tensor>& xs) {
  int64_t total = 0;
  for (Tensor x : xs) total += bytes(x);
  Tensor y = other(total);
  op("Concat", xs, {y}, {});
  tape_.push_back([this, xs, y] {
    std::optional<Tensor> dy = take(y);
    if (!dy) return;
    std::vector<Tensor> makes;
    for (Tensor x : xs) makes.push_back(like(x));
    op("_backward_Concat", {*dy}, makes, {});
    for (size_t i = 0; i < xs.size(); ++i) give(xs[i], makes[i]);
  });
  return y;
}

std::vector<Tensor> Net::split(Tensor x, int parts) {
  std::vector<Tensor> ys;
  for (int i = 0; i < parts; ++i) ys.push_back(other(bytes(x) / parts));
  op("SliceChannel", {x}, ys, {});
  tape_.push_back([this, x, ys] {
    std::vector<Tensor> reads;
    for (Tensor y : ys)
      if (std::optional<Tensor> dy = take(y)) reads.push_back(*dy);
    if (reads.empty()) return;
    Tensor dx = like(x);
    op("_backward_SliceChannel", reads, {dx}, {});
    give(x, dx);
  });
  return ys;
}

Tensor Net::dense(Tensor x, Tensor w, std::optional<Tensor> bias, int64_t out_bytes) {
  Tensor y = other(out_bytes);
  double flops = 2.0 * static_cast<double>(batch_) * static_cast<double>(bytes(w) / kFloat);
  weighted("FullyConnected", x, w, bias, y, flops);
  return y;
}

void Net::classify(Tensor x, int64_t features, int64_t classes) {
  Tensor w = weight(kFloat * features * classes);
  Tensor bias = weight(kFloat * classes);
  loss(dense(x, w, bias, kFloat * batch_ * classes));
}

void Net::loss(Tensor scores) {
  Tensor label = input(kFloat * batch_);
  Tensor shares = output_like(scores);
  op("SoftmaxOutput", {scores}, {shares}, {});
  tape_.push_back([this, scores, shares, label] {
    Tensor dy = like(scores);
    op("_backward_SoftmaxOutput", {shares, label}, {dy}, {});
    give(scores, dy);
  });
}

NetGraph Net::finish() {
  phase_ = "backward";
  for (size_t i = tape_.size(); i-- > 0;) tape_[i]();
  phase_ = "optimizer";
  for (Tensor w : updated_) op("sgd_update", {weight_gradients_.at(w)}, {}, {w});
  return {graph_.build(), std::move(flops_)};
}

}  // namespace outsize::literature
