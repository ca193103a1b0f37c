// Vectors of the compiler's own (GCC and Clang), for kernels that are compiled
// once for each instruction set.
//
// Everything has internal linkage on purpose: a function of a source compiled
// for AVX2 must never be the one that the linker keeps for the others. For the
// same reason these sources use no templates of the standard library.
#pragma once

#include <cstdint>

namespace remat::kernels {
namespace {

template <class T, int Lanes>
struct Simd {
  typedef T Vector __attribute__((vector_size(sizeof(T) * Lanes)));

  static Vector load(const T* source) {
    Vector vector;
    __builtin_memcpy(&vector, source, sizeof(vector));
    return vector;
  }
  static void store(T* target, Vector vector) {
    __builtin_memcpy(target, &vector, sizeof(vector));
  }
  static Vector broadcast(T value) { return value - Vector{}; }
  static Vector larger(Vector a, Vector b) { return a > b ? a : b; }

  // exp of each lane, x up to 88; NaN stays NaN. float: to two units in the
  // last place, and 0 where the result is below the least normal number.
  static Vector exp(Vector x) {
    if constexpr (sizeof(T) == sizeof(float)) {
      return exp_float(x);
    } else {
      for (int lane = 0; lane < Lanes; ++lane) x[lane] = __builtin_exp(x[lane]);
      return x;
    }
  }

 private:
  static Vector exp_float(Vector x) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(float) * Lanes)));
    constexpr float kLeast = -87.3365448f;  // log of the least normal number
    constexpr float kMost = 88.3762589f;
    // Adding it moves the integer part to the low bits of the mantissa.
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
    const Vector least = broadcast(kLeast), most = broadcast(kMost);
    Vector inside = x < least ? least : x;
    inside = inside > most ? most : inside;
    const Vector shifted = inside * 1.44269504f + kRound;
    const Vector whole = shifted - kRound;
    // log 2 = 355 / 512 - ..., so that whole times the first part is exact.
    const Vector rest =
        (inside - whole * 0.693359375f) + whole * 2.12194440e-4f;
    // (exp(r) - 1 - r) / r^2, interpolated at the Chebyshev nodes of
    // |r| <= log(2) / 2.
    Vector series = rest * 1.98910307e-4f + 1.39336859e-3f;
    series = series * rest + 8.33331089e-3f;
    series = series * rest + 4.16664646e-2f;
    series = series * rest + 1.66666667e-1f;
    series = series * rest + 5.00000001e-1f;
    const Vector mantissa = (series * (rest * rest) + rest) + 1.0f;
    const Bits exponent = ((Bits)shifted << 23) + (127u << 23);
    const Vector result = mantissa * (Vector)exponent;
    return x < least ? Vector{} : result;
  }
};

// Elements that every kernel's rows are padded to: a multiple of each Panel.
constexpr int64_t kPaddedTo = 16;

// Small matrix products out of registers: c (rows x columns) (+)= a b, with a
// rows x depth, or depth x rows where Transposed. columns: a multiple of two
// vectors. Each element is a sum in order of depth, whatever the tile, so that
// two kernels that cut the same product differently get the same bits.
template <class T, int Lanes>
struct Product {
  using Lane = Simd<T, Lanes>;
  using Vector = typename Lane::Vector;
  static constexpr int kRows = 6;
  static constexpr int kPanel = 2 * Lanes;

  template <bool Transposed>
  static void run(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                  T* c, int64_t c_stride, int64_t rows, int64_t columns,
                  int64_t depth, bool accumulate) {
    for (int64_t row = 0; row < rows; row += kRows) {
      const Strip strip = accumulate ? strip_of<Transposed, true>(rows - row)
                                     : strip_of<Transposed, false>(rows - row);
      strip(a + (Transposed ? row : row * a_stride), a_stride, b, b_stride,
            c + row * c_stride, c_stride, columns, depth);
    }
  }

 private:
  // A few rows of c, all columns.
  using Strip = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t,
                         int64_t, int64_t);

  template <bool Transposed, bool Accumulate>
  static Strip strip_of(int64_t rows) {
    switch (rows) {
      case 1:
        return strip<1, Transposed, Accumulate>;
      case 2:
        return strip<2, Transposed, Accumulate>;
      case 3:
        return strip<3, Transposed, Accumulate>;
      case 4:
        return strip<4, Transposed, Accumulate>;
      case 5:
        return strip<5, Transposed, Accumulate>;
      default:
        return strip<kRows, Transposed, Accumulate>;
    }
  }

  template <int Rows, bool Transposed, bool Accumulate>
  static void strip(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                    T* c, int64_t c_stride, int64_t columns, int64_t depth) {
    for (int64_t column = 0; column < columns; column += kPanel) {
      Vector sum[Rows][2];
#pragma GCC unroll 6
      for (int row = 0; row < Rows; ++row) {
        const T* start = c + row * c_stride + column;
        sum[row][0] = Accumulate ? Lane::load(start) : Vector{};
        sum[row][1] = Accumulate ? Lane::load(start + Lanes) : Vector{};
      }
      const T* left_row = a;
      const T* right_row = b + column;
      for (int64_t k = 0; k < depth; ++k) {
        const Vector left = Lane::load(right_row);
        const Vector right = Lane::load(right_row + Lanes);
#pragma GCC unroll 6
        for (int row = 0; row < Rows; ++row) {
          const T factor =
              Transposed ? left_row[row] : left_row[row * a_stride];
          sum[row][0] += factor * left;
          sum[row][1] += factor * right;
        }
        left_row += Transposed ? a_stride : 1;
        right_row += b_stride;
      }
#pragma GCC unroll 6
      for (int row = 0; row < Rows; ++row) {
        T* start = c + row * c_stride + column;
        Lane::store(start, sum[row][0]);
        Lane::store(start + Lanes, sum[row][1]);
      }
    }
  }
};

}  // namespace
}  // namespace remat::kernels
