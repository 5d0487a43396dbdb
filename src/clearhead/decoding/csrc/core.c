/* Encoder and decoding step for x86-64 processors with AVX-512: what decoding/packed.py says in PyTorch, one call a step.
 *
 * Every row is computed by itself and in the same order, whatever its neighbours: no batch changes a translation.
 * Python owns all memory; one thread makes a call, and several threads may call at once with lanes and scratch of
 * their own. Structures are mirrored, field by field, in core.py.
 *
 * Matrix products are in float32; or, on AMX or AVX-512's own instructions, in bfloat16: every number rounded to one (BF16), or split into the sum
 * of two whose products all count but the smallest (BF16X3: 16 significant bits, products of 24); or in 8 bits with
 * a scale for each row and each output (INT8).
 *
 * Shapes: R rows (hypotheses, or source tokens), D d_model, H heads, W width of keys and values together (H d_k + H d_v).
 */

#include <sys/syscall.h>
#include <unistd.h>

#include "choice.h"
#include "layers.h"
#include "layout.h"

/* Ask the system for AMX's registers; returns 0 if it grants them. */
int request_amx(void) { return (int)syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }

int64_t scratch_size(const Stack *stack, int64_t rows, int64_t longest, int64_t count, int is_search) {
    Scratch s;
    return lay_out(&s, NULL, stack, rows, longest, count, is_search);
}

/* Help a team with its products until it is dismissed, or has had nothing to do for IDLE_SECONDS. */
AMX void assist(Team *team) {
    int has_tiles = 0;
    double since = 0.0;
    for (int64_t idle = 0; atomic_load(&team->state) != TO_LEAVE; idle++) {
        if (atomic_load(&team->state) == A_PRODUCT) {
            atomic_fetch_add(&team->inside, 1);
            if (atomic_load(&team->state) == A_PRODUCT) {
                if (team->product->is_on_amx && !has_tiles) {
                    _tile_loadconfig(&TILES);
                    has_tiles = 1;
                }
                take_panels(team);
                idle = 0;
            }
            atomic_fetch_sub(&team->inside, 1);
        }
        if (idle < 1000) {
            _mm_pause();
            continue;
        }
        if (idle == 1000) since = now();
        else if (now() - since > IDLE_SECONDS) break;
        sched_yield();
    }
    if (has_tiles) _tile_release();
}

void end_team(Team *team) { dismiss(team); }

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

static int uses_amx(const Stack *stack) { return stack->output.is_on_amx || stack->layers[0].qkv.is_on_amx; }
AMX static void begin(const Stack *stack) { if (uses_amx(stack)) _tile_loadconfig(&TILES); }
AMX static void end(const Stack *stack) { if (uses_amx(stack)) _tile_release(); }

/* Encode source tokens; fills [R', layers of the decoder * W], where R' is R in whole blocks of tiles. */
void encode(
    const Stack *stack, const Tokens *t, int64_t rows, int64_t longest, const int32_t *token, const int32_t *position,
    const int32_t *first, const int32_t *length, float *memory, char *scratch, Team *team
) {
    Scratch s;
    lay_out(&s, scratch, stack, rows, longest, 0, 0);
    s.spent = NULL;
    s.team = team;
    embed(stack, t, rows, token, position, s.x);
    Places at = {position, t->cos, t->sin, first, length, NULL};
    begin(stack);
    run_layers(stack, rows, &at, &s);
    product(&stack->output, s.x, rows, memory, &s);
    end(stack);
}

/* Follow the pasts of a lane's rows, and give each newest key a place that none of them needs. */
static void find_places(const Step *step, int64_t first, int64_t end, Scratch *s) {
    const Lane *lane = step->lanes + step->lane[first];
    int64_t position = step->position[first];
    int32_t *before = lane->newest + (position + 1) % 2 * step->beam_size, *now = lane->newest + position % 2 * step->beam_size;
    memset(s->is_taken, 0, step->beam_size * (position + 1));
    for (int64_t row = first; row < end; row++) {
        int32_t *path = s->path + row * step->longest;
        for (int64_t p = position - 1, place = before[step->parent[row]]; p >= 0; p--, place = lane->parents[place]) {
            path[p] = (int32_t)place;
            s->is_taken[place] = 1;
        }
    }
    int32_t place = 0;
    for (int64_t row = first; row < end; row++, place++) {
        int32_t *path = s->path + row * step->longest;
        while (s->is_taken[place]) place++;
        path[position] = now[step->beam[row]] = place;
        if (position) lane->parents[place] = path[position - 1];
    }
}

/* Take every hypothesis a token further, and find the best ways on from there. */
void take_step(const Stack *stack, const Tokens *t, const Step *step) {
    Scratch s;
    lay_out(&s, step->scratch, stack, step->num_rows, step->longest, step->count, 1);
    s.spent = step->spent;
    s.team = step->team;
    if (s.spent) s.since = now();
    for (int64_t row = 0, next; row < step->num_rows; row = next) {
        for (next = row; next < step->num_rows && step->lane[next] == step->lane[row];) next++;
        find_places(step, row, next, &s);
    }
    embed(stack, t, step->num_rows, step->token, step->position, s.x);
    Places at = {step->position, t->cos, t->sin, NULL, NULL, step};
    begin(stack);
    run_layers(stack, step->num_rows, &at, &s);
    choose(stack, t, step, &s);
    end(stack);
    find_ways(step, &s);
}

/* Score given targets: all positions at once. Rows of a target are neighbours, and each sees those up to itself. Every
 * number is computed in the order in which take_step computes it, so a target's total is bit for bit what a search in
 * float32 adds up for the same tokens. Of the lanes, only the memory is read.
 *
 * `wanted` is what should come after each row's token, `log_probs` its log-probability; `totals` are their sums. */
void score(
    const Stack *stack, const Tokens *t, int64_t rows, int64_t num_lanes, int64_t longest, const Lane *lanes,
    const int32_t *lane, const int32_t *position, const int32_t *first, const int32_t *length, const int32_t *token,
    const int32_t *wanted, float *log_probs, float *totals, char *scratch
) {
    Scratch s;
    lay_out(&s, scratch, stack, rows, longest, 1, 0);
    s.spent = NULL;
    s.team = NULL;
    Step step = {.num_rows = rows, .num_lanes = num_lanes, .lanes = lanes, .lane = lane};
    embed(stack, t, rows, token, position, s.x);
    Places at = {position, t->cos, t->sin, first, length, &step};
    begin(stack);
    run_layers(stack, rows, &at, &s);
    look_up(&stack->output, t, rows, wanted, log_probs, &s);
    end(stack);
    for (int64_t i = 0; i < num_lanes; i++) totals[i] = 0.0f;
    for (int64_t row = 0; row < rows; row++) totals[lane[row]] += log_probs[row];
}
