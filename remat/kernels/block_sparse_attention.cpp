#include "remat/kernels/block_sparse_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "remat/base/error.h"
#include "remat/kernels/block_attention_aten.h"
#include "remat/kernels/block_attention_kernel.h"
#include "remat/kernels/parallel.h"

namespace remat::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The output, and what backward needs beside it and the inputs.
struct Forward {
  at::Tensor output;
  at::Tensor statistics;  // [2, batch, heads, length]: maximum, sum
};

template <class T>
AttentionTensor<T> view_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), tensor.stride(0), tensor.stride(1),
          tensor.stride(2), tensor.stride(3)};
}

template <class T>
AttentionProblem<T> problem_of(const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value,
                               const BlockLayout& layout,
                               const AttentionOptions& options) {
  const auto data = [](const at::Tensor& vector) -> const T* {
    return vector.defined() ? vector.data_ptr<T>() : nullptr;
  };
  return {&layout,
          query.size(0),
          query.size(1),
          query.size(2),
          query.size(3),
          static_cast<T>(attention_scale(options, query.size(3))),
          view_of<T>(query),
          view_of<T>(key),
          view_of<T>(value),
          data(options.key_bias),
          data(options.query_scale)};
}

template <class T>
AttentionResult<T> result_of(const Forward& forward) {
  T* statistics = forward.statistics.data_ptr<T>();
  return {forward.output.data_ptr<T>(), statistics,
          statistics + forward.statistics.numel() / 2};
}

// All tiles of all heads: those of a head stand together, in order.
template <class T>
std::vector<AttentionTile> tiles_of(const AttentionProblem<T>& problem) {
  std::vector<AttentionTile> tiles;
  const int64_t block_size = problem.layout->block_size();
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      for (int64_t block = 0; block < problem.layout->blocks(); ++block) {
        const int64_t end = std::min((block + 1) * block_size, problem.length);
        for (int64_t first = block * block_size; first < end;
             first += kAttentionTile) {
          tiles.push_back({batch, head, block, first,
                           std::min(kAttentionTile, end - first)});
        }
      }
    }
  }
  return tiles;
}

// Runs body(task, scratch) for every task, on all threads, each taking the next
// one when it is free: tasks differ in size by as much as the length. Scratch
// is a tensor, so that it is counted, limited and used again as all others are;
// the C library would keep as much of it as threads happened to meet.
template <class T, class Body>
void for_each_task(int64_t tasks, int64_t scratch_elements, const Body& body) {
  constexpr int64_t kCacheLine = 64 / sizeof(T);
  const int64_t stride =
      (scratch_elements + kCacheLine - 1) / kCacheLine * kCacheLine;
  const int64_t workers = std::min<int64_t>(tasks, at::get_num_threads());
  const at::Tensor scratch =
      at::empty({workers, stride}, c10::CppTypeToScalarType<T>::value);
  T* const first = scratch.data_ptr<T>();
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t worker, int64_t) {
    for (int64_t task = next++; task < tasks; task = next++) {
      body(task, first + worker * stride);
    }
  });
}

// How much there is to do for a tile of queries.
struct ListLength {
  const BlockLayout& layout;
  int64_t operator()(const AttentionTile& tile) const {
    return layout.end(tile.head, tile.block) -
           layout.begin(tile.head, tile.block);
  }
};

// The largest tasks first, so that none of them is what all wait for. The rest
// keep their order: neighbours share keys, which the caches then hold.
template <class Cost>
std::vector<AttentionTile> large_first(std::vector<AttentionTile> tiles,
                                       const Cost& cost) {
  int64_t total = 0;
  for (const AttentionTile& tile : tiles) total += cost(tile);
  const int64_t large = 2 * total / static_cast<int64_t>(tiles.size());
  std::stable_partition(
      tiles.begin(), tiles.end(),
      [&](const AttentionTile& tile) { return cost(tile) > large; });
  return tiles;
}

template <class T>
Forward forward_kernel(const at::Tensor& query, const at::Tensor& key,
                       const at::Tensor& value, const BlockLayout& layout,
                       const AttentionOptions& options) {
  Forward forward{at::empty(query.sizes(), query.options()),
                  at::empty({2, query.size(0), query.size(2), query.size(1)},
                            query.options())};
  const auto problem = problem_of<T>(query, key, value, layout, options);
  const auto result = result_of<T>(forward);
  const auto tiles = large_first(tiles_of(problem), ListLength{layout});
  const auto& kernels = attention_kernels<T>();
  for_each_task<T>(tiles.size(),
                   attention_scratch(problem.head_dim, kAttentionTile),
                   [&](int64_t task, T* scratch) {
                     kernels.forward(problem, result, tiles[task], scratch);
                   });
  return forward;
}

// Whether two passes, which compute the scores twice but have many tasks, are
// faster than one task a head: 7 matrix products instead of 5.
bool prefers_two_passes(int64_t heads) {
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads > 7 * heads;
}

