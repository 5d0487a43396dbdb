/* Structures shared by the parts of the core, and the scratch memory of a call. Python (structs.py) reads the
 * untagged structures. */

#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define LANES 16       /* numbers added up side by side, whatever a register holds */
#define PANEL 32       /* outputs of a panel; a matrix holds a whole number of panels */
#define MOST_ROWS 12   /* rows computed together, at most */
#define TILE_ROWS 16   /* rows of an AMX tile */
#define TILE_BYTES 1024 /* of 16 lines of 64 bytes: the weights of 16 outputs */
#define MOST_LEVEL 63 /* of weights in 8 bits: they have 7 bits, so that sums of two products fit into 16 */
#define CHUNK 512      /* logits of a row read at once, and with many rows computed at once: they stay in the cache */
#define LOGITS (CHUNK + LANES) /* room for those of a row; not a power of two, to avoid cache conflicts */

#define PATIENCE 20000 /* spins, about a millisecond: a helper that takes longer was descheduled */
#define IDLE_SECONDS 1e-3 /* until an idle helper sleeps: longer than Python needs between two steps */
#define WORTH_SHARING (1 << 17) /* bytes of a matrix above which several threads read it faster than one */

#define FROM_BACK ((int64_t)1 << 32) /* see Team */

#define INLINE static inline __attribute__((always_inline))

enum Precision { FP32 = 0, BF16 = 1, BF16X3 = 3, INT8 = 8 };
enum Activation { RELU, GELU, GELU_TANH, SILU };

/* y = x W^T + b, with panels from packing.h. */
typedef struct {
    int64_t inputs, outputs, precision;
    int64_t is_on_amx;   /* whether rounded precisions use AMX, in the form that has it */
    const void *panels;
    const float *scales; /* of the outputs, in INT8 */
    const float *bias;   /* may be NULL; the weight of an absent norm is NULL too */
} Product;

typedef struct {
    const float *weight, *bias;
    double eps;
    int64_t is_rms;
} Norm;

typedef struct {
    Norm self_norm;
    Product qkv, self_out;
    Norm cross_norm;
    Product query, cross_out; /* no panels in an encoder */
    Norm ff_norm;
    Product up, gate, down; /* an absent gate has no panels */
} Layer;

/* The output matrix in 8 bits beside float32; see `narrow` in choice.h. */
typedef struct {
    Product product;      /* no panels if there is none */
    const float *matrix;  /* [token][D] */
    const float *sizes;   /* of each token: at least the sum of its absolute weights in 8 bits */
} Rough;

typedef struct {
    int64_t d_model, num_heads, d_k, d_v, d_ff, num_layers, is_pre, activation;
    int64_t divides_scores, divides_output; /* attention scores by sqrt(d_k); final states by sqrt(d_model) */
    const Layer *layers;
    Norm final_norm;
    Product output; /* in an encoder, cross-attention keys and values of all decoder layers; in a decoder, logits */
    Rough rough;
    int64_t finds_best_alone; /* the best token of each row, without its log-probability, which is 0 instead */
} Stack;

/* Retrieved translations of similar sources, whose distribution is mixed in; see decoding/neighbours.py. */
typedef struct {
    const float *keys;     /* [key][D]: decoder states of the translations, as the output matrix reads them */
    const int32_t *values; /* [key]: place in `tokens` of the token that follows */
    const int32_t *tokens; /* all tokens that follow a key, ascending */
    int64_t num_keys, num_tokens; /* 0 if there are none */
    double weight; /* of their distribution, if a key is equal to the state */
    double temperature, reach; /* of the softmax over squared distances; the distance that leaves no weight */
    float *logits; /* [beam][token of `tokens`], scratch */
    float *shares; /* [token of `tokens`], scratch: their probabilities after the keys that are near */
    float *scores; /* [key, in whole LANES], scratch */
} Neighbours;

/* A sentence in flight. The key-value histories of its beams form a tree: each key has a place and a link to the
 * place before it. So nothing is copied when a search reorders the beams, and places on no beam's path are reused. */
typedef struct {
    float *past;          /* keys and values [place][layer][W] */
    int32_t *parents;     /* [place]: the place before it */
    int32_t *newest;      /* [even or odd position][beam]: place of the beam's newest key */
    const float *memory;  /* of the source: [block of LANES positions][layer][turned keys, values]; see Context */
    int64_t source_length;
    Product own;          /* logits of the tokens that only this sentence may use, with a shortlist */
    const int32_t *own_ids;
    int64_t num_own;
    Neighbours near;
} Slot;

typedef struct {
    const float *embedding, *positions; /* [token][D]; [position][D] or NULL */
    const float *segment;               /* [D], added to every token, or NULL */
    const float *cos, *sin;             /* cosines and sines of rotary positions [position][d_k / 2], or NULL */
    const float *relative; /* added to scores [head][distance from 1 - reach to reach - 1], or NULL */
    int64_t reach;
    Norm embedding_norm;
    const int32_t *ids; /* the tokens that may be written; NULL is the first num_ids, the whole vocabulary */
    int64_t num_ids;
    float embedding_scale;
} Tokens;

