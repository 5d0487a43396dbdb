/* Products of rows and matrices, in float32 and in rounded precisions, by one thread or a team. */

#pragma once

#include <sched.h>
#include <string.h>

#include "amx.h"
#include "packing.h"

/* Where the weights of a block of outputs are; those of the next block, `apart` from them, are fetched into the cache
 * meanwhile, from `ahead` on, `step` bytes for every line. */
typedef struct {
    const char *weights;
    int64_t apart;
    const char *ahead;
    int64_t step;
} Stream;

/* Add the bias to the results of a row, apply ReLU, and store them; `column` is the first output. */
INLINE void finish(const Work *work, const int registers, const Floats *values, int64_t row, int64_t column) {
    const float *bias = work->product->bias;
    float *y = work->y + row * work->stride + column - work->first * PANEL;
    for (int r = 0; r < registers; r++) {
        Floats value = values[r];
        if (bias) value += load(bias + column + r * WIDE);
        if (work->is_rectified) value = larger((Floats){0}, value);
        store(y + r * WIDE, value);
    }
}

/* Multiply n rows by a block of outputs, or by two, in float32; the sums stay in registers. */
INLINE void fp32_block(const int n, const int blocks, const Work *work, int64_t row, int64_t column, Stream at) {
    int64_t inputs = work->product->inputs;
    const float *x = work->x + row * inputs;
    Floats sum[ROW_BLOCK][2 * REGISTERS];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = (Floats){0};
#if defined(WASM)
    _Pragma("GCC unroll 4") /* browsers check in each round whether to interrupt a loop */
#endif
    for (int64_t k = 0; k < inputs; k++, at.weights += 4 * BLOCK, at.ahead += at.step) {
#if defined(WASM)
        KEEP_POINTER(at.weights);
        Floats value[ROW_BLOCK];
        for (int i = 0; i < n; i++) value[i] = all(x[i * inputs + k]);
        UNROLLED
        for (int r = 0; r < blocks * REGISTERS; r++) {
            Floats w = load((const float *)(at.weights + r / REGISTERS * at.apart) + r % REGISTERS * WIDE);
            for (int i = 0; i < n; i++) {
                sum[i][r] = multiply_add(value[i], w, sum[i][r]);
                IN_ORDER(sum[i][r]);
            }
        }
#else
        Floats w[2 * REGISTERS];
        for (int r = 0; r < blocks * REGISTERS; r++) {
            w[r] = load((const float *)(at.weights + r / REGISTERS * at.apart) + r % REGISTERS * WIDE);
            if (n > 1 && (n + 1) * blocks * REGISTERS < VECTOR_REGISTERS) IN_REGISTER(w[r]);
        }
        if (blocks == 1) __builtin_prefetch(at.ahead);
        for (int i = 0; i < n; i++) {
            Floats value = all(x[i * inputs + k]);
            for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = multiply_add(value, w[r], sum[i][r]);
        }
#endif
    }
    for (int i = 0; i < n; i++) finish(work, blocks * REGISTERS, sum[i], row + i, column);
}

/* The weights of a register's outputs: in each line of a tile, an output has 4 bytes. */
#define WEIGHTS(line, r) \
    load_ints((line) + (r) / REGISTERS * at.apart + (r) % REGISTERS * WIDE / 16 * TILE_BYTES + (r) % REGISTERS * WIDE % 16 * 4)
/* What 4 bytes of a row hold, in every lane. */
#define OF_ROW(x, i) all_ints(*(const int32_t *)((x) + (i) * stride + k))

