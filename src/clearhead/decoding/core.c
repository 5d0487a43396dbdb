/* Encoder and decoding step for x86-64 processors with AVX-512: what decoding/packed.py says in PyTorch, one call a step.
 *
 * Every row is computed by itself and in the same order, whatever its neighbours: no batch changes a translation.
 * Python owns all memory; one thread makes a call, and several threads may call at once with lanes and scratch of
 * their own. Structures are mirrored, field by field, in core.py.
 *
 * Matrix products are in float32; or, with AMX, in bfloat16: every number rounded to one (BF16), or split into the sum
 * of two whose products all count but the smallest (BF16X3: 16 significant bits, products of 24); or in 8 bits with
 * a scale for each row and each output (INT8).
 *
 * Shapes: R rows (hypotheses, or source tokens), D d_model, H heads, W width of keys and values together (H d_k + H d_v).
 */

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WIDE 16        /* floats in a register */
#define PANEL 32       /* outputs computed at once; a matrix holds a whole number of panels */
#define ROW_BLOCK 12   /* rows computed at once in float32: with a panel they fill the registers */
#define TILE_ROWS 16   /* rows of an AMX tile */
#define TILE_BYTES 1024
#define CHUNK 512      /* logits of a row computed before they are looked at */

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512bf16")))
#define INLINE static inline __attribute__((always_inline))

enum Form { FP32 = 0, BF16 = 1, BF16X3 = 3, INT8 = 8 };
enum Activation { RELU, GELU, GELU_TANH, SILU };

/* y = x W^T + b. Panels hold PANEL outputs each: [panel][input][PANEL] in float32; in AMX forms
 * [panel][input block][term][tile of 16 outputs][group of inputs][output][input in group]. */
typedef struct {
    int64_t inputs, outputs, form;
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

/* A sentence in flight. The past of its beams is a tree: at each position a beam goes on from a beam of the position
 * before, so nothing is copied when a search reorders them. */
typedef struct {
    float *past;          /* keys and values [position][beam][layer][W] */
    int32_t *parents;     /* [position][beam]: the beam at the position before */
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

typedef struct {
    int64_t num_rows, num_lanes, beam_size, longest;
    int64_t count;        /* best tokens wanted of a row */
    int64_t num_ways;     /* best continuations wanted of a lane */
    const Lane *lanes;
    const int32_t *lane, *beam, *parent, *position, *token, *is_last; /* of each row; rows of a lane are neighbours */
    const float *score;   /* log-probability of each row so far */
    float *way_score;     /* [lane][way], best first; minus infinity where there is none */
    int32_t *way_beam, *way_token;
    char *scratch;
    double *spent; /* seconds of each part of the work, added up; or NULL */
} Step;

enum Part { PRODUCTS, ATTENTION, NORMS, VOCABULARY, CHOICE };

/* Room for the rows of a call. */
typedef struct {
    float *x, *normed, *qkv, *attended, *update, *hidden, *gate, *logits, *weights, *scales;
    char *tiles; /* rows in the form of a product: [term][row][input] */
    int32_t *path; /* [row][longest]: places of a row's past */
    float *best;   /* [row][best tokens, the largest logit, the sum of exponentials] */
    int32_t *best_ids;
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

static int64_t lay_out(Scratch *s, char *at, const Stack *stack, int64_t rows, int64_t longest, int64_t count) {
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
    ROOM(s->logits, count ? padded * CHUNK : 0);
    ROOM(s->weights, longest);
    ROOM(s->scales, padded);
    ROOM(s->tiles, 2 * padded * 2 * widest);
    ROOM(s->path, rows * longest);
    ROOM(s->best, rows * (count + 2));
    ROOM(s->best_ids, rows * count);
#undef ROOM
    return at - start;
}

/* ------------------------------------------------------------------ arithmetic on rows */

/* A mask of the first `count` floats of a register. */
INLINE __mmask16 first_lanes(int64_t count) { return count < WIDE ? (__mmask16)((1u << count) - 1) : 0xffff; }

INLINE __m512 exp512(__m512 x) {
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x); /* in this order NaN stays NaN */
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f); /* Cephes' polynomial for e^r, |r| <= ln 2 / 2 */
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

static void normalize(const Norm *norm, const float *x, int64_t rows, int64_t width, float *y) {
    for (int64_t row = 0; row < rows; row++, x += width, y += width) {
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
        float mean = 0.0f;
        if (!norm->is_rms) {
            for (int64_t i = 0; i < width; i += WIDE) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
            mean = _mm512_reduce_add_ps(sum) / width;
        }
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 centred = _mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(mean));
            squares = _mm512_fmadd_ps(centred, centred, squares);
        }
        __m512 factor = _mm512_set1_ps(1.0f / sqrtf(_mm512_reduce_add_ps(squares) / width + (float)norm->eps));
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 value = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(mean)), factor);
            value = _mm512_mul_ps(value, _mm512_loadu_ps(norm->weight + i));
            if (norm->bias) value = _mm512_add_ps(value, _mm512_loadu_ps(norm->bias + i));
            _mm512_storeu_ps(y + i, value);
        }
    }
}

