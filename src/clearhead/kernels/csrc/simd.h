/* Vectors of WIDE floats: the only file with instructions of particular processors, beside amx.h. It is compiled once
 * for each form of the core (see setup.py); what is not here is written with the compiler's vector types.
 *
 * Every form computes the same bits: sums are added up in the same LANES (Lanes), whatever a register holds, and a
 * product is not rounded before it is added (multiply_add). */

#pragma once

#include <stdint.h>
#include <string.h>

#include "types.h"

#if defined(__wasm_simd128__) /* a module of WebAssembly has the plain form alone */
#include <wasm_simd128.h>
#define WASM
#define WIDE 4
#define VECTOR_REGISTERS 16 /* of x86-64, on which it may run */
#define REGISTERS 4
#define ROW_BLOCK 2
#elif defined(FORM_plain) /* whatever the compiler uses by itself */
#define WIDE 4
#define VECTOR_REGISTERS 16
#define REGISTERS 4  /* of outputs computed together */
#define ROW_BLOCK 2  /* rows computed together; with the registers of their outputs they fill the processor's */
#elif defined(__AVX512F__) /* F, BW, DQ, VL */
#include <immintrin.h>
#define WIDE 16
#define VECTOR_REGISTERS 32
#define REGISTERS 2
#define ROW_BLOCK 12
#elif defined(__AVX2__) /* and FMA */
#include <immintrin.h>
#define WIDE 8
#define VECTOR_REGISTERS 16
#define REGISTERS 2
#define ROW_BLOCK 6
#else
#include <arm_neon.h>
#define NEON
#define WIDE 4
#define VECTOR_REGISTERS 32
#define REGISTERS 4
#define ROW_BLOCK 6
#endif

typedef float Floats __attribute__((vector_size(4 * WIDE)));
typedef int32_t Ints __attribute__((vector_size(4 * WIDE)));
typedef struct { Floats part[LANES / WIDE]; } Lanes;

INLINE Floats load(const float *at) { Floats v; memcpy(&v, at, sizeof v); return v; }
INLINE void store(float *at, Floats v) { memcpy(at, &v, sizeof v); }
INLINE Ints load_ints(const void *at) { Ints v; memcpy(&v, at, sizeof v); return v; }
INLINE Floats all(float x) { return x - (Floats){0}; } /* x + 0 would lose the sign of -0 */
INLINE Ints all_ints(int32_t x) { return x + (Ints){0}; }
INLINE Floats to_floats(Ints v) { return __builtin_convertvector(v, Floats); }
INLINE Floats chosen(Ints which, Floats a, Floats b) { return (Floats)((which & (Ints)a) | (~which & (Ints)b)); }

/* Keep what was loaded in its register: compilers would load it again for each use. */
#if WIDE == 16
#define IN_REGISTER(v) __asm__("" : "+v"(v))
#elif WIDE == 8
#define IN_REGISTER(v) __asm__("" : "+x"(v))
#elif defined(NEON)
#define IN_REGISTER(v) __asm__("" : "+w"(v))
#else
#define IN_REGISTER(v) ((void)0)
#endif

/* In WebAssembly: let a load add a constant to this pointer, instead of the compiler; and compute this before what comes
 * after it. Otherwise more is kept at once than there are registers. */
#if defined(WASM)
#define KEEP_POINTER(at) __asm__("" : "+r"(at))
#define IN_ORDER(v) __asm__ volatile("" : "+r"(v) : : "memory")
#endif

/* A sum with 1.5 * 2^23 is rounded to a whole number, which its last bits are. */
#define WHOLE_NUMBERS 12582912.0f

/* multiply_add: a * b + c, rounded once. larger, smaller: b if one of them is NaN. lanes_above: a bit for each lane. */
#if WIDE == 16
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
INLINE Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
INLINE Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
INLINE unsigned lanes_above(Floats v, float x) { return _mm512_cmp_ps_mask(v, all(x), _CMP_GT_OQ); }
#elif WIDE == 8
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
INLINE Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
INLINE Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
INLINE unsigned lanes_above(Floats v, float x) { return _mm256_movemask_ps(_mm256_cmp_ps(v, all(x), _CMP_GT_OQ)); }
#else
#if defined(NEON)
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
#elif defined(__wasm_relaxed_simd__) /* rounded once where the processor does that at once */
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#elif defined(WASM) /* rounded twice */
INLINE Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
#else
/* A product of two floats is exact in double, and so is what its sum with a third loses. If it loses anything, the last
 * bit of the sum is made odd; then rounding it to a float rounds the exact sum (Boldo and Melquiond 2008, "Emulation of
 * a FMA and correctly rounded sums: proved algorithms using rounding to odd"). */
