/* Prints hashes of what each form of the compiled core computes: encoded sources, translations and scores of random
 * sentences by random models, with a beam and greedily. test_build.py compiles it, also for other processors, and
 * compares the lines.
 *
 * All random numbers are drawn by one generator, and no table is computed by the C library, so that only the core can
 * make a difference. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#ifndef SENTENCES
#define SENTENCES 30
#endif
#ifndef TIMES
#define TIMES 1 /* as wide as here */
#endif
#ifndef MODELS
#define MODELS 4
#endif
#ifndef PRECISIONS
#define PRECISIONS FP32, BF16, BF16X3, INT8
#endif
enum { BEAM = 4, MOST_TOKENS = 12, LONGEST_SOURCE = 37, POSITIONS = 64 };
enum { NUM_TOKENS = TIMES * 211, PAD = 0, BOS = 1, EOS = 2, WORDS = 3 };
enum { D_MODEL = TIMES * 64, HEADS = TIMES * 2, D_K = 16, D_V = 32, D_FF = TIMES * 128, LAYERS = 2, WIDTH = HEADS * (D_K + D_V) };

extern const char *use_form(const char *name);
extern int64_t scratch_size(const Stack *stack, int64_t rows, int64_t longest, int64_t count, int is_search);
extern void pack(const Product *p, const float *matrix, const int32_t *ids, int64_t count, char *panels, float *scales);
extern void encode(const Stack *stack, const Tokens *t, const Sources *sources);
extern int advance(const Stack *stack, const Tokens *t, const Search *search);
extern void score(const Stack *stack, const Tokens *t, const Targets *targets);

static uint64_t state;

/* Xorshift (Marsaglia 2003). */
static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void *room(size_t bytes) {
    void *at = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!at) exit(3);
    return memset(at, 0, bytes);
}

/* Numbers between -size and size. */
static float *numbers(int64_t count, float size) {
    float *found = room(count * sizeof *found);
    for (int64_t i = 0; i < count; i++) found[i] = size * ((int32_t)(draw() >> 8) - (1 << 23)) / (float)(1 << 23);
    return found;
}

static Norm norm(int is_rms) {
    Norm n = {.weight = numbers(D_MODEL, 2.0f), .eps = 1e-5, .is_rms = is_rms};
    if (!is_rms) n.bias = numbers(D_MODEL, 0.5f);
    return n;
}

static Product packed(int64_t precision, int64_t outputs, int64_t inputs, const float *matrix, const float *bias) {
    Product p = {.inputs = inputs, .outputs = rounded(outputs, PANEL), .precision = precision, .bias = bias};
    char *panels = room(packed_size(outputs, inputs, precision));
    float *scales = precision == INT8 ? room(p.outputs * sizeof *scales) : NULL;
    pack(&p, matrix, NULL, outputs, panels, scales);
    p.panels = panels;
    p.scales = scales;
    return p;
}

static Product product(int64_t precision, int64_t outputs, int64_t inputs) {
    float *bias = room(rounded(outputs, PANEL) * sizeof *bias);
    memcpy(bias, numbers(outputs, 0.3f), outputs * sizeof *bias);
    return packed(precision, outputs, inputs, numbers(outputs * inputs, 0.4f), bias);
}

/* The output matrix in 8 bits too, as `NativeWeights.greedy_decoder` has it. */
static Rough rough(const float *matrix, const float *bias) {
    Rough r = {.product = packed(INT8, NUM_TOKENS, D_MODEL, matrix, bias), .matrix = matrix};
    float *sizes = room(r.product.outputs * sizeof *sizes);
    for (int i = 0; i < NUM_TOKENS; i++) {
        for (int k = 0; k < D_MODEL; k++) sizes[i] += fabsf(matrix[i * D_MODEL + k]);
        sizes[i] = 1.001f * (sizes[i] + D_MODEL / 2 * r.product.scales[i]);
    }
    r.sizes = sizes;
    return r;
}