static void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDE)
        _mm512_storeu_ps(x + i, _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
}

static void activate(float *x, int64_t count, int64_t activation) {
    if (activation == RELU) {
        for (int64_t i = 0; i < count; i += WIDE)
            _mm512_storeu_ps(x + i, _mm512_max_ps(_mm512_setzero_ps(), _mm512_loadu_ps(x + i)));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float v = x[i];
        if (activation == SILU) x[i] = v / (1.0f + expf(-v));
        else if (activation == GELU) x[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
        else x[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    }
}

/* ------------------------------------------------------------------ products */

INLINE void fp32_block(const int n, const float *x, const float *panel, int64_t inputs, float *y, int64_t stride) {
    __m512 left[ROW_BLOCK], right[ROW_BLOCK];
    for (int i = 0; i < n; i++) left[i] = right[i] = _mm512_setzero_ps();
    for (int64_t k = 0; k < inputs; k++, panel += PANEL) {
        __m512 w0 = _mm512_loadu_ps(panel), w1 = _mm512_loadu_ps(panel + WIDE);
        for (int i = 0; i < n; i++) {
            __m512 value = _mm512_set1_ps(x[i * inputs + k]);
            left[i] = _mm512_fmadd_ps(value, w0, left[i]);
            right[i] = _mm512_fmadd_ps(value, w1, right[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        _mm512_storeu_ps(y + i * stride, left[i]);
        _mm512_storeu_ps(y + i * stride + WIDE, right[i]);
    }
}

static void fp32_panel(const float *x, int64_t rows, const float *panel, int64_t inputs, float *y, int64_t stride) {
    int64_t row = 0;
#define BLOCKS(n) for (; row + n <= rows; row += n) fp32_block(n, x + row * inputs, panel, inputs, y + row * stride, stride)
    BLOCKS(12);
    BLOCKS(11);
    BLOCKS(10);
    BLOCKS(9);
    BLOCKS(8);
    BLOCKS(7);
    BLOCKS(6);
    BLOCKS(5);
    BLOCKS(4);
    BLOCKS(3);
    BLOCKS(2);
    BLOCKS(1);
#undef BLOCKS
}

/* Rows as bfloat16, then what that left out; rows up to whole blocks of tiles are zeros. */
AMX static void split_rows(const float *x, int64_t rows, int64_t padded, int64_t inputs, int has_rest, uint16_t *tiles) {
    int64_t count = rows * inputs, all = padded * inputs;
    for (int64_t i = 0; i < count; i += WIDE) {
        __m512 value = _mm512_loadu_ps(x + i);
        __m256i high = (__m256i)_mm512_cvtneps_pbh(value);
        _mm256_storeu_si256((__m256i *)(tiles + i), high);
        if (has_rest) {
            __m512 as_float = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
            __m256i low = (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(value, as_float));
            _mm256_storeu_si256((__m256i *)(tiles + all + i), low);
        }
    }
    memset(tiles + count, 0, (all - count) * sizeof *tiles);
    if (has_rest) memset(tiles + all + count, 0, (all - count) * sizeof *tiles);
}

/* Rows in 8 bits, each with its own scale. */
static void quantize_rows(const float *x, int64_t rows, int64_t padded, int64_t inputs, int8_t *tiles, float *scales) {
    for (int64_t row = 0; row < rows; row++) {
        __m512 largest = _mm512_set1_ps(1e-30f);
        for (int64_t i = 0; i < inputs; i += WIDE)
            largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + row * inputs + i)));
        float scale = _mm512_reduce_max_ps(largest) / 127.0f;
        __m512 factor = _mm512_set1_ps(1.0f / scale);
        scales[row] = scale;
        for (int64_t i = 0; i < inputs; i += WIDE) {
            __m512i level = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + row * inputs + i), factor));
            _mm_storeu_si128((__m128i *)(tiles + row * inputs + i), _mm512_cvtsepi32_epi8(level));
        }
    }
    memset(tiles + rows * inputs, 0, (padded - rows) * inputs);
}

