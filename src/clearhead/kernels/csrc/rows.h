/* Arithmetic on rows: exponential, norm, sum, activation. */

#pragma once

#include <math.h>

#include "types.h"

/* A mask of the first `count` floats of a register. */
INLINE __mmask16 first_lanes(int64_t count) { return count < WIDE ? (__mmask16)((1u << count) - 1) : 0xffff; }

/* e^x, with x clamped to [-87, 87], so that no intermediate value leaves the range of floats. */
INLINE __m512 exp512(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), _mm512_min_ps(_mm512_set1_ps(87.0f), x)); /* so NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f); /* Cephes' polynomial for e^r, |r| <= ln 2 / 2 */
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

/* LayerNorm, or RMSNorm with is_rms; see make_norm in model/residual.py. */
static void normalize(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (int64_t row = 0; row < rows; row++, x += width, y += width) {
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
        float mean = 0.0f;
        if (!norm->is_rms) {
            for (int64_t i = 0; i < width; i += WIDE) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
            mean = _mm512_reduce_add_ps(sum) / width;
        }
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 centred = _mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(mean));
            squares = _mm512_fmadd_ps(centred, centred, squares);
        }
        __m512 factor = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / width + (float)norm->eps));
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 value = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(mean)), factor);
            value = _mm512_mul_ps(value, _mm512_loadu_ps(norm->weight + i));
            if (norm->bias) value = _mm512_add_ps(value, _mm512_loadu_ps(norm->bias + i));
            _mm512_storeu_ps(y + i, value);
        }
    }
}

static void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDE)
        _mm512_storeu_ps(x + i, _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
}

static void activate(float *x, int64_t count, int64_t activation) {
    if (activation == RELU) {
        for (int64_t i = 0; i < count; i += WIDE)
            _mm512_storeu_ps(x + i, _mm512_max_ps(_mm512_setzero_ps(), _mm512_loadu_ps(x + i)));
        return;
    }
    if (activation == GELU) {
        for (int64_t i = 0; i < count; i++) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
        return;
    }
    for (int64_t i = 0; i < count; i += WIDE) { /* x / (1 + e^-u); (1 + tanh(u / 2)) / 2 is 1 / (1 + e^-u) */
        __m512 value = _mm512_loadu_ps(x + i), u = value;
        if (activation == GELU_TANH) {
            __m512 cube = _mm512_mul_ps(_mm512_mul_ps(value, value), value);
            u = _mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), value);
            u = _mm512_mul_ps(u, _mm512_set1_ps(2.0f * 0.79788456f));
        }
        __m512 below = _mm512_add_ps(exp512(_mm512_sub_ps(_mm512_setzero_ps(), u)), _mm512_set1_ps(1.0f));
        _mm512_storeu_ps(x + i, _mm512_div_ps(value, below));
    }
}
