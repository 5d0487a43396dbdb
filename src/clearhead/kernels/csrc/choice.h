/* Selection of the best tokens of each row, and of the best candidates of each sentence (section 6.1). */

#pragma once

#include <math.h>

#include "neighbours.h"
#include "products.h"

/* A product of logits, with the tokens that they belong to. */
typedef struct {
    const Product *product;
    const int32_t *ids; /* NULL is the first `count` tokens */
    int64_t count;
    const Stack *rough; /* whose rough product it is, or NULL */
    int64_t best_alone; /* whether the log-probabilities are not needed */
} Vocabulary;

/* Find the best tokens among some logits. */
static void find_best(
    const float *logits, int64_t first, int64_t size, const Vocabulary *v, int64_t count, Choice *c
) {
    for (int64_t i = 0; i < size; i += WIDE)
        for (unsigned above = lanes_above(load(logits + i), c->best[count - 1]); above; above &= above - 1) {
            int64_t at = i + __builtin_ctz(above);
            int32_t id = v->ids ? v->ids[first + at] : (int32_t)(first + at);
            if (c->may_come[id] && logits[at] > c->best[count - 1]) insert(c->best, c->ids, count, logits[at], id);
        }
}

#define LOOKED_AT (4 * LANES) /* logits that are compared together with the worst of the best */

/* Update a row's softmax and best tokens with more of its logits, which have room for whole LANES. */
static void look_at(float *logits, int64_t first, int64_t size, const Vocabulary *v, int64_t count, Choice *c) {
    Floats most = all(-INFINITY);
    for (int64_t i = size; i % LANES; i++) logits[i] = -INFINITY;
    for (int64_t i = 0; i < size; i += LOOKED_AT) {
        int64_t some = size - i < LOOKED_AT ? size - i : LOOKED_AT;
        Floats of_some = all(-INFINITY);
        for (int64_t at = 0; at < some; at += WIDE) of_some = larger(of_some, load(logits + i + at));
        most = larger(most, of_some);
        if (c->may_come && lanes_above(of_some, c->best[count - 1]))
            find_best(logits + i, first + i, some, v, count, c);
    }
    if (v->best_alone) return;
    float peak = largest_of(most);
    if (peak > c->largest) {
        c->sum *= exponential(all(c->largest - peak))[0];
        c->largest = peak;
    }
    Floats base = all(c->largest == -INFINITY ? 0.0f : c->largest); /* inf - inf is NaN */
    Lanes total = {{{0}}};
    for (int64_t i = 0; i < size; i += LANES)
        for (int r = 0; r < LANES / WIDE; r++) total.part[r] += exponential(load(logits + i + r * WIDE) - base);
    c->sum += sum_of(total);
    if (!v->ids && first <= c->wanted && c->wanted < first + size) c->logit = logits[c->wanted - first];
    if (c->all) memcpy(c->all + first, logits, size * sizeof *logits);
    if (c->near) keep_logits(logits, first, size, v->ids ? v->ids + first : NULL, c);
}

/* Keep the best of a row's tokens that are left, by their logits in float32, which are computed as in fp32_block. */
static void settle(const Stack *stack, const float *x, Left *left) {
    const Product *p = &stack->output;
    float best = -INFINITY;
    int32_t id = 0, count = 0;
    for (int32_t i = 0; i < left->count; i++)
        if (left->most[i] > left->least) left->ids[count++] = left->ids[i];
    for (int32_t first = 0; first < count; first += WIDE) {
        const float *row[WIDE];
        Floats logit = {0}, weight;
        for (int i = 0; i < WIDE; i++)
            row[i] = stack->rough.matrix + left->ids[first + i < count ? first + i : first] * p->inputs;
        for (int64_t k = 0; k < p->inputs; k++) {
            for (int i = 0; i < WIDE; i++) weight[i] = row[i][k];
            logit = multiply_add(all(x[k]), weight, logit);
        }
        for (int i = 0; i < WIDE && first + i < count; i++) {
            int32_t own = left->ids[first + i];
            float value = p->bias ? logit[i] + p->bias[own] : logit[i];
            if (value > best) best = value, id = own;
        }
    }
    *left = (Left){.least = best, .total = left->total, .count = best > -INFINITY, .ids = {id}, .most = {INFINITY}};
}

/* Update the tokens that may be the best of a row with more of its logits in 8 bits, which are at most so far from those
 * in float32: with levels l of step t for the row x, and levels m of step u for the weights w, the difference is the sum
 * of x (w - u m) and (x - t l) u m, at most |x| u / 2 and |u m| t / 2, and what is lost to rounding. */
