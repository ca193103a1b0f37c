// Chains of layers, run in regions of several layers each.
//
//   std::vector<Block> blocks = ...;
//   auto y = remat::checkpoint_sequential(blocks, 32, x);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/layer_selection.h"

namespace remat {
namespace detail {

// A layer is called as layer(x), layer->forward(x) or layer.forward(x).
template <class Layer>
at::Tensor apply_layer(Layer& layer, const at::Tensor& x) {
  if constexpr (std::is_invocable_v<Layer&, const at::Tensor&>) {
    return layer(x);
  } else if constexpr (requires { layer->forward(x); }) {
    return layer->forward(x);
  } else {
    return layer.forward(x);
  }
}

// Copies of the layers, which for torch's modules are handles.
template <class Layers>
auto layer_list(const Layers& layers) {
  using Layer = std::decay_t<decltype(*std::begin(layers))>;
  return std::vector<Layer>(std::begin(layers), std::end(layers));
}

// Runs layers [begin, end). The buffers of the layers are the region's own.
template <class Layer>
class LayerRun {
 public:
  LayerRun(const std::vector<Layer>& layers, int64_t begin, int64_t end)
      : layers_(layers.begin() + begin, layers.begin() + end) {}

  at::Tensor operator()(const at::Tensor& input) {
    at::Tensor x = input;
    for (Layer& layer : layers_) {
      x = apply_layer(layer, x);
    }
    return x;
  }

  // checkpoint() takes a function that has buffers for a module.
  const LayerRun* operator->() const { return this; }
  std::vector<at::Tensor> buffers() const {
    std::vector<at::Tensor> all;
    for (const Layer& layer : layers_) {
      if constexpr (requires { std::vector<at::Tensor>(layer->buffers()); }) {
        for (at::Tensor& buffer : layer->buffers()) {
          all.push_back(std::move(buffer));
        }
      } else if constexpr (requires { layer.ptr()->buffers(); }) {
        for (at::Tensor& buffer : layer.ptr()->buffers()) {
          all.push_back(std::move(buffer));
        }
      }
    }
    return all;
  }

 private:
  std::vector<Layer> layers_;
};

// Layers [begin, end) by halves: the first half is a region, whose first half
// is one, and so on. The list is shared, as each region would copy it
// otherwise.
template <class Layer>
at::Tensor run_by_halves(const CheckpointOptions& options,
                         std::shared_ptr<const std::vector<Layer>> layers,
                         int64_t begin, int64_t end, const at::Tensor& x) {
  if (end - begin == 1) {
    return checkpoint(options, LayerRun<Layer>(*layers, begin, end), x);
  }
  const int64_t middle = begin + (end - begin) / 2;
  const auto first_half = [options, layers, begin,
                           middle](const at::Tensor& input) {
    return run_by_halves(options, layers, begin, middle, input);
  };
  // One layer is a region of its own already.
  const at::Tensor y =
      middle - begin == 1 ? first_half(x) : checkpoint(options, first_half, x);
  return run_by_halves(options, layers, middle, end, y);
}

}  // namespace detail

// Runs the layers one after the other, in `segments` regions of as many layers
// each (equal_segments()); the last, whose values backward needs first, is no
// region. Memory: an input a segment, and the values of one segment. With
// square_root_segments() that is O(sqrt(layers)), for one more forward.
//
// layers: a range (vector, torch::nn::Sequential, torch::nn::ModuleList) of
// callables, modules or module holders, from tensor to tensor; copied. Throws
// UsageError for segments < 1 or more than there are layers.
template <class Layers>
at::Tensor checkpoint_sequential(const CheckpointOptions& options,
                                 const Layers& layers, int64_t segments,
                                 const at::Tensor& x) {
  auto list = detail::layer_list(layers);
  using Run = detail::LayerRun<typename decltype(list)::value_type>;
  const auto runs = equal_segments(static_cast<int64_t>(list.size()), segments);
  at::Tensor y = x;
  for (size_t i = 0; i + 1 < runs.size(); ++i) {
    y = checkpoint(options, Run(list, runs[i].first, runs[i].second), y);
  }
  return Run(list, runs.back().first, runs.back().second)(y);
}

template <class Layers>
at::Tensor checkpoint_sequential(const Layers& layers, int64_t segments,
                                 const at::Tensor& x) {
  return checkpoint_sequential(CheckpointOptions(), layers, segments, x);
}

// Runs the layers one after the other in regions nested by halves. Memory:
// about log2(layers) inputs and the values of one layer; time: up to
// log2(layers) / 2 further forwards. Throws UsageError without layers.
template <class Layers>
at::Tensor checkpoint_nested(const CheckpointOptions& options,
                             const Layers& layers, const at::Tensor& x) {
  auto list = detail::layer_list(layers);
  equal_segments(static_cast<int64_t>(list.size()), 1);
  const auto end = static_cast<int64_t>(list.size());
  using Layer = typename decltype(list)::value_type;
  return detail::run_by_halves<Layer>(
      options, std::make_shared<const std::vector<Layer>>(std::move(list)), 0,
      end, x);
}

template <class Layers>
at::Tensor checkpoint_nested(const Layers& layers, const at::Tensor& x) {
  return checkpoint_nested(CheckpointOptions(), layers, x);
}

// Runs the layers one after the other, each of the chosen ones
// (every_nth_layer(), listed_layers()) in a region of its own. Throws
// UsageError if `chosen` has another size than `layers`.
template <class Layers>
at::Tensor checkpoint_layers(const CheckpointOptions& options,
                             const Layers& layers,
                             const std::vector<bool>& chosen,
                             const at::Tensor& x) {
  auto list = detail::layer_list(layers);
  using Run = detail::LayerRun<typename decltype(list)::value_type>;
  detail::check_chosen(list.size(), chosen.size());
  at::Tensor y = x;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto begin = static_cast<int64_t>(i);
    Run run(list, begin, begin + 1);
    y = chosen[i] ? checkpoint(options, std::move(run), y) : run(y);
  }
  return y;
}

template <class Layers>
at::Tensor checkpoint_layers(const Layers& layers,
                             const std::vector<bool>& chosen,
                             const at::Tensor& x) {
  return checkpoint_layers(CheckpointOptions(), layers, chosen, x);
}

}  // namespace remat
