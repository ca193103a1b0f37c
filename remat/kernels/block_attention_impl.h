// Block-sparse attention for one width of vectors; included by the source of
// each instruction set. See simd.h about linkage.
//
// Scores are kept transposed, keys x queries: a vector holds the scores of
// several queries, so that softmax over keys needs no sum across lanes, and
// keys and values are used as they lie, one broadcast element at a time.
#pragma once

#include "remat/kernels/block_attention_keys.h"
#include "remat/kernels/simd.h"

namespace remat::kernels {
namespace {

template <class T, int Lanes>
struct BlockAttention {
  using Lane = Simd<T, Lanes>;
  using Vector = typename Lane::Vector;
  using Multiply = Product<T, Lanes>;
  using Keys = KeyTile<T, Lanes>;
  static constexpr int kPanel = Multiply::kPanel;

  // Transposes the rows of a tile, times factor; zeros fill the padding.
  static void transpose(const AttentionTensor<T>& tensor,
                        const AttentionProblem<T>& problem,
                        const AttentionTile& tile, T factor, T* target) {
    const int64_t columns = padded(tile.count);
    for (int64_t column = 0; column < tile.count; ++column) {
      const T* row = row_of(tensor, tile.batch, tile.first + column, tile.head);
      for (int64_t i = 0; i < problem.head_dim; ++i) {
        target[i * columns + column] = factor * row[i * tensor.element];
      }
    }
    for (int64_t i = 0; i < problem.head_dim; ++i) {
      for (int64_t column = tile.count; column < columns; ++column) {
        target[i * columns + column] = T{0};
      }
    }
  }

  static void forward(const AttentionProblem<T>& problem,
                      const AttentionResult<T>& result,
                      const AttentionTile& queries, T* scratch) {
    Arena<T> arena{scratch};
    const int64_t columns = padded(queries.count);
    const int64_t head_dim = problem.head_dim;
    T* query = arena.take(head_dim * columns);
    T* output = arena.take(head_dim * columns);
    T* scores = arena.take(kAttentionTile * columns);
    T* maximum = arena.take(columns);
    T* sum = arena.take(columns);
    Keys keys(problem, arena);

    transpose(problem.query, problem, queries, problem.scale, query);
    for (int64_t column = 0; column < columns; ++column) {
      // Not infinity: a row of scores that are all -infinity gives NaN through
      // 0 / 0, as it does in ATen, and any other row is left alone.
      maximum[column] = lowest();
      sum[column] = T{0};
    }
    bool first = true;
    for (KeyWalk<T, Lanes> walk(problem, queries); walk.next(keys);
         first = false) {
      Multiply::template run<false>(keys.keys, head_dim, query, columns, scores,
                                    columns, keys.rows, columns, head_dim,
                                    false);
      for (int64_t column = 0; column < columns; column += kPanel) {
        softmax_panel(keys, scores + column, columns, maximum + column,
                      sum + column, output + column, first ? 0 : head_dim);
      }
      Multiply::template run<true>(keys.values, head_dim, scores, columns,
                                   output, columns, head_dim, columns,
                                   keys.rows, !first);
    }
    write_forward(problem, result, queries, output, maximum, sum);
  }

  // Scores of a panel of queries to exp(score - running maximum), in place;
  // multiplies the sums and rows of output so far by what that maximum demands.
  static void softmax_panel(const Keys& keys, T* scores, int64_t columns,
                            T* maximum, T* sum, T* output, int64_t rows) {
    const Vector before[2] = {Lane::load(maximum), Lane::load(maximum + Lanes)};
    Vector now[2] = {before[0], before[1]};
    for (int64_t row = 0; row < keys.rows; ++row) {
      const T* score = scores + row * columns;
      now[0] = Lane::larger(Lane::load(score) + keys.bias[row], now[0]);
      now[1] = Lane::larger(Lane::load(score + Lanes) + keys.bias[row], now[1]);
    }
    const Vector factor[2] = {Lane::exp(before[0] - now[0]),
                              Lane::exp(before[1] - now[1])};
    Vector total[2] = {Lane::load(sum) * factor[0],
                       Lane::load(sum + Lanes) * factor[1]};
    for (int64_t row = 0; row < keys.rows; ++row) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        T* score = scores + row * columns + half * Lanes;
        const Vector weight =
            Lane::exp((Lane::load(score) + keys.bias[row]) - now[half]);
        Lane::store(score, weight);
        total[half] += weight;
      }
    }
    for (int half = 0; half < 2; ++half) {
      Lane::store(maximum + half * Lanes, now[half]);
      Lane::store(sum + half * Lanes, total[half]);
    }
    for (int64_t row = 0; row < rows; ++row) {
      T* element = output + row * columns;
      Lane::store(element, Lane::load(element) * factor[0]);
      Lane::store(element + Lanes, Lane::load(element + Lanes) * factor[1]);
    }
  }

