#include "outsize/profile/literature/models.h"

namespace outsize::literature {
namespace {

constexpr int64_t kClasses = 1000;

Tensor image(Net& net, int64_t edge) { return net.input(kFloat * net.batch() * 3 * edge * edge); }

// Convolution and activation.
Tensor conv_relu(Net& net, Tensor x, int64_t in, int64_t out, int64_t kernel, int64_t edge) {
  return net.relu(net.conv(x, {in, out, kernel, kernel, edge}));
}

// The output's edge where nothing is padded.
int64_t valid(int64_t edge, int64_t kernel, int64_t stride) { return (edge - kernel) / stride + 1; }

// --- Inception-v4 ------------------------------------------------------------------------------

class Inception {
 public:
  Inception(Net& net, int64_t width) : net_(net), width_(width) {}

  void build(int64_t edge) {
    stem(edge);
    for (int i = 0; i < 4; ++i) block_a();
    reduce_a();
    for (int i = 0; i < 7; ++i) block_b();
    reduce_b();
    for (int i = 0; i < 3; ++i) block_c();
    Tensor pooled = net_.pool(now_, channels_, 1);
    net_.classify(pooled, channels_, kClasses);
  }

 private:
  struct Kernel {
    int64_t out, height, width;  // channels before widening
  };
  // A branch: convolutions one after the other, the last with output edge `edge`.
  Tensor branch(Tensor x, int64_t in, const std::vector<Kernel>& kernels, int64_t edge) {
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Kernel& k = kernels[i];
      int64_t e = i + 1 == kernels.size() ? edge : edge_;
      x = net_.relu(net_.conv(x, {in, k.out * width_, k.height, k.width, e}));
      in = k.out * width_;
    }
    return x;
  }
  Tensor branch(const std::vector<Kernel>& kernels) {
    return branch(now_, channels_, kernels, edge_);
  }
  void become(const std::vector<Tensor>& parts, int64_t edge) {
    now_ = net_.concat(parts);
    edge_ = edge;
    channels_ = net_.bytes(now_) / (kFloat * net_.batch() * edge * edge);
  }

