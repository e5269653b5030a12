// The recurrence of the selective scan over a chunk of steps; selective_scan.py calls it.
//
// x holds the decays [steps, rows, states, width] and becomes the states: x_t = x_t · x_{t-1} + drive_t b_tᵀ.
// The same operations on every number as in the eager form, whose `addcmul` is one fused multiply-add where
// the processor has it, so that both give the same bits.

#include <cmath>
#include <cstdint>

namespace {

inline float plus_product(float sum, float a, float b) {
#if defined(__FMA__)
    return __builtin_fmaf(a, b, sum);
#else
    return sum + a * b;
#endif
}

}  // namespace

extern "C" void advance(float* x, const float* before, const float* drive, const float* b, int64_t steps,
                        int64_t rows, int64_t states, int64_t width, int64_t threads) {
    const int64_t row_size = states * width;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row) {
        const float* last = before + row * row_size;
        for (int64_t step = 0; step < steps; ++step) {
            const int64_t here = step * rows + row;
            const float* in = drive + here * width;
            float* now = x + here * row_size;
            for (int64_t state = 0; state < states; ++state) {
                const float factor = b[here * states + state];
                float* to = now + state * width;
                const float* from = last + state * width;
                for (int64_t i = 0; i < width; ++i) {
                    to[i] = plus_product(to[i] * from[i], in[i], factor);
                }
            }
            last = now;
        }
    }
}