/* The same in 8 bits; `at_once` is for `add_levels`. */
INLINE void int8_block(
    const int at_once, const int n, const int blocks, const Work *work, int64_t row, int64_t column, Stream at
) {
    const Scratch *s = work->scratch;
    int64_t stride = work->product->inputs;
    const char *x = s->tiles + row * stride;
    Ints sum[ROW_BLOCK][2 * REGISTERS];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = all_ints(-WEIGHT_OFFSET * s->sums[row + i]);
    for (int64_t k = 0; k < stride; at.weights += BLOCK_TILES * TILE_BYTES)
        for (const char *line = at.weights; line < at.weights + TILE_BYTES; line += LINES * 64, k += LINES * 4) {
            for (int i = 0; blocks == 1 && i < LINES; i++, at.ahead += at.step) __builtin_prefetch(at.ahead);
#if defined(IN_PAIRS) /* but for the last of an odd number of rows */
            Ints pair[ROW_BLOCK / 2];
            for (int i = 0; i < n / 2; i++) pair[i] = bytes_of_two(x + 2 * i * stride + k, x + (2 * i + 1) * stride + k);
            for (int r = 0; r < blocks * REGISTERS; r++) {
                Ints w = WEIGHTS(line, r), next = WEIGHTS(line + 64, r), *last = &sum[n - 1][r];
                for (int i = 0; i < n / 2; i++) add_levels_of_two(&sum[2 * i][r], &sum[2 * i + 1][r], w, next, pair[i]);
                if (n % 2) *last = add_levels(at_once, *last, w, OF_ROW(x, n - 1));
                if (n % 2) *last = add_levels(at_once, *last, next, OF_ROW(x + 4, n - 1));
            }
#elif defined(WASM)
            KEEP_POINTER(line);
            Ints levels[ROW_BLOCK];
            for (int i = 0; i < n; i++) levels[i] = OF_ROW(x, i);
            UNROLLED
            for (int r = 0; r < blocks * REGISTERS; r++) {
                Ints w = WEIGHTS(line, r);
                for (int i = 0; i < n; i++) {
                    sum[i][r] = add_levels(at_once, sum[i][r], w, levels[i]);
                    IN_ORDER(sum[i][r]);
                }
            }
#else
            Ints w[2 * REGISTERS];
            for (int r = 0; r < blocks * REGISTERS; r++) {
                w[r] = WEIGHTS(line, r);
                if (n > 1 && (n + 1) * blocks * REGISTERS < VECTOR_REGISTERS) IN_REGISTER(w[r]);
            }
            for (int i = 0; i < n; i++) {
                Ints levels = OF_ROW(x, i);
                for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = add_levels(at_once, sum[i][r], w[r], levels);
            }
#endif
        }
#if defined(IN_PAIRS)
    for (int i = 0; i < n / 2; i++)
        for (int r = 0; r < blocks * REGISTERS; r++) part_rows(&sum[2 * i][r], &sum[2 * i + 1][r]);
#endif
    UNROLLED
    for (int i = 0; i < n; i++) {
        Floats value[2 * REGISTERS];
        for (int r = 0; r < blocks * REGISTERS; r++)
            value[r] = to_floats(sum[i][r]) * (load(work->product->scales + column + r * WIDE) * all(s->scales[row + i]));
        finish(work, blocks * REGISTERS, value, row + i, column);
    }
}

/* The same in bfloat16; with `has_rest` every number is the sum of two. */
INLINE void bf16_block(
    const int has_rest, const int n, const int blocks, const Work *work, int64_t row, int64_t column, Stream at
) {
    int64_t stride = work->product->inputs * 2, term = BLOCK_TILES * TILE_BYTES;
    const char *x = work->scratch->tiles + row * stride, *rest = x + rounded(work->rows, 2 * TILE_ROWS) * stride;
    Floats sum[ROW_BLOCK][2 * REGISTERS];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = (Floats){0};
    for (int64_t k = 0; k < stride; at.weights += has_rest ? 2 * term : term)
        for (const char *line = at.weights; line < at.weights + TILE_BYTES; line += 64, k += 4)
            for (int i = 0; i < n; i++) {
                Ints high = OF_ROW(x, i);
                for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = add_bf16(sum[i][r], WEIGHTS(line, r), high);
                if (!has_rest) continue;
                Ints low = OF_ROW(rest, i);
                for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = add_bf16(sum[i][r], WEIGHTS(line, r), low);
                line += term;
                for (int r = 0; r < blocks * REGISTERS; r++) sum[i][r] = add_bf16(sum[i][r], WEIGHTS(line, r), high);
                line -= term;
            }
    for (int i = 0; i < n; i++) finish(work, blocks * REGISTERS, sum[i], row + i, column);
}
#undef WEIGHTS
#undef OF_ROW

/* Call a macro for all rows, in blocks whose size the compiler knows, because it assigns registers for each size: the
 * largest blocks first, then one for the rest. */
