#include "outsize/graph/generate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "outsize/graph/builder.h"

namespace outsize {
namespace {

std::string numbered(const char* stem, int i) { return stem + std::to_string(i); }

// Records forward ops, then writes the backward ones in reverse and the updates: what autograd and
// an optimizer do, by storages.
class Tape {
 public:
  struct Layer {
    std::string name;
    std::vector<std::string> inputs;  // activations that want a gradient
    std::vector<std::string> parameters;
    std::string output;
    std::vector<std::string> saved;  // what backward reads, beside the parameters
    std::string module;
    bool rng = false;
    std::vector<std::string> constants;   // read, no gradient: the batch
    std::vector<std::string> also_makes;  // kept for backward: a dropout mask, statistics
  };

  explicit Tape(const std::string& title) { b.title(title); }

  void forward(Layer layer) {
    auto op = b.op(layer.name);
    for (const auto* list : {&layer.inputs, &layer.constants, &layer.parameters})
      for (const std::string& name : *list) op.reads(name);
    op.makes(layer.output);
    for (const std::string& name : layer.also_makes) op.makes(name);
    op.module(layer.module).phase("forward");
    if (layer.rng) op.rng();
    layers_.push_back(std::move(layer));
  }

  // The loss is the output of the last layer and needs no gradient handed in.
  void backward() {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      const bool last = layer == layers_.rbegin();
      std::vector<std::string> made, added;
      for (const std::string& input : layer->inputs) made.push_back(gradient(input, added));
      for (const std::string& parameter : layer->parameters)
        made.push_back(gradient(parameter, added));
      auto op = b.op(layer->name + "_backward");
      if (!last) op.reads("grad(" + layer->output + ")");
      for (const std::string& name : layer->saved) op.reads(name);
      // Not every gradient needs the parameter (a bias's does not); here they all read it.
      for (const std::string& name : layer->parameters) op.reads(name);
      for (const std::string& name : made) op.makes(name);
      op.module(layer->module).phase("backward");
      for (const std::string& name : added)
        b.op("add_").mutates(name).reads(name + "'").module(layer->module).phase("backward");
    }
  }

  // One op per parameter, over its gradient and `states` optimizer states of the parameter's size.
  void update(const std::string& name, int states) {
    for (const std::string& parameter : parameters_) {
      auto op = b.op(name);
      op.mutates(parameter).reads("grad(" + parameter + ")").phase("optimizer");
      for (int i = 0; i < states; ++i) op.mutates(state(parameter, i));
    }
  }

  void parameter(const std::string& name, int64_t bytes, int states) {
    b.parameter(name, bytes);
    for (int i = 0; i < states; ++i) b.optimizer_state(state(name, i), bytes);
    parameters_.push_back(name);
  }

  GraphBuilder b;

 private:
  static std::string state(const std::string& parameter, int i) {
    return parameter + ".state." + std::to_string(i);
  }
  // The storage for a new gradient of `of`; where there is one already, a second one, to be added.
  std::string gradient(const std::string& of, std::vector<std::string>& added) {
    const std::string name = "grad(" + of + ")";
    const int64_t bytes = b.whole(of).bytes.end;
    if (std::find(gradients_.begin(), gradients_.end(), name) == gradients_.end()) {
      gradients_.push_back(name);
      b.gradient(name, bytes);
      return name;
    }
    OUTSIZE_CHECK(std::find(twice_.begin(), twice_.end(), name) == twice_.end(),
                  "'{}' is used by more than two layers", of);
    twice_.push_back(name);
    b.gradient(name + "'", bytes);
    added.push_back(name);
    return name + "'";
  }

  std::vector<Layer> layers_;
  std::vector<std::string> parameters_, gradients_, twice_;
};

}  // namespace