/* Eight tiles of TILE_ROWS rows and 64 bytes: palette, first row, reserved, bytes of a row of each tile, rows. */
static const struct __attribute__((packed)) {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TILES = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

/* Tiles 0 to 3 are results of two by two tiles; 4 and 5 are rows, 6 and 7 outputs. */
#define LOAD_ROWS(at) _tile_loadd(4, at, stride); if (two) _tile_loadd(5, (at) + TILE_ROWS * stride, stride)
#define LOAD_WEIGHTS(at) _tile_loadd(6, at, 64); _tile_loadd(7, (at) + TILE_BYTES, 64)
#define MULTIPLY(dp) dp(0, 4, 6); dp(1, 4, 7); if (two) { dp(2, 5, 6); dp(3, 5, 7); }

AMX INLINE void amx_block(
    const int form, const int two, const char *rows, int64_t rest, int64_t stride, const char *panel, float *y,
    int64_t y_stride
) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t at = 0; at < stride; at += 64) {
        if (form == BF16X3) {
            LOAD_ROWS(rows + at);
            LOAD_WEIGHTS(panel + 2 * TILE_BYTES);
            MULTIPLY(_tile_dpbf16ps);
            LOAD_WEIGHTS(panel);
            MULTIPLY(_tile_dpbf16ps);
            LOAD_ROWS(rows + rest + at);
            MULTIPLY(_tile_dpbf16ps);
            panel += 4 * TILE_BYTES;
        } else {
            LOAD_ROWS(rows + at);
            LOAD_WEIGHTS(panel);
            if (form == BF16) { MULTIPLY(_tile_dpbf16ps); }
            else { MULTIPLY(_tile_dpbssd); }
            panel += 2 * TILE_BYTES;
        }
    }
    _tile_stored(0, y, y_stride * 4);
    _tile_stored(1, y + WIDE, y_stride * 4);
    if (two) {
        _tile_stored(2, y + TILE_ROWS * y_stride, y_stride * 4);
        _tile_stored(3, y + TILE_ROWS * y_stride + WIDE, y_stride * 4);
    }
}

AMX static void amx_panel(const Product *p, const Scratch *s, int64_t rows, const char *panel, float *y, int64_t y_stride) {
    __asm__ volatile("" ::: "memory"); /* the compiler does not know that tiles are loaded from memory */
    int64_t stride = p->inputs * (p->form == INT8 ? 1 : 2), rest = rounded(rows, 2 * TILE_ROWS) * stride;
    for (int64_t row = 0; row < rows; row += 2 * TILE_ROWS) {
        const char *at = s->tiles + row * stride;
        float *to = y + row * y_stride;
        int two = rows - row > TILE_ROWS;
#define FORM(form) \
    case form: \
        if (two) amx_block(form, 1, at, rest, stride, panel, to, y_stride); \
        else amx_block(form, 0, at, rest, stride, panel, to, y_stride); \
        break
        switch (p->form) {
            FORM(BF16);
            FORM(BF16X3);
            FORM(INT8);
        }
#undef FORM
    }
}

static void prepare_rows(const Product *p, const float *x, int64_t rows, Scratch *s) {
    int64_t padded = rounded(rows, 2 * TILE_ROWS);
    if (p->form == INT8) quantize_rows(x, rows, padded, p->inputs, (int8_t *)s->tiles, s->scales);
    else if (p->form != FP32) split_rows(x, rows, padded, p->inputs, p->form == BF16X3, (uint16_t *)s->tiles);
}

/* Multiply rows that were prepared with some panels; y has room for whole blocks of tiles. */
static void multiply(
    const Product *p, const float *x, int64_t rows, int64_t first, int64_t last, float *y, int64_t stride, Scratch *s
) {
    int64_t item = p->form == FP32 || p->form == BF16X3 ? 4 : p->form == BF16 ? 2 : 1;
    for (int64_t panel = first; panel < last; panel++) {
        const char *weights = (const char *)p->panels + panel * PANEL * p->inputs * item;
        float *to = y + (panel - first) * PANEL;
        if (p->form == FP32) fp32_panel(x, rows, (const float *)weights, p->inputs, to, stride);
        else amx_panel(p, s, rows, weights, to, stride);
        if (!p->bias && p->form != INT8) continue;
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < PANEL; i += WIDE) {
                float *at = to + row * stride + i;
                __m512 value = _mm512_loadu_ps(at);
                if (p->form == INT8) {
                    __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(p->scales + panel * PANEL + i), _mm512_set1_ps(s->scales[row]));
                    value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_castps_si512(value)), scale);
                }
                if (p->bias) value = _mm512_add_ps(value, _mm512_loadu_ps(p->bias + panel * PANEL + i));
                _mm512_storeu_ps(at, value);
            }
    }
}