/* Panels of a product with prepared rows (prepare_rows). */
typedef struct {
    const Product *product;
    const float *x;                /* [row][input] */
    int64_t rows, first, last;     /* panels `first` to `last`, the latter excluded */
    float *y;                      /* [row][stride], from the first panel on, with space for whole blocks of tiles */
    int64_t stride;
    int64_t at_once;               /* panels of a portion, if several threads share them */
    int64_t is_rectified;          /* whether negative results become 0 (ReLU) */
    const struct Scratch *scratch; /* holds the rows in the product's precision */
} Work;

/* Threads that share the panels of every product, if there are fewer sentences than threads. */
typedef struct {
    _Atomic int64_t state;  /* enum State */
    _Atomic int64_t inside; /* helpers reading `work`, which changes only when there are none */
    _Atomic int64_t taken;  /* portions of the work: from the front, and FROM_BACK times those from the back */
    Work work;
    int64_t delays; /* times a helper was descheduled during its work; after three, one thread alone is faster */
} Team;

enum State { NOTHING, A_PRODUCT, TO_LEAVE };

/* Intermediate results of a call, [layer] first. Each array receives them, or is NULL. */
typedef struct {
    float *states;  /* [layer + 1][row][D]: embedded tokens, then outputs of the layers; the last after the final norm */
    float *qkv;     /* [layer][row][outputs of qkv]: queries, keys and values of self-attention, as it reads them */
    float *queries; /* [layer][row][outputs of query]: of cross-attention */
    float *self_attn, *cross_attn; /* attention weights [layer][head][row][longest], zeros before the call */
} Record;

/* Source tokens to encode. Rows of a sentence are adjacent. */
typedef struct {
    int64_t num_rows;
    int64_t longest; /* positions of the longest source */
    const int32_t *token, *position;
    const int32_t *first, *length; /* of each row, the first row of its sentence and how many there are */
    const int32_t *block;          /* of each row, the first block of its sentence in `memory` */
    float *memory; /* keys and values for cross-attention: [block of LANES positions][layer][turned keys, values] */
    Record record;
    char *scratch;
    Team *team;
} Sources;

/* Targets to score, or to look at. Rows of a target are adjacent; of the slots only the memory is read. */
typedef struct {
    int64_t num_rows, num_slots;
    int64_t longest; /* positions of the longest source or target */
    const Slot *slots;
    const int32_t *slot, *position;
    const int32_t *first, *length; /* of each row, the first row of its target and how many it attends to */
    const int32_t *token, *wanted; /* the input token, and the token to score after it */
    float *log_probs, *totals;     /* of each row, and of each slot; or NULL */
    Record record;
    char *scratch;
} Targets;

/* A search step. */
typedef struct {
    int64_t num_rows, num_slots, beam_size;
    int64_t longest;      /* positions of the longest source or past */
    int64_t count;        /* best tokens per row */
    int64_t num_candidates; /* candidates per slot */
    int64_t vocab_size;
    const Slot *slots;
    int32_t *slot, *beam, *parent, *position, *token, *mask; /* of each row; rows of a slot are adjacent */
    const uint8_t *masks; /* [mask][token]: whether it is allowed */
    float *score;         /* log-probability of each row so far */
    float *candidate_score; /* [slot][candidate], best first; minus infinity in unused places; see find_candidates */
    int32_t *candidate_beam, *candidate_token;
    float *log_probs; /* [row][token]: log-probabilities, minus infinity for tokens not allowed; or NULL */
    char *scratch;
    Team *team;    /* helper threads, or NULL */
    double *spent; /* accumulated seconds of each part of the work, or NULL */
} Step;

enum Part { PRODUCTS, ATTENTION, NORMS, VOCABULARY, CHOICE };

/* Softmax state and best tokens of a row, after some of its logits. */
typedef struct Choice {
    float largest, sum; /* the softmax of section 3.4: the largest logit, and the sum of exponentials relative to it */
    float *best;        /* [count], best first: logits, in the end log-probabilities */
    int32_t *ids;       /* token ids of the best */
    int32_t wanted;     /* the token to score */
    float logit;        /* its logit */
    const uint8_t *may_come; /* [token]: whether it is allowed; NULL if none is chosen */
    float *all; /* [token]: receives all logits, in the end log-probabilities; or NULL */
    const Neighbours *near; /* of the sentence; NULL if it has none */
    int64_t beam, next;     /* the row's place in the arrays of `near`, and its first token with a logit still to come */
} Choice;

#define MOST_LEFT 64 /* tokens that may be the best, at most; more are compared at once */

/* Tokens that may be the best of a row, in ascending order. */
typedef struct Left {
    float least;      /* no less than this is the best logit */
    float total;      /* sum of the row's absolute numbers */
    int32_t count;
    int32_t ids[MOST_LEFT];
    float most[MOST_LEFT]; /* no more than this are their logits */
} Left;