  static void write_forward(const AttentionProblem<T>& problem,
                            const AttentionResult<T>& result,
                            const AttentionTile& queries, const T* output,
                            const T* maximum, const T* sum) {
    const int64_t columns = padded(queries.count);
    for (int64_t column = 0; column < queries.count; ++column) {
      const int64_t position = queries.first + column;
      T factor = T{1} / sum[column];
      if (problem.query_scale != nullptr) {
        factor *=
            problem.query_scale[queries.batch * problem.length + position];
      }
      T* row = result.output + offset_of(problem, queries, position);
      for (int64_t i = 0; i < problem.head_dim; ++i) {
        row[i] = output[i * columns + column] * factor;
      }
      const int64_t statistic =
          (queries.batch * problem.heads + queries.head) * problem.length +
          position;
      result.maximum[statistic] = maximum[column];
      result.sum[statistic] = sum[column];
    }
  }

  // Of a position in a contiguous [batch, length, heads, head_dim].
  static int64_t offset_of(const AttentionProblem<T>& problem,
                           const AttentionTile& tile, int64_t position) {
    return ((tile.batch * problem.length + position) * problem.heads +
            tile.head) *
           problem.head_dim;
  }

  static constexpr T lowest() {
    return sizeof(T) == sizeof(float) ? static_cast<T>(-__FLT_MAX__)
                                      : static_cast<T>(-__DBL_MAX__);
  }

  // What backward needs of a tile of queries, both ways up.
  struct QueryTile {
    QueryTile(const AttentionProblem<T>& problem, Arena<T>& arena)
        : width(padded(problem.head_dim)),
          query(arena.take(kAttentionTile * problem.head_dim)),
          gradient(arena.take(kAttentionTile * problem.head_dim)),
          query_rows(arena.take(kAttentionTile * width)),
          gradient_rows(arena.take(kAttentionTile * width)),
          maximum(arena.take(kAttentionTile)),
          reciprocal(arena.take(kAttentionTile)),
          delta(arena.take(kAttentionTile)),
          weights(arena.take(kAttentionTile * kAttentionTile)),
          slopes(arena.take(kAttentionTile * kAttentionTile)) {}

    void fill(const AttentionProblem<T>& problem,
              const AttentionResult<T>& result,
              const AttentionGradients<T>& gradients,
              const AttentionTile& tile) {
      count = tile.count;
      columns = padded(count);
      const int64_t head_dim = problem.head_dim;
      const T* scale =
          problem.query_scale == nullptr
              ? nullptr
              : problem.query_scale + tile.batch * problem.length + tile.first;
      for (int64_t row = 0; row < count; ++row) {
        const int64_t position = tile.first + row;
        T* query_row = query_rows + row * width;
        T* gradient_row = gradient_rows + row * width;
        fill_row(problem.query, problem, tile, position, query_row);
        fill_row(gradients.output, problem, tile, position, gradient_row);
        // The output was multiplied by the query's scale already.
        delta[row] =
            dot(gradient_row,
                result.output + offset_of(problem, tile, position), head_dim);
        for (int64_t i = 0; i < head_dim; ++i) query_row[i] *= problem.scale;
        if (scale != nullptr) {
          for (int64_t i = 0; i < head_dim; ++i) gradient_row[i] *= scale[row];
        }
        const int64_t statistic =
            (tile.batch * problem.heads + tile.head) * problem.length +
            position;
        maximum[row] = result.maximum[statistic];
        reciprocal[row] = T{1} / result.sum[statistic];
      }
      for (int64_t row = count; row < columns; ++row) {
        maximum[row] = reciprocal[row] = delta[row] = T{0};
      }
      turn(query_rows, head_dim, query);
      turn(gradient_rows, head_dim, gradient);
    }