INLINE float multiply_add_one(float a, float b, float c) {
    double product = (double)a * b, sum = product + c, back = sum - product;
    double lost = (product - (sum - back)) + (c - back);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((lost < 0.0 || lost > 0.0) && !(bits & 1)) bits += (lost > 0.0) == (sum > 0.0) ? 1 : -1;
    memcpy(&sum, &bits, sizeof bits);
    return (float)sum;
}

INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
    for (int i = 0; i < WIDE; i++) c[i] = multiply_add_one(a[i], b[i], c[i]);
    return c;
}
#endif
#if defined(WASM)
INLINE Floats larger(Floats a, Floats b) { return wasm_f32x4_pmax(b, a); }
INLINE Floats smaller(Floats a, Floats b) { return wasm_f32x4_pmin(b, a); }
INLINE unsigned lanes_above(Floats v, float x) { return wasm_i32x4_bitmask(wasm_f32x4_gt(v, all(x))); }
#else
INLINE Floats larger(Floats a, Floats b) { return chosen((Ints)(a > b), a, b); }
INLINE Floats smaller(Floats a, Floats b) { return chosen((Ints)(a < b), a, b); }
INLINE unsigned lanes_above(Floats v, float x) {
    unsigned found = 0;
    for (int i = 0; i < WIDE; i++) found |= (unsigned)(v[i] > x) << i;
    return found;
}
#endif
#endif

/* 16 lanes are added up by halves: the second eight to the first, then four to four, and so on. */
typedef float Four __attribute__((vector_size(16)));

INLINE Four fold(Lanes s) {
#if WIDE == 16
    __m256 half = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(s.part[0]), 1));
    half += _mm512_castps512_ps256(s.part[0]);
    return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
#elif WIDE == 8
    s.part[0] += s.part[1];
    return _mm256_castps256_ps128(s.part[0]) + _mm256_extractf128_ps(s.part[0], 1);
#else
    return (s.part[0] + s.part[2]) + (s.part[1] + s.part[3]);
#endif
}

INLINE float sum_of(Lanes s) {
    Four four = fold(s);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* The sums of four times 16 lanes. */
INLINE Four sums_of(const Lanes s[4]) {
    Four a = fold(s[0]), b = fold(s[1]), c = fold(s[2]), d = fold(s[3]);
#if WIDE > 4
    Four ab = _mm_unpacklo_ps(a, b) + _mm_unpackhi_ps(a, b), cd = _mm_unpacklo_ps(c, d) + _mm_unpackhi_ps(c, d);
    return _mm_movelh_ps(ab, cd) + _mm_movehl_ps(cd, ab);
#else
    return (Four){(a[0] + a[2]) + (a[1] + a[3]), (b[0] + b[2]) + (b[1] + b[3]), (c[0] + c[2]) + (c[1] + c[3]),
                  (d[0] + d[2]) + (d[1] + d[3])};
#endif
}

INLINE float largest_of(Floats v) {
#if WIDE == 16
    return _mm512_reduce_max_ps(v);
#elif WIDE == 8
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
#else
    float first = v[0] > v[1] ? v[0] : v[1], second = v[2] > v[3] ? v[2] : v[3];
    return first > second ? first : second;
#endif
}

INLINE int32_t sum_of_ints(Ints v) {
#if WIDE == 16
    return _mm512_reduce_add_epi32((__m512i)v);
#elif WIDE == 8
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(four) + _mm_extract_epi32(four, 1);
#else
    return (v[0] + v[1]) + (v[2] + v[3]);
#endif
}

/* Products of numbers in 8 bits: 4 of a row meet as many weights of each output. Weights have 7 bits, so that sums of two
 * products in 16 bits never overflow (maddubs). On x86-64 they are unsigned: WEIGHT_OFFSET is added when they are packed. */
#if defined(__x86_64__) || defined(WASM)
#define WEIGHT_OFFSET 64
#else
#define WEIGHT_OFFSET 0
#endif

/* Store the lowest bytes of whole numbers. */
INLINE void store_bytes(char *at, Ints v) {
#if WIDE == 16
    _mm_storeu_si128((__m128i *)at, _mm512_cvtepi32_epi8((__m512i)v));
#elif WIDE == 8
    const __m256i lowest = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                            -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8((__m256i)v, lowest);
    _mm_storel_epi64((__m128i *)at, _mm256_castsi256_si128(bytes) | _mm256_extracti128_si256(bytes, 1));
#elif defined(WASM)
    v128_t halves = wasm_i16x8_narrow_i32x4(v, v);
    wasm_v128_store32_lane(at, wasm_i8x16_narrow_i16x8(halves, halves), 0);
#else
    for (int i = 0; i < WIDE; i++) at[i] = (char)v[i];
#endif
}

/* Whether a browser adds four products at once. On x86-64 without AVX-VNNI it takes five instructions for that, where
 * `add_levels` needs three without it; there, the sum of two products becomes at most 32767. */
INLINE int adds_four(void) {
#if defined(__wasm_relaxed_simd__)
    v128_t largest = wasm_i8x16_splat(127), bits = wasm_i8x16_splat(-1), sum = wasm_i32x4_splat(0);
    sum = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(largest, bits, sum);
    return wasm_i32x4_extract_lane(sum, 0) != 2 * 32767;
#else
    return 1;
#endif
}

INLINE Ints add_levels(const int at_once, Ints sum, Ints w, Ints x) {
    (void)at_once;
#if WIDE == 16 && defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#elif WIDE == 16
    return sum + (Ints)_mm512_madd_epi16(_mm512_maddubs_epi16((__m512i)w, (__m512i)x), _mm512_set1_epi16(1));
#elif WIDE == 8 && defined(__AVXVNNI__)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, (__m256i)x);
#elif WIDE == 8
    return sum + (Ints)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)w, (__m256i)x), _mm256_set1_epi16(1));
