/* The layers of encoder and decoder (paper section 3), row by row. */

#pragma once

#include <math.h>

#include "products.h"
#include "rows.h"

/* The weighted sum of values in equation 1, for some registers' width, times a factor. */
INLINE void weighted_sum(
    const int registers, const float *values, int64_t stride, const int32_t *places, const float *weights,
    int64_t count, float factor, float *y
) {
    __m512 sum[4];
    for (int n = 0; n < registers; n++) sum[n] = _mm512_setzero_ps();
    for (int64_t i = 0; i < count; i++) {
        const float *at = values + (places ? places[i] : i) * stride;
        __m512 weight = _mm512_set1_ps(weights[i]);
        for (int n = 0; n < registers; n++) sum[n] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(at + n * WIDE), sum[n]);
    }
    for (int n = 0; n < registers; n++) _mm512_storeu_ps(y + n * WIDE, _mm512_mul_ps(sum[n], _mm512_set1_ps(factor)));
}

/* Equation 1 (section 3.2.1) in every head (3.2.2): attention of one query row to keys and values stored side by
 * side, at the given places, or the first `count` if NULL. `bias` is added to the scores, [head][bias_stride], or
 * NULL. `seen` receives the weights, [head][seen_stride], or is NULL. */
static void attend(
    const Stack *stack, const float *q, const float *kv, int64_t stride, const int32_t *places, int64_t count,
    const float *bias, int64_t bias_stride, float *weights, float *y, float *seen, int64_t seen_stride
) {
    int64_t d_k = stack->d_k, d_v = stack->d_v;
    float scale = stack->divides_scores ? 1.0f / sqrtf((float)d_k) : 1.0f;
    for (int64_t head = 0; head < stack->num_heads; head++, q += d_k, y += d_v) {
        const float *k = kv + head * d_k, *v = kv + stack->num_heads * d_k + head * d_v;
        float largest = -INFINITY, sum = 0.0f;
        for (int64_t i = 0; i < count; i++) {
            const float *key = k + (places ? places[i] : i) * stride;
            __m512 dot = _mm512_setzero_ps();
            for (int64_t j = 0; j < d_k; j += WIDE)
                dot = _mm512_fmadd_ps(_mm512_loadu_ps(q + j), _mm512_loadu_ps(key + j), dot);
            weights[i] = _mm512_reduce_add_ps(dot) * scale;
            if (bias) weights[i] += bias[head * bias_stride + i];
            if (!(weights[i] <= largest)) largest = weights[i];
        }
        for (int64_t i = 0; i < count; i += WIDE) {
            __mmask16 mask = first_lanes(count - i);
            __m512 weight = exp512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, weights + i), _mm512_set1_ps(largest)));
            _mm512_mask_storeu_ps(weights + i, mask, weight);
            sum += _mm512_mask_reduce_add_ps(mask, weight);
        }
        if (seen)
            for (int64_t i = 0; i < count; i++) seen[head * seen_stride + i] = weights[i] / sum;
        int64_t j = 0, four = 4 * WIDE;
        for (; j + four <= d_v; j += four) weighted_sum(4, v + j, stride, places, weights, count, 1.0f / sum, y + j);
        for (; j < d_v; j += WIDE) weighted_sum(1, v + j, stride, places, weights, count, 1.0f / sum, y + j);
    }
}

/* Rotate each pair of adjacent components by the angle of its position (rotary positions). Queries and keys are
 * stored side by side, so they are rotated together, as twice as many heads. */
static void turn(float *x, int64_t num_heads, int64_t d_k, const float *cos, const float *sin) {
    for (int64_t head = 0; head < num_heads; head++)
        for (int64_t i = 0; i < d_k / 2; i++) {
            float *pair = x + head * d_k + 2 * i, left = pair[0], right = pair[1];
            pair[0] = left * cos[i] - right * sin[i];
            pair[1] = left * sin[i] + right * cos[i];
        }
}

/* Location of the keys and values. In an encoder and for given targets, rows of a sentence are adjacent; in a
 * search, past keys and values are in slots. */
typedef struct {
    int64_t num_rows;
    const int32_t *position;
    const int32_t *first, *length; /* of each row, the first row it attends to and how many; NULL in a search */
    const Slot *slots;             /* decoder */
    const int32_t *slot;           /* of each row */
    int64_t longest;               /* stride of the rows' paths in a search, and of the weights below */
    float *self_attn, *cross_attn; /* attention weights, as in Targets */
} Places;

/* The weights of a row in the first head of a layer. */
static float *seen_by(const Stack *stack, float *weights, int64_t index, const Places *at, int64_t row) {
    return weights ? weights + (index * stack->num_heads * at->num_rows + row) * at->longest : NULL;
}

