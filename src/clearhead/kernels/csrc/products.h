/* Products of rows and matrices, in float32 and in rounded precisions, by one thread or a team. */

#pragma once

#include <sched.h>
#include <string.h>

#include "packing.h"

static int64_t panel_bytes(const Product *p) { return packed_size(PANEL, p->inputs, p->precision); }

/* Multiply n rows by a panel, in float32; the sums stay in registers. */
INLINE void fp32_block(const int n, const float *x, const float *panel, int64_t inputs, float *y, int64_t stride) {
    __m512 left[ROW_BLOCK], right[ROW_BLOCK];
    for (int i = 0; i < n; i++) left[i] = right[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < inputs; k++, panel += PANEL) {
        __m512 w0 = _mm512_loadu_ps(panel), w1 = _mm512_loadu_ps(panel + WIDE);
        for (int i = 0; i < n; i++) {
            __m512 value = _mm512_set1_ps(x[i * inputs + k]);
            left[i] = _mm512_fmadd_ps(value, w0, left[i]);
            right[i] = _mm512_fmadd_ps(value, w1, right[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        _mm512_storeu_ps(y + i * stride, left[i]);
        _mm512_storeu_ps(y + i * stride + WIDE, right[i]);
    }
}

/* Largest blocks first, then smaller ones for the rest: the compiler assigns registers separately for each size. */
#define ALL_BLOCKS \
    BLOCKS(12); BLOCKS(11); BLOCKS(10); BLOCKS(9); BLOCKS(8); BLOCKS(7); \
    BLOCKS(6); BLOCKS(5); BLOCKS(4); BLOCKS(3); BLOCKS(2); BLOCKS(1)

static void fp32_panel(const float *x, int64_t rows, const float *panel, int64_t inputs, float *y, int64_t stride) {
    int64_t row = 0;
#define BLOCKS(n) \
    for (; row + n <= rows; row += n) fp32_block(n, x + row * inputs, panel, inputs, y + row * stride, stride)
    ALL_BLOCKS;
#undef BLOCKS
}

/* Convert rows to bfloat16, and their remainders with `has_rest`; rows that pad blocks of tiles are zeros. */
ROUNDED static void split_rows(
    const float *x, int64_t rows, int64_t padded, int64_t inputs, int has_rest, uint16_t *tiles
) {
    int64_t count = rows * inputs, all = padded * inputs;
    for (int64_t i = 0; i < count; i += WIDE) {
        __m512 value = _mm512_loadu_ps(x + i);
        __m256i high = (__m256i)_mm512_cvtneps_pbh(value);
        _mm256_storeu_si256((__m256i *)(tiles + i), high);
        if (has_rest) {
            __m512 as_float = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
            __m256i low = (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(value, as_float));
            _mm256_storeu_si256((__m256i *)(tiles + all + i), low);
        }
    }
    memset(tiles + count, 0, (all - count) * sizeof *tiles);
    if (has_rest) memset(tiles + all + count, 0, (all - count) * sizeof *tiles);
}

/* Quantize rows to 8 bits, each with its own scale, and compute the sum of each. */
static void quantize_rows(
    const float *x, int64_t rows, int64_t padded, int64_t inputs, int8_t *tiles, float *scales, int32_t *sums
) {
    for (int64_t row = 0; row < rows; row++) {
        __m512i largest = _mm512_castps_si512(_mm512_set1_ps(1e-30f)); /* not 0; as an integer, NaN is the largest */
        for (int64_t i = 0; i < inputs; i += WIDE) {
            __m512 size = _mm512_abs_ps(_mm512_loadu_ps(x + row * inputs + i));
            largest = _mm512_max_epi32(largest, _mm512_castps_si512(size));
        }
        __m512i most = _mm512_set1_epi32(_mm512_reduce_max_epi32(largest));
        float scale = _mm512_cvtss_f32(_mm512_castsi512_ps(most)) / 127.0f;
        __m512 factor = _mm512_set1_ps(1.0f / scale);
        __m512i sum = _mm512_setzero_si512();
        for (int64_t i = 0; i < inputs; i += WIDE) {
            __m512i level = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + row * inputs + i), factor));
            _mm_storeu_si128((__m128i *)(tiles + row * inputs + i), _mm512_cvtsepi32_epi8(level));
            sum = _mm512_add_epi32(sum, level);
        }
        scales[row] = scale;
        sums[row] = _mm512_reduce_add_epi32(sum);
    }
    memset(tiles + rows * inputs, 0, (padded - rows) * inputs);
}