Graph chain_graph(int layers, int64_t bytes) {
  OUTSIZE_CHECK(layers >= 1 && bytes >= 1, "a chain of {} layers of {} bytes", layers, bytes);
  GraphBuilder b;
  b.title(fmt::format("chain of {} layers", layers)).input("x", bytes);
  for (int i = 0; i < layers; ++i) b.parameter(numbered("w", i), bytes);
  const auto input_of = [](int i) { return i == 0 ? std::string("x") : numbered("a", i - 1); };
  for (int i = 0; i < layers; ++i) {
    b.activation(numbered("a", i), bytes);
    b.op("forward").reads(input_of(i), numbered("w", i)).makes(numbered("a", i)).phase("forward");
  }
  const std::string last_gradient = numbered("g", layers - 1);
  b.output("loss", bytes);
  b.op("loss").reads(numbered("a", layers - 1)).makes("loss").phase("forward");
  b.gradient(last_gradient, bytes);
  b.op("loss_backward").reads(numbered("a", layers - 1)).makes(last_gradient).phase("backward");
  for (int i = layers - 1; i >= 0; --i) {
    b.gradient(numbered("dw", i), bytes);
    if (i > 0) b.gradient(numbered("g", i - 1), bytes);
    auto op = b.op("backward");
    op.reads(numbered("g", i), input_of(i), numbered("w", i)).makes(numbered("dw", i));
    if (i > 0) op.makes(numbered("g", i - 1));
    op.phase("backward");
  }
  for (int i = 0; i < layers; ++i)
    b.op("update").mutates(numbered("w", i)).reads(numbered("dw", i)).phase("optimizer");
  return b.build();
}

Graph unet_graph(int levels, int64_t image_bytes) {
  OUTSIZE_CHECK(levels >= 1 && levels <= 12 && image_bytes >> (2 * levels) >= 1,
                "a U-Net of {} levels on {} bytes", levels, image_bytes);
  Tape tape(fmt::format("U-Net of {} levels", levels));
  tape.b.input("image", image_bytes).input("target", image_bytes);
  std::string current = "image";
  int64_t bytes = image_bytes, channels = 16;
  const auto conv = [&](const std::string& name, std::vector<std::string> inputs, int64_t from,
                        int64_t to, int64_t out_bytes) {
    tape.parameter(name + ".weight", 4 * 9 * from * to, 1);
    tape.b.activation(name + ".out", out_bytes).activation(name + ".relu", out_bytes);
    std::vector<std::string> constants;
    if (std::erase(inputs, "image") > 0) constants.push_back("image");
    std::vector<std::string> saved = inputs;
    saved.insert(saved.end(), constants.begin(), constants.end());
    tape.forward({.name = "convolution",
                  .inputs = inputs,
                  .parameters = {name + ".weight"},
                  .output = name + ".out",
                  .saved = saved,
                  .module = name,
                  .constants = constants,
                  .also_makes = {}});
    tape.forward({.name = "relu",
                  .inputs = {name + ".out"},
                  .parameters = {},
                  .output = name + ".relu",
                  .saved = {name + ".relu"},
                  .module = name,
                  .constants = {},
                  .also_makes = {}});
    current = name + ".relu";
  };
  const auto resize = [&](const char* kind, const std::string& name, int64_t out_bytes) {
    tape.b.activation(name, out_bytes);
    tape.forward({.name = kind,
                  .inputs = {current},
                  .parameters = {},
                  .output = name,
                  .saved = {},
                  .module = name,
                  .constants = {},
                  .also_makes = {}});
    current = name;
  };
  std::vector<std::string> skips;
  for (int i = 0; i < levels; ++i) {
    conv(numbered("down", i), {current}, i == 0 ? 3 : channels / 2, channels, bytes);
    skips.push_back(current);
    // Half the height and width; the next convolution doubles the channels.
    resize("avg_pool2d", numbered("pool", i), bytes / 4);
    bytes /= 2;
    channels *= 2;
  }
  conv("bottom", {current}, channels / 2, channels, bytes);
  for (int i = levels - 1; i >= 0; --i) {
    channels /= 2;
    resize("upsample_nearest2d", numbered("upsample", i), bytes * 4);
    bytes *= 2;
    conv(numbered("up", i), {current, skips[static_cast<size_t>(i)]}, 3 * channels, channels,
         bytes);
  }
  tape.b.output("loss", 4);
  tape.forward({.name = "mse_loss",
                .inputs = {current},
                .parameters = {},
                .output = "loss",
                .saved = {current, "target"},
                .module = {},
                .constants = {"target"},
                .also_makes = {}});
  tape.backward();
  tape.update("sgd", 1);
  return tape.b.build();
}