static void product(const Product *p, const float *x, int64_t rows, float *y, Scratch *s) {
    spend(s, NORMS);
    prepare_rows(p, x, rows, s);
    multiply(p, x, rows, 0, p->outputs / PANEL, y, p->outputs, s);
    spend(s, PRODUCTS);
}

/* ------------------------------------------------------------------ layers */

/* Attention of one query row to keys and values side by side; without places, to the first ones. */
static void attend(
    const Stack *stack, const float *q, const float *kv, int64_t stride, const int32_t *places, int64_t count,
    float *weights, float *y
) {
    int64_t d_k = stack->d_k, d_v = stack->d_v;
    float scale = 1.0f / sqrtf((float)d_k);
    for (int64_t head = 0; head < stack->num_heads; head++, q += d_k, y += d_v) {
        const float *k = kv + head * d_k, *v = kv + stack->num_heads * d_k + head * d_v;
        float largest = -INFINITY, sum = 0.0f;
        for (int64_t i = 0; i < count; i++) {
            const float *key = k + (places ? places[i] : i) * stride;
            __m512 dot = _mm512_setzero_ps();
            for (int64_t j = 0; j < d_k; j += WIDE)
                dot = _mm512_fmadd_ps(_mm512_loadu_ps(q + j), _mm512_loadu_ps(key + j), dot);
            weights[i] = _mm512_reduce_add_ps(dot) * scale;
            if (!(weights[i] <= largest)) largest = weights[i];
        }
        for (int64_t i = 0; i < count; i += WIDE) {
            __mmask16 mask = first_lanes(count - i);
            __m512 weight = exp512(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, weights + i), _mm512_set1_ps(largest)));
            _mm512_mask_storeu_ps(weights + i, mask, weight);
            sum += _mm512_mask_reduce_add_ps(mask, weight);
        }
        for (int64_t j = 0; j < d_v; j += WIDE) {
            __m512 value = _mm512_setzero_ps();
            for (int64_t i = 0; i < count; i++) {
                const float *at = v + (places ? places[i] : i) * stride + j;
                value = _mm512_fmadd_ps(_mm512_set1_ps(weights[i]), _mm512_loadu_ps(at), value);
            }
            _mm512_storeu_ps(y + j, _mm512_mul_ps(value, _mm512_set1_ps(1.0f / sum)));
        }
    }
}

/* Turn each pair of neighbouring components by the angle of its position (rotary positions). */
static void turn(float *x, int64_t num_heads, int64_t d_k, const float *cos, const float *sin) {
    for (int64_t head = 0; head < num_heads; head++)
        for (int64_t i = 0; i < d_k / 2; i++) {
            float *pair = x + head * d_k + 2 * i, left = pair[0], right = pair[1];
            pair[0] = left * cos[i] - right * sin[i];
            pair[1] = left * sin[i] + right * cos[i];
        }
}

/* Where self-attention looks. In an encoder, rows of a sentence are neighbours; in a decoder, there are lanes. */
typedef struct {
    const int32_t *position;
    const float *cos, *sin;
    const int32_t *first, *length; /* encoder: of each row's sentence, its first row and its rows */
    const Step *step;              /* decoder */
} Places;

