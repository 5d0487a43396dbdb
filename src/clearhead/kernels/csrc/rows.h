/* Arithmetic on rows: exponential, norm, sum, activation. */

#pragma once

#include <math.h>

#include "simd.h"

/* e^x, with x clamped to [-87, 87], so that no intermediate value leaves the range of floats; NaN stays NaN. */
INLINE Floats exponential(Floats x) {
    const Floats whole_numbers = all(WHOLE_NUMBERS + 127.0f); /* the last bits of a sum: 127 more than the number */
    x = larger(all(-87.0f), smaller(all(87.0f), x));
    Floats shifted = multiply_add(x, all(1.44269504f), whole_numbers), n = shifted - whole_numbers;
    Floats r = multiply_add(n, all(-0.693359375f), x);
    r = multiply_add(n, all(2.12194440e-4f), r);
    Floats p = all(8.3125097e-3f); /* e^r is 1 + r + r^2 p to 1.1e-7, the smallest error for |r| <= ln 2 / 2 */
    p = multiply_add(p, r, all(4.1890349e-2f));
    p = multiply_add(p, r, all(1.6667115e-1f));
    p = multiply_add(p, r, all(4.9999230e-1f));
    p = multiply_add(p, r * r, r + all(1.0f));
    return p * (Floats)((Ints)shifted << 23);
}

/* LayerNorm, or RMSNorm with is_rms; see make_norm in model/residual.py. */
static void normalize(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (int64_t row = 0; row < rows; row++, x += width, y += width) {
        Lanes sum = {0}, squares = {0};
        float mean = 0.0f;
        if (!norm->is_rms) {
            for (int64_t i = 0; i < width; i += LANES)
                for (int n = 0; n < LANES / WIDE; n++) sum.part[n] += load(x + i + n * WIDE);
            mean = sum_of(sum) / width;
        }
        for (int64_t i = 0; i < width; i += LANES)
            for (int n = 0; n < LANES / WIDE; n++) {
                Floats centred = load(x + i + n * WIDE) - all(mean);
                squares.part[n] = multiply_add(centred, centred, squares.part[n]);
            }
        Floats factor = all(1.0f / sqrtf(sum_of(squares) / width + (float)norm->eps));
        for (int64_t i = 0; i < width; i += WIDE) {
            Floats value = (load(x + i) - all(mean)) * factor * load(norm->weight + i);
            store(y + i, norm->bias ? value + load(norm->bias + i) : value);
        }
    }
}

static void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDE) store(x + i, load(x + i) + load(y + i));
}

static void activate(float *x, int64_t count, int64_t activation) {
    if (activation == RELU) {
        for (int64_t i = 0; i < count; i += WIDE) store(x + i, larger((Floats){0}, load(x + i)));
        return;
    }
    if (activation == GELU) { /* in double, so that every system's library rounds to the same float */
        for (int64_t i = 0; i < count; i++) x[i] = 0.5f * x[i] * (1.0f + (float)erf(x[i] * 0.7071067811865476));
        return;
    }
    for (int64_t i = 0; i < count; i += WIDE) { /* x / (1 + e^-u); (1 + tanh(u / 2)) / 2 is 1 / (1 + e^-u) */
        Floats value = load(x + i), u = value;
        if (activation == GELU_TANH)
            u = multiply_add(value * value * value, all(0.044715f), value) * all(2.0f * 0.79788456f);
        store(x + i, value / (exponential(-u) + all(1.0f)));
    }
}
