/* The layers of encoder and decoder (paper section 3), row by row. */

#pragma once

#include <math.h>

#include "products.h"
#include "rows.h"

/* Keys and values of some places. Values of a place lie side by side, as its keys do. If `is_turned`, keys of LANES places
 * lie side by side instead, so that their scores are computed together: [component of all heads][place in block]. */
typedef struct {
    const float *keys, *values;
    int64_t key_block;    /* of turned keys, from a block of LANES places to the next */
    int64_t block, place; /* else from a block to the next, and in a block from a place to the next */
    const int32_t *path;  /* the places attended to, in their order; NULL is the first `count` */
    int64_t count;
} Context;

INLINE int64_t place_of(const Context *c, int64_t i) {
    int64_t place = c->path ? c->path[i] : i;
    return place / LANES * c->block + place % LANES * c->place;
}

/* Scores of n rows at a block of turned keys, in some heads. */
INLINE void score_block(
    const int n, const int heads, const float *q, int64_t q_stride, const float *keys, int64_t d_k, float *scores,
    int64_t stride, int64_t head_stride
) {
    Floats sum[4][MOST_ROWS][LANES / WIDE];
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < n; i++)
            for (int r = 0; r < LANES / WIDE; r++) sum[h][i][r] = (Floats){0};
    for (int64_t k = 0; k < d_k; k++)
        for (int h = 0; h < heads; h++)
            for (int r = 0; r < LANES / WIDE; r++) {
                Floats key = load(keys + (h * d_k + k) * LANES + r * WIDE);
                if (n > 1) IN_REGISTER(key);
                for (int i = 0; i < n; i++)
                    sum[h][i][r] = multiply_add(all(q[i * q_stride + h * d_k + k]), key, sum[h][i][r]);
            }
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < n; i++)
            for (int r = 0; r < LANES / WIDE; r++)
                store(scores + i * stride + h * head_stride + r * WIDE, sum[h][i][r]);
}

/* Scores of rows at the places of a context with turned keys, [row][head][place]. */
static void score_turned(
    const Stack *stack, int64_t rows, const float *q, int64_t q_stride, const Context *c, float *scores, int64_t room
) {
    int64_t d_k = stack->d_k, heads = stack->num_heads, stride = heads * room;
    for (int64_t place = 0; place < c->count; place += LANES) {
        const float *keys = c->keys + place / LANES * c->key_block;
        int64_t head = 0, row = 0;
        for (; rows == 1 && head + 4 <= heads; head += 4) /* one row alone would wait for every sum */
            score_block(1, 4, q + head * d_k, 0, keys + head * d_k * LANES, d_k, scores + head * room + place, 0, room);
        for (; head < heads; head++, row = 0) {
#define CALL(n, unused) \
    score_block(n, 1, q + row * q_stride + head * d_k, q_stride, keys + head * d_k * LANES, d_k, \
                scores + row * stride + head * room + place, stride, room)
            EACH_SIZE(CALL, 0)
#undef CALL
        }
    }
}

/* Scores of one row at the places of a context. */
static void score_one(const Stack *stack, const float *q, const Context *c, float *scores, int64_t room) {
    int64_t d_k = stack->d_k;
    for (int64_t i = 0; i < c->count; i += 4) {
        const float *key[4];
        for (int n = 0; n < 4; n++) key[n] = c->keys + place_of(c, i + n < c->count ? i + n : i);
        for (int64_t head = 0, at = 0; head < stack->num_heads; head++) {
            Lanes dot[4] = {{{{0}}}};
            for (int64_t end = at + d_k; at < end; at += LANES)
                for (int r = 0; r < LANES / WIDE; r++) {
                    Floats part = load(q + at + r * WIDE);
                    for (int n = 0; n < 4; n++)
                        dot[n].part[r] = multiply_add(part, load(key[n] + at + r * WIDE), dot[n].part[r]);
                }
            Four four = sums_of(dot);
            memcpy(scores + head * room + i, &four, sizeof four);
        }
    }
}