  void stem(int64_t edge) {
    Tensor x = image(net_, edge);
    int64_t e1 = valid(edge, 3, 2), e2 = e1 - 2, e3 = valid(e2, 3, 2);
    x = conv_relu(net_, x, 3, 32 * width_, 3, e1);
    x = conv_relu(net_, x, 32 * width_, 32 * width_, 3, e2);
    x = conv_relu(net_, x, 32 * width_, 64 * width_, 3, e2);
    now_ = x, channels_ = 64 * width_, edge_ = e2;
    Tensor pooled = net_.pool(x, channels_, e3);
    become({pooled, branch(x, channels_, {{96, 3, 3}}, e3)}, e3);
    Tensor a = branch(now_, channels_, {{64, 1, 1}, {96, 3, 3}}, e3 - 2);
    Tensor b = branch(now_, channels_, {{64, 1, 1}, {64, 7, 1}, {64, 1, 7}, {96, 3, 3}}, e3 - 2);
    become({a, b}, e3 - 2);
    int64_t e4 = valid(edge_, 3, 2);
    Tensor c = branch(now_, channels_, {{192, 3, 3}}, e4);
    pooled = net_.pool(now_, channels_, e4);
    become({c, pooled}, e4);
  }
  void block_a() {
    Tensor pooled = net_.pool(now_, channels_, edge_);
    Tensor b0 = branch(pooled, channels_, {{96, 1, 1}}, edge_);
    Tensor b1 = branch({{96, 1, 1}});
    Tensor b2 = branch({{64, 1, 1}, {96, 3, 3}});
    Tensor b3 = branch({{64, 1, 1}, {96, 3, 3}, {96, 3, 3}});
    become({b0, b1, b2, b3}, edge_);
  }
  void reduce_a() {
    int64_t e = valid(edge_, 3, 2);
    Tensor pooled = net_.pool(now_, channels_, e);
    Tensor b1 = branch(now_, channels_, {{384, 3, 3}}, e);
    Tensor b2 = branch(now_, channels_, {{192, 1, 1}, {224, 3, 3}, {256, 3, 3}}, e);
    become({pooled, b1, b2}, e);
  }
  void block_b() {
    Tensor pooled = net_.pool(now_, channels_, edge_);
    Tensor b0 = branch(pooled, channels_, {{128, 1, 1}}, edge_);
    Tensor b1 = branch({{384, 1, 1}});
    Tensor b2 = branch({{192, 1, 1}, {224, 1, 7}, {256, 7, 1}});
    Tensor b3 = branch({{192, 1, 1}, {192, 7, 1}, {224, 1, 7}, {224, 7, 1}, {256, 1, 7}});
    become({b0, b1, b2, b3}, edge_);
  }
  void reduce_b() {
    int64_t e = valid(edge_, 3, 2);
    Tensor pooled = net_.pool(now_, channels_, e);
    Tensor b1 = branch(now_, channels_, {{192, 1, 1}, {192, 3, 3}}, e);
    Tensor b2 = branch(now_, channels_, {{256, 1, 1}, {256, 1, 7}, {320, 7, 1}, {320, 3, 3}}, e);
    become({pooled, b1, b2}, e);
  }
  void block_c() {
    Tensor pooled = net_.pool(now_, channels_, edge_);
    Tensor b0 = branch(pooled, channels_, {{256, 1, 1}}, edge_);
    Tensor b1 = branch({{256, 1, 1}});
    Tensor b2 = branch({{384, 1, 1}});
    Tensor b3 = branch({{384, 1, 1}, {448, 3, 1}, {512, 1, 3}});
    int64_t c2 = 384 * width_, c3 = 512 * width_;
    become({b0, b1, branch(b2, c2, {{256, 1, 3}}, edge_), branch(b2, c2, {{256, 3, 1}}, edge_),
            branch(b3, c3, {{256, 1, 3}}, edge_), branch(b3, c3, {{256, 3, 1}}, edge_)},
           edge_);
  }

  Net& net_;
  int64_t width_;
  Tensor now_ = -1;
  int64_t channels_ = 0, edge_ = 0;
};

// --- NASNet-A ----------------------------------------------------------------------------------

struct Features {
  Tensor tensor = -1;
  int64_t channels = 0, edge = 0;
};

class NasNet {
 public:
  NasNet(Net& net, int64_t filters) : net_(net), filters_(filters) {}

  void build(int repeats, int64_t edge) {
    constexpr int64_t kStem = 96;
    now_ = {net_.conv(image(net_, edge), {3, kStem, 3, 3, edge / 2, 1, true}), kStem, edge / 2};
    before_ = now_;
    reduce(filters_ / 4);
    reduce(filters_ / 2);
    for (int stage = 0; stage < 3; ++stage) {
      int64_t f = filters_ << stage;
      if (stage == 2) auxiliary();
      if (stage > 0) reduce(f);
      for (int i = 0; i < repeats; ++i) normal(f);
    }
    net_.classify(net_.pool(now_.tensor, now_.channels, 1), now_.channels, kClasses);
  }

