#include "remat/nn/bigbird_layer.h"

#include <ATen/ATen.h>

#include "remat/base/philox.h"
#include "remat/runtime/dropout.h"

namespace remat::nn {
namespace {

// Where a layer drops, as children of its seed: fixed, so that the masks do
// not depend on what else is on.
enum DropoutSite : uint64_t {
  kAttentionProbabilities = 1,
  kAttentionOutput = 2,
  kFeedForwardOutput = 3,
};

}  // namespace

BigBirdLayer::BigBirdLayer(const BigBirdConfig& c, const WeightInit& init)
    : heads(c.num_attention_heads),
      hidden_act(c.hidden_act),
      query(init, c.hidden_size, c.hidden_size, c.use_bias),
      key(init, c.hidden_size, c.hidden_size, c.use_bias),
      value(init, c.hidden_size, c.hidden_size, c.use_bias),
      attention_dense(init, c.hidden_size, c.hidden_size),
      attention_norm(c.hidden_size, c.layer_norm_eps),
      intermediate_dense(init, c.hidden_size, c.intermediate_size),
      output_dense(init, c.intermediate_size, c.hidden_size),
      output_norm(c.hidden_size, c.layer_norm_eps) {}

at::Tensor BigBirdLayer::drop(const at::Tensor& x, const LayerContext& context,
                              uint64_t site) const {
  return stateless_dropout(x, context.hidden_dropout,
                           derive_seed(context.seed, site));
}

at::Tensor BigBirdLayer::attention(const at::Tensor& x,
                                   const LayerContext& context) const {
  const auto split_heads = [&](const at::Tensor& projected) {
    return projected.view({x.size(0), x.size(1), heads, -1});
  };
  const at::Tensor attended =
      attend(split_heads(query(x)), split_heads(key(x)), split_heads(value(x)),
             context.batch, context.layout,
             derive_seed(context.seed, kAttentionProbabilities))
          .view(x.sizes());
  return attention_norm(
      drop(attention_dense(attended), context, kAttentionOutput) + x);
}

at::Tensor BigBirdLayer::feed_forward(const at::Tensor& x,
                                      const LayerContext& context) const {
  const at::Tensor inner = activate(hidden_act, intermediate_dense(x));
  return output_norm(drop(output_dense(inner), context, kFeedForwardOutput) +
                     x);
}

void BigBirdLayer::add_to(NamedParameters& parameters,
                          const std::string& name) const {
  query.add_to(parameters, name + ".attention.self.query");
  key.add_to(parameters, name + ".attention.self.key");
  value.add_to(parameters, name + ".attention.self.value");
  attention_dense.add_to(parameters, name + ".attention.output.dense");
  attention_norm.add_to(parameters, name + ".attention.output.LayerNorm");
  intermediate_dense.add_to(parameters, name + ".intermediate.dense");
  output_dense.add_to(parameters, name + ".output.dense");
  output_norm.add_to(parameters, name + ".output.LayerNorm");
}

}  // namespace remat::nn
