/* The compiled core of translation: the forms of form.c in one library, of which one is in use.
 *
 * Python owns all memory. One thread makes a call, and several threads may call at once, each with its own slots and
 * scratch. structs.py reads the structures from types.h.
 */

#include <string.h>

#include "core.h"
#include "cpu.h"
#include "search.h"

/* The hash of the sources that this was built from: defined by setup.py, and compared by library.py with its own. */
EXPORT uint64_t core_sources(void) { return SOURCES; }

static const Form *form;

/* Every form in this library, from the best to the plainest. */
static const struct {
    const char *name;
    const Form *form;
    int64_t needs; /* abilities of the processor */
} FORMS[] = {
#if defined(__x86_64__)
    {"amx", &form_avx512_bf16, HAS_AVX512_BF16 | HAS_AMX},
    {"avx512-bf16", &form_avx512_bf16, HAS_AVX512_BF16},
    {"avx512-vnni", &form_avx512_vnni, HAS_AVX512_VNNI},
    {"avx512", &form_avx512, HAS_AVX512},
    {"avx-vnni", &form_avx_vnni, HAS_AVX_VNNI},
    {"avx2", &form_avx2, HAS_AVX2},
#elif defined(__aarch64__)
    {"neon-i8mm", &form_neon_i8mm, HAS_DOT | HAS_I8MM},
    {"neon-dot", &form_neon_dot, HAS_DOT},
    {"neon", &form_neon, 0},
#endif
    {"plain", &form_plain, 0},
};

/* Use a form: the one of that name, or the best that this processor can run. Return its name; NULL if there is none of
 * that name, or the processor or the system does not allow it. */
EXPORT const char *use_form(const char *name) {
    int64_t abilities = abilities_of_processor();
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
        if ((!name || !strcmp(name, FORMS[i].name)) && !(FORMS[i].needs & ~abilities)) {
            form = FORMS[i].form;
            return FORMS[i].name;
        }
    return NULL;
}

EXPORT int64_t scratch_size(const Stack *stack, int64_t rows, int64_t longest, int64_t count, int is_search) {
    Scratch s;
    return lay_out(&s, NULL, stack, rows, longest, count, is_search);
}

EXPORT int64_t packed_size(int64_t outputs, int64_t inputs, int64_t precision) {
    return rounded(outputs, PANEL) * inputs * (precision == FP32 || precision == BF16X3 ? 4 : precision == BF16 ? 2 : 1);
}

EXPORT void pack(const Product *p, const float *matrix, const int32_t *ids, int64_t count, char *panels, float *scales) {
    form->pack(p, matrix, ids, count, panels, scales);
}

EXPORT void encode(const Stack *stack, const Tokens *t, const Sources *sources) { form->encode(stack, t, sources); }
EXPORT void take_step(const Stack *stack, const Tokens *t, const Step *step) { form->take_step(stack, t, step); }

/* Take search steps until a sentence is finished, Python must set a mask or look at something else, or the room or the
 * time is used up. Return 1 if Python must count the repetitions in a source before the next step. */
EXPORT int advance(const Stack *stack, const Tokens *t, const Search *search) {
    double since = now();
    for (int64_t steps = 1;; steps++) {
        if (!begin_step(search)) return 1;
        form->take_step(stack, t, search->step);
        if (!end_step(search) || steps == search->most_steps || atomic_load(search->changes) != search->seen ||
            now() - since >= search->seconds)
            return 0;
    }
}

EXPORT void score(const Stack *stack, const Tokens *t, const Targets *targets) { form->score(stack, t, targets); }
EXPORT void assist(Team *team) { form->assist(team); }

/* Let all helpers sleep at once. */
EXPORT void dismiss(Team *team) { atomic_store(&team->state, TO_LEAVE); }