Graph transformer_graph(const TransformerSize& size) {
  OUTSIZE_CHECK(size.layers >= 1 && size.batch >= 1 && size.sequence >= 1 && size.hidden >= 1 &&
                    size.heads >= 1 && size.vocabulary >= 1 && size.element_bytes >= 1,
                "a transformer of no size");
  Tape tape(fmt::format("transformer of {} layers", size.layers));
  const int64_t tokens = size.batch * size.sequence;
  const int64_t row = tokens * size.hidden * size.element_bytes;
  const int64_t square = size.hidden * size.hidden * size.element_bytes;
  const int64_t scores =
      size.batch * size.heads * size.sequence * size.sequence * size.element_bytes;
  const int64_t logits = tokens * size.vocabulary * size.element_bytes;
  tape.b.input("tokens", tokens * 8).input("labels", tokens * 8);

  std::string module;
  // `name` is the output's name inside the module.
  const auto apply = [&](const char* op, const std::string& name, std::vector<std::string> inputs,
                         std::vector<std::string> parameters, int64_t bytes,
                         std::vector<std::string> saved, std::vector<std::string> constants = {}) {
    const std::string output = module + "." + name;
    tape.b.activation(output, bytes);
    tape.forward({.name = op,
                  .inputs = std::move(inputs),
                  .parameters = std::move(parameters),
                  .output = output,
                  .saved = std::move(saved),
                  .module = module,
                  .constants = std::move(constants),
                  .also_makes = {}});
    return output;
  };
  const auto linear = [&](const std::string& name, const std::string& input, int64_t weight_bytes,
                          int64_t out_bytes) {
    const std::string weight = module + "." + name + ".weight";
    tape.parameter(weight, weight_bytes, 2);
    return apply("linear", name, {input}, {weight}, out_bytes, {input});
  };
  const auto norm = [&](const std::string& name, const std::string& input) {
    const std::string weight = module + "." + name + ".weight";
    tape.parameter(weight, 2 * size.hidden * size.element_bytes, 2);
    return apply("layer_norm", name, {input}, {weight}, row, {input});
  };

  module = "embedding";
  tape.parameter("embedding.weight", size.vocabulary * size.hidden * size.element_bytes, 2);
  std::string current =
      apply("embedding", "out", {}, {"embedding.weight"}, row, {"tokens"}, {"tokens"});
  for (int i = 0; i < size.layers; ++i) {
    module = numbered("layer.", i);
    const std::string normed = norm("norm1", current);
    const std::string qkv = linear("qkv", normed, 3 * square, 3 * row);
    const std::string score = apply("attention_scores", "scores", {qkv}, {}, scores, {qkv});
    const std::string soft =
        apply("softmax", "softmax", {score}, {}, scores, {module + ".softmax"});
    const std::string dropped = module + ".dropped", mask = module + ".mask";
    tape.b.activation(dropped, scores)
        .activation(mask, std::max<int64_t>(1, scores / size.element_bytes));
    tape.forward({.name = "native_dropout",
                  .inputs = {soft},
                  .parameters = {},
                  .output = dropped,
                  .saved = {mask},
                  .module = module,
                  .rng = true,
                  .constants = {},
                  .also_makes = {mask}});
    const std::string mixed =
        apply("attention_mix", "mixed", {dropped, qkv}, {}, row, {dropped, qkv});
    const std::string projected = linear("projection", mixed, square, row);
    const std::string middle = apply("add", "residual1", {current, projected}, {}, row, {});
    const std::string normed2 = norm("norm2", middle);
    const std::string wide = linear("up", normed2, 4 * square, 4 * row);
    const std::string bent = apply("gelu", "gelu", {wide}, {}, 4 * row, {wide});
    const std::string narrow = linear("down", bent, 4 * square, row);
    current = apply("add", "residual2", {middle, narrow}, {}, row, {});
  }
  module = "head";
  const std::string normed = norm("norm", current);
  const std::string logit =
      linear("logits", normed, size.vocabulary * size.hidden * size.element_bytes, logits);
  const std::string soft =
      apply("log_softmax", "log_softmax", {logit}, {}, logits, {"head.log_softmax"});
  tape.b.output("loss", size.element_bytes);
  tape.forward({.name = "nll_loss",
                .inputs = {soft},
                .parameters = {},
                .output = "loss",
                .saved = {"labels"},
                .module = module,
                .constants = {"labels"},
                .also_makes = {}});
  tape.backward();
  tape.update("adam", 2);
  return tape.b.build();
}

}  // namespace outsize
