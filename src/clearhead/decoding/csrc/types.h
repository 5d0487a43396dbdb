/* What the parts of the core share: structures, which core.py mirrors field by field, and the room for a call. */

#pragma once

#include <immintrin.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define WIDE 16        /* floats in a register */
#define PANEL 32       /* outputs computed at once; a matrix holds a whole number of panels */
#define ROW_BLOCK 12   /* rows computed at once in float32: with a panel they fill the registers */
#define TILE_ROWS 16   /* rows of an AMX tile */
#define TILE_BYTES 1024
#define CHUNK 512      /* logits of a row computed before they are looked at */
#define LOGITS (CHUNK + WIDE) /* from a row of them to the next: not a power of two, for the sake of the cache */

#define CORE_VERSION 4 /* raised with every change of what a function takes or means; core.py holds the same number */

#define PATIENCE 20000 /* spins, about a millisecond: who is waited for longer has been put aside by the system */
#define IDLE_SECONDS 1e-3 /* until a helper without work goes to sleep: longer than Python needs between two steps */
#define WORTH_SHARING (1 << 18) /* bytes of a matrix from which several threads read it faster than one */

#define ROUNDED __attribute__((target("avx512bf16,avx512vnni")))
#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))
#define INLINE static inline __attribute__((always_inline))

enum Form { FP32 = 0, BF16 = 1, BF16X3 = 3, INT8 = 8 };
enum Activation { RELU, GELU, GELU_TANH, SILU };

/* y = x W^T + b. Panels hold PANEL outputs each: [panel][input][PANEL] in float32; in rounded forms
 * [panel][input block][term][tile of 16 outputs][group of inputs][output][input in group]. */
typedef struct {
    int64_t inputs, outputs, form;
    int64_t is_on_amx;   /* or else on AVX-512's own products in bfloat16 and 8 bits */
    const void *panels;
    const float *scales; /* of outputs, in INT8 */
    const float *bias;   /* may be NULL, as may the weight of a norm that is not there */
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
    Product up, gate, down; /* no panels in a gate that is not there */
} Layer;

typedef struct {
    int64_t d_model, num_heads, d_k, d_v, d_ff, num_layers, is_pre, activation;
    const Layer *layers;
    Norm final_norm;
    Product output; /* cross-attention's keys and values of all decoder layers in an encoder, logits in a decoder */
} Stack;

/* A sentence in flight. The past of its beams is a tree: each key stands in a place and knows the place before, so
 * nothing is copied when a search reorders the beams, and places that no beam comes from are free again. */
typedef struct {
    float *past;          /* keys and values [place][layer][W] */
    int32_t *parents;     /* [place]: the place before */
    int32_t *newest;      /* [even or odd position][beam]: where the newest key of a beam stands */
    const float *memory;  /* keys and values of the source [source position][layer][W] */
    int64_t source_length;
    Product own;          /* with a shortlist, the logits of the tokens that this sentence alone may be written in */
    const int32_t *own_ids;
    int64_t num_own;
} Lane;

typedef struct {
    const float *embedding, *positions; /* [token][D]; [position][D] or NULL */
    const float *segment;               /* [D], added to every token, or NULL */
    const float *cos, *sin;             /* of rotary positions [position][d_k / 2], or NULL */
    Norm embedding_norm;
    const int32_t *ids; /* of the tokens that may be written; NULL is the first num_ids, the whole vocabulary */
    int64_t num_ids;
    int32_t eos_id, pad_id, bos_id;
    float embedding_scale;
} Tokens;

/* Threads that share the panels of every product, when there are too few sentences for each to have its own. */
typedef struct {
    _Atomic int64_t state;  /* what there is to do */
    _Atomic int64_t inside; /* helpers that look at the fields below, which change only when there are none */
    _Atomic int64_t next;   /* panel that nobody has taken yet */
    const Product *product;
    const float *x;
    int64_t rows, first, last;
    float *y;
    int64_t stride;
    const struct Scratch *scratch;
    int64_t delays; /* times a helper was put aside amid its work; then one thread alone is faster */
} Team;

enum State { NOTHING, A_PRODUCT, TO_LEAVE };

typedef struct {
    int64_t num_rows, num_lanes, beam_size;
    int64_t longest;      /* positions of the longest source or past */
    int64_t count;        /* best tokens wanted of a row */
    int64_t num_ways;     /* best continuations wanted of a lane */
    const Lane *lanes;
    const int32_t *lane, *beam, *parent, *position, *token, *is_last; /* of each row; rows of a lane are neighbours */
    const float *score;   /* log-probability of each row so far */
    float *way_score;     /* [lane][way], best first; minus infinity where there is none */
    int32_t *way_beam, *way_token;
    char *scratch;
    Team *team;    /* who helps with products, or NULL */
    double *spent; /* seconds of each part of the work, added up; or NULL */
} Step;

enum Part { PRODUCTS, ATTENTION, NORMS, VOCABULARY, CHOICE };

/* Room for the rows of a call. */
typedef struct Scratch {
    float *x, *normed, *qkv, *attended, *update, *hidden, *gate, *logits, *weights, *scales;
    int32_t *sums; /* of rows in 8 bits */
    char *tiles; /* rows in the form of a product: [term][row][input] */
    int32_t *path; /* [row][longest]: places of a row's past */
    char *is_taken; /* [place] of a lane */
    float *best;   /* [row][best tokens, the largest logit, the sum of exponentials] */
    int32_t *best_ids;
    Team *team;
    double *spent, since;
} Scratch;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Book the time since the last call. */
INLINE void spend(Scratch *s, enum Part part) {
    if (!s->spent) return;
    double time = now();
    s->spent[part] += time - s->since;
    s->since = time;
}

INLINE int64_t rounded(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* `count` best tokens are kept of each row, and in a search the path of its past. */
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
    ROOM(s->weights, longest);
    ROOM(s->scales, padded);
    ROOM(s->sums, padded);
    ROOM(s->tiles, 2 * padded * 2 * widest);
    ROOM(s->path, is_search ? rows * longest : 0);
    ROOM(s->is_taken, is_search ? count * longest : 0); /* there are at least as many best tokens of a row as beams */
    ROOM(s->best, rows * (count + 2));
    ROOM(s->best_ids, rows * count);
#undef ROOM
    return at - start;
}