    static void fill_row(const AttentionTensor<T>& tensor,
                         const AttentionProblem<T>& problem,
                         const AttentionTile& tile, int64_t position,
                         T* target) {
      copy_row<T, Lanes>(row_of(tensor, tile.batch, position, tile.head),
                         tensor.element, problem.head_dim, target);
      for (int64_t i = problem.head_dim; i < padded(problem.head_dim); ++i) {
        target[i] = T{0};
      }
    }

    static T dot(const T* a, const T* b, int64_t size) {
      Vector lanes{};
      int64_t i = 0;
      for (; i + Lanes <= size; i += Lanes) {
        lanes += Lane::load(a + i) * Lane::load(b + i);
      }
      T sum{0};
      for (int lane = 0; lane < Lanes; ++lane) sum += lanes[lane];
      for (; i < size; ++i) sum += a[i] * b[i];
      return sum;
    }

    void turn(const T* rows, int64_t head_dim, T* target) const {
      for (int64_t i = 0; i < head_dim; ++i) {
        for (int64_t row = 0; row < count; ++row) {
          target[i * columns + row] = rows[row * width + i];
        }
        for (int64_t row = count; row < columns; ++row) {
          target[i * columns + row] = T{0};
        }
      }
    }

    // The softmax of the keys' scores, and the gradient of the scores.
    void recompute(const Keys& keys, int64_t head_dim) {
      Multiply::template run<false>(keys.keys, head_dim, query, columns,
                                    weights, columns, keys.rows, columns,
                                    head_dim, false);
      Multiply::template run<false>(keys.values, head_dim, gradient, columns,
                                    slopes, columns, keys.rows, columns,
                                    head_dim, false);
      for (int64_t column = 0; column < columns; column += kPanel) {
        const Vector most[2] = {Lane::load(maximum + column),
                                Lane::load(maximum + column + Lanes)};
        const Vector factor[2] = {Lane::load(reciprocal + column),
                                  Lane::load(reciprocal + column + Lanes)};
        const Vector mean[2] = {Lane::load(delta + column),
                                Lane::load(delta + column + Lanes)};
        for (int64_t row = 0; row < keys.rows; ++row) {
#pragma GCC unroll 2
          for (int half = 0; half < 2; ++half) {
            const int64_t place = row * columns + column + half * Lanes;
            const Vector score = Lane::load(weights + place) + keys.bias[row];
            const Vector share = Lane::exp(score - most[half]) * factor[half];
            Lane::store(weights + place, share);
            Lane::store(slopes + place,
                        share * (Lane::load(slopes + place) - mean[half]));
          }
        }
      }
    }

    // Adds what these queries give to the gradients of one run of keys.
    void add_to_keys(int64_t row, int64_t rows, T* key, T* value) const {
      Multiply::template run<false>(weights + row * columns, columns,
                                    gradient_rows, width, value, width, rows,
                                    width, count, true);
      Multiply::template run<false>(slopes + row * columns, columns, query_rows,
                                    width, key, width, rows, width, count,
                                    true);
    }

    // Adds what these keys give to the gradient of the queries.
    void add_to_queries(const Keys& keys, int64_t head_dim, T* target,
                        bool accumulate) const {
      Multiply::template run<true>(keys.keys, head_dim, slopes, columns, target,
                                   columns, head_dim, columns, keys.rows,
                                   accumulate);
    }

    int64_t width;
    int64_t count = 0;
    int64_t columns = 0;
    T* query;     // head_dim x columns, times the scale of the scores
    T* gradient;  // head_dim x columns, times the query's scale
    T* query_rows;
    T* gradient_rows;
    T* maximum;
    T* reciprocal;
    T* delta;
    T* weights;
    T* slopes;
  };

  // key_gradient and value_gradient: length x padded head_dim, or null.
  static void backward_tile(const AttentionProblem<T>& problem,
                            const AttentionGradients<T>& gradients,
                            const AttentionTile& tile, QueryTile& queries,
                            Keys& keys, T* query_gradient, T* key_gradient,
                            T* value_gradient) {
    const int64_t head_dim = problem.head_dim;
    bool first = true;
    for (KeyWalk<T, Lanes> walk(problem, tile); walk.next(keys);
         first = false) {
      queries.recompute(keys, head_dim);
      queries.add_to_queries(keys, head_dim, query_gradient, !first);
      if (key_gradient == nullptr) continue;
      for (int64_t i = 0; i < keys.runs; ++i) {
        const auto& run = keys.run[i];
        queries.add_to_keys(run.row, run.count,
                            key_gradient + run.first * queries.width,
                            value_gradient + run.first * queries.width);
      }
    }
    for (int64_t column = 0; column < tile.count; ++column) {
      T* row = gradients.query + offset_of(problem, tile, tile.first + column);
      for (int64_t i = 0; i < head_dim; ++i) {
        row[i] = query_gradient[i * queries.columns + column] * problem.scale;
      }
    }
  }

