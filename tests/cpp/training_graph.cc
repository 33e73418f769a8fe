#include "training_graph.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/words.h"
#include "unwrap.h"

namespace lowtide {
namespace {

constexpr std::int64_t kRows = 128;
constexpr std::size_t kOpsPerLayer = 19;

// A buffer with the value that shows its newest version.
struct Tensor {
  BufferId buffer;
  ValueId value;
  std::array<std::int64_t, 2> shape;
};

struct Parameter {
  Tensor weight;
  Tensor first_moment;
  Tensor second_moment;
  Tensor gradient;
};

struct Layer {
  std::string name;
  std::int64_t width;
  Parameter scale, up, up_bias, down, down_bias;
  Tensor input, statistics, normed, widened, dropped, mask;
};

class Trainer {
 public:
  Graph train(std::size_t ops) {
    const std::size_t layers = (ops - 3) / kOpsPerLayer;
    Tensor x = resident("batch", Role::input, {kRows, width_of(0)});
    for (std::size_t i = (ops - 3) % kOpsPerLayer; i > 0; --i) {
      module_ = "preprocess";
      x = make("aten::mul", words("preprocess.", i), x.shape, {x});
    }
    layers_.reserve(layers);
    for (std::size_t i = 0; i < layers; ++i) {
      layers_.push_back(new_layer(i));
      x = forward(layers_.back(), x);
    }
    module_ = "loss";
    const Tensor loss = make("aten::mse_loss", "loss", {1, 1}, {x});
    unwrap(builder_.keep(loss.buffer));
    Tensor gradient = make("aten::mse_loss_backward", "loss.gradient", x.shape, {loss, x});
    for (std::size_t i = layers; i-- > 0;) gradient = backward(layers_[i], gradient);
    module_ = "optimizer";
    Tensor step = resident("step", Role::optimizer_state, {1, 1});
    run("aten::add_", {step}, {step.buffer});
    step = show(step.buffer, step.shape);
    for (Layer& layer : layers_) {
      for (Parameter* parameter : {&layer.scale, &layer.up, &layer.up_bias, &layer.down, &layer.down_bias}) {
        update(*parameter, step);
      }
    }
    return unwrap(std::move(builder_).build());
  }

 private:
  using Shape = std::array<std::int64_t, 2>;

  static Bytes bytes(Shape shape) { return Bytes(static_cast<std::uint64_t>(4 * shape[0] * shape[1])); }

  // Wide and narrow stages, some lengths of which are no multiple of the alignment.
  static std::int64_t width_of(std::size_t layer) {
    constexpr std::array<std::int64_t, 5> kWidths = {64, 96, 33, 128, 50};
    return kWidths[layer / 7 % kWidths.size()];
  }

  Tensor show(BufferId buffer, Shape shape) {
    return {buffer, unwrap(builder_.add_value(buffer, "float32", shape)), shape};
  }

  Tensor resident(std::string_view name, Role role, Shape shape) {
    const BufferSpec spec{
        .size = bytes(shape), .residence = Residence::resident, .role = role, .name = name, .initial = true};
    return show(unwrap(builder_.add_buffer(spec)), shape);
  }

  BufferId planned(std::string_view name, Shape shape) {
    const Role role = name.ends_with("gradient") ? Role::gradient : Role::activation;
    return unwrap(builder_.add_buffer({.size = bytes(shape), .role = role, .name = name}));
  }

  static std::vector<ValueId> values(std::initializer_list<Tensor> tensors) {
    std::vector<ValueId> ids;
    for (const Tensor& tensor : tensors) ids.push_back(tensor.value);
    return ids;
  }

  void run(std::string_view op, std::initializer_list<Tensor> reads, std::vector<BufferId> writes) {
    OpSpec spec{.name = op, .reads = values(reads), .writes = std::move(writes), .cost = Nanos(1000)};
    spec.source = module_ == "optimizer" ? "train.py:31" : "model.py:12";
    spec.module = module_;
    if (op == "aten::addmm") spec.workspace = bytes({kRows, 16});
    spec.flags.random = op == "aten::native_dropout";
    spec.flags.mutating = op.ends_with("_");
    unwrap(builder_.add_op(spec));
  }

  Tensor make(std::string_view op, std::string_view name, Shape shape, std::initializer_list<Tensor> reads) {
    const BufferId buffer = planned(name, shape);
    run(op, reads, {buffer});
    return show(buffer, shape);
  }

