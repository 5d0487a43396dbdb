/* What tells a core that was built from other sources: structs.py computes the same hash of its own. */

#pragma once

#include "types.h"

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 1099511628211u; } /* FNV-1a */

int64_t core_version(void) { return CORE_VERSION; }

/* A hash of the name, place and size of every field of every structure that Python knows. */
uint64_t core_layout(void) {
    uint64_t hash = 14695981039346656037u;
#define SIZE(type) hash = mix(hash, sizeof(type))
#define FIELD(type, field) \
    for (const char *letter = #field; *letter; letter++) hash = mix(hash, (uint64_t)*letter); \
    hash = mix(mix(hash, offsetof(type, field)), sizeof(((type *)0)->field))
    SIZE(Product); FIELD(Product, inputs); FIELD(Product, outputs); FIELD(Product, precision); FIELD(Product, is_on_amx);
        FIELD(Product, panels); FIELD(Product, scales); FIELD(Product, bias);
    SIZE(Norm); FIELD(Norm, weight); FIELD(Norm, bias); FIELD(Norm, eps); FIELD(Norm, is_rms);
    SIZE(Layer); FIELD(Layer, self_norm); FIELD(Layer, qkv); FIELD(Layer, self_out); FIELD(Layer, cross_norm);
        FIELD(Layer, query); FIELD(Layer, cross_out); FIELD(Layer, ff_norm); FIELD(Layer, up); FIELD(Layer, gate);
        FIELD(Layer, down);
    SIZE(Stack); FIELD(Stack, d_model); FIELD(Stack, num_heads); FIELD(Stack, d_k); FIELD(Stack, d_v);
        FIELD(Stack, d_ff); FIELD(Stack, num_layers); FIELD(Stack, is_pre); FIELD(Stack, activation);
        FIELD(Stack, layers); FIELD(Stack, final_norm); FIELD(Stack, output);
    SIZE(Slot); FIELD(Slot, past); FIELD(Slot, parents); FIELD(Slot, newest); FIELD(Slot, memory);
        FIELD(Slot, source_length); FIELD(Slot, own); FIELD(Slot, own_ids); FIELD(Slot, num_own);
    SIZE(Tokens); FIELD(Tokens, embedding); FIELD(Tokens, positions); FIELD(Tokens, segment); FIELD(Tokens, cos);
        FIELD(Tokens, sin); FIELD(Tokens, embedding_norm); FIELD(Tokens, ids); FIELD(Tokens, num_ids);
        FIELD(Tokens, eos_id); FIELD(Tokens, pad_id); FIELD(Tokens, bos_id); FIELD(Tokens, embedding_scale);
    SIZE(Work); FIELD(Work, product); FIELD(Work, x); FIELD(Work, rows); FIELD(Work, first); FIELD(Work, last);
        FIELD(Work, y); FIELD(Work, stride); FIELD(Work, scratch);
    SIZE(Team); FIELD(Team, state); FIELD(Team, inside); FIELD(Team, next); FIELD(Team, work); FIELD(Team, delays);
    SIZE(Sources); FIELD(Sources, num_rows); FIELD(Sources, longest); FIELD(Sources, token); FIELD(Sources, position);
        FIELD(Sources, first); FIELD(Sources, length); FIELD(Sources, memory); FIELD(Sources, scratch);
        FIELD(Sources, team);
    SIZE(Targets); FIELD(Targets, num_rows); FIELD(Targets, num_slots); FIELD(Targets, longest); FIELD(Targets, slots);
        FIELD(Targets, slot); FIELD(Targets, position); FIELD(Targets, first); FIELD(Targets, length);
        FIELD(Targets, token); FIELD(Targets, wanted); FIELD(Targets, log_probs); FIELD(Targets, totals);
        FIELD(Targets, scratch);
    SIZE(Step); FIELD(Step, num_rows); FIELD(Step, num_slots); FIELD(Step, beam_size); FIELD(Step, longest);
        FIELD(Step, count); FIELD(Step, num_candidates); FIELD(Step, slots); FIELD(Step, slot); FIELD(Step, beam);
        FIELD(Step, parent); FIELD(Step, position); FIELD(Step, token); FIELD(Step, is_last); FIELD(Step, score);
        FIELD(Step, candidate_score); FIELD(Step, candidate_beam); FIELD(Step, candidate_token); FIELD(Step, scratch);
        FIELD(Step, team); FIELD(Step, spent);
#undef SIZE
#undef FIELD
    return hash;
}
