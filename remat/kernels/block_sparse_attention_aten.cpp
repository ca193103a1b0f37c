#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "remat/base/error.h"
#include "remat/kernels/block_attention_aten.h"

namespace remat::kernels {
namespace {

constexpr const char* kOperation = "block_sparse_attention";

void check_vector(const char* name, const at::Tensor& vector,
                  const at::Tensor& query) {
  if (!vector.defined()) return;
  if (vector.dim() != 2 || vector.size(0) != query.size(0) ||
      vector.size(1) != query.size(1)) {
    fail_usage(kOperation, name, " has shape ", vector.sizes(),
               ", expected [batch, length] = [", query.size(0), ", ",
               query.size(1), "]");
  }
  if (vector.device() != query.device()) {
    fail_usage(kOperation, name, " is on ", vector.device(), ", query on ",
               query.device());
  }
  if (!vector.is_floating_point()) {
    fail_usage(kOperation, name, " has dtype ", vector.scalar_type(),
               ", expected a floating-point one");
  }
}

bool is_reduced(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

// The dtype in which scores and their softmax are computed.
at::ScalarType score_type(const at::Tensor& query) {
  return is_reduced(query.scalar_type()) ? at::kFloat : query.scalar_type();
}

// Query blocks, of any head, whose lists are equally long.
struct Group {
  std::vector<int64_t> queries;    // head * blocks + block
  std::vector<int64_t> keys;       // as many for each query, same numbering
  std::vector<double> log_counts;  // one for each of keys
};

std::vector<Group> groups_of(const BlockLayout& layout) {
  std::map<int64_t, Group> groups;
  for (int64_t head = 0; head < layout.heads(); ++head) {
    for (int64_t block = 0; block < layout.blocks(); ++block) {
      const auto* begin = layout.begin(head, block);
      const auto* end = layout.end(head, block);
      Group& group = groups[end - begin];
      group.queries.push_back(head * layout.blocks() + block);
      for (const auto* entry = begin; entry != end; ++entry) {
        group.keys.push_back(head * layout.blocks() + entry->key_block);
        group.log_counts.push_back(std::log(entry->count));
      }
    }
  }
  std::vector<Group> result;
  for (auto& item : groups) result.push_back(std::move(item.second));
  return result;
}

// The tensors cut into blocks: [batch, heads * blocks, block_size, head_dim].
class Blocks {
 public:
  Blocks(const at::Tensor& query, const BlockLayout& layout,
         const AttentionOptions& options)
      : layout_(layout),
        length_(query.size(1)),
        padding_(layout.blocks() * layout.block_size() - length_),
        scale_(attention_scale(options, query.size(3))),
        type_(score_type(query)),
        device_(query.device()) {
    bias_ =
        options.key_bias.defined()
            ? options.key_bias.detach().to(type_)
            : at::zeros({query.size(0), length_}, query.options().dtype(type_));
    bias_ = at::constant_pad_nd(bias_, {0, padding_},
                                -std::numeric_limits<double>::infinity())
                .view({query.size(0), layout.blocks(), layout.block_size()});
    if (options.query_scale.defined()) {
      query_scale_ = options.query_scale.detach()
                         .to(query.scalar_type())
                         .view({query.size(0), length_, 1, 1});
    }
  }

  at::Tensor cut(const at::Tensor& tensor) const {
    return at::constant_pad_nd(tensor, {0, 0, 0, 0, 0, padding_})
        .reshape({tensor.size(0), layout_.blocks(), layout_.block_size(),
                  layout_.heads(), tensor.size(3)})
        .permute({0, 3, 1, 2, 4})
        .reshape({tensor.size(0), -1, layout_.block_size(), tensor.size(3)});
  }

  at::Tensor join(const at::Tensor& blocks) const {
    const int64_t batch = blocks.size(0), head_dim = blocks.size(3);
    return blocks
        .view({batch, layout_.heads(), layout_.blocks() * layout_.block_size(),
               head_dim})
        .slice(2, 0, length_)
        .transpose(1, 2)
        .contiguous();
  }

  at::Tensor index(const std::vector<int64_t>& numbers) const {
    return at::tensor(numbers, at::kLong).to(device_);
  }

  // [batch, queries, keys * block_size, head_dim]
  at::Tensor gather_keys(const at::Tensor& blocks, const Group& group) const {
    return blocks.index_select(1, index(group.keys))
        .view({blocks.size(0), static_cast<int64_t>(group.queries.size()), -1,
               blocks.size(3)});
  }

  // softmax of the scores: [batch, queries, block_size, keys * block_size]
  at::Tensor weights(const at::Tensor& queries, const at::Tensor& keys,
                     const Group& group) const {
    const int64_t batch = queries.size(0);
    const int64_t count = group.queries.size();
    std::vector<int64_t> key_blocks = group.keys;
    for (int64_t& block : key_blocks) block %= layout_.blocks();
    const at::Tensor log_counts =
        at::tensor(group.log_counts, at::kDouble).to(device_, type_);
    const at::Tensor bias =
        bias_.index_select(1, index(key_blocks)) + log_counts.view({1, -1, 1});
    const at::Tensor scores =
        at::matmul(queries, keys.transpose(2, 3)).to(type_) * scale_ +
        bias.view({batch, count, 1, -1});
    return at::softmax(scores, -1).to(queries.scalar_type());
  }

  const at::Tensor& query_scale() const { return query_scale_; }
  double scale() const { return scale_; }

 private:
  const BlockLayout& layout_;
  int64_t length_;
  int64_t padding_;
  double scale_;
  at::ScalarType type_;
  at::Device device_;
  at::Tensor bias_;         // [batch, blocks, block_size]
  at::Tensor query_scale_;  // [batch, length, 1, 1] or undefined
};

// Libtorch has no matrix product of halves on every CPU; bfloat16 is slow.
bool computes_in_float(const at::Tensor& query) {
  return query.device().is_cpu() && is_reduced(query.scalar_type());
}

}  // namespace

void check_attention(const at::Tensor& query, const at::Tensor& key,
                     const at::Tensor& value, const BlockLayout& layout,
                     const AttentionOptions& options) {
  const std::pair<const char*, const at::Tensor&> tensors[] = {
      {"query", query}, {"key", key}, {"value", value}};
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined()) fail_usage(kOperation, name, " is undefined");
    if (tensor.dim() != 4 || tensor.numel() == 0) {
      fail_usage(kOperation, name, " has shape ", tensor.sizes(),
                 ", expected [batch, length, heads, head_dim], none of them 0");
    }
    if (!tensor.is_floating_point()) {
      fail_usage(kOperation, name, " has dtype ", tensor.scalar_type(),
                 ", expected a floating-point one");
    }
    if (tensor.sizes() != query.sizes()) {
      fail_usage(kOperation, name, " has shape ", tensor.sizes(),
                 ", query has shape ", query.sizes(),
                 ": they must be the same");
    }
    if (tensor.scalar_type() != query.scalar_type()) {
      fail_usage(kOperation, name, " has dtype ", tensor.scalar_type(),
                 ", query has dtype ", query.scalar_type());
    }
    if (tensor.device() != query.device()) {
      fail_usage(kOperation, name, " is on ", tensor.device(), ", query on ",
                 query.device());
    }
  }
  if (query.size(2) != layout.heads()) {
    fail_usage(kOperation, "query has shape ", query.sizes(), ", that is ",
               query.size(2), " heads; the layout is for ", layout.heads());
  }
  const int64_t length = query.size(1);
  const int64_t most = layout.blocks() * layout.block_size();
  const int64_t too_few = most - layout.block_size();
  if (length > most || length <= too_few) {
    fail_usage(kOperation, "query has length ", length, "; a layout of ",
               layout.blocks(), " blocks of ", layout.block_size(),
               " is for lengths from ", too_few + 1, " to ", most);
  }
  if (!std::isfinite(options.scale)) {
    fail_usage(kOperation, "scale is ", options.scale, ", expected a number");
  }
  check_vector("key_bias", options.key_bias, query);
  check_vector("query_scale", options.query_scale, query);
}