 private:
  // relu of x, shared by all that want it.
  Tensor active(Tensor x) {
    auto found = active_.find(x);
    if (found == active_.end()) found = active_.emplace(x, net_.relu_copy(x)).first;
    return found->second;
  }
  Tensor separable(const Features& x, int64_t kernel, int64_t edge) {
    int64_t f = x.channels;
    Tensor depthwise = net_.conv(active(x.tensor), {f, f, kernel, kernel, edge, f});
    return net_.conv(depthwise, {f, f, 1, 1, edge});
  }
  // To `f` channels and edge `edge`: by a 1x1 convolution, or a factorised reduction in two halves.
  Features fitted(const Features& x, int64_t f, int64_t edge) {
    Tensor r = net_.relu_copy(x.tensor);
    if (x.edge == edge) return {net_.conv(r, {x.channels, f, 1, 1, edge, 1, true}), f, edge};
    std::vector<Tensor> halves;
    for (int i = 0; i < 2; ++i)
      halves.push_back(
          net_.conv(net_.pool(r, x.channels, edge), {x.channels, f / 2, 1, 1, edge, 1, true}));
    return {net_.concat(halves), f, edge};
  }
  void become(const std::vector<Tensor>& parts, int64_t f, int64_t edge) {
    before_ = now_;
    now_ = {net_.concat(parts), f * static_cast<int64_t>(parts.size()), edge};
  }
  void normal(int64_t f) {
    int64_t e = now_.edge;
    Features p = fitted(before_, f, e), h = fitted(now_, f, e);
    Tensor b0 = net_.sum(separable(h, 3, e), h.tensor);
    Tensor b1 = net_.sum(separable(p, 3, e), separable(h, 5, e));
    Tensor b2 = net_.sum(net_.pool(h.tensor, f, e), p.tensor);
    Tensor b3 = net_.sum(net_.pool(p.tensor, f, e), net_.pool(p.tensor, f, e));
    Tensor b4 = net_.sum(separable(p, 5, e), separable(p, 3, e));
    become({p.tensor, b0, b1, b2, b3, b4}, f, e);
  }
  void reduce(int64_t f) {
    int64_t e = now_.edge / 2;
    Features p = fitted(before_, f, now_.edge), h = fitted(now_, f, now_.edge);
    Tensor b0 = net_.sum(separable(h, 5, e), separable(p, 7, e));
    Tensor b1 = net_.sum(net_.pool(h.tensor, f, e), separable(p, 7, e));
    Tensor b2 = net_.sum(net_.pool(h.tensor, f, e), separable(p, 5, e));
    Tensor b3 = net_.sum(net_.pool(b0, f, e), b1);
    Tensor b4 = net_.sum(separable({b0, f, e}, 3, e), net_.pool(h.tensor, f, e));
    become({b1, b2, b3, b4}, f, e);
  }
  // The classifier beside the second stage, for training alone.
  void auxiliary() {
    Tensor x = net_.pool(now_.tensor, now_.channels, 4);
    x = net_.relu(net_.conv(x, {now_.channels, 128, 1, 1, 4, 1, true}));
    x = net_.relu(net_.conv(x, {128, 768, 4, 4, 1, 1, true}));
    net_.classify(x, 768, kClasses);
  }

  Net& net_;
  int64_t filters_;
  Features now_, before_;
  std::map<Tensor, Tensor> active_;
};

}  // namespace

NetGraph wide_resnet(int64_t width, int64_t batch) {
  Net net("WResNet-152-" + std::to_string(width), batch);
  int64_t edge = 112, channels = 64 * width;
  Tensor x = conv_relu(net, image(net, 224), 3, channels, 7, edge);
  edge = 56;
  x = net.pool(x, channels, edge);
  constexpr int kBlocks[] = {3, 8, 36, 3};
  for (int stage = 0; stage < 4; ++stage) {
    int64_t inner = (int64_t{64} << stage) * width;
    for (int block = 0; block < kBlocks[stage]; ++block) {
      int64_t e = stage > 0 && block == 0 ? edge / 2 : edge;
      Tensor y = conv_relu(net, x, channels, inner, 1, e);
      y = conv_relu(net, y, inner, inner, 3, e);
      y = net.conv(y, {inner, 4 * inner, 1, 1, e});
      Tensor shortcut = block == 0 ? net.conv(x, {channels, 4 * inner, 1, 1, e}) : x;
      x = net.relu(net.sum(y, shortcut));
      channels = 4 * inner;
      edge = e;
    }
  }
  net.classify(net.pool(x, channels, 1), channels, kClasses);
  return net.finish();
}

NetGraph inception(int64_t width, int64_t batch) {
  Net net("Inception-" + std::to_string(width), batch);
  Inception(net, width).build(288);
  return net.finish();
}

NetGraph nasnet(int repeats, int64_t batch) {
  Net net("NasNet-" + std::to_string(repeats), batch);
  NasNet(net, 272).build(repeats, 224);
  return net.finish();
}

}  // namespace outsize::literature