#define CASE(n, CALL, ...) case n: { CALL(n, __VA_ARGS__); } break;
#define TO_3(CALL, ...) CASE(3, CALL, __VA_ARGS__) CASE(2, CALL, __VA_ARGS__) CASE(1, CALL, __VA_ARGS__)
#define TO_5(CALL, ...) CASE(5, CALL, __VA_ARGS__) CASE(4, CALL, __VA_ARGS__) TO_3(CALL, __VA_ARGS__)
#define IN_BLOCKS_OF(n, CALL, ...) for (; row + n <= rows; row += n) { CALL(n, __VA_ARGS__); }
#if ROW_BLOCK == 12
#define FEW(CALL, ...) IN_BLOCKS_OF(6, CALL, __VA_ARGS__) switch (rows - row) { TO_5(CALL, __VA_ARGS__) }
#define EACH_SIZE(CALL, ...) IN_BLOCKS_OF(12, CALL, __VA_ARGS__) FEW(CALL, __VA_ARGS__)
#elif ROW_BLOCK == 6
#define FEW(CALL, ...) switch (rows) { TO_3(CALL, __VA_ARGS__) }
#define EACH_SIZE(CALL, ...) IN_BLOCKS_OF(6, CALL, __VA_ARGS__) switch (rows - row) { TO_5(CALL, __VA_ARGS__) }
#else
#define FEW(CALL, ...) { CALL(1, __VA_ARGS__); }
#define EACH_SIZE(CALL, ...) IN_BLOCKS_OF(2, CALL, __VA_ARGS__) IN_BLOCKS_OF(1, CALL, __VA_ARGS__)
#endif

/* Multiply all rows by the block of outputs from `column` on, or a few rows by two blocks. */
INLINE void multiply_rows(const int precision, const int blocks, const Work *work, int64_t column) {
    int64_t rows = work->rows, row = 0, bytes = block_bytes(work->product), lines = work->product->inputs;
    if (precision != FP32) lines /= group_of(precision);
    const char *weights = (const char *)work->product->panels + column / BLOCK * bytes;
#define CALL(n, blocks) \
    Stream at = {weights, bytes, weights + bytes + bytes * row / rows, bytes / lines * n / rows}; \
    if (precision == FP32) fp32_block(n, blocks, work, row, column, at); \
    else if (precision == INT8 && adds_four()) int8_block(1, n, blocks, work, row, column, at); \
    else if (precision == INT8) int8_block(0, n, blocks, work, row, column, at); \
    else bf16_block(precision == BF16X3, n, blocks, work, row, column, at)
    if (blocks == 2) { FEW(CALL, 2) }
    else { EACH_SIZE(CALL, 1) }
#undef CALL
}

static void multiply_columns(const Work *work, int64_t blocks, int64_t column) {
#define IN(precision) \
    case precision: \
        if (blocks == 2) multiply_rows(precision, 2, work, column); \
        else multiply_rows(precision, 1, work, column); \
        break
    switch (work->product->precision) {
        IN(FP32);
        IN(BF16);
        IN(BF16X3);
        IN(INT8);
    }
#undef IN
}

/* Compute some panels of a product. */
static void multiply_panels(const Work *work, int64_t first, int64_t last) {
    const Product *p = work->product;
    if (!p->is_on_amx) {
        int64_t column = first * PANEL, end = last * PANEL, two = work->rows <= ROW_BLOCK / 2 ? 2 : 1;
        for (; column + two * BLOCK <= end; column += two * BLOCK) multiply_columns(work, two, column);
        for (; column < end; column += BLOCK) multiply_columns(work, 1, column);
        return;
    }
    for (int64_t panel = first; panel < last; panel++) {
        float *y = work->y + (panel - work->first) * PANEL;
        const char *weights = (const char *)p->panels + panel * packed_size(PANEL, p->inputs, p->precision);
        amx_panel(p, work->scratch, work->rows, weights, y, work->stride);
        for (int64_t row = 0; row < work->rows; row++)
            for (int64_t i = 0; i < PANEL; i += WIDE) {
                Floats value = load(y + row * work->stride + i);
                if (p->precision == INT8)
                    value = to_floats((Ints)value)
                            * (load(p->scales + panel * PANEL + i) * all(work->scratch->scales[row]));
                finish(work, 1, &value, row, panel * PANEL + i);
            }
    }
}

/* Convert rows to bfloat16, and their remainders with `has_rest`; rows that pad blocks of tiles are zeros. */
static void split_rows(
    const float *x, int64_t rows, int64_t padded, int64_t inputs, int has_rest, uint16_t *tiles
) {
    int64_t count = rows * inputs, total = padded * inputs;
    for (int64_t i = 0; i < count; i++) tiles[i] = to_bf16(x[i]);
    /* A loop of its own: in one loop clang would store the rest with masks, slowly even where there is none. */
    for (int64_t i = 0; has_rest && i < count; i++) tiles[total + i] = to_bf16(x[i] - from_bf16(tiles[i]));
    memset(tiles + count, 0, (total - count) * sizeof *tiles);
    if (has_rest) memset(tiles + total + count, 0, (total - count) * sizeof *tiles);
}

