/* One form of the core: encoder and decoding step for one kind of processor, the equivalent of decoding/pytorch, one
 * call a step. setup.py compiles this file once for each form.
 *
 * Every row is computed separately and in the same order, so the other rows of a batch never change a translation, and
 * all forms compute the same bits (but for sums of bfloat16 in AMX).
 *
 * Matrix products are in float32; or in bfloat16: every number rounded to one (BF16), or split into the sum of two, of
 * whose four products the smallest is left out (BF16X3: 16 significant bits, products of 24); or in 8 bits with a scale
 * for each row and each output (INT8).
 *
 * Shapes: R rows (hypotheses, or source tokens), D d_model, H heads, W width of keys and values together
 * (H d_k + H d_v).
 */

#include "choice.h"
#include "layers.h"
#include "core.h"

/* Help a team with its products until it is dismissed, or has had no work for IDLE_SECONDS. */
static void assist_team(Team *team) {
    int has_tiles = 0;
    double since = 0.0;
    for (int64_t idle = 0; atomic_load(&team->state) != TO_LEAVE; idle++) {
        if (atomic_load(&team->state) == A_PRODUCT) {
            atomic_fetch_add(&team->inside, 1);
            if (atomic_load(&team->state) == A_PRODUCT) {
                if (team->work.product->is_on_amx && !has_tiles) {
                    begin_tiles();
                    has_tiles = 1;
                }
                take_panels(team, 1);
                idle = 0;
            }
            atomic_fetch_sub(&team->inside, 1);
        }
        if (idle < 1000) { /* without reading the clock, which takes longer */
            pause_thread();
            continue;
        }
        if (idle == 1000) since = now();
        else if (now() - since > IDLE_SECONDS) break;
        sched_yield();
    }
    if (has_tiles) end_tiles();
}

static int uses_amx(const Stack *stack) { return stack->output.is_on_amx || stack->layers[0].qkv.is_on_amx; }

static Scratch begin(
    const Stack *stack, char *scratch, int64_t rows, int64_t longest, int64_t count, int is_search, Team *team
) {
    Scratch s;
    lay_out(&s, scratch, stack, rows, longest, count, is_search);
    s.team = team;
    s.spent = NULL;
    if (uses_amx(stack)) begin_tiles();
    return s;
}

static void end(const Stack *stack) { if (uses_amx(stack)) end_tiles(); }

/* Encode source tokens: compute the cross-attention keys and values of every decoder layer. */
static void encode_sources(const Stack *stack, const Tokens *t, const Sources *sources) {
    Scratch s = begin(stack, sources->scratch, sources->num_rows, sources->longest, 0, 0, sources->team);
    Places at = {.num_rows = sources->num_rows, .position = sources->position, .first = sources->first,
                 .length = sources->length, .longest = sources->longest, .record = sources->record};
    run_layers(stack, t, sources->token, &at, &s);
    int64_t keys = stack->num_heads * stack->d_k, values = stack->num_heads * stack->d_v, width = keys + values;
    int64_t layers = stack->output.outputs / width;
    prepare_rows(&stack->output, s.x, at.num_rows, &s);
    for (int64_t layer = 0; layer < layers; layer++) {
        multiply((Work){.product = &stack->output, .x = s.x, .rows = at.num_rows, .first = layer * width / PANEL,
                        .last = (layer + 1) * width / PANEL, .y = s.qkv, .stride = width}, &s);
        for (int64_t row = 0; row < at.num_rows; row++) {
            int64_t position = at.position[row], block = sources->block[row] + position / LANES;
            float *at_block = sources->memory + (block * layers + layer) * LANES * width;
            turn_keys(s.qkv + row * width, keys, at_block, position % LANES);
            memcpy(at_block + LANES * keys + position % LANES * values, s.qkv + row * width + keys,
                   values * sizeof *at_block);
        }
    }
    end(stack);
}

/* Trace the history of a slot's rows, and assign each newest key a place that no history uses. */
static void find_places(const Step *step, int64_t first, int64_t end, Scratch *s) {
    const Slot *slot = step->slots + step->slot[first];
    int64_t position = step->position[first];
    int32_t *before = slot->newest + (position + 1) % 2 * step->beam_size;
    int32_t *now = slot->newest + position % 2 * step->beam_size;
    memset(s->is_taken, 0, step->beam_size * (position + 1));
    for (int64_t row = first; row < end; row++) {
        int32_t *path = s->path + row * step->longest;
        for (int64_t p = position - 1, place = before[step->parent[row]]; p >= 0; p--, place = slot->parents[place]) {
            path[p] = (int32_t)place;
            s->is_taken[place] = 1;
        }
    }
    int32_t place = 0;
    for (int64_t row = first; row < end; row++, place++) {
        int32_t *path = s->path + row * step->longest;
        while (s->is_taken[place]) place++;
        path[position] = now[step->beam[row]] = place;
        if (position) slot->parents[place] = path[position - 1];
    }
}

/* Extend every hypothesis by a token, and find the best candidates. */
static void make_step(const Stack *stack, const Tokens *t, const Step *step) {
    Scratch s = begin(stack, step->scratch, step->num_rows, step->longest, step->count, 1, step->team);
    s.spent = step->spent;
    if (s.spent) s.since = now();
    for (int64_t row = 0, next; row < step->num_rows; row = next) {
        for (next = row; next < step->num_rows && step->slot[next] == step->slot[row];) next++;
        find_places(step, row, next, &s);
    }
    Places at = {.num_rows = step->num_rows, .position = step->position, .slots = step->slots, .slot = step->slot,
                 .longest = step->longest};
    run_layers(stack, t, step->token, &at, &s);
    choose(stack, t, step, &s);
    end(stack);
    find_candidates(step, &s);
}

/* Score given targets, all positions at once. Each row attends to its target up to itself. Every number is computed
 * in the same order as in take_step, so a target's total equals, bit for bit, the sum of a float32 search over the
 * same tokens. */
static void score_targets(const Stack *stack, const Tokens *t, const Targets *targets) {
    int64_t rows = targets->num_rows;
    Scratch s = begin(stack, targets->scratch, rows, targets->longest, 1, 0, NULL);
    Places at = {.num_rows = rows, .position = targets->position, .first = targets->first, .length = targets->length,
                 .slots = targets->slots, .slot = targets->slot, .longest = targets->longest,
                 .record = targets->record};
    run_layers(stack, t, targets->token, &at, &s);
    if (targets->log_probs) look_up(stack, t, targets, &s);
    end(stack);
    if (!targets->log_probs) return; /* only the record is asked for */
    for (int64_t i = 0; i < targets->num_slots; i++) targets->totals[i] = 0.0f;
    for (int64_t row = 0; row < rows; row++) targets->totals[targets->slot[row]] += targets->log_probs[row];
}

#define NAME_OF(form) form_##form
#define NAME(form) NAME_OF(form)
const Form NAME(FORM) = {
    .encode = encode_sources, .take_step = make_step, .score = score_targets, .pack = pack_matrix,
    .assist = assist_team,
};