template <class T>
variable_list backward_kernel(const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const Forward& forward,
                              const at::Tensor& output_gradient,
                              const BlockLayout& layout,
                              const AttentionOptions& options) {
  const variable_list gradients = {at::empty(query.sizes(), query.options()),
                                   at::empty(key.sizes(), key.options()),
                                   at::empty(value.sizes(), value.options())};
  const auto problem = problem_of<T>(query, key, value, layout, options);
  const auto result = result_of<T>(forward);
  const AttentionGradients<T> targets{
      view_of<T>(output_gradient), gradients[0].data_ptr<T>(),
      gradients[1].data_ptr<T>(), gradients[2].data_ptr<T>()};
  const auto& kernels = attention_kernels<T>();
  const auto tiles = tiles_of(problem);
  const int64_t heads = problem.batch * problem.heads;
  const int64_t per_head = static_cast<int64_t>(tiles.size()) / heads;
  if (!prefers_two_passes(heads)) {
    for_each_task<T>(heads, attention_scratch(problem.head_dim, problem.length),
                     [&](int64_t head, T* scratch) {
                       kernels.backward(problem, result, targets,
                                        tiles.data() + head * per_head,
                                        per_head, scratch);
                     });
    return gradients;
  }
  const auto queries = large_first(tiles, ListLength{layout});
  std::vector<int64_t> seen(layout.heads() * layout.blocks());
  for (int64_t head = 0; head < layout.heads(); ++head) {
    for (const auto* entry = layout.begin(head, 0);
         entry != layout.end(head, layout.blocks() - 1); ++entry) {
      ++seen[head * layout.blocks() + entry->key_block];
    }
  }
  const auto keys = large_first(tiles, [&](const AttentionTile& tile) {
    return seen[tile.head * layout.blocks() + tile.block];
  });
  const int64_t scratch_elements =
      attention_scratch(problem.head_dim, kAttentionTile);
  for_each_task<T>(keys.size(), scratch_elements, [&](int64_t i, T* scratch) {
    const AttentionTile& tile = keys[i];
    const int64_t head = tile.batch * problem.heads + tile.head;
    kernels.backward_keys(problem, result, targets, tile,
                          tiles.data() + head * per_head, per_head, scratch);
  });
  for_each_task<T>(
      queries.size(), scratch_elements, [&](int64_t i, T* scratch) {
        kernels.backward_queries(problem, result, targets, queries[i], scratch);
      });
  return gradients;
}

// A layout in the saved data of a node.
struct LayoutHolder : torch::CustomClassHolder {
  explicit LayoutHolder(std::shared_ptr<const BlockLayout> layout)
      : layout(std::move(layout)) {}
  std::shared_ptr<const BlockLayout> layout;
};

struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const std::shared_ptr<const BlockLayout>& layout,
                            const AttentionOptions& options) {
    const Forward forward =
        query.scalar_type() == at::kFloat
            ? forward_kernel<float>(query, key, value, *layout, options)
            : forward_kernel<double>(query, key, value, *layout, options);
    context->save_for_backward({query, key, value, forward.output,
                                forward.statistics, options.key_bias,
                                options.query_scale});
    context->saved_data["scale"] = options.scale;
    context->saved_data["layout"] =
        c10::IValue::make_capsule(c10::make_intrusive<LayoutHolder>(layout));
    return forward.output;
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &value = saved[2];
    AttentionOptions options;
    options.scale = context->saved_data["scale"].toDouble();
    options.key_bias = saved[5];
    options.query_scale = saved[6];
    const auto holder = c10::static_intrusive_pointer_cast<LayoutHolder>(
        context->saved_data["layout"].toCapsule());
    variable_list gradients;
    if (at::GradMode::is_enabled()) {
      // Someone will differentiate the gradients.
      const auto differentiable = block_sparse_attention_gradients_aten(
          query, key, value, output_gradients[0], *holder->layout, options);
      gradients.assign(differentiable.begin(), differentiable.end());
    } else {
      const Forward forward{saved[3].contiguous(), saved[4].contiguous()};
      const auto run = query.scalar_type() == at::kFloat
                           ? backward_kernel<float>
                           : backward_kernel<double>;
      gradients = run(query, key, value, forward, output_gradients[0],
                      *holder->layout, options);
    }
    gradients.resize(5);  // none for the layout and the options
    return gradients;
  }
};

}  // namespace

at::Tensor block_sparse_attention(const at::Tensor& query,
                                  const at::Tensor& key,
                                  const at::Tensor& value,
                                  std::shared_ptr<const BlockLayout> layout,
                                  const AttentionOptions& options) {
  if (layout == nullptr) {
    fail_usage("block_sparse_attention", "there is no layout");
  }
  check_attention(query, key, value, *layout, options);
  const at::ScalarType type = query.scalar_type();
  if (!query.device().is_cpu() || (type != at::kFloat && type != at::kDouble)) {
    return block_sparse_attention_aten(query, key, value, *layout, options);
  }
  const auto plain = [&](const at::Tensor& vector) {
    return vector.defined() ? vector.detach().to(type).contiguous() : vector;
  };
  return Attention::apply(
      query, key, value, layout,
      AttentionOptions{options.scale, plain(options.key_bias),
                       plain(options.query_scale)});
}

}  // namespace remat::kernels