#elif defined(NEON) && defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, (int8x16_t)w, (int8x16_t)x);
#elif defined(NEON)
    int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x));
    return vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8((int8x16_t)w, (int8x16_t)x)));
#elif defined(__wasm_relaxed_simd__) /* the second has 7 bits */
    if (at_once) return (Ints)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)x, (v128_t)w, (v128_t)sum);
    v128_t ones = wasm_i16x8_splat(1);
    __asm__("" : "+r"(ones)); /* or it is made anew each time */
    return sum + (Ints)wasm_i32x4_dot_i16x8(wasm_i16x8_relaxed_dot_i8x16_i7x16((v128_t)x, (v128_t)w), ones);
#elif defined(WASM)
    Ints low = (Ints)wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extmul_low_i8x16((v128_t)w, (v128_t)x));
    Ints high = (Ints)wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extmul_high_i8x16((v128_t)w, (v128_t)x));
    return sum + __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
#else
    int8_t weights[4 * WIDE], levels[4]; /* weights are below 128 even with the offset */
    memcpy(weights, &w, sizeof w);
    memcpy(levels, &x, sizeof levels);
    for (int i = 0; i < WIDE; i++)
        for (int n = 0; n < 4; n++) sum[i] += weights[4 * i + n] * levels[n];
    return sum;
#endif
}

/* With FEAT_I8MM of ARM, two rows at once are multiplied by two lines of weights, 8 numbers of a row by 8 of an output. */
#if defined(NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
#define IN_PAIRS
#define LINES 2

INLINE Ints bytes_of_two(const char *first, const char *second) {
    return (Ints)vcombine_s8(vld1_s8((const int8_t *)first), vld1_s8((const int8_t *)second));
}

/* Until part_rows, `low` has the sums of the first two of four outputs for both rows, `high` those of the others. */
INLINE void add_levels_of_two(Ints *low, Ints *high, Ints w, Ints next, Ints x) {
    *low = vmmlaq_s32(*low, (int8x16_t)x, (int8x16_t)vzip1q_s32(w, next));
    *high = vmmlaq_s32(*high, (int8x16_t)x, (int8x16_t)vzip2q_s32(w, next));
}

INLINE void part_rows(Ints *low, Ints *high) {
    int64x2_t first = vzip1q_s64((int64x2_t)*low, (int64x2_t)*high);
    *high = (Ints)vzip2q_s64((int64x2_t)*low, (int64x2_t)*high);
    *low = (Ints)first;
}
#else
#define LINES 1
#endif

#if defined(IN_PAIRS) || defined(WASM)
#define UNROLLED _Pragma("GCC unroll 8") /* or clang stores the sums to memory after every product */
#else
#define UNROLLED
#endif

/* Products of bfloat16: of two adjacent numbers, the second is multiplied and added first, as processors do. */
INLINE Floats add_bf16(Floats sum, Ints w, Ints x) {
#if WIDE == 16 && defined(__AVX512BF16__)
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
#else
    const Ints second = all_ints((int32_t)0xffff0000);
    sum = multiply_add((Floats)(w & second), (Floats)(x & second), sum);
    return multiply_add((Floats)(w << 16), (Floats)(x << 16), sum);
#endif
}

INLINE void pause_thread(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