  std::pair<Tensor, Tensor> make_two(std::string_view op, std::string_view name, Shape shape,
                                     std::string_view second_name, Shape second_shape,
                                     std::initializer_list<Tensor> reads) {
    const BufferId buffer = planned(name, shape);
    const BufferId second = planned(second_name, second_shape);
    run(op, reads, {buffer, second});
    return {show(buffer, shape), show(second, second_shape)};
  }

  Parameter new_parameter(const std::string& name, Shape shape) {
    return {resident(name, Role::parameter, shape),
            resident(name + ".exp_avg", Role::optimizer_state, shape),
            resident(name + ".exp_avg_sq", Role::optimizer_state, shape),
            {}};
  }

  Layer new_layer(std::size_t index) {
    Layer layer;
    layer.name = words("layers.", index);
    layer.width = width_of(index);
    const std::int64_t width = layer.width;
    layer.scale = new_parameter(layer.name + ".scale", {1, width});
    layer.up = new_parameter(layer.name + ".up", {width, 2 * width});
    layer.up_bias = new_parameter(layer.name + ".up.bias", {1, 2 * width});
    layer.down = new_parameter(layer.name + ".down", {2 * width, width});
    layer.down_bias = new_parameter(layer.name + ".down.bias", {1, width});
    return layer;
  }

  Tensor forward(Layer& layer, Tensor x) {
    const std::string& name = layer.name;
    const Shape narrow = {kRows, layer.width};
    const Shape wide = {kRows, 2 * layer.width};
    module_ = name;
    layer.input = x;
    std::tie(layer.normed, layer.statistics) = make_two("aten::native_norm", name + ".normed", narrow,
                                                        name + ".statistics", {kRows, 1}, {x, layer.scale.weight});
    layer.widened = make("aten::addmm", name + ".widened", wide, {layer.normed, layer.up.weight, layer.up_bias.weight});
    const Tensor bent = make("aten::gelu", name + ".bent", wide, {layer.widened});
    std::tie(layer.dropped, layer.mask) =
        make_two("aten::native_dropout", name + ".dropped", wide, name + ".mask", {kRows, layer.width / 2}, {bent});
    const Tensor narrowed =
        make("aten::addmm", name + ".narrowed", narrow, {layer.dropped, layer.down.weight, layer.down_bias.weight});
    return make("aten::add", name + ".output", narrow, {x, narrowed});
  }

  Tensor backward(Layer& layer, Tensor gradient) {
    const std::string& name = layer.name;
    const Shape wide = {kRows, 2 * layer.width};
    module_ = name;
    const Tensor dropped = make("aten::mm", name + ".dropped.gradient", wide, {gradient, layer.down.weight});
    std::tie(layer.down.gradient, layer.down_bias.gradient) =
        make_two("aten::linear_backward", name + ".down.gradient", layer.down.weight.shape,
                 name + ".down.bias.gradient", layer.down_bias.weight.shape, {gradient, layer.dropped});
    const Tensor bent = make("aten::native_dropout_backward", name + ".bent.gradient", wide, {dropped, layer.mask});
    const Tensor widened = make("aten::gelu_backward", name + ".widened.gradient", wide, {bent, layer.widened});
    const Tensor normed = make("aten::mm", name + ".normed.gradient", layer.normed.shape, {widened, layer.up.weight});
    std::tie(layer.up.gradient, layer.up_bias.gradient) =
        make_two("aten::linear_backward", name + ".up.gradient", layer.up.weight.shape, name + ".up.bias.gradient",
                 layer.up_bias.weight.shape, {widened, layer.normed});
    Tensor input;
    std::tie(input, layer.scale.gradient) =
        make_two("aten::native_norm_backward", name + ".input.gradient", layer.input.shape, name + ".scale.gradient",
                 layer.scale.weight.shape, {normed, layer.input, layer.statistics, layer.scale.weight});
    run("aten::add_", {input, gradient}, {input.buffer});
    return show(input.buffer, input.shape);
  }

  void update(const Parameter& parameter, const Tensor& step) {
    const Tensor& weight = parameter.weight;
    const Tensor& first = parameter.first_moment;
    const Tensor& second = parameter.second_moment;
    run("aten::adam_", {weight, parameter.gradient, first, second, step}, {weight.buffer, first.buffer, second.buffer});
  }

  GraphBuilder builder_;
  std::vector<Layer> layers_;
  std::string module_;
};

}  // namespace

Graph training_graph(std::size_t ops) {
  return Trainer().train(ops);
}

}  // namespace lowtide