static void self_attention(const Stack *stack, const Tokens *t, int64_t index, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    int64_t stride = stack->layers[index].qkv.outputs;
    for (int64_t row = 0; row < at->num_rows; row++) {
        float *qkv = s->qkv + row * stride;
        if (t->cos) {
            int64_t angle = at->position[row] * stack->d_k / 2;
            turn(qkv, 2 * stack->num_heads, stack->d_k, t->cos + angle, t->sin + angle);
        }
        if (!at->first) {
            int64_t place = s->path[row * at->longest + at->position[row]];
            float *past = at->slots[at->slot[row]].past + (place * stack->num_layers + index) * (keys + values);
            memcpy(past, qkv + keys, (keys + values) * sizeof *past);
        }
    }
    for (int64_t row = 0; row < at->num_rows; row++) {
        const float *q = s->qkv + row * stride;
        float *y = s->attended + row * values;
        const float *bias = t->relative ? t->relative + t->reach - 1 - at->position[row] : NULL; /* at position 0 */
        if (!at->first) {
            const float *past = at->slots[at->slot[row]].past + index * (keys + values);
            attend(stack, q, past, stack->num_layers * (keys + values), s->path + row * at->longest,
                   at->position[row] + 1, bias, 2 * t->reach - 1, s->weights, y, NULL, 0);
        } else {
            attend(stack, q, s->qkv + at->first[row] * stride + keys, stride, NULL, at->length[row], bias,
                   2 * t->reach - 1, s->weights, y, seen_by(stack, at->self_attn, index, at, row),
                   at->num_rows * at->longest);
        }
    }
}

static void cross_attention(const Stack *stack, int64_t index, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    for (int64_t row = 0; row < at->num_rows; row++) {
        const Slot *slot = at->slots + at->slot[row];
        attend(stack, s->qkv + row * stack->layers[index].query.outputs, slot->memory + index * (keys + values),
               stack->num_layers * (keys + values), NULL, slot->source_length, NULL, 0, s->weights,
               s->attended + row * values, seen_by(stack, at->cross_attn, index, at, row), at->num_rows * at->longest);
    }
}

/* The residual connection (section 3.1) before and after a sublayer; see model/residual.py. */
static const float *before(const Stack *stack, const Norm *norm, int64_t rows, Scratch *s) {
    if (!stack->is_pre) return s->x;
    normalize(norm, s->x, rows, stack->d_model, s->normed);
    return s->normed;
}

static void after(const Stack *stack, const Norm *norm, int64_t rows, Scratch *s) {
    add(s->x, s->update, rows * stack->d_model);
    if (!stack->is_pre) normalize(norm, s->x, rows, stack->d_model, s->x);
}

/* Sections 3.4 and 3.5: scaled embeddings and positions. */
static void embed(const Stack *stack, const Tokens *t, const int32_t *token, const Places *at, float *x) {
    int64_t width = stack->d_model;
    __m512 scale = _mm512_set1_ps(t->embedding_scale);
    for (int64_t row = 0; row < at->num_rows; row++)
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 value = _mm512_mul_ps(_mm512_loadu_ps(t->embedding + token[row] * width + i), scale);
            int64_t position = at->position[row] * width + i;
            if (t->positions) value = _mm512_add_ps(value, _mm512_loadu_ps(t->positions + position));
            if (t->segment) value = _mm512_add_ps(value, _mm512_loadu_ps(t->segment + i));
            _mm512_storeu_ps(x + row * width + i, value);
        }
    if (t->embedding_norm.weight) normalize(&t->embedding_norm, x, at->num_rows, width, x);
}

/* A stack (section 3.1): embedding, layers, final norm. */
static void run_layers(const Stack *stack, const Tokens *t, const int32_t *token, const Places *at, Scratch *s) {
    int64_t rows = at->num_rows;
    embed(stack, t, token, at, s->x);
    for (int64_t index = 0; index < stack->num_layers; index++) {
        const Layer *layer = stack->layers + index;
        product(&layer->qkv, before(stack, &layer->self_norm, rows, s), rows, s->qkv, s);
        self_attention(stack, t, index, at, s);
        spend(s, ATTENTION);
        product(&layer->self_out, s->attended, rows, s->update, s);
        after(stack, &layer->self_norm, rows, s);

        if (layer->query.panels) {
            product(&layer->query, before(stack, &layer->cross_norm, rows, s), rows, s->qkv, s);
            cross_attention(stack, index, at, s);
            spend(s, ATTENTION);
            product(&layer->cross_out, s->attended, rows, s->update, s);
            after(stack, &layer->cross_norm, rows, s);
        }

        const float *x = before(stack, &layer->ff_norm, rows, s); /* equation 2 (section 3.3) */
        product(&layer->up, x, rows, s->hidden, s);
        if (layer->gate.panels) {
            product(&layer->gate, x, rows, s->gate, s); /* separate, because `hidden` must be contiguous */
            activate(s->gate, rows * stack->d_ff, stack->activation);
            for (int64_t i = 0; i < rows * stack->d_ff; i++) s->hidden[i] *= s->gate[i];
        } else {
            activate(s->hidden, rows * stack->d_ff, stack->activation);
        }
        product(&layer->down, s->hidden, rows, s->update, s);
        after(stack, &layer->ff_norm, rows, s);
    }
    if (stack->final_norm.weight) normalize(&stack->final_norm, s->x, rows, stack->d_model, s->x);
    if (stack->divides_output) {
        float root = sqrtf((float)stack->d_model);
        for (int64_t i = 0; i < rows * stack->d_model; i++) s->x[i] /= root;
    }
    spend(s, NORMS);
}