/* Scratch memory for the rows of a call. */
typedef struct Scratch {
    float *x, *normed, *qkv, *attended, *update, *hidden, *gate, *logits, *scales;
    float *weights, *factors, *turned; /* attention [row][head][num_weights], factors of them, keys of a sentence */
    int64_t num_weights;
    int32_t *sums; /* sums of rows in 8 bits */
    char *tiles; /* rows in a product's precision: [term][row][input] */
    int32_t *path; /* [row][longest]: places of the row's history */
    char *is_taken; /* [place] of a slot */
    Choice *choices;
    Left *left; /* of each row, if the stack has a rough product */
    float *best;   /* [row][count] */
    int32_t *best_ids;
    Team *team;
    double *spent, since;
} Scratch;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Add the time since the last call to a part of the work. */
INLINE void spend(Scratch *s, enum Part part) {
    if (!s->spent) return;
    double time = now();
    s->spent[part] += time - s->since;
    s->since = time;
}

INLINE int64_t rounded(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Assign the scratch memory and return its bytes; keeps the `count` best tokens per row, in a search also its path. */
static int64_t lay_out(
    Scratch *s, char *at, const Stack *stack, int64_t rows, int64_t longest, int64_t count, int is_search
) {
    char *start = at;
    int64_t padded = rounded(rows, 2 * TILE_ROWS);
    int64_t values = stack->num_heads * stack->d_v, width = 2 * stack->num_heads * stack->d_k + values;
    int64_t widest = max64(max64(stack->d_model, stack->d_ff), values);
#define ROOM(pointer, items) pointer = (void *)at; at += rounded((items) * (int64_t)sizeof *pointer, 64)
    ROOM(s->x, padded * stack->d_model);
    ROOM(s->normed, padded * stack->d_model);
    ROOM(s->update, padded * stack->d_model);
    ROOM(s->qkv, padded * rounded(width, PANEL));
    ROOM(s->attended, padded * values);
    ROOM(s->hidden, padded * stack->d_ff);
    ROOM(s->gate, stack->layers[0].gate.panels ? padded * stack->d_ff : 0);
    ROOM(s->logits, count ? padded * LOGITS : 0);
    s->num_weights = rounded(longest, LANES);
    ROOM(s->weights, MOST_ROWS * stack->num_heads * s->num_weights);
    ROOM(s->factors, MOST_ROWS * stack->num_heads);
    ROOM(s->turned, is_search ? 0 : stack->num_heads * stack->d_k * rounded(longest, LANES));
    ROOM(s->scales, padded);
    ROOM(s->sums, padded);
    ROOM(s->tiles, 2 * padded * 2 * widest);
    ROOM(s->path, is_search ? rows * longest : 0);
    ROOM(s->is_taken, is_search ? count * longest : 0); /* `count` is at least the beam size */
    ROOM(s->choices, rows);
    ROOM(s->left, stack->rough.product.panels ? rows : 0);
    ROOM(s->best, rows * count);
    ROOM(s->best_ids, rows * count);
#undef ROOM
    return at - start;
}

/* A finished hypothesis. */
typedef struct {
    double rank_score;
    float log_prob;
    int32_t length, place; /* of its tokens, and their row in `finished_tokens` */
    int32_t was_ended;     /* whether the length limit or the repetition rule ended it */
} Finished;

/* The hypotheses of a sentence in flight, best first. */
typedef struct {
    int64_t max_length;      /* tokens of a translation, the end token included */
    int64_t prefix, given;   /* tokens of the forced prefix, and how many of them cost nothing */
    int64_t guided_until;    /* up to this length Python sets `masks` */
    int64_t times_in_source; /* repetitions in a row in the source; 0: not counted, -1: Python must count them now */
    double longest_penalty;  /* at `max_length` */
    int64_t length;          /* tokens of every open hypothesis */
    int64_t num_open, num_finished;
    float *scores;                     /* [beam]: log-probability */
    int32_t *newest, *parents, *masks; /* [beam]: last token, beam of the step before, and mask of the next token */
    int32_t *written;         /* tokens [even or odd length][beam][max_length] */
    int32_t *states;          /* [even or odd length][beam]: state of the automaton of UTF-8 (decoding/utf8.py) */
    Finished *finished;       /* [num_best] */
    int32_t *finished_tokens; /* [num_best][max_length] */
} Hypotheses;

#define UTF8_STATES 8
#define UTF8_ROOMS 4
/* The first masks of a search: behind END_ALONE those of UTF-8 [room][state] if there are any; others are Python's. */
enum Mask { ANYTHING, END_ALONE, UTF8_MASKS };

/* A greedy or beam search of all sentences in flight; see search.h. */
typedef struct {
    Step *step; /* its rows are filled in at every step */
    Hypotheses **sentences; /* [slot] */
    int64_t eos_id, num_best;
    int64_t ends_loops, loop_tokens, loop_times; /* decoding/repetition.py */
    const int8_t *next_states; /* [state][token]: decoding/utf8.py; NULL if no token is a part of a character */
    const double *penalties; /* [length]: divisor of the log-probability of finished hypotheses */
    int64_t most_steps;      /* steps for which there is room */
    double seconds;          /* no further step is begun after so many */
    const _Atomic int64_t *changes; /* counts what Python must look at; no step is begun after it differs from `seen` */
    int64_t seen;
} Search;