static void narrow(
    float *logits, int64_t first, int64_t size, const Stack *stack, const float *x, float step, const uint8_t *may_come,
    Left *left
) {
    const Product *p = &stack->rough.product;
    float of_weights = left->total * (0.501f + 64.0f * (p->inputs + 8) * 0x1p-23f), of_row = step * 0.501f;
    for (int64_t i = 0; i < size; i += WIDE) {
        Floats value = load(logits + i), size_of = (Floats)((Ints)value & 0x7fffffff);
        Floats error = all(of_weights) * load(p->scales + first + i) + all(of_row) * load(stack->rough.sizes + first + i)
                       + all(0x1p-20f) * size_of + all(1e-30f); /* more than 0 */
        Floats least = value - error;
        store(logits + i, smaller(value + error, all(INFINITY))); /* what overflowed may be the best */
        for (unsigned above = lanes_above(least, left->least); above; above &= above - 1) {
            int64_t at = i + __builtin_ctz(above);
            if (at < size && may_come[first + at] && least[at - i] > left->least) left->least = least[at - i];
        }
    }
    for (int64_t i = 0; i < size; i += WIDE)
        for (unsigned above = lanes_above(load(logits + i), left->least); above; above &= above - 1) {
            int64_t at = i + __builtin_ctz(above);
            if (at >= size || !may_come[first + at]) continue;
            if (left->count == MOST_LEFT) settle(stack, x, left);
            left->most[left->count] = logits[at];
            left->ids[left->count++] = (int32_t)(first + at);
        }
}

static void begin_choices(Scratch *s, int64_t rows, int64_t count) {
    memset(s->best_ids, 0, rows * count * sizeof *s->best_ids);
    for (int64_t i = 0; i < rows * count; i++) s->best[i] = -INFINITY;
    for (int64_t row = 0; row < rows; row++)
        s->choices[row] = (Choice){
            .largest = -INFINITY, .best = s->best + row * count, .ids = s->best_ids + row * count, .wanted = -1};
}

/* Compute the logits of adjacent rows, as many at a time as there is room for, and update the rows with them. */
static void choose_among(const Vocabulary *v, int64_t row, int64_t rows, int64_t count, Scratch *s) {
    const float *x = s->x + row * v->product->inputs;
    int64_t padded = rounded(rows, 2 * TILE_ROWS), room = padded * LOGITS / (v->product->is_on_amx ? padded : rows);
    int64_t some = (room - LANES) / CHUNK * CHUNK;
    prepare_rows(v->product, x, rows, s);
    for (int64_t i = 0; i < rows; i++) s->choices[row + i].next = 0;
    for (int64_t first = 0; first < v->count; first += some) {
        int64_t end = v->count - first < some ? v->count : first + some;
        multiply((Work){.product = v->product, .x = x, .rows = rows, .first = first / PANEL,
                        .last = rounded(end, PANEL) / PANEL, .y = s->logits, .stride = some + LANES}, s);
        spend(s, VOCABULARY);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t at = first; at < end; at += CHUNK) {
                float *logits = s->logits + i * (some + LANES) + at - first;
                int64_t size = end - at < CHUNK ? end - at : CHUNK;
                Choice *c = s->choices + row + i;
                if (v->rough)
                    narrow(logits, at, size, v->rough, x + i * v->product->inputs, s->scales[i], c->may_come, s->left + i);
                else look_at(logits, at, size, v, count, c);
            }
        spend(s, CHOICE);
    }
}

/* Find the best token of each row in float32 by way of 8 bits. */
static void choose_roughly(const Stack *stack, const Tokens *t, int64_t rows, Scratch *s) {
    int64_t inputs = stack->output.inputs;
    for (int64_t row = 0; row < rows; row++) {
        Lanes total = {{{0}}};
        for (int64_t i = 0; i < inputs; i += WIDE)
            total.part[0] += (Floats)((Ints)load(s->x + row * inputs + i) & 0x7fffffff);
        s->left[row] = (Left){.least = -INFINITY, .total = sum_of(total)};
    }
    choose_among(&(Vocabulary){&stack->rough.product, NULL, t->num_ids, stack, 1}, 0, rows, 1, s);
    for (int64_t row = 0; row < rows; row++) {
        settle(stack, s->x + row * inputs, s->left + row);
        s->best[row] = s->left[row].least;
        s->best_ids[row] = s->left[row].ids[0];
    }
}

