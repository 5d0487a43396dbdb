/* Matrices packed in the order in which products read them. */

#pragma once

#include <float.h>
#include <math.h>
#include <string.h>

#include "types.h"

/* Inputs that meet a row at once: a float, two bfloat16 or four numbers in 8 bits. */
static int64_t group_of(int64_t precision) { return precision == FP32 ? 1 : precision == INT8 ? 4 : 2; }

/* Bytes of a matrix in whole panels. In BF16X3 it is stored twice: rounded values, and their remainders. */
int64_t packed_size(int64_t outputs, int64_t inputs, int64_t precision) {
    return rounded(outputs, PANEL) * inputs * (precision == BF16X3 ? 4 : 4 / group_of(precision));
}

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

/* The scale of a row in 8 bits; NaN if the row holds NaN. */
static float step_of(const float *row, int64_t inputs) {
    float largest = 0.0f;
    for (int64_t k = 0; k < inputs; k++)
        if (!(fabsf(row[k]) <= largest)) largest = largest == largest ? fabsf(row[k]) : largest;
    float step = largest / 127.0f;
    return step < FLT_MIN ? FLT_MIN : step;
}

/* Pack the rows of a matrix [token][input] that belong to `ids`, or the first `count` if NULL; the last panel is
 * padded with zeros. `scales` are of the outputs, in whole panels, in INT8.
 *
 * A panel holds PANEL outputs: [input][output] in FP32; in the other precisions [block of inputs][term]
 * [tile of 16 outputs][group of inputs][output][input in group], one term, or two in BF16X3, 16 groups a block.
 */
void pack(
    const float *matrix, const int32_t *ids, int64_t count, int64_t inputs, int64_t precision, char *panels,
    float *scales
) {
    int64_t group = group_of(precision), terms = precision == BF16X3 ? 2 : 1, lines = inputs / group;
    memset(panels, 0, packed_size(count, inputs, precision));
    for (int64_t i = 0; scales && i < rounded(count, PANEL); i++) scales[i] = FLT_MIN;
    for (int64_t output = 0; output < count; output++) {
        const float *row = matrix + (ids ? ids[output] : output) * inputs;
        int64_t column = output % PANEL;
        char *panel = panels + packed_size(PANEL, inputs, precision) * (output / PANEL);
        if (precision == FP32) {
            for (int64_t k = 0; k < inputs; k++) ((float *)panel)[k * PANEL + column] = row[k];
            continue;
        }
        float step = precision == INT8 ? scales[output] = step_of(row, inputs) : 0.0f;
        for (int64_t line = 0; line < lines; line++, row += group) {
            char *tile = panel + (line / 16 * terms * 2 + column / 16) * TILE_BYTES;
            int64_t at = (line % 16 * 16 + column % 16) * group;
            for (int64_t i = 0; i < group; i++) {
                uint16_t high = to_bf16(row[i]);
                if (precision == INT8) ((int8_t *)tile)[at + i] = (int8_t)lrintf(row[i] / step);
                else ((uint16_t *)tile)[at + i] = high;
                if (terms == 2) ((uint16_t *)(tile + 2 * TILE_BYTES))[at + i] = to_bf16(row[i] - from_bf16(high));
            }
        }
    }
}