static void self_attention(const Stack *stack, int64_t index, int64_t rows, const Places *at, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    int64_t stride = stack->layers[index].qkv.outputs;
    for (int64_t row = 0; row < rows; row++) {
        float *qkv = s->qkv + row * stride;
        if (at->cos) {
            int64_t angle = at->position[row] * stack->d_k / 2;
            turn(qkv, 2 * stack->num_heads, stack->d_k, at->cos + angle, at->sin + angle);
        }
        if (at->step) {
            const Step *step = at->step;
            int64_t place = (int64_t)at->position[row] * step->beam_size + step->beam[row];
            float *past = step->lanes[step->lane[row]].past + (place * stack->num_layers + index) * (keys + values);
            memcpy(past, qkv + keys, (keys + values) * sizeof *past);
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        const float *q = s->qkv + row * stride;
        float *y = s->attended + row * values;
        if (at->step) {
            const float *past = at->step->lanes[at->step->lane[row]].past + index * (keys + values);
            attend(stack, q, past, stack->num_layers * (keys + values), s->path + row * at->step->longest,
                   at->position[row] + 1, s->weights, y);
        } else {
            attend(stack, q, s->qkv + at->first[row] * stride + keys, stride, NULL, at->length[row], s->weights, y);
        }
    }
}

static void cross_attention(const Stack *stack, int64_t index, const Step *step, Scratch *s) {
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v;
    for (int64_t row = 0; row < step->num_rows; row++) {
        const Lane *lane = step->lanes + step->lane[row];
        attend(stack, s->qkv + row * stack->layers[index].query.outputs, lane->memory + index * (keys + values),
               stack->num_layers * (keys + values), NULL, lane->source_length, s->weights, s->attended + row * values);
    }
}

/* What the residual connection does before a sub-layer, and after it (see model/residual.py). */
static const float *before(const Stack *stack, const Norm *norm, int64_t rows, Scratch *s) {
    if (!stack->is_pre) return s->x;
    normalize(norm, s->x, rows, stack->d_model, s->normed);
    return s->normed;
}

static void after(const Stack *stack, const Norm *norm, int64_t rows, Scratch *s) {
    add(s->x, s->update, rows * stack->d_model);
    if (!stack->is_pre) normalize(norm, s->x, rows, stack->d_model, s->x);
}

static void embed(
    const Stack *stack, const Tokens *t, int64_t rows, const int32_t *token, const int32_t *position, float *x
) {
    int64_t width = stack->d_model;
    __m512 scale = _mm512_set1_ps(t->embedding_scale);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < width; i += WIDE) {
            __m512 value = _mm512_mul_ps(_mm512_loadu_ps(t->embedding + token[row] * width + i), scale);
            if (t->positions) value = _mm512_add_ps(value, _mm512_loadu_ps(t->positions + position[row] * width + i));
            if (t->segment) value = _mm512_add_ps(value, _mm512_loadu_ps(t->segment + i));
            _mm512_storeu_ps(x + row * width + i, value);
        }
    if (t->embedding_norm.weight) normalize(&t->embedding_norm, x, rows, width, x);
}

static void run_layers(const Stack *stack, int64_t rows, const Places *at, Scratch *s) {
    for (int64_t index = 0; index < stack->num_layers; index++) {
        const Layer *layer = stack->layers + index;
        product(&layer->qkv, before(stack, &layer->self_norm, rows, s), rows, s->qkv, s);
        self_attention(stack, index, rows, at, s);
        spend(s, ATTENTION);
        product(&layer->self_out, s->attended, rows, s->update, s);
        after(stack, &layer->self_norm, rows, s);

        if (layer->query.panels) {
            product(&layer->query, before(stack, &layer->cross_norm, rows, s), rows, s->qkv, s);
            cross_attention(stack, index, at->step, s);
            spend(s, ATTENTION);
            product(&layer->cross_out, s->attended, rows, s->update, s);
            after(stack, &layer->cross_norm, rows, s);
        }

        const float *x = before(stack, &layer->ff_norm, rows, s);
        product(&layer->up, x, rows, s->hidden, s);
        if (layer->gate.panels) {
            product(&layer->gate, x, rows, s->gate, s);
            activate(s->gate, rows * stack->d_ff, stack->activation);
            for (int64_t i = 0; i < rows * stack->d_ff; i++) s->hidden[i] *= s->gate[i];
        } else {
            activate(s->hidden, rows * stack->d_ff, stack->activation);
        }
        product(&layer->down, s->hidden, rows, s->update, s);
        after(stack, &layer->ff_norm, rows, s);
    }
    if (stack->final_norm.weight) normalize(&stack->final_norm, s->x, rows, stack->d_model, s->x);
    spend(s, NORMS);
}

/* ------------------------------------------------------------------ choosing tokens */

/* Keep the best values in descending order; of equal ones the earlier stays in front. */
INLINE void insert(float *best, int32_t *ids, int64_t count, float value, int32_t id) {
    int64_t at = count - 1;
    for (; at > 0 && best[at - 1] < value; at--) best[at] = best[at - 1], ids[at] = ids[at - 1];
    best[at] = value;
    ids[at] = id;
}

