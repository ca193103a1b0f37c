// A layer class of the user's, made one that recomputes, without touching it:
//
//   struct BlockImpl : torch::nn::Module { at::Tensor forward(at::Tensor x); };
//   using Block = torch::nn::ModuleHolder<remat::Recomputing<BlockImpl>>;
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/runtime/checkpoint.h"
#include "remat/runtime/layer_selection.h"

namespace remat {
namespace detail {

// What is recomputed: the layer's own forward, with its buffers.
template <class Layer>
class OwnForward {
 public:
  explicit OwnForward(Layer& layer) : layer_(&layer) {
    if constexpr (requires { layer.weak_from_this().lock(); }) {
      owner_ = layer.weak_from_this().lock();
    }
  }

  template <class... Inputs>
  auto operator()(Inputs&&... inputs) const {
    return layer_->Layer::forward(std::forward<Inputs>(inputs)...);
  }

  // checkpoint() takes a function that has buffers for a module.
  const OwnForward* operator->() const { return this; }
  std::vector<at::Tensor> buffers() const {
    if constexpr (requires { std::vector<at::Tensor>(layer_->buffers()); }) {
      return layer_->buffers();
    } else {
      return {};
    }
  }

 private:
  Layer* layer_;
  // The graph keeps a layer that is owned by shared_ptr alive.
  std::shared_ptr<const void> owner_;
};

}  // namespace detail

// What each Recomputing<Layer> is, to be found in a model. All of it may change
// from step to step.
struct RecomputingLayer {
  bool recompute = true;
  // recompute_every_nth() counts it. False: a part that is no layer of a stack,
  // such as an embedding, which stays as it is.
  bool is_counted = true;
  CheckpointOptions options;
};

// Every Recomputing layer below the module, in the order of registration,
// recomputes if choose(name, layer) says so: its name as in named_modules(),
// and the torch::nn::Module. Returns how many do.
template <class Module, class Choose>
int64_t recompute_where(Module& module, Choose&& choose) {
  int64_t chosen = 0;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<RecomputingLayer*>(item.value().get())) {
      layer->recompute = choose(item.key(), *item.value());
      chosen += layer->recompute ? 1 : 0;
    }
  }
  return chosen;
}

// Hugging Face's every_n_layers: of the Recomputing layers below the module
// that are counted the first recomputes, the (n+1)-st, ...; the others of them
// do not. Returns how many do. Throws UsageError for n < 1.
template <class Module>
int64_t recompute_every_nth(Module& module, int64_t n) {
  every_nth_layer(0, n);
  int64_t counted = 0;
  return recompute_where(module, [&](const std::string&, auto& layer) {
    const auto& recomputing = dynamic_cast<const RecomputingLayer&>(layer);
    return recomputing.is_counted ? counted++ % n == 0 : recomputing.recompute;
  });
}

// Layer's constructors, parameters, names and forward signature; each forward
// is a region unless `recompute` is false. Layer must have one forward, no
// template. A layer that is owned by a shared_ptr, as torch's module holders
// do, lives as long as the graph.
template <class Layer, class Forward = decltype(&Layer::forward)>
class Recomputing;

template <class Layer, class Class, class Result, class... Inputs>
class Recomputing<Layer, Result (Class::*)(Inputs...)>
    : public Layer, public RecomputingLayer {
  static_assert(!std::is_base_of_v<RecomputingLayer, Layer>,
                "the layer recomputes already: twice would cost a further run");
  static_assert(((!std::is_lvalue_reference_v<Inputs> ||
                  std::is_const_v<std::remove_reference_t<Inputs>>)&&...),
                "a recomputing layer gets copies of its inputs: forward must "
                "not take them by non-const reference");

 public:
  using Layer::Layer;

  Result forward(Inputs... inputs) {
    if (!recompute) {
      return Layer::forward(std::forward<Inputs>(inputs)...);
    }
    return checkpoint(options, detail::OwnForward<Layer>(*this),
                      std::forward<Inputs>(inputs)...);
  }
};

// For a forward that is const.
template <class Layer, class Class, class Result, class... Inputs>
class Recomputing<Layer, Result (Class::*)(Inputs...) const>
    : public Recomputing<Layer, Result (Class::*)(Inputs...)> {
 public:
  using Recomputing<Layer, Result (Class::*)(Inputs...)>::Recomputing;

  // Declared here too: torch's containers ask the class itself.
  Result forward(Inputs... inputs) {
    return Recomputing<Layer, Result (Class::*)(Inputs...)>::forward(
        std::forward<Inputs>(inputs)...);
  }
};

}  // namespace remat