static Stack stack(int64_t precision, int number, int64_t outputs, int is_decoder) {
    int is_rms = number == 1;
    Layer *layers = room(LAYERS * sizeof *layers);
    for (Layer *l = layers; l < layers + LAYERS; l++) {
        l->self_norm = norm(is_rms);
        l->qkv = product(precision, HEADS * (2 * D_K + D_V), D_MODEL);
        l->self_out = product(precision, D_MODEL, HEADS * D_V);
        l->ff_norm = norm(is_rms);
        l->up = product(precision, D_FF, D_MODEL);
        l->down = product(precision, D_MODEL, D_FF);
        if (number == 2) l->gate = product(precision, D_FF, D_MODEL);
        if (!is_decoder) continue;
        l->cross_norm = norm(is_rms);
        l->query = product(precision, HEADS * D_K, D_MODEL);
        l->cross_out = product(precision, D_MODEL, HEADS * D_V);
    }
    Stack s = {.d_model = D_MODEL, .num_heads = HEADS, .d_k = D_K, .d_v = D_V, .d_ff = D_FF, .num_layers = LAYERS,
               .is_pre = number % 2, .activation = number, .divides_scores = 1, .layers = layers};
    if (s.is_pre) s.final_norm = norm(is_rms);
    if (!is_decoder) {
        s.output = product(precision, outputs, D_MODEL);
        return s;
    }
    float *matrix = numbers(outputs * D_MODEL, 0.4f), *bias = room(rounded(outputs, PANEL) * sizeof *bias);
    memcpy(bias, numbers(outputs, 0.3f), outputs * sizeof *bias);
    bias[EOS] += 4.0f; /* or hardly any translation would end by itself */
    s.output = packed(precision, outputs, D_MODEL, matrix, bias);
    if (precision == FP32) s.rough = rough(matrix, bias);
    return s;
}

static Tokens tokens(int number) {
    Tokens t = {.embedding = numbers(NUM_TOKENS * D_MODEL, 0.5f), .num_ids = NUM_TOKENS, .embedding_scale = 4.0f};
    if (number < 2) t.positions = numbers(POSITIONS * D_MODEL, 1.0f);
    if (number == 2) t.cos = numbers(POSITIONS * D_K / 2, 1.0f), t.sin = numbers(POSITIONS * D_K / 2, 1.0f);
    if (number == 3) t.relative = numbers(HEADS * (2 * POSITIONS - 1), 1.0f), t.reach = POSITIONS;
    return t;
}

/* FNV-1a. */
static uint64_t hash(const void *content, int64_t bytes) {
    uint64_t found = 0xcbf29ce484222325;
    for (const unsigned char *at = content, *end = at + bytes; at < end; at++) found = (found ^ *at) * 0x100000001b3;
    return found;
}

/* Encode random sentences. */
static Sources encoded(const Stack *encoder, const Tokens *t, int32_t *lengths, int32_t *blocks) {
    Sources sources = {.longest = LONGEST_SOURCE};
    blocks[0] = 0;
    for (int i = 0; i < SENTENCES; i++) {
        lengths[i] = 1 + draw() % LONGEST_SOURCE;
        blocks[i + 1] = blocks[i] + (lengths[i] + LANES - 1) / LANES;
        sources.num_rows += lengths[i];
    }
    int32_t *of_row = room(5 * sources.num_rows * sizeof *of_row), rows = (int32_t)sources.num_rows;
    for (int i = 0, row = 0; i < SENTENCES; i++)
        for (int p = 0, first = row; p < lengths[i]; p++, row++) {
            of_row[row] = p + 1 == lengths[i] ? EOS : WORDS + (int32_t)(draw() % (NUM_TOKENS - WORDS));
            of_row[rows + row] = p;
            of_row[2 * rows + row] = first;
            of_row[3 * rows + row] = lengths[i];
            of_row[4 * rows + row] = blocks[i];
        }
    sources.token = of_row;
    sources.position = of_row + rows;
    sources.first = of_row + 2 * rows;
    sources.length = of_row + 3 * rows;
    sources.block = of_row + 4 * rows;
    sources.memory = room(blocks[SENTENCES] * LANES * encoder->output.outputs * sizeof(float));
    sources.scratch = room(scratch_size(encoder, rows, sources.longest, 0, 0));
    encode(encoder, t, &sources);
    return sources;
}

