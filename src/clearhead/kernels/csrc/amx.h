/* Products in tiles: the instructions of AMX. Only the form with BF16 has them. */

#pragma once

#include "packing.h"

#if WIDE == 16 && defined(__AVX512BF16__)

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

/* Eight tiles of TILE_ROWS rows and 64 bytes: palette, first row, reserved, bytes per row of each tile, rows. */
static const struct __attribute__((packed)) {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TILES = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

AMX static void begin_tiles(void) { _tile_loadconfig(&TILES); }
AMX static void end_tiles(void) { _tile_release(); }

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
        for (int64_t line = 0; line < lines; line++, ahead += 64) __builtin_prefetch(ahead, 0, 2);
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
    _tile_stored(1, y + 16, y_stride * 4);
    if (two) {
        _tile_stored(2, y + TILE_ROWS * y_stride, y_stride * 4);
        _tile_stored(3, y + TILE_ROWS * y_stride + 16, y_stride * 4);
    }
}

AMX static void amx_panel(
    const Product *p, const Scratch *s, int64_t rows, const char *panel, float *y, int64_t y_stride
) {
    __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles are loaded from memory */
    int64_t stride = p->inputs * (p->precision == INT8 ? 1 : 2), rest = rounded(rows, 2 * TILE_ROWS) * stride;
    int64_t bytes = packed_size(PANEL, p->inputs, p->precision);
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

#else

static void begin_tiles(void) {}
static void end_tiles(void) {}
static void amx_panel(const Product *p, const Scratch *s, int64_t rows, const char *panel, float *y, int64_t y_stride) {
    (void)p, (void)s, (void)rows, (void)panel, (void)y, (void)y_stride;
}

#endif