  static void write_rows(const AttentionProblem<T>& problem,
                         const AttentionTile& tile, int64_t first,
                         int64_t count, const T* source, T* target) {
    const int64_t width = padded(problem.head_dim);
    for (int64_t i = 0; i < count; ++i) {
      __builtin_memcpy(target + offset_of(problem, tile, first + i),
                       source + i * width, sizeof(T) * problem.head_dim);
    }
  }

  static void backward(const AttentionProblem<T>& problem,
                       const AttentionResult<T>& result,
                       const AttentionGradients<T>& gradients,
                       const AttentionTile* tiles, int64_t tile_count,
                       T* scratch) {
    Arena<T> arena{scratch};
    QueryTile queries(problem, arena);
    Keys keys(problem, arena);
    T* query_gradient = arena.take(kAttentionTile * problem.head_dim);
    const int64_t size = problem.length * queries.width;
    T* key_gradient = arena.take(size);
    T* value_gradient = arena.take(size);
    __builtin_memset(key_gradient, 0, sizeof(T) * size);
    __builtin_memset(value_gradient, 0, sizeof(T) * size);
    for (int64_t i = 0; i < tile_count; ++i) {
      queries.fill(problem, result, gradients, tiles[i]);
      backward_tile(problem, gradients, tiles[i], queries, keys, query_gradient,
                    key_gradient, value_gradient);
    }
    write_rows(problem, tiles[0], 0, problem.length, key_gradient,
               gradients.key);
    write_rows(problem, tiles[0], 0, problem.length, value_gradient,
               gradients.value);
  }

  static void backward_queries(const AttentionProblem<T>& problem,
                               const AttentionResult<T>& result,
                               const AttentionGradients<T>& gradients,
                               const AttentionTile& tile, T* scratch) {
    Arena<T> arena{scratch};
    QueryTile queries(problem, arena);
    Keys keys(problem, arena);
    T* query_gradient = arena.take(kAttentionTile * problem.head_dim);
    queries.fill(problem, result, gradients, tile);
    backward_tile(problem, gradients, tile, queries, keys, query_gradient,
                  nullptr, nullptr);
  }

  static void backward_keys(const AttentionProblem<T>& problem,
                            const AttentionResult<T>& result,
                            const AttentionGradients<T>& gradients,
                            const AttentionTile& tile,
                            const AttentionTile* tiles, int64_t tile_count,
                            T* scratch) {
    Arena<T> arena{scratch};
    QueryTile queries(problem, arena);
    Keys keys(problem, arena);
    const int64_t size = kAttentionTile * queries.width;
    T* key_gradient = arena.take(size);
    T* value_gradient = arena.take(size);
    __builtin_memset(key_gradient, 0, sizeof(T) * size);
    __builtin_memset(value_gradient, 0, sizeof(T) * size);
    int32_t gathered = 0;  // the multiplicity that the bias of keys stands for
    for (int64_t i = 0; i < tile_count; ++i) {
      const int32_t multiplicity =
          problem.layout->count(tile.head, tiles[i].block, tile.block);
      if (multiplicity == 0) continue;
      if (multiplicity != gathered) {
        keys.clear();
        keys.add(tile.batch, tile.head, tile.first, tile.count, multiplicity);
        gathered = multiplicity;
      }
      queries.fill(problem, result, gradients, tiles[i]);
      queries.recompute(keys, problem.head_dim);
      queries.add_to_keys(0, keys.rows, key_gradient, value_gradient);
    }
    write_rows(problem, tile, tile.first, tile.count, key_gradient,
               gradients.key);
    write_rows(problem, tile, tile.first, tile.count, value_gradient,
               gradients.value);
  }

  static constexpr AttentionKernels<T> kKernels{
      forward, backward, backward_queries, backward_keys};
};

}  // namespace
}  // namespace remat::kernels
