/* What the parts of the core share: structures, and the scratch of a call. Python (structs.py)
 * reads the structures that have no tag. */

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
#define TILE_BYTES 1024 /* of an AMX tile: its rows have 64 bytes each */
#define CHUNK 512      /* logits of a row computed before they are looked at: they are in the cache still */
#define LOGITS (CHUNK + WIDE) /* from a row of them to the next: not a power of two, for the sake of the cache */

#define PATIENCE 20000 /* spins, about a millisecond: who is waited for longer was given no processor by the system */
#define IDLE_SECONDS 1e-3 /* until a helper without work goes to sleep: longer than Python needs between two steps */
#define WORTH_SHARING (1 << 18) /* bytes of a matrix from which several threads read it faster than one */

#define ROUNDED __attribute__((target("avx512bf16,avx512vnni")))
#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))
#define INLINE static inline __attribute__((always_inline))

enum Precision { FP32 = 0, BF16 = 1, BF16X3 = 3, INT8 = 8 };
enum Activation { RELU, GELU, GELU_TANH, SILU };

/* y = x W^T + b; packing.h writes the panels. */
typedef struct {
    int64_t inputs, outputs, precision;
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
    int64_t divides_scores, divides_output; /* scores of attention by sqrt(d_k); states, in the end, by sqrt(d_model) */
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
    Product own;          /* with a shortlist, the logits of the tokens that this sentence alone may use */
    const int32_t *own_ids;
    int64_t num_own;
} Slot;

typedef struct {
    const float *embedding, *positions; /* [token][D]; [position][D] or NULL */
    const float *segment;               /* [D], added to every token, or NULL */
    const float *cos, *sin;             /* of rotary positions [position][d_k / 2], or NULL */
    const float *relative; /* added to scores [head][distance from 1 - reach to reach - 1], or NULL */
    int64_t reach;
    Norm embedding_norm;
    const int32_t *ids; /* of the tokens that may be written; NULL is the first num_ids, the whole vocabulary */
    int64_t num_ids;
    float embedding_scale;
} Tokens;

/* Panels of a product with rows that were prepared (prepare_rows). */
typedef struct {
    const Product *product;
    const float *x;                /* [row][input] */
    int64_t rows, first, last;     /* from panel `first` to the one before `last` */
    float *y;                      /* [row][stride], from the first panel on, with room for whole blocks of tiles */
    int64_t stride;
    const struct Scratch *scratch; /* where the rows stand in the product's precision */
} Work;

/* Threads that share the panels of every product, when there are too few sentences for each to have its own. */
typedef struct {
    _Atomic int64_t state;  /* what there is to do */
    _Atomic int64_t inside; /* helpers that look at the work, which changes only when there are none */
    _Atomic int64_t next;   /* panel that nobody has taken yet */
    Work work;
    int64_t delays; /* times a helper had no processor amid its work; after three, one thread alone is faster */
} Team;

enum State { NOTHING, A_PRODUCT, TO_LEAVE };

/* Source tokens to encode. Rows of a sentence are neighbours. */
typedef struct {
    int64_t num_rows;
    int64_t longest; /* positions of the longest source */
    const int32_t *token, *position;
    const int32_t *first, *length; /* of each row, the first row of its sentence and how many there are */
    float *memory; /* [row][layers of the decoder * W], with room for whole blocks of tiles */
    char *scratch;
    Team *team;
} Sources;

/* Targets to score. Rows of a target are neighbours; of the slots only the memory is read. */
typedef struct {
    int64_t num_rows, num_slots;
    int64_t longest; /* positions of the longest source or target */
    const Slot *slots;
    const int32_t *slot, *position;
    const int32_t *first, *length; /* of each row, the first row of its target and how many it sees */
    const int32_t *token, *wanted; /* what was read, and what should come after it */
    float *log_probs, *totals;     /* of each row, and of each slot */
    char *scratch;
} Targets;

/* A step of a search. */
typedef struct {
    int64_t num_rows, num_slots, beam_size;
    int64_t longest;      /* positions of the longest source or past */
    int64_t count;        /* best tokens wanted of a row */
    int64_t num_candidates; /* best continuations wanted of a slot */
    int64_t vocab_size;
    const Slot *slots;
    const int32_t *slot, *beam, *parent, *position, *token, *mask; /* of each row; rows of a slot are neighbours */
    const uint8_t *masks; /* [mask][token]: whether it may come */
    const float *score;   /* log-probability of each row so far */
    float *candidate_score; /* [slot][candidate], best first; minus infinity where there is none */
    int32_t *candidate_beam, *candidate_token;
    float *log_probs; /* [row][token]: of every token that may come, minus infinity of the others; or NULL */
    char *scratch;
    Team *team;    /* who helps with products, or NULL */
    double *spent; /* seconds of each part of the work, added up; or NULL */
} Step;

enum Part { PRODUCTS, ATTENTION, NORMS, VOCABULARY, CHOICE };

/* What is known of a row's next token after some of its logits. */
typedef struct Choice {
    float largest, sum; /* the softmax of section 3.4: the largest logit, and the sum of exponentials below it */
    float *best;        /* [count], best first: logits, in the end log-probabilities */
    int32_t *ids;       /* of the best */
    int32_t wanted;     /* a token whose logit is asked for */
    float logit;        /* which is this */
    const uint8_t *may_come; /* [token]; NULL where none is chosen */
    float *all; /* [token]: where all logits are wanted, which become log-probabilities; or NULL */
} Choice;

/* Room for the rows of a call. */
typedef struct Scratch {
    float *x, *normed, *qkv, *attended, *update, *hidden, *gate, *logits, *weights, *scales;
    int32_t *sums; /* of rows in 8 bits */
    char *tiles; /* rows in a product's precision: [term][row][input] */
    int32_t *path; /* [row][longest]: places of a row's past */
    char *is_taken; /* [place] of a slot */
    Choice *choices;
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
    ROOM(s->choices, rows);
    ROOM(s->best, rows * count);
    ROOM(s->best_ids, rows * count);
#undef ROOM
    return at - start;
}