/* Translate the sentences in `slots`, and find as many hypotheses of each as the beam has. */
static void find(const Stack *decoder, const Tokens *t, int64_t beam, const Slot *slots, Hypotheses *found) {
    Slot own[SENTENCES];
    Hypotheses *sentences[SENTENCES];
    uint8_t masks[2][NUM_TOKENS];
    memcpy(own, slots, sizeof own);
    memset(masks[ANYTHING], 1, NUM_TOKENS);
    memset(masks[END_ALONE], 0, NUM_TOKENS);
    masks[ANYTHING][PAD] = masks[ANYTHING][BOS] = 0;
    masks[END_ALONE][EOS] = 1;
    for (int i = 0; i < SENTENCES; i++) {
        memset(own[i].newest, 0, 2 * BEAM * sizeof(int32_t)); /* as another search left them */
        int32_t *of_beam = room(3 * beam * sizeof *of_beam);
        of_beam[0] = BOS;
        found[i] = (Hypotheses){
            .max_length = MOST_TOKENS, .longest_penalty = MOST_TOKENS, .num_open = 1,
            .scores = room(beam * sizeof(float)), .newest = of_beam, .parents = of_beam + beam,
            .masks = of_beam + 2 * beam, .written = room(2 * beam * MOST_TOKENS * sizeof(int32_t)),
            .finished = room(beam * sizeof(Finished)), .finished_tokens = room(beam * MOST_TOKENS * sizeof(int32_t))};
        sentences[i] = found + i;
    }
    double penalties[MOST_TOKENS + 1];
    for (int length = 0; length <= MOST_TOKENS; length++) penalties[length] = length;
    int64_t count = beam == 1 ? 1 : beam + 1, candidates = beam == 1 ? 1 : 2 * beam; /* as in decoding/rules.py */
    int32_t *row = room(6 * SENTENCES * beam * sizeof *row);
    Step step = {
        .num_slots = SENTENCES, .beam_size = beam, .longest = POSITIONS, .count = count,
        .num_candidates = candidates, .vocab_size = NUM_TOKENS, .slots = own, .slot = row,
        .beam = row + SENTENCES * beam, .parent = row + 2 * SENTENCES * beam, .position = row + 3 * SENTENCES * beam,
        .token = row + 4 * SENTENCES * beam, .mask = row + 5 * SENTENCES * beam, .masks = masks[0],
        .score = room(SENTENCES * beam * sizeof(float)),
        .candidate_score = room(SENTENCES * candidates * sizeof(float)),
        .candidate_beam = room(SENTENCES * candidates * sizeof(int32_t)),
        .candidate_token = room(SENTENCES * candidates * sizeof(int32_t)),
        .scratch = room(scratch_size(decoder, SENTENCES * beam, POSITIONS, beam + 1, 1))};
    _Atomic int64_t changes = 0;
    Search search = {.step = &step, .sentences = sentences, .eos_id = EOS, .num_best = beam, .penalties = penalties,
                     .most_steps = MOST_TOKENS, .seconds = 1e9, .changes = &changes};
    while (step.num_slots) {
        advance(decoder, t, &search);
        for (int64_t i = step.num_slots; i--;)
            if (!sentences[i]->num_open) {
                sentences[i] = sentences[--step.num_slots];
                own[i] = own[step.num_slots];
            }
    }
}