/* Eight tiles of TILE_ROWS rows and 64 bytes: palette, first row, reserved, bytes per row of each tile, rows. */
static const struct __attribute__((packed)) {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TILES = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Tiles 0 to 3 are results, from two by two tiles: 4 and 5 hold rows, 6 and 7 outputs. */
#define LOAD_ROWS(at) _tile_loadd(4, at, stride); if (two) _tile_loadd(5, (at) + TILE_ROWS * stride, stride)
#define LOAD_WEIGHTS(at) _tile_loadd(6, at, 64); _tile_loadd(7, (at) + TILE_BYTES, 64)
#define MULTIPLY(dp) dp(0, 4, 6); dp(1, 4, 7); if (two) { dp(2, 5, 6); dp(3, 5, 7); }

/* Multiply one block of tiles, or two, by a panel, and prefetch `lines` of the next panel at each step. */
AMX INLINE void amx_block(
    const int precision, const int two, const char *rows, int64_t rest, int64_t stride, const char *panel, float *y,
    int64_t y_stride, const char *ahead, int64_t lines
) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t at = 0; at < stride; at += 64) {
        for (int64_t line = 0; line < lines; line++, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
        if (precision == BF16X3) {
            LOAD_ROWS(rows + at);
            LOAD_WEIGHTS(panel + 2 * TILE_BYTES);
            MULTIPLY(_tile_dpbf16ps);
            LOAD_WEIGHTS(panel);
            MULTIPLY(_tile_dpbf16ps);
            LOAD_ROWS(rows + rest + at);
            MULTIPLY(_tile_dpbf16ps);
            panel += 4 * TILE_BYTES;
        } else {
            LOAD_ROWS(rows + at);
            LOAD_WEIGHTS(panel);
            if (precision == BF16) { MULTIPLY(_tile_dpbf16ps); }
            else { MULTIPLY(_tile_dpbssd); }
            panel += 2 * TILE_BYTES;
        }
    }
    _tile_stored(0, y, y_stride * 4);
    _tile_stored(1, y + WIDE, y_stride * 4);
    if (two) {
        _tile_stored(2, y + TILE_ROWS * y_stride, y_stride * 4);
        _tile_stored(3, y + TILE_ROWS * y_stride + WIDE, y_stride * 4);
    }
}

AMX static void amx_panel(
    const Product *p, const Scratch *s, int64_t rows, const char *panel, float *y, int64_t y_stride
) {
    __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles are loaded from memory */
    int64_t stride = p->inputs * (p->precision == INT8 ? 1 : 2), rest = rounded(rows, 2 * TILE_ROWS) * stride;
    int64_t bytes = panel_bytes(p);
    int64_t blocks = (rows + 2 * TILE_ROWS - 1) / (2 * TILE_ROWS), lines = bytes / stride / blocks + 1;
    const char *ahead = panel + bytes;
    for (int64_t row = 0; row < rows; row += 2 * TILE_ROWS, ahead += lines * stride) {
        const char *at = s->tiles + row * stride;
        float *to = y + row * y_stride;
        int two = rows - row > TILE_ROWS;
#define CASE(precision) \
    case precision: \
        if (two) amx_block(precision, 1, at, rest, stride, panel, to, y_stride, ahead, lines); \
        else amx_block(precision, 0, at, rest, stride, panel, to, y_stride, ahead, lines); \
        break
        switch (p->precision) {
            CASE(BF16);
            CASE(BF16X3);
            CASE(INT8);
        }
#undef CASE
    }
}

/* The same without AMX: a line of a tile holds, for 16 outputs, the weights for 4 bytes of a row. In 8 bits one
 * factor must be unsigned, so 128 is added to the weights, and results start at -128 times the row's sum. */
ROUNDED INLINE void rounded_block(
    const int precision, const int n, const char *rows, int64_t rest, const int32_t *sums, int64_t stride,
    const char *panel, float *y, int64_t y_stride
) {
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i left[ROW_BLOCK], right[ROW_BLOCK];
    for (int i = 0; i < n; i++) left[i] = right[i] = _mm512_set1_epi32(precision == INT8 ? -128 * sums[i] : 0);
#define LOAD(tile) _mm512_loadu_si512(line + (tile) * TILE_BYTES)
#define GROUP(rows) _mm512_set1_epi32(*(const int32_t *)((rows) + i * stride + at))
#define ADD_BF16(sum, w, x) sum = (__m512i)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(w), (__m512bh)(x))
    for (int64_t at = 0; at < stride; at += 4) {
        const char *line = panel + at / 64 * (precision == BF16X3 ? 4 : 2) * TILE_BYTES + at % 64 * WIDE;
        __m512i w0 = LOAD(0), w1 = LOAD(1);
        if (precision == INT8) w0 = _mm512_xor_si512(w0, flip), w1 = _mm512_xor_si512(w1, flip);
        for (int i = 0; i < n; i++) {
            __m512i x = GROUP(rows);
            if (precision == INT8) {
                left[i] = _mm512_dpbusd_epi32(left[i], w0, x);
                right[i] = _mm512_dpbusd_epi32(right[i], w1, x);
                continue;
            }
            ADD_BF16(left[i], w0, x);
            ADD_BF16(right[i], w1, x);
            if (precision == BF16X3) {
                __m512i low = GROUP(rows + rest);
                ADD_BF16(left[i], LOAD(2), x);
                ADD_BF16(right[i], LOAD(3), x);
                ADD_BF16(left[i], w0, low);
                ADD_BF16(right[i], w1, low);
            }
        }
    }
#undef LOAD
#undef GROUP
#undef ADD_BF16
    for (int i = 0; i < n; i++) {
        _mm512_storeu_si512(y + i * y_stride, left[i]);
        _mm512_storeu_si512(y + i * y_stride + WIDE, right[i]);
    }
}

