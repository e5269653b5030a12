// Activations as unsigned 8-bit codes, in one pass over memory; called by unsigned_codes.py.
//
// The operations are those of the simulation on every number: division is division, rounding is half to even.
// Build without fast-math.

#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" {

// clip(round(x / step), low, low + 255) − low; NaN becomes the code of 0. Returns whether there is any.
int32_t unsigned_codes(const float* x, uint8_t* out, int64_t count, float step, float low, int64_t threads) {
    constexpr int64_t row = 4096;
    int32_t found = 0;
#pragma omp parallel for schedule(static) num_threads(threads) reduction(| : found) if (threads > 1)
    for (int64_t start = 0; start < count; start += row) {
        const int64_t end = std::min(count, start + row);
#pragma GCC ivdep
        for (int64_t i = start; i < end; ++i) {
            float code = std::rint(x[i] / step);
            found |= code != code;
            code = code == code ? code : 0.0f;
            code = code < low ? low : code;
            code = code > low + 255.0f ? low + 255.0f : code;
            out[i] = static_cast<uint8_t>(static_cast<int32_t>(code - low));
        }
    }
    return found;
}
}