/* The softmax of equation 1, up to a factor, which is returned; `weights` have room for whole LANES. */
static float exponentials(float *weights, int64_t count) {
    Floats most = all(-INFINITY);
    for (int64_t i = count; i % LANES; i++) weights[i] = -INFINITY;
    for (int64_t i = 0; i < count; i += WIDE) most = larger(most, load(weights + i)); /* NaN shows in the sum */
    Floats base = all(largest_of(most));
    Lanes sum = {{{0}}};
    for (int64_t i = 0; i < count; i += LANES)
        for (int r = 0; r < LANES / WIDE; r++) {
            Floats weight = exponential(load(weights + i + r * WIDE) - base);
            store(weights + i + r * WIDE, weight);
            sum.part[r] += weight;
        }
    return 1.0f / sum_of(sum);
}

/* Weighted sums of values, in some registers of a row that may belong to several heads. */
INLINE void sum_one(
    const int registers, const Stack *stack, const Context *c, int64_t j, const float *weights, int64_t room,
    const float *factors, float *y
) {
    Floats sum[8];
    const float *weight[8];
    for (int r = 0; r < registers; r++) sum[r] = (Floats){0}, weight[r] = weights + (j + r * WIDE) / stack->d_v * room;
    for (int64_t i = 0; i < c->count; i++) {
        const float *value = c->values + place_of(c, i) + j;
        for (int r = 0; r < registers; r++) sum[r] = multiply_add(all(weight[r][i]), load(value + r * WIDE), sum[r]);
    }
    for (int r = 0; r < registers; r++)
        store(y + j + r * WIDE, sum[r] * all(factors[(j + r * WIDE) / stack->d_v]));
}

/* Weighted sums of the same values for n rows, in LANES of a head. */
INLINE void sum_several(
    const int n, const Context *c, int64_t j, const float *weights, int64_t stride, const float *factors,
    int64_t num_heads, float *y, int64_t y_stride
) {
    Floats sum[ROW_BLOCK][LANES / WIDE];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES / WIDE; r++) sum[i][r] = (Floats){0};
    for (int64_t place = 0; place < c->count; place++) {
        const float *value = c->values + place_of(c, place) + j;
        for (int r = 0; r < LANES / WIDE; r++) {
            Floats part = load(value + r * WIDE);
            if (n > 1) IN_REGISTER(part);
            for (int i = 0; i < n; i++) sum[i][r] = multiply_add(all(weights[i * stride + place]), part, sum[i][r]);
        }
    }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < LANES / WIDE; r++)
            store(y + i * y_stride + j + r * WIDE, sum[i][r] * all(factors[i * num_heads]));
}

/* Equation 1 (section 3.2.1) in every head (3.2.2), of adjacent rows with one context; or of one row, if the keys are not
 * turned. `bias` is added to the scores of the first row, [head][bias_stride], or NULL; those of the next row begin one
 * number earlier. `seen` receives the weights of the first row, [head][seen_stride], or is NULL; those of the next row lie
 * `seen_row` after. */
