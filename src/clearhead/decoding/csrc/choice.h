/* From states to the best tokens of each row, and from those to the best ways on for each sentence (section 6.1). */

#pragma once

#include <math.h>

#include "products.h"
#include "rows.h"

/* Keep the best values in descending order; of equal ones the earlier stays in front. */
INLINE void insert(float *best, int32_t *ids, int64_t count, float value, int32_t id) {
    int64_t at = count - 1;
    for (; at > 0 && best[at - 1] < value; at--) best[at] = best[at - 1], ids[at] = ids[at - 1];
    best[at] = value;
    ids[at] = id;
}

/* The softmax of section 3.4, some logits after others: take in some more logits of a row. Of those before, `best` holds
 * the best, the largest, and the sum of exponentials below it. Where a translation is at its length limit, only the end
 * may come. */
static void look_at(
    const float *logits, int64_t first, int64_t size, const int32_t *listed, const Tokens *t, int is_last,
    int64_t count, float *best, int32_t *ids
) {
    float *largest = best + count, *sum = best + count + 1;
    __m512 most = _mm512_set1_ps(-INFINITY), total = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += WIDE)
        most = _mm512_mask_max_ps(most, first_lanes(size - i), most, _mm512_loadu_ps(logits + i));
    float peak = _mm512_reduce_max_ps(most);
    if (peak > *largest) {
        *sum *= expf(*largest - peak);
        *largest = peak;
    }
    __m512 base = _mm512_set1_ps(*largest == -INFINITY ? 0.0f : *largest); /* minus infinity less itself is no number */
    for (int64_t i = 0; i < size; i += WIDE) {
        __mmask16 mask = first_lanes(size - i);
        __m512 values = _mm512_loadu_ps(logits + i);
        total = _mm512_mask_add_ps(total, mask, total, exp512(_mm512_sub_ps(values, base)));
        mask = _mm512_mask_cmp_ps_mask(mask, values, _mm512_set1_ps(best[count - 1]), _CMP_GT_OQ);
        for (; mask; mask &= mask - 1) {
            int64_t at = i + __builtin_ctz(mask);
            int32_t id = listed ? listed[first + at] : (int32_t)(first + at);
            int may_come = id == t->eos_id || (!is_last && id != t->pad_id && id != t->bos_id);
            if (may_come && logits[at] > best[count - 1]) insert(best, ids, count, logits[at], id);
        }
    }
    *sum += _mm512_reduce_add_ps(total);
}

/* Compute logits of some neighbouring rows, so many at once as stay in the cache, and take them in. */
static void choose_among(
    const Product *p, int64_t num_ids, const int32_t *listed, const Tokens *t, const Step *step, int64_t row,
    int64_t rows, int64_t width, Scratch *s
) {
    const float *x = s->x + row * width;
    prepare_rows(p, x, rows, s);
    for (int64_t first = 0; first < num_ids; first += CHUNK) {
        int64_t size = num_ids - first < CHUNK ? num_ids - first : CHUNK;
        multiply(p, x, rows, first / PANEL, (first + rounded(size, PANEL)) / PANEL, s->logits, LOGITS, s);
        spend(s, VOCABULARY);
        for (int64_t i = 0; i < rows; i++) {
            float *best = s->best + (row + i) * (step->count + 2);
            int32_t *ids = s->best_ids + (row + i) * step->count;
            look_at(s->logits + i * LOGITS, first, size, listed, t, step->is_last[row + i], step->count, best, ids);
        }
        spend(s, CHOICE);
    }
}

/* Find the best tokens of each row: log-probabilities and ids. */
static void choose(const Stack *stack, const Tokens *t, const Step *step, Scratch *s) {
    int64_t count = step->count, rows = step->num_rows;
    memset(s->best_ids, 0, rows * count * sizeof *s->best_ids);
    for (int64_t row = 0; row < rows; row++) {
        float *best = s->best + row * (count + 2);
        for (int64_t i = 0; i <= count; i++) best[i] = -INFINITY;
        best[count + 1] = 0.0f;
    }
    choose_among(&stack->output, t->num_ids, t->ids, t, step, 0, rows, stack->d_model, s);
    for (int64_t row = 0, next; row < rows; row = next) {
        for (next = row; next < rows && step->lane[next] == step->lane[row];) next++;
        const Lane *lane = step->lanes + step->lane[row];
        if (lane->num_own)
            choose_among(&lane->own, lane->num_own, lane->own_ids, t, step, row, next - row, stack->d_model, s);
    }
    for (int64_t row = 0; row < rows; row++) {
        float *best = s->best + row * (count + 2), log_sum = logf(best[count + 1]);
        for (int64_t i = 0; i < count; i++) best[i] = best[i] - best[count] - log_sum;
    }
}

/* Find the log-probability of a given token of each row, computed as `choose` computes that of the tokens it keeps. */
static void look_up(
    const Product *p, const Tokens *t, int64_t rows, const int32_t *wanted, float *log_probs, Scratch *s
) {
    for (int64_t row = 0; row < rows; row++) {
        float *best = s->best + row * 3;
        best[0] = best[1] = -INFINITY;
        best[2] = 0.0f;
    }
    prepare_rows(p, s->x, rows, s);
    for (int64_t first = 0; first < t->num_ids; first += CHUNK) {
        int64_t size = t->num_ids - first < CHUNK ? t->num_ids - first : CHUNK;
        multiply(p, s->x, rows, first / PANEL, (first + rounded(size, PANEL)) / PANEL, s->logits, LOGITS, s);
        for (int64_t row = 0; row < rows; row++) {
            const float *logits = s->logits + row * LOGITS;
            look_at(logits, first, size, NULL, t, 0, 1, s->best + row * 3, s->best_ids + row);
            if (first <= wanted[row] && wanted[row] < first + size) log_probs[row] = logits[wanted[row] - first];
        }
    }
    for (int64_t row = 0; row < rows; row++)
        log_probs[row] = log_probs[row] - s->best[row * 3 + 1] - logf(s->best[row * 3 + 2]);
}

/* Find the best ways for each lane to go on. */
static void find_ways(const Step *step, const Scratch *s) {
    int64_t count = step->count, ways = step->num_ways;
    for (int64_t i = 0; i < step->num_lanes * ways; i++) step->way_score[i] = -INFINITY;
    for (int64_t row = 0; row < step->num_rows; row++) {
        float *scores = step->way_score + step->lane[row] * ways;
        int32_t *beams = step->way_beam + step->lane[row] * ways, *tokens = step->way_token + step->lane[row] * ways;
        for (int64_t i = 0; i < count; i++) {
            float score = step->score[row] + s->best[row * (count + 2) + i];
            if (!(score > scores[ways - 1])) break;
            int64_t at = ways - 1;
            for (; at > 0 && scores[at - 1] < score; at--)
                scores[at] = scores[at - 1], beams[at] = beams[at - 1], tokens[at] = tokens[at - 1];
            scores[at] = score;
            beams[at] = step->beam[row];
            tokens[at] = s->best_ids[row * count + i];
        }
    }
}
