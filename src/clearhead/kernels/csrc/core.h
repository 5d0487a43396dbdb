/* What a form of the core can do; see form.c. */

#pragma once

#include "types.h"

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

EXPORT int64_t packed_size(int64_t outputs, int64_t inputs, int64_t precision);

typedef struct Form {
    void (*encode)(const Stack *stack, const Tokens *t, const Sources *sources);
    void (*take_step)(const Stack *stack, const Tokens *t, const Step *step);
    void (*score)(const Stack *stack, const Tokens *t, const Targets *targets);
    void (*pack)(
        const Product *p, const float *matrix, const int32_t *ids, int64_t count, char *panels, float *scales
    );
    void (*assist)(Team *team);
} Form;

extern const Form form_plain, form_neon, form_neon_dot, form_neon_i8mm, form_avx2, form_avx_vnni, form_avx512,
    form_avx512_vnni, form_avx512_bf16;
