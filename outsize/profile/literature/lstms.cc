#include "outsize/profile/literature/models.h"

namespace outsize::literature {
namespace {

constexpr int64_t kClasses = 1000;
constexpr int kTimes = 32;  // fitted to Table 1

struct Weights {
  Tensor input, input_bias, hidden, hidden_bias;
};

struct State {
  std::optional<Tensor> hidden, cell;
};

class Lstm {
 public:
  Lstm(Net& net, int64_t units) : net_(net), units_(units) {}

  int64_t state_bytes() const { return kFloat * net_.batch() * units_; }

  Weights weights(int64_t inputs) {
    int64_t gates = 4 * units_ * kFloat;
    return {net_.weight(gates * inputs), net_.weight(gates), net_.weight(gates * units_),
            net_.weight(gates)};
  }

  State cell(Tensor x, const State& before, const Weights& w) {
    int64_t gates = 4 * state_bytes();
    Tensor sum = net_.dense(x, w.input, w.input_bias, gates);
    if (before.hidden)
      sum = net_.plus(sum, net_.dense(*before.hidden, w.hidden, w.hidden_bias, gates));
    std::vector<Tensor> parts = net_.split(sum, 4);
    for (Tensor& part : parts) part = net_.unary(part);
    Tensor cell = net_.product(parts[0], parts[3]);
    if (before.cell) cell = net_.plus(net_.product(parts[1], *before.cell), cell);
    return {net_.product(parts[2], net_.unary(cell)), cell};
  }

  std::vector<Tensor> inputs() {
    std::vector<Tensor> out;
    for (int t = 0; t < kTimes; ++t) out.push_back(net_.input(state_bytes()));
    return out;
  }

  // One classifier for all times.
  void classify(const std::vector<Tensor>& outputs) {
    int64_t features = net_.bytes(outputs[0]) / (kFloat * net_.batch());
    Tensor w = net_.weight(kFloat * features * kClasses);
    for (Tensor y : outputs)
      net_.loss(net_.dense(y, w, std::nullopt, kFloat * net_.batch() * kClasses));
  }

 private:
  Net& net_;
  int64_t units_;
};

}  // namespace

NetGraph lstm(int layers, int64_t units, int64_t batch) {
  Net net("RNN-" + std::to_string(layers) + "-" + std::to_string(units / 1024) + "K", batch);
  Lstm lstm(net, units);
  std::vector<Tensor> inputs = lstm.inputs(), outputs;
  std::vector<Weights> weights;
  for (int l = 0; l < layers; ++l) weights.push_back(lstm.weights(units));
  std::vector<State> states(static_cast<size_t>(layers));
  for (Tensor x : inputs) {
    for (size_t l = 0; l < states.size(); ++l) {
      states[l] = lstm.cell(x, states[l], weights[l]);
      x = *states[l].hidden;
    }
    outputs.push_back(x);
  }
  lstm.classify(outputs);
  return net.finish();
}

NetGraph bidirectional_lstm(int layers, int64_t units, int64_t batch) {
  Net net("BRNN-" + std::to_string(layers) + "-" + std::to_string(units / 1024) + "K", batch);
  Lstm lstm(net, units);
  std::vector<Tensor> xs = lstm.inputs();
  for (int l = 0; l < layers; ++l) {
    int64_t inputs = l == 0 ? units : 2 * units;
    Weights there = lstm.weights(inputs), back = lstm.weights(inputs);
    std::vector<Tensor> forward(xs.size()), backward(xs.size());
    State state;
    for (size_t t = 0; t < xs.size(); ++t) {
      state = lstm.cell(xs[t], state, there);
      forward[t] = *state.hidden;
    }
    state = {};
    for (size_t t = xs.size(); t-- > 0;) {
      state = lstm.cell(xs[t], state, back);
      backward[t] = *state.hidden;
    }
    for (size_t t = 0; t < xs.size(); ++t) xs[t] = net.concat({forward[t], backward[t]});
  }
  lstm.classify(xs);
  return net.finish();
}

}  // namespace outsize::literature