double attention_scale(const AttentionOptions& options, int64_t head_dim) {
  return options.scale != 0.0 ? options.scale
                              : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

at::Tensor block_sparse_attention_aten(const at::Tensor& query,
                                       const at::Tensor& key,
                                       const at::Tensor& value,
                                       const BlockLayout& layout,
                                       const AttentionOptions& options) {
  check_attention(query, key, value, layout, options);
  if (computes_in_float(query)) {
    return block_sparse_attention_aten(query.to(at::kFloat), key.to(at::kFloat),
                                       value.to(at::kFloat), layout, options)
        .to(query.scalar_type());
  }
  const Blocks blocks(query, layout, options);
  const at::Tensor queries = blocks.cut(query);
  const at::Tensor keys = blocks.cut(key);
  const at::Tensor values = blocks.cut(value);
  std::vector<at::Tensor> outputs;
  std::vector<int64_t> place(layout.heads() * layout.blocks());
  int64_t placed = 0;
  for (const Group& group : groups_of(layout)) {
    for (const int64_t block : group.queries) place[block] = placed++;
    const at::Tensor weights =
        blocks.weights(queries.index_select(1, blocks.index(group.queries)),
                       blocks.gather_keys(keys, group), group);
    outputs.push_back(at::matmul(weights, blocks.gather_keys(values, group)));
  }
  const at::Tensor output =
      blocks.join(at::cat(outputs, 1).index_select(1, blocks.index(place)));
  return blocks.query_scale().defined() ? output * blocks.query_scale()
                                        : output;
}

std::array<at::Tensor, 3> block_sparse_attention_gradients_aten(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& output_gradient, const BlockLayout& layout,
    const AttentionOptions& options) {
  const Blocks blocks(query, layout, options);
  const at::Tensor queries = blocks.cut(query);
  const at::Tensor keys = blocks.cut(key);
  const at::Tensor values = blocks.cut(value);
  const at::Tensor gradients = blocks.cut(
      blocks.query_scale().defined() ? output_gradient * blocks.query_scale()
                                     : output_gradient);
  at::Tensor query_gradient = at::zeros_like(queries);
  at::Tensor key_gradient = at::zeros_like(keys);
  at::Tensor value_gradient = at::zeros_like(values);
  for (const Group& group : groups_of(layout)) {
    const at::Tensor query_index = blocks.index(group.queries);
    const at::Tensor key_index = blocks.index(group.keys);
    const at::Tensor some_queries = queries.index_select(1, query_index);
    const at::Tensor some_keys = blocks.gather_keys(keys, group);
    const at::Tensor gradient = gradients.index_select(1, query_index);
    const at::Tensor weights = blocks.weights(some_queries, some_keys, group);
    const at::Tensor slopes =
        at::matmul(gradient, blocks.gather_keys(values, group).transpose(2, 3));
    const at::Tensor score_gradient =
        blocks.scale() * weights *
        (slopes - (slopes * weights).sum(-1, /*keepdim=*/true));
    const auto to_keys = [&](const at::Tensor& gathered) {
      return gathered.reshape(
          {keys.size(0), -1, layout.block_size(), keys.size(3)});
    };
    query_gradient = query_gradient.index_add(
        1, query_index, at::matmul(score_gradient, some_keys));
    key_gradient = key_gradient.index_add(
        1, key_index,
        to_keys(at::matmul(score_gradient.transpose(2, 3), some_queries)));
    value_gradient = value_gradient.index_add(
        1, key_index, to_keys(at::matmul(weights.transpose(2, 3), gradient)));
  }
  return {blocks.join(query_gradient), blocks.join(key_gradient),
          blocks.join(value_gradient)};
}

at::Tensor block_sparse_attention_simulated(const at::Tensor& query,
                                            const at::Tensor& key,
                                            const at::Tensor& value,
                                            const BlockLayout& layout,
                                            const AttentionOptions& options) {
  check_attention(query, key, value, layout, options);
  const int64_t length = query.size(1), size = layout.block_size();
  // How often each query sees each key.
  at::Tensor counts = at::zeros({layout.heads(), length, length}, at::kDouble);
  for (int64_t head = 0; head < layout.heads(); ++head) {
    for (int64_t block = 0; block < layout.blocks(); ++block) {
      for (const auto* entry = layout.begin(head, block);
           entry != layout.end(head, block); ++entry) {
        const int64_t row = block * size, column = entry->key_block * size;
        counts.select(0, head)
            .slice(0, row, std::min(row + size, length))
            .slice(1, column, std::min(column + size, length))
            .fill_(entry->count);
      }
    }
  }
  at::Tensor scores = at::einsum("bqhd,bkhd->bhqk", {query, key}) *
                          attention_scale(options, query.size(3)) +
                      counts.log().to(query.device(), query.scalar_type());
  if (options.key_bias.defined()) {
    scores = scores + options.key_bias.detach()
                          .to(query.scalar_type())
                          .unsqueeze(1)
                          .unsqueeze(1);
  }
  at::Tensor output =
      at::einsum("bhqk,bkhd->bqhd", {at::softmax(scores, -1), value});
  if (options.query_scale.defined()) {
    output = output * options.query_scale.detach()
                          .to(query.scalar_type())
                          .unsqueeze(-1)
                          .unsqueeze(-1);
  }
  return output.contiguous();
}

}  // namespace remat::kernels