/* Take in some more logits of a row. Of those before, `best` holds the best, the largest, and the sum of exponentials
 * below it. Where a translation is at its length limit, only the end may come. */
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
    for (int64_t i = 0; i < size; i += WIDE) {
        __mmask16 mask = first_lanes(size - i);
        __m512 values = _mm512_loadu_ps(logits + i);
        total = _mm512_mask_add_ps(total, mask, total, exp512(_mm512_sub_ps(values, _mm512_set1_ps(*largest))));
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
        multiply(p, x, rows, first / PANEL, (first + rounded(size, PANEL)) / PANEL, s->logits, CHUNK, s);
        spend(s, VOCABULARY);
        for (int64_t i = 0; i < rows; i++) {
            float *best = s->best + (row + i) * (step->count + 2);
            int32_t *ids = s->best_ids + (row + i) * step->count;
            look_at(s->logits + i * CHUNK, first, size, listed, t, step->is_last[row + i], step->count, best, ids);
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
        float *best = s->best + row * (count + 2), below = best[count] + logf(best[count + 1]);
        for (int64_t i = 0; i < count; i++) best[i] -= below;
    }
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

/* ------------------------------------------------------------------ what Python calls */

/* Ask the system for AMX's registers; returns 0 if it grants them. */
int request_amx(void) { return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

int64_t scratch_size(const Stack *stack, int64_t rows, int64_t longest, int64_t count) {
    Scratch s;
    return lay_out(&s, NULL, stack, rows, longest, count);
}

/* Copy the rows of a matrix [token][D] that belong to tokens, as a product in float32 reads them; the last panel of
 * [panel][input][PANEL] is filled up with zeros. */
void gather_panels(const float *matrix, const int32_t *ids, int64_t count, int64_t inputs, float *panels) {
    memset(panels, 0, rounded(count, PANEL) * inputs * sizeof *panels);
    for (int64_t i = 0; i < count; i++) {
        const float *row = matrix + ids[i] * inputs;
        float *panel = panels + i / PANEL * PANEL * inputs + i % PANEL;
        for (int64_t k = 0; k < inputs; k++) panel[k * PANEL] = row[k];
    }
}

static int uses_amx(const Stack *stack) { return stack->output.form != FP32 || stack->layers[0].qkv.form != FP32; }
AMX static void begin(const Stack *stack) { if (uses_amx(stack)) _tile_loadconfig(&TILES); }
AMX static void end(const Stack *stack) { if (uses_amx(stack)) _tile_release(); }

/* Encode source tokens; fills [R', layers of the decoder * W], where R' is R in whole blocks of tiles. */
void encode(
    const Stack *stack, const Tokens *t, int64_t rows, int64_t longest, const int32_t *token, const int32_t *position,
    const int32_t *first, const int32_t *length, float *memory, char *scratch
) {
    Scratch s;
    lay_out(&s, scratch, stack, rows, longest, 0);
    s.spent = NULL;
    embed(stack, t, rows, token, position, s.x);
    Places at = {position, t->cos, t->sin, first, length, NULL};
    begin(stack);
    run_layers(stack, rows, &at, &s);
    product(&stack->output, s.x, rows, memory, &s);
    end(stack);
}

/* Take every hypothesis a token further, and find the best ways on from there. */
void take_step(const Stack *stack, const Tokens *t, const Step *step) {
    Scratch s;
    lay_out(&s, step->scratch, stack, step->num_rows, step->longest, step->count);
    s.spent = step->spent;
    if (s.spent) s.since = now();
    for (int64_t row = 0; row < step->num_rows; row++) {
        const Lane *lane = step->lanes + step->lane[row];
        int64_t position = step->position[row], beam = step->beam[row];
        lane->parents[position * step->beam_size + beam] = step->parent[row];
        int32_t *path = s.path + row * step->longest;
        for (int64_t p = position; p >= 0; p--) {
            path[p] = (int32_t)(p * step->beam_size + beam);
            beam = lane->parents[path[p]];
        }
    }
    embed(stack, t, step->num_rows, step->token, step->position, s.x);
    Places at = {step->position, t->cos, t->sin, NULL, NULL, step};
    begin(stack);
    run_layers(stack, step->num_rows, &at, &s);
    choose(stack, t, step, &s);
    end(stack);
    find_ways(step, &s);
}