ROUNDED static void rounded_panel(
    const Product *p, const Scratch *s, int64_t rows, const char *panel, float *y, int64_t wide
) {
    int64_t stride = p->inputs * (p->precision == INT8 ? 1 : 2), rest = rounded(rows, 2 * TILE_ROWS) * stride, row = 0;
#define ROUNDED_BLOCKS(precision, n) \
    for (; row + n <= rows; row += n) \
        rounded_block(precision, n, s->tiles + row * stride, rest, s->sums + row, stride, panel, y + row * wide, wide)
    switch (p->precision) {
#define BLOCKS(n) ROUNDED_BLOCKS(BF16, n)
        case BF16: ALL_BLOCKS; break;
#undef BLOCKS
#define BLOCKS(n) ROUNDED_BLOCKS(BF16X3, n)
        case BF16X3: ALL_BLOCKS; break;
#undef BLOCKS
#define BLOCKS(n) ROUNDED_BLOCKS(INT8, n)
        case INT8: ALL_BLOCKS; break;
#undef BLOCKS
    }
#undef ROUNDED_BLOCKS
}

static void prepare_rows(const Product *p, const float *x, int64_t rows, Scratch *s) {
    int64_t padded = rounded(rows, 2 * TILE_ROWS);
    if (p->precision == INT8) quantize_rows(x, rows, padded, p->inputs, (int8_t *)s->tiles, s->scales, s->sums);
    else if (p->precision != FP32) split_rows(x, rows, padded, p->inputs, p->precision == BF16X3, (uint16_t *)s->tiles);
}

/* Compute some panels of a product. */
static void multiply_panels(const Work *work, int64_t first, int64_t last) {
    const Product *p = work->product;
    const Scratch *s = work->scratch;
    int64_t bytes = panel_bytes(p);
    for (int64_t panel = first; panel < last; panel++) {
        const char *weights = (const char *)p->panels + panel * bytes;
        float *y = work->y + (panel - work->first) * PANEL;
        if (p->precision == FP32) fp32_panel(work->x, work->rows, (const float *)weights, p->inputs, y, work->stride);
        else if (p->is_on_amx) amx_panel(p, s, work->rows, weights, y, work->stride);
        else rounded_panel(p, s, work->rows, weights, y, work->stride);
        if (!p->bias && p->precision != INT8) continue;
        for (int64_t row = 0; row < work->rows; row++)
            for (int64_t i = 0; i < PANEL; i += WIDE) {
                float *at = y + row * work->stride + i;
                __m512 value = _mm512_loadu_ps(at);
                if (p->precision == INT8) {
                    __m512 scale = _mm512_loadu_ps(p->scales + panel * PANEL + i);
                    scale = _mm512_mul_ps(scale, _mm512_set1_ps(s->scales[row]));
                    value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(value)), scale);
                }
                if (p->bias) value = _mm512_add_ps(value, _mm512_loadu_ps(p->bias + panel * PANEL + i));
                _mm512_storeu_ps(at, value);
            }
    }
}

/* Let all helpers sleep at once. */
void dismiss(Team *team) { atomic_store(&team->state, TO_LEAVE); }

/* Take a team's panels, a sixteenth at a time, until none is left; a late helper finds none. */
static void take_panels(Team *team) {
    int64_t last = team->work.last, some = (last - team->work.first) / 16 + 1;
    for (int64_t from; (from = atomic_fetch_add(&team->next, some)) < last;)
        multiply_panels(&team->work, from, from + some < last ? from + some : last);
}

/* Multiply prepared rows, with the helpers if there are any. */
static void multiply(Work work, Scratch *s) {
    Team *team = s->team;
    work.scratch = s;
    int64_t bytes = (work.last - work.first) * panel_bytes(work.product);
    if (!team || atomic_load(&team->state) == TO_LEAVE || bytes < WORTH_SHARING) {
        multiply_panels(&work, work.first, work.last);
        return;
    }
    team->work = work;
    atomic_store(&team->next, work.first);
    atomic_store(&team->state, A_PRODUCT);
    take_panels(team);
    atomic_store(&team->state, NOTHING);
    for (int64_t spins = 0; atomic_load(&team->inside); spins++) {
        if (spins < PATIENCE) _mm_pause();
        else sched_yield();
        team->delays += spins == PATIENCE;
    }
    if (team->delays > 2) dismiss(team);
}

static void product(const Product *p, const float *x, int64_t rows, float *y, Scratch *s) {
    spend(s, NORMS);
    prepare_rows(p, x, rows, s);
    multiply((Work){.product = p, .x = x, .rows = rows, .last = p->outputs / PANEL, .y = y, .stride = p->outputs}, s);
    spend(s, PRODUCTS);
}