static void attend(
    const Stack *stack, int64_t rows, const float *q, int64_t q_stride, const Context *c, int is_turned,
    const float *bias, int64_t bias_stride, Scratch *s, float *y, float *seen, int64_t seen_stride, int64_t seen_row
) {
    int64_t heads = stack->num_heads, d_v = stack->d_v, width = heads * d_v, room = s->num_weights;
    float scale = stack->divides_scores ? 1.0f / sqrtf((float)stack->d_k) : 1.0f;
    for (int64_t first = 0, some; first < rows; first += some, q += some * q_stride, y += some * width) {
        some = rows - first < ROW_BLOCK ? rows - first : ROW_BLOCK;
        if (is_turned) score_turned(stack, some, q, q_stride, c, s->weights, room);
        else score_one(stack, q, c, s->weights, room);
        for (int64_t i = 0; i < some * heads; i++) {
            float *weights = s->weights + i * room;
            const float *added = bias ? bias + i % heads * bias_stride - (first + i / heads) : NULL;
            for (int64_t place = 0; place < c->count; place += WIDE) {
                Floats score = load(weights + place) * all(scale);
                store(weights + place, score);
            }
            for (int64_t place = 0; bias && place < c->count; place++) weights[place] += added[place];
            s->factors[i] = exponentials(weights, c->count);
            if (!seen) continue;
            float *own = seen + i % heads * seen_stride + (first + i / heads) * seen_row;
            for (int64_t place = 0; place < c->count; place++) own[place] = weights[place] * s->factors[i];
        }
        if (some == 1) {
            int64_t j = 0;
            for (; j + 8 * WIDE <= width; j += 8 * WIDE) sum_one(8, stack, c, j, s->weights, room, s->factors, y);
            for (; j + 4 * WIDE <= width; j += 4 * WIDE) sum_one(4, stack, c, j, s->weights, room, s->factors, y);
            for (; j < width; j += WIDE) sum_one(1, stack, c, j, s->weights, room, s->factors, y);
            continue;
        }
        for (int64_t j = 0, row = 0, rows = some; j < width; j += LANES, row = 0) {
#define CALL(n, unused) \
    sum_several(n, c, j, s->weights + (row * heads + j / d_v) * room, heads * room, s->factors + row * heads + j / d_v, \
                heads, y + row * width, width)
            EACH_SIZE(CALL, 0)
#undef CALL
        }
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
    int64_t longest;               /* stride of the rows' paths in a search, and of the attention weights in the record */
    Record record;
} Places;

/* Copy numbers of all rows to the place of a layer in an array of the record, if it is asked for. */
static void keep(float *array, int64_t layer, const float *numbers, int64_t count) {
    if (array) memcpy(array + layer * count, numbers, count * sizeof *array);
}

/* The weights of a row in the first head of a layer. */
static float *seen_by(const Stack *stack, float *weights, int64_t index, const Places *at, int64_t row) {
    return weights ? weights + (index * stack->num_heads * at->num_rows + row) * at->longest : NULL;
}

/* Turn the keys of a row for `place` of a block; see Context. */
static void turn_keys(const float *key, int64_t keys, float *block, int64_t place) {
    for (int64_t j = 0; j < keys; j++) block[j * LANES + place] = key[j];
}

/* Return the end of the rows that are of the same sentence as `row`. */
static int64_t end_of(const int32_t *sentence, int64_t row, int64_t num_rows) {
    int64_t end = row;
    while (end < num_rows && sentence[end] == sentence[row]) end++;
    return end;
}

/* In an encoder: every row of a sentence attends to all of them. */
static void attend_to_sentences(const Stack *stack, const Tokens *t, int64_t index, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    int64_t stride = stack->layers[index].qkv.outputs;
    for (int64_t row = 0, end; row < at->num_rows; row = end) {
        end = end_of(at->first, row, at->num_rows);
        const float *qkv = s->qkv + row * stride;
        for (int64_t i = 0; i < end - row; i++)
            turn_keys(qkv + i * stride + keys, keys, s->turned + i / LANES * keys * LANES, i % LANES);
        Context c = {.keys = s->turned, .key_block = keys * LANES, .values = qkv + 2 * keys, .block = LANES * stride,
                     .place = stride, .count = end - row};
        const float *bias = t->relative ? t->relative + t->reach - 1 : NULL; /* at position 0 */
        attend(stack, end - row, qkv, stride, &c, 1, bias, 2 * t->reach - 1, s, s->attended + row * values,
               seen_by(stack, at->record.self_attn, index, at, row), at->num_rows * at->longest, at->longest);
    }
}

static void self_attention(const Stack *stack, const Tokens *t, int64_t index, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    int64_t stride = stack->layers[index].qkv.outputs, past_stride = stack->num_layers * (keys + values);
    for (int64_t row = 0; row < at->num_rows; row++) {
        float *qkv = s->qkv + row * stride;
        if (t->cos) {
            int64_t angle = at->position[row] * stack->d_k / 2;
            turn(qkv, 2 * stack->num_heads, stack->d_k, t->cos + angle, t->sin + angle);
        }
        if (!at->first) {
            int64_t place = s->path[row * at->longest + at->position[row]];
            float *past = at->slots[at->slot[row]].past + place * past_stride + index * (keys + values);
            memcpy(past, qkv + keys, (keys + values) * sizeof *past);
        }
    }
    keep(at->record.qkv, index, s->qkv, at->num_rows * stride);
    if (!stack->layers[index].query.panels) {
        attend_to_sentences(stack, t, index, at, s);
        return;
    }
    for (int64_t row = 0; row < at->num_rows; row++) {
        Context c = {.count = at->position[row] + 1};
        if (at->first) {
            c.keys = s->qkv + at->first[row] * stride + keys;
            c.place = stride;
        } else {
            c.keys = at->slots[at->slot[row]].past + index * (keys + values);
            c.place = past_stride;
            c.path = s->path + row * at->longest;
        }
        c.values = c.keys + keys;
        c.block = LANES * c.place;
        const float *bias = t->relative ? t->relative + t->reach - 1 - at->position[row] : NULL; /* at position 0 */
        attend(stack, 1, s->qkv + row * stride, stride, &c, 0, bias, 2 * t->reach - 1, s, s->attended + row * values,
               seen_by(stack, at->record.self_attn, index, at, row), at->num_rows * at->longest, 0);
    }
}

static void cross_attention(const Stack *stack, int64_t index, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    int64_t stride = stack->layers[index].query.outputs, size = LANES * (keys + values);
    keep(at->record.queries, index, s->qkv, at->num_rows * stride);
    for (int64_t row = 0, end; row < at->num_rows; row = end) {
        end = end_of(at->slot, row, at->num_rows);
        const Slot *slot = at->slots + at->slot[row];
        const float *memory = slot->memory + index * size;
        Context c = {.keys = memory, .values = memory + LANES * keys, .key_block = stack->num_layers * size,
                     .block = stack->num_layers * size, .place = values, .count = slot->source_length};
        attend(stack, end - row, s->qkv + row * stride, stride, &c, 1, NULL, 0, s, s->attended + row * values,
               seen_by(stack, at->record.cross_attn, index, at, row), at->num_rows * at->longest, at->longest);
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
    for (int64_t row = 0; row < at->num_rows; row++)
        for (int64_t i = 0; i < width; i += WIDE) {
            Floats value = load(t->embedding + token[row] * width + i) * all(t->embedding_scale);
            if (t->positions) value += load(t->positions + at->position[row] * width + i);
            if (t->segment) value += load(t->segment + i);
            store(x + row * width + i, value);
        }
    if (t->embedding_norm.weight) normalize(&t->embedding_norm, x, at->num_rows, width, x);
}

/* A stack (section 3.1): embedding, layers, final norm. */
static void run_layers(const Stack *stack, const Tokens *t, const int32_t *token, const Places *at, Scratch *s) {
    int64_t rows = at->num_rows;
    embed(stack, t, token, at, s->x);
    keep(at->record.states, 0, s->x, rows * stack->d_model);
    for (int64_t index = 0; index < stack->num_layers; index++) {
        const Layer *layer = stack->layers + index;
        product(&layer->qkv, before(stack, &layer->self_norm, rows, s), rows, s->qkv, 0, s);
        self_attention(stack, t, index, at, s);
        spend(s, ATTENTION);
        product(&layer->self_out, s->attended, rows, s->update, 0, s);
        after(stack, &layer->self_norm, rows, s);

        if (layer->query.panels) {
            product(&layer->query, before(stack, &layer->cross_norm, rows, s), rows, s->qkv, 0, s);
            cross_attention(stack, index, at, s);
            spend(s, ATTENTION);
            product(&layer->cross_out, s->attended, rows, s->update, 0, s);
            after(stack, &layer->cross_norm, rows, s);
        }

        const float *x = before(stack, &layer->ff_norm, rows, s); /* equation 2 (section 3.3) */
        int is_rectified = !layer->gate.panels && stack->activation == RELU;
        product(&layer->up, x, rows, s->hidden, is_rectified, s);
        if (layer->gate.panels) {
            product(&layer->gate, x, rows, s->gate, 0, s); /* separate, because `hidden` must be contiguous */
            activate(s->gate, rows * stack->d_ff, stack->activation);
            for (int64_t i = 0; i < rows * stack->d_ff; i++) s->hidden[i] *= s->gate[i];
        } else if (!is_rectified) {
            activate(s->hidden, rows * stack->d_ff, stack->activation);
        }
        product(&layer->down, s->hidden, rows, s->update, 0, s);
        after(stack, &layer->ff_norm, rows, s);
        keep(at->record.states, index + 1, s->x, rows * stack->d_model);
    }
    if (stack->final_norm.weight) normalize(&stack->final_norm, s->x, rows, stack->d_model, s->x);
    keep(at->record.states, stack->num_layers, s->x, rows * stack->d_model);
    if (stack->divides_output) {
        float root = sqrtf((float)stack->d_model);
        for (int64_t i = 0; i < rows * stack->d_model; i++) s->x[i] /= root;
    }
    spend(s, NORMS);
}
