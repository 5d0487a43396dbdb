/* Greedy and beam search (section 6.1): the decisions of decoding/beam_state.py, token_masks.py and repetition.py
 * between two decoding steps, in plain C. A test holds the two forms together, bit for bit.
 *
 * Masks that depend on more than a hypothesis' length and repetition (of prefixes and placeholders) are Python's. */

#pragma once

#include <math.h>
#include <string.h>

#include "types.h"

/* The tokens of a hypothesis of some length: this one or the one before. */
static int32_t *written(const Search *search, const Hypotheses *h, int64_t length, int64_t beam) {
    return h->written + (length % 2 * search->step->beam_size + beam) * h->max_length;
}

/* Return whether the last tokens repeat more than `times` times in a row, over more than `loop_tokens` tokens. */
static int ends_repeating(const int32_t *tokens, int64_t size, int64_t times, int64_t loop_tokens) {
    if (size <= loop_tokens) return 0;
    for (int64_t period = 1; period <= size / (times + 1); period++) {
        int64_t same = max64(times * period, loop_tokens + 1 - period), at = size - 1, first = size - same;
        while (at >= first && tokens[at] == tokens[at - period]) at--; /* nearly always the first differ */
        if (at < first) return 1;
    }
    return 0;
}

/* The state of the automaton of UTF-8 of each hypothesis of some length: this one or the one before. */
static int32_t *states(const Search *search, const Hypotheses *h, int64_t length) {
    return h->states + length % 2 * search->step->beam_size;
}

/* Set the masks that depend on length and repetition alone. Return whether the repetitions in the source are known as
 * far as needed. */
static int set_masks(const Search *search, Hypotheses *h) {
    if (h->length < h->guided_until) return 1;
    int is_last = h->length + 1 == h->max_length;
    int64_t room = max64(0, h->max_length - h->length - 2);
    if (room >= UTF8_ROOMS) room = UTF8_ROOMS - 1;
    for (int64_t beam = 0; beam < h->num_open; beam++) {
        const int32_t *own = written(search, h, h->length, beam) + h->prefix; /* a prefix may contain repetitions */
        int64_t size = h->length - h->prefix, times = search->loop_times;
        int32_t state = search->next_states ? states(search, h, h->length)[beam] : 0;
        h->masks[beam] = is_last ? END_ALONE : ANYTHING;
        if (!is_last && search->next_states) h->masks[beam] = (int32_t)(UTF8_MASKS + room * UTF8_STATES + state);
        if (state || is_last || !search->ends_loops || !ends_repeating(own, size, times, search->loop_tokens)) continue;
        if (h->times_in_source < 1) {
            h->times_in_source = -1;
            return 0;
        }
        if (ends_repeating(own, size, times * h->times_in_source, search->loop_tokens)) h->masks[beam] = END_ALONE;
    }
    return 1;
}

/* Fill in the rows of the next step. Return 0 if Python must first count the repetitions in a source. */
static int begin_step(const Search *search) {
    Step *step = search->step;
    int is_ready = 1;
    int64_t row = 0;
    for (int64_t slot = 0; slot < step->num_slots; slot++) {
        Hypotheses *h = search->sentences[slot];
        is_ready &= set_masks(search, h);
        for (int64_t beam = 0; beam < h->num_open; beam++, row++) {
            step->slot[row] = (int32_t)slot;
            step->beam[row] = (int32_t)beam;
            step->parent[row] = h->parents[beam];
            step->position[row] = (int32_t)h->length;
            step->token[row] = h->newest[beam];
            step->mask[row] = h->masks[beam];
            step->score[row] = h->scores[beam];
        }
    }
    step->num_rows = row;
    return is_ready;
}

/* Add a hypothesis that just ended to the finished ones, if it is among the best; of equal ones the earlier is better. */
static void finish(const Search *search, Hypotheses *h, int64_t beam, float log_prob) {
    double rank_score = log_prob / search->penalties[h->length];
    int64_t at = h->num_finished, place = at;
    if (at < search->num_best) {
        h->num_finished++;
    } else {
        at--;
        if (!(h->finished[at].rank_score < rank_score)) return;
        place = h->finished[at].place;
    }
    for (; at > 0 && h->finished[at - 1].rank_score < rank_score; at--) h->finished[at] = h->finished[at - 1];
    h->finished[at] = (Finished){
        .rank_score = rank_score, .log_prob = log_prob, .length = (int32_t)h->length, .place = (int32_t)place,
        .was_ended = h->masks[beam] == END_ALONE};
    int32_t *tokens = h->finished_tokens + place * h->max_length;
    memcpy(tokens, written(search, h, h->length - 1, beam), (h->length - 1) * sizeof *tokens);
    tokens[h->length - 1] = (int32_t)search->eos_id;
}

/* Extend the hypotheses of a slot by its best candidates; finish the ended ones and drop the hopeless ones. */
static void extend(const Search *search, Hypotheses *h, int64_t slot) {
    const Step *step = search->step;
    int64_t first = slot * step->num_candidates, open = 0;
    h->length++;
    for (int64_t rank = 0; rank < step->num_candidates && open < step->beam_size; rank++) {
        float score = step->candidate_score[first + rank];
        int32_t beam = step->candidate_beam[first + rank], token = step->candidate_token[first + rank];
        if (isnan(score)) h->num_finished = 0; /* no result: the search is an error */
        if (!(score > -INFINITY)) break;
        if (token != search->eos_id) {
            h->scores[open] = score;
            h->parents[open] = beam;
            h->newest[open++] = token;
        } else if (rank < step->beam_size) {
            finish(search, h, beam, score);
        }
    }
    double to_beat = h->num_finished < search->num_best ? -INFINITY : h->finished[search->num_best - 1].rank_score;
    while (open && !(h->scores[open - 1] / h->longest_penalty > to_beat)) open--; /* it cannot win any more */
    for (int64_t beam = 0; beam < open; beam++) {
        int32_t *tokens = written(search, h, h->length, beam);
        memcpy(tokens, written(search, h, h->length - 1, h->parents[beam]), (h->length - 1) * sizeof *tokens);
        tokens[h->length - 1] = h->newest[beam];
        if (search->next_states) {
            int32_t state = states(search, h, h->length - 1)[h->parents[beam]];
            states(search, h, h->length)[beam] = search->next_states[state * search->step->vocab_size + h->newest[beam]];
        }
        if (h->length <= h->given) h->scores[beam] = 0.0f;
    }
    h->num_open = open;
}

/* Extend all hypotheses by the candidates of the last step. Return 0 if Python has to act before the next. */
static int end_step(const Search *search) {
    int goes_on = 1;
    for (int64_t slot = 0; slot < search->step->num_slots; slot++) {
        Hypotheses *h = search->sentences[slot];
        extend(search, h, slot);
        goes_on &= h->num_open && h->length >= h->guided_until;
    }
    return goes_on;
}