/* Prepare a row whose sentence has neighbours. */
static void begin_near(const Neighbours *near, int64_t beam, Choice *c) {
    c->near = near;
    c->beam = beam;
    for (int64_t i = 0; i < near->num_tokens; i++) near->logits[beam * near->num_tokens + i] = -INFINITY;
}

/* Find the best tokens of each row, and their log-probabilities. */
static void choose(const Stack *stack, const Tokens *t, const Step *step, Scratch *s) {
    int64_t count = step->count, rows = step->num_rows;
    begin_choices(s, rows, count);
    for (int64_t row = 0; row < rows; row++) {
        s->choices[row].may_come = step->masks + step->mask[row] * step->vocab_size;
        if (step->log_probs) s->choices[row].all = step->log_probs + row * step->vocab_size;
        const Neighbours *near = &step->slots[step->slot[row]].near;
        if (near->num_keys) begin_near(near, step->beam[row], s->choices + row);
    }
    if (stack->rough.product.panels) choose_roughly(stack, t, rows, s);
    else
        choose_among(&(Vocabulary){&stack->output, t->ids, t->num_ids, NULL, stack->finds_best_alone}, 0, rows, count, s);
    for (int64_t row = 0; row < rows && stack->finds_best_alone; row++)
        s->best[row] -= s->best[row]; /* 0; NaN if it is infinite, which counts as impossible */
    if (stack->finds_best_alone) return;
    for (int64_t row = 0, next; row < rows; row = next) {
        for (next = row; next < rows && step->slot[next] == step->slot[row];) next++;
        const Slot *slot = step->slots + step->slot[row];
        if (slot->num_own)
            choose_among(&(Vocabulary){&slot->own, slot->own_ids, slot->num_own, NULL, 0}, row, next - row, count, s);
    }
    for (int64_t row = 0; row < rows; row++) {
        Choice *c = s->choices + row;
        float log_sum = (float)log(c->sum);
        for (int64_t i = 0; i < count; i++) c->best[i] = c->best[i] - c->largest - log_sum;
        for (int64_t i = 0; c->all && i < step->vocab_size; i++)
            c->all[i] = c->may_come[i] ? c->all[i] - c->largest - log_sum : -INFINITY;
        if (c->near) mix(s->x + row * stack->d_model, stack->d_model, count, step->vocab_size, log_sum, c);
    }
}

/* Find the log-probability of the wanted token of each row, computed exactly as in `choose`. */
static void look_up(const Stack *stack, const Tokens *t, const Targets *targets, Scratch *s) {
    begin_choices(s, targets->num_rows, 1);
    for (int64_t row = 0; row < targets->num_rows; row++) s->choices[row].wanted = targets->wanted[row];
    choose_among(&(Vocabulary){&stack->output, NULL, t->num_ids, NULL, 0}, 0, targets->num_rows, 1, s);
    for (int64_t row = 0; row < targets->num_rows; row++) {
        const Choice *c = s->choices + row;
        targets->log_probs[row] = c->logit - c->largest - (float)log(c->sum);
    }
}

/* Find the best candidates of each slot: pairs of a row and a next token. Where the probabilities of any of its rows are
 * no numbers, their scores are NaN. */
static void find_candidates(const Step *step, const Scratch *s) {
    int64_t count = step->count, most = step->num_candidates, all = step->num_slots * most;
    for (int64_t i = 0; i < all; i++) step->candidate_score[i] = -INFINITY;
    memset(step->candidate_beam, 0, all * sizeof *step->candidate_beam);
    memset(step->candidate_token, 0, all * sizeof *step->candidate_token);
    for (int64_t row = 0; row < step->num_rows; row++) {
        int64_t slot = step->slot[row] * most;
        for (int64_t i = 0; i < count; i++) {
            float score = step->score[row] + s->best[row * count + i];
            for (int64_t at = 0; isnan(score) && at < most; at++) step->candidate_score[slot + at] = NAN;
            if (!(score > step->candidate_score[slot + most - 1])) break;
            /* Until the end, one number encodes row and token. */
            insert(step->candidate_score + slot, step->candidate_token + slot, most, score, (int32_t)(row * count + i));
        }
    }
    for (int64_t i = 0; i < all; i++) {
        if (step->candidate_score[i] == -INFINITY) continue;
        int32_t number = step->candidate_token[i];
        step->candidate_beam[i] = step->beam[number / count];
        step->candidate_token[i] = s->best_ids[number];
    }
}