/* Quantize rows to 8 bits, each with its own scale, and compute the sum of each. */
static void quantize_rows(const float *x, int64_t rows, int64_t padded, int64_t inputs, Scratch *s) {
    const Floats whole_numbers = all(WHOLE_NUMBERS);
    for (int64_t row = 0; row < rows; row++, x += inputs) {
        Floats largest = {0}, zero_or_nan = {0};
        for (int64_t i = 0; i < inputs; i += WIDE) {
            Floats value = load(x + i);
            largest = larger(largest, (Floats)((Ints)value & 0x7fffffff));
            zero_or_nan = multiply_add(value, (Floats){0}, zero_or_nan);
        }
        Lanes check = {{zero_or_nan}};
        float scale = (largest_of(largest) + 1e-30f) / 127.0f + sum_of(check); /* not 0; with NaN all results are NaN */
        Floats factor = all(1.0f / scale);
        Ints sum = {0};
        for (int64_t i = 0; i < inputs; i += WIDE) {
            Ints level = (Ints)(load(x + i) * factor + whole_numbers) << 16 >> 16;
            store_bytes(s->tiles + row * inputs + i, level);
            sum += level;
        }
        s->scales[row] = scale;
        s->sums[row] = sum_of_ints(sum);
    }
    memset(s->tiles + rows * inputs, 0, (padded - rows) * inputs);
}

static void prepare_rows(const Product *p, const float *x, int64_t rows, Scratch *s) {
    int64_t padded = rounded(rows, 2 * TILE_ROWS);
    if (p->precision == INT8) quantize_rows(x, rows, padded, p->inputs, s);
    else if (p->precision != FP32) split_rows(x, rows, padded, p->inputs, p->precision == BF16X3, (uint16_t *)s->tiles);
}

/* Let all helpers sleep at once. */
static void dismiss_helpers(Team *team) { atomic_store(&team->state, TO_LEAVE); }

/* Take a team's panels, some at a time, until none is left: its caller from the front, helpers from the back, so that each
 * finds most of its weights in its own cache. A late helper finds none. */
static void take_panels(Team *team, int is_helper) {
    const Work *work = &team->work;
    int64_t size = work->last - work->first, some = work->at_once, portions = (size + some - 1) / some;
    for (;;) {
        int64_t taken = atomic_fetch_add(&team->taken, is_helper ? FROM_BACK : 1);
        int64_t front = taken % FROM_BACK, back = taken / FROM_BACK;
        if (front + back >= portions) return;
        int64_t from = work->first + (is_helper ? portions - 1 - back : front) * some;
        multiply_panels(work, from, from + some < work->last ? from + some : work->last);
    }
}

/* Multiply prepared rows, with the helpers if there are any. */
static void multiply(Work work, Scratch *s) {
    Team *team = s->team;
    work.scratch = s;
    int64_t size = work.last - work.first, cost = packed_size(PANEL, work.product->inputs, work.product->precision);
    cost *= work.rows + 1; /* of a panel: reading it, and its products with the rows */
    if (!team || atomic_load(&team->state) == TO_LEAVE || size * cost < WORTH_SHARING) {
        multiply_panels(&work, work.first, work.last);
        return;
    }
    work.at_once = rounded(max64(size / 16, WORTH_SHARING / 8 / cost) + 1, 2); /* a few rows meet two panels at once */
    team->work = work;
    atomic_store(&team->taken, 0);
    atomic_store(&team->state, A_PRODUCT);
    take_panels(team, 0);
    atomic_store(&team->state, NOTHING);
    for (int64_t spins = 0; atomic_load(&team->inside); spins++) {
        if (spins < PATIENCE) pause_thread();
        else sched_yield();
        team->delays += spins == PATIENCE;
    }
    if (team->delays > 2) dismiss_helpers(team);
}

static void product(const Product *p, const float *x, int64_t rows, float *y, int is_rectified, Scratch *s) {
    spend(s, NORMS);
    prepare_rows(p, x, rows, s);
    multiply((Work){.product = p, .x = x, .rows = rows, .last = p->outputs / PANEL, .y = y, .stride = p->outputs,
                    .is_rectified = is_rectified}, s);
    spend(s, PRODUCTS);
}
