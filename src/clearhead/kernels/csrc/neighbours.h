/* Mixture of a row's distribution with that of retrieved translations: the arithmetic of decoding/neighbours.py
 * (Khandelwal et al. 2021), for the tokens that these have and the best others. A test holds the two forms together. */

#pragma once

#include <math.h>
#include <string.h>

#include "rows.h"

/* Insert a value into the best ones, in descending order; equal values keep their order. */
INLINE void insert(float *best, int32_t *ids, int64_t count, float value, int32_t id) {
    int64_t at = count - 1;
    for (; at > 0 && best[at - 1] < value; at--) best[at] = best[at - 1], ids[at] = ids[at - 1];
    best[at] = value;
    ids[at] = id;
}

/* Keep the logits of the neighbours' tokens among those of tokens `first` and on, or `ids` if given; all ascend. */
static void keep_logits(const float *logits, int64_t first, int64_t size, const int32_t *ids, Choice *c) {
    const Neighbours *near = c->near;
    for (int64_t at = 0; c->next < near->num_tokens; c->next++) {
        int32_t token = near->tokens[c->next];
        if (!ids) at = token - first;
        while (ids && at < size && ids[at] < token) at++;
        if (at >= size) return;
        if (!ids || ids[at] == token) near->logits[c->beam * near->num_tokens + c->next] = logits[at];
    }
}

/* Compute the probability of each of the neighbours' tokens after a state: the sum of softmax(-distance^2 / temperature)
 * over the keys that it follows. Return their weight. */
static double find_shares(const Neighbours *near, const float *state, int64_t width) {
    int64_t padded = rounded(near->num_keys, LANES);
    Floats most = all(-INFINITY);
    Lanes total = {{{0}}};
    for (int64_t key = 0; key < padded; key++) {
        const float *own = near->keys + key * width;
        Lanes sum = {{{0}}};
        for (int64_t i = 0; key < near->num_keys && i < width; i += LANES)
            for (int r = 0; r < LANES / WIDE; r++) {
                Floats difference = load(state + i + r * WIDE) - load(own + i + r * WIDE);
                sum.part[r] = multiply_add(difference, difference, sum.part[r]);
            }
        near->scores[key] = key < near->num_keys ? -sum_of(sum) : -INFINITY;
    }
    for (int64_t key = 0; key < padded; key += WIDE) most = larger(most, load(near->scores + key));
    float nearest = largest_of(most);
    Floats factor = all(1.0f / (float)near->temperature);
    for (int64_t key = 0; key < padded; key += LANES)
        for (int r = 0; r < LANES / WIDE; r++) {
            Floats share = exponential((load(near->scores + key + r * WIDE) - all(nearest)) * factor);
            store(near->scores + key + r * WIDE, share);
            total.part[r] += share;
        }
    float sum = sum_of(total);
    memset(near->shares, 0, near->num_tokens * sizeof *near->shares);
    for (int64_t key = 0; key < near->num_keys; key++) near->shares[near->values[key]] += near->scores[key] / sum;
    double share = 1.0 + nearest / near->reach;
    return share > 0.0 ? near->weight * share : 0.0;
}

/* Replace the log-probabilities of a row, the best and all, by those of the mixture. Of the model's best tokens those
 * that no neighbour has stay in their order, and all that one has are inserted, so the best of the mixture are among
 * them. */
static void mix(const float *state, int64_t width, int64_t count, int64_t vocab_size, float log_sum, Choice *c) {
    const Neighbours *near = c->near;
    const float *logits = near->logits + c->beam * near->num_tokens;
    double weight = find_shares(near, state, width);
    if (!(weight > 0.0)) return;
    float rest = (float)log(1.0 - weight);
    int64_t others = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        while (at < near->num_tokens && near->tokens[at] != c->ids[i]) at++;
        if (at < near->num_tokens) continue;
        c->ids[others] = c->ids[i];
        c->best[others++] = c->best[i] + rest;
    }
    for (; others < count; others++) c->best[others] = -INFINITY, c->ids[others] = 0;
    for (int64_t i = 0; c->all && i < vocab_size; i++) c->all[i] += rest;
    for (int64_t i = 0; i < near->num_tokens; i++) {
        int32_t token = near->tokens[i];
        if (!c->may_come[token]) continue;
        double of_model = exp(logits[i] - c->largest - log_sum);
        float value = (float)log((1.0 - weight) * of_model + weight * near->shares[i]);
        if (c->all) c->all[token] = value;
        if (value > c->best[count - 1]) insert(c->best, c->ids, count, value, token);
    }
}
