/* What one thread can do at most with the instructions that the compiler may use: products from registers, and reads. */

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CHAINS 12 /* independent sums: at least latency times throughput (10 on recent processors), and fit 16 registers */
#define ROUNDS 4096

/* Add products of `a` and `b` to every sum, ROUNDS times. For the compiler, the empty assembly changes the values in its
 * registers, so that it leaves out nothing. */
#define PEAK(name, vector, chains, operations, product) \
    int64_t name(void) { \
        vector a = {0}, b = {0}, sums[chains] = {{0}}; \
        __asm__ volatile("" : VALUE(a), VALUE(b)); \
        for (int i = 0; i < chains; i++) __asm__ volatile("" : VALUE(sums[i])); \
        for (int round = 0; round < ROUNDS; round++) { \
            _Pragma("GCC unroll 32") for (int i = 0; i < chains; i++) sums[i] = product(sums[i], a, b); \
            __asm__ volatile("" : VALUE(a)); \
        } \
        for (int i = 0; i < chains; i++) __asm__ volatile("" : VALUE(sums[i])); \
        return (int64_t)ROUNDS * chains * (operations); \
    }

#if defined(__AVX512F__)
#define VALUE(x) "+v"(x)
#define WIDTH 64
#define ADD_FLOAT32(sum, a, b) _mm512_fmadd_ps(a, b, sum)
PEAK(peak_float32, __m512, CHAINS, 2 * 16, ADD_FLOAT32)
#elif defined(__AVX2__)
#define VALUE(x) "+x"(x)
#define WIDTH 32
#define ADD_FLOAT32(sum, a, b) _mm256_fmadd_ps(a, b, sum)
PEAK(peak_float32, __m256, CHAINS, 2 * 8, ADD_FLOAT32)
#elif defined(__aarch64__)
#define VALUE(x) "+w"(x)
#define WIDTH 16
#define ADD_FLOAT32(sum, a, b) vfmaq_f32(sum, a, b)
PEAK(peak_float32, float32x4_t, CHAINS, 2 * 4, ADD_FLOAT32)
#else
#error "no kernel for this processor"
#endif

/* Tiles need the system's permission, asked for once per process; 4 of the 8 hold sums, as in products of matrices. */
#if defined(__AMX_TILE__)
#include <sys/syscall.h>
#include <unistd.h>
static const struct __attribute__((packed)) {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TILES = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
#define TILE_PEAK(name, operations, product) \
    int64_t name(void) { \
        if (syscall(SYS_arch_prctl, 0x1023, 18)) return 0; \
        _tile_loadconfig(&TILES); \
        for (int round = 0; round < ROUNDS; round++) { \
            product(0, 4, 6); \
            product(1, 4, 7); \
            product(2, 5, 6); \
            product(3, 5, 7); \
        } \
        _tile_release(); \
        return (int64_t)ROUNDS * 4 * (operations); \
    }
#endif

#if defined(__AMX_INT8__)
TILE_PEAK(peak_int8, 2 * 16 * 16 * 64, _tile_dpbssd)
#elif defined(__AVX512VNNI__)
#define ADD_INT8(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
PEAK(peak_int8, __m512i, CHAINS, 2 * 64, ADD_INT8)
#elif defined(__AVX512BW__)
/* One factor is `sum`, or all sums would share one product. */
#define ADD_INT8(sum, a, b) _mm512_add_epi32(a, _mm512_madd_epi16(_mm512_maddubs_epi16(b, sum), b))
PEAK(peak_int8, __m512i, CHAINS, 2 * 64, ADD_INT8)
#elif defined(__AVXVNNI__)
#define ADD_INT8(sum, a, b) _mm256_dpbusd_avx_epi32(sum, a, b)
PEAK(peak_int8, __m256i, CHAINS, 2 * 32, ADD_INT8)
#elif defined(__AVX2__)
#define ADD_INT8(sum, a, b) _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(b, sum), b))
PEAK(peak_int8, __m256i, 8, 2 * 32, ADD_INT8) /* 8: the fastest of 4 to 14, as it leaves registers for the steps between */
#elif defined(__ARM_FEATURE_MATMUL_INT8)
#define ADD_INT8(sum, a, b) vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
PEAK(peak_int8, int32x4_t, CHAINS, 2 * 32, ADD_INT8)
#elif defined(__ARM_FEATURE_DOTPROD)
#define ADD_INT8(sum, a, b) vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b))
PEAK(peak_int8, int32x4_t, CHAINS, 2 * 16, ADD_INT8)
#else
int64_t peak_int8(void) { return 0; }
#endif

#if defined(__AMX_BF16__)
TILE_PEAK(peak_bfloat16, 2 * 16 * 16 * 32, _tile_dpbf16ps)
#elif defined(__AVX512BF16__)
#define ADD_BFLOAT16(sum, a, b) _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b)
PEAK(peak_bfloat16, __m512, CHAINS, 2 * 32, ADD_BFLOAT16)
#else
int64_t peak_bfloat16(void) { return 0; }
#endif

/* Read a part of an array `times` times, vector by vector; return the bytes read. */
int64_t read_bytes(const char *data, int64_t size, int64_t times) {
    typedef int32_t vector __attribute__((vector_size(WIDTH), aligned(1), may_alias));
    vector sums[4] = {{0}};
    for (int64_t time = 0; time < times; time++) {
        for (int64_t at = 0; at + 4 * WIDTH <= size; at += 4 * WIDTH) {
            for (int i = 0; i < 4; i++) sums[i] |= *(const vector *)(data + at + i * WIDTH);
        }
        __asm__ volatile("" : : : "memory");
    }
    for (int i = 0; i < 4; i++) __asm__ volatile("" : VALUE(sums[i]));
    return times * (size - size % (4 * WIDTH));
}
