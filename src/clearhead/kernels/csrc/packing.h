/* Matrices packed in the order in which products read them. */

#pragma once

#include <float.h>
#include <math.h>
#include <string.h>

#include "core.h"
#include "simd.h"

#define BLOCK (WIDE * REGISTERS)   /* outputs whose weights lie together, and are multiplied together */
#define BLOCK_TILES (BLOCK / 16)

/* Inputs that meet a row at once: a float, or 4 bytes. */
static int64_t group_of(int64_t precision) { return precision == FP32 ? 1 : precision == INT8 ? 4 : 2; }

static int64_t block_bytes(const Product *p) { return packed_size(PANEL, p->inputs, p->precision) * BLOCK / PANEL; }

/* Round to nearest, ties to even. */
static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t rounded_value) {
    uint32_t bits = (uint32_t)rounded_value << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The nearest whole number of up to 22 bits, ties to even; without a call of lrintf, which is slow in WebAssembly. */
static int32_t nearest(float value) {
    float shifted = value + WHOLE_NUMBERS, start = WHOLE_NUMBERS;
    int32_t bits, first;
    memcpy(&bits, &shifted, sizeof bits);
    memcpy(&first, &start, sizeof first);
    return bits - first;
}

/* The scale of a row of weights in 7 bits; NaN if the row holds NaN. */
static float step_of(const float *row, int64_t inputs) {
    float largest = 0.0f;
    for (int64_t k = 0; k < inputs; k++)
        if (!(fabsf(row[k]) <= largest)) largest = largest == largest ? fabsf(row[k]) : largest;
    float step = largest / MOST_LEVEL;
    return step < FLT_MIN ? FLT_MIN : step;
}

/* Pack the rows of a matrix [token][input] that belong to `ids`, or the first `count` if NULL, for a product; the last
 * panel is padded with zeros. `scales` are of the outputs, in whole panels, in INT8.
 *
 * The outputs are in blocks: [block of outputs][input][output] in FP32; in the other precisions [block of outputs]
 * [block of inputs][term][tile of 16 outputs][line of 16][output][4 bytes of inputs], one term, or two in BF16X3.
 */
static void pack_matrix(
    const Product *p, const float *matrix, const int32_t *ids, int64_t count, char *panels, float *scales
) {
    int64_t inputs = p->inputs, group = group_of(p->precision);
    int64_t terms = p->precision == BF16X3 ? 2 : 1, lines = inputs / group;
    int offset = p->precision == INT8 && !p->is_on_amx ? WEIGHT_OFFSET : 0;
    memset(panels, offset, packed_size(count, inputs, p->precision));
    for (int64_t i = 0; scales && i < rounded(count, PANEL); i++) scales[i] = FLT_MIN;
    for (int64_t output = 0; output < count; output++) {
        const float *row = matrix + (ids ? ids[output] : output) * inputs;
        int64_t column = output % BLOCK;
        char *block = panels + block_bytes(p) * (output / BLOCK);
        if (p->precision == FP32) {
            for (int64_t k = 0; k < inputs; k++) ((float *)block)[k * BLOCK + column] = row[k];
            continue;
        }
        float step = p->precision == INT8 ? scales[output] = step_of(row, inputs) : 0.0f;
        for (int64_t line = 0; line < lines; line++, row += group) {
            char *at = block + (line / 16 * terms * BLOCK_TILES + column / 16) * TILE_BYTES;
            int64_t place = (line % 16 * 16 + column % 16) * group;
            for (int64_t i = 0; i < group; i++) {
                uint16_t high = to_bf16(row[i]);
                if (p->precision == INT8) ((int8_t *)at)[place + i] = (int8_t)(nearest(row[i] / step) + offset);
                else ((uint16_t *)at)[place + i] = high;
                if (terms == 2) ((uint16_t *)(at + BLOCK_TILES * TILE_BYTES))[place + i] = to_bf16(row[i] - from_bf16(high));
            }
        }
    }
}