/* Compute the log-probability of the best translation of each sentence. Return the number of their tokens. */
static int64_t rescore(
    const Stack *decoder, const Tokens *t, const Slot *slots, const Hypotheses *of_sentence, int32_t *tokens,
    float *log_probs, float *totals
) {
    int32_t of_row[4][SENTENCES * MOST_TOKENS];
    Targets targets = {
        .num_slots = SENTENCES, .longest = POSITIONS, .slots = slots, .slot = of_row[0], .position = of_row[1],
        .first = of_row[2], .length = of_row[3], .token = room(sizeof of_row[0]), .wanted = tokens};
    for (int i = 0; i < SENTENCES; i++) {
        const Finished *best = of_sentence[i].finished;
        const int32_t *text = of_sentence[i].finished_tokens + best->place * MOST_TOKENS;
        for (int p = 0, start = (int)targets.num_rows; p < best->length; p++) {
            int64_t at = targets.num_rows++;
            of_row[0][at] = i;
            of_row[1][at] = p;
            of_row[2][at] = start;
            of_row[3][at] = p + 1;
            ((int32_t *)targets.token)[at] = p ? text[p - 1] : BOS;
            tokens[at] = text[p];
        }
    }
    targets.log_probs = log_probs;
    targets.totals = totals;
    targets.scratch = room(scratch_size(decoder, targets.num_rows, targets.longest, 1, 0));
    score(decoder, t, &targets);
    return targets.num_rows;
}

/* Translate sentences with a beam and greedily, and score the translations. */
static void translate(const char *form, int64_t precision, int number) {
    state = 88172645463325252 + number;
    Stack encoder = stack(precision, number, LAYERS * WIDTH, 0), decoder = stack(precision, number, NUM_TOKENS, 1);
    Tokens t = tokens(number);
    int32_t lengths[SENTENCES], blocks[SENTENCES + 1];
    Sources sources = encoded(&encoder, &t, lengths, blocks);
    int64_t block = LANES * encoder.output.outputs, places = (MOST_TOKENS + 1) * BEAM;
    Slot slots[SENTENCES];
    for (int i = 0; i < SENTENCES; i++)
        slots[i] = (Slot){
            .past = room(places * encoder.output.outputs * sizeof(float)), .parents = room(places * sizeof(int32_t)),
            .newest = room(2 * BEAM * sizeof(int32_t)), .memory = sources.memory + blocks[i] * block,
            .source_length = lengths[i]};

    Stack alone = decoder, with_scores = decoder;
    alone.finds_best_alone = 1;
    with_scores.rough = (Rough){.matrix = NULL};
    Hypotheses found[SENTENCES], greedy[SENTENCES], of_scores[SENTENCES];
    find(&with_scores, &t, BEAM, slots, found);
    int32_t words[3][SENTENCES * MOST_TOKENS];
    float best[SENTENCES], totals[SENTENCES], log_probs[SENTENCES * MOST_TOKENS];
    int64_t count = rescore(&with_scores, &t, slots, found, words[0], log_probs, totals);
    for (int i = 0; i < SENTENCES; i++) best[i] = found[i].finished->log_prob;
    printf("%s precision %d model %d memory %016llx tokens %d %016llx scores %016llx %016llx same %d", form,
           (int)precision, number, (unsigned long long)hash(sources.memory, blocks[SENTENCES] * block * sizeof(float)),
           (int)count, (unsigned long long)hash(words[0], count * sizeof(int32_t)),
           (unsigned long long)hash(best, sizeof best), (unsigned long long)hash(log_probs, count * sizeof(float)),
           !memcmp(best, totals, sizeof best));

    find(&alone, &t, 1, slots, greedy);
    find(&with_scores, &t, 1, slots, of_scores);
    count = rescore(&with_scores, &t, slots, greedy, words[1], log_probs, totals);
    int is_same = count == rescore(&with_scores, &t, slots, of_scores, words[2], log_probs, totals);
    printf(" greedy %d %016llx same %d\n", (int)count, (unsigned long long)hash(words[1], count * sizeof(int32_t)),
           is_same && !memcmp(words[1], words[2], count * sizeof(int32_t)));
}

/* The arguments are forms; those that this processor cannot run are left out. */
int main(int count, char **names) {
    const int precisions[] = {PRECISIONS};
    for (int i = 1; i < count; i++)
        if (use_form(names[i]))
            for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++)
                for (int number = 0; number < MODELS; number++) translate(names[i], precisions[p], number);
    return 0;
}
