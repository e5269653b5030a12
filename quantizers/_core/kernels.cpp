// Activation quantisers in one pass over memory, called by kernels.py.
//
// Each performs the operations of its eager form on every number, so that both give the same bits (−0
// counts as 0): division is division, rounding is half to even, NaN stays NaN. Build without fast-math and
// without contraction of a·b + c, which would change bits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

// x as rows of `inner` adjacent numbers, with three row indices; `total` may cut the last row short. The
// result is contiguous. The index number `axis` selects the scale; index number 3 is always 0.
struct Rows {
    int64_t size[3], stride[3], inner, total, axis, threads;
};

template <class Step>
void each_row(const float* x, float* out, const Rows& rows, Step step) {
    const int64_t outer = rows.size[0] * rows.size[1];
#pragma omp parallel for schedule(static) num_threads(rows.threads) if (rows.threads > 1)
    for (int64_t pair = 0; pair < outer; ++pair) {
        int64_t at[4] = {pair / rows.size[1], pair % rows.size[1], 0, 0};
        for (; at[2] < rows.size[2]; ++at[2]) {
            const int64_t from = at[0] * rows.stride[0] + at[1] * rows.stride[1] + at[2] * rows.stride[2];
            const int64_t to = (pair * rows.size[2] + at[2]) * rows.inner;
            step(x + from, out + to, std::min(rows.inner, rows.total - to), at[rows.axis]);
        }
    }
}

#if defined(__AVX512F__)
constexpr int64_t lanes = 16;
#elif defined(__AVX__)
constexpr int64_t lanes = 8;
#else
constexpr int64_t lanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(lanes * sizeof(float))));

inline float clip(float value, float low, float high) {
    value = value < low ? low : value;
    return value > high ? high : value;
}

inline float snap(float value, float step, float low, float high) {
    return clip(std::rint(value / step), low, high) * step;
}

}  // namespace

extern "C" {

// step · clip(round(x / step), low, high); a null pointer means the number instead.
void uniform(const float* x, float* out, const Rows* rows, const float* steps, const float* lows,
             const float* highs, float low_number, float high_number) {
    each_row(x, out, *rows, [=](const float* from, float* to, int64_t length, int64_t axis) {
        const float step = steps[axis];
        const float low = lows ? lows[axis] : low_number, high = highs ? highs[axis] : high_number;
#pragma GCC ivdep
        for (int64_t i = 0; i < length; ++i) to[i] = snap(from[i], step, low, high);
    });
}

// round(x / step) · step with a fine step below the split and a coarse one from it on.
void twin_select(const float* x, float* out, const Rows* rows, float split, float fine, float coarse) {
    each_row(x, out, *rows, [=](const float* from, float* to, int64_t length, int64_t) {
#pragma GCC ivdep
        for (int64_t i = 0; i < length; ++i) {
            const float step = from[i] < split ? fine : coarse;
            to[i] = std::rint(from[i] / step) * step;
        }
    });
}

// The part below the split on fine steps plus the part above on coarse steps.
void twin_sum(const float* x, float* out, const Rows* rows, float split, float fine, float coarse,
              float top) {
    each_row(x, out, *rows, [=](const float* from, float* to, int64_t length, int64_t) {
#pragma GCC ivdep
        for (int64_t i = 0; i < length; ++i) {
            const float below = from[i] > split ? split : from[i], above = from[i] < split ? split : from[i];
            to[i] = snap(below, fine, 0, top) + snap(above, coarse, 0, top);
        }
    });
}

// levels[n], where n is the number of (descending) thresholds above x.
void staircase(const float* x, float* out, const Rows* rows, const float* thresholds, const float* levels,
               int64_t count) {
    each_row(x, out, *rows, [=](const float* from, float* to, int64_t length, int64_t) {
        for (int64_t start = 0; start < length; start += lanes * 4) {
            const int64_t bytes = std::min(lanes * 4, length - start) * sizeof(float);
            Lanes in[4] = {}, result[4];
            std::memcpy(in, from + start, bytes);
            for (Lanes& each : result) each = Lanes{} + levels[0];
            for (int64_t n = 0; n < count; ++n) {
                const Lanes threshold = Lanes{} + thresholds[n], level = Lanes{} + levels[n + 1];
                for (int k = 0; k < 4; ++k) result[k] = in[k] < threshold ? level : result[k];
            }
            for (int k = 0; k < 4; ++k) result[k] = in[k] == in[k] ? result[k] : in[k];
            std::memcpy(to + start, result, bytes);
        }
    });
}
}
