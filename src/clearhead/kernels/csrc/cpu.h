/* What the processor can do and the system allows. */

#pragma once

#include <stdint.h>

enum Ability {
    HAS_AVX2 = 1,        /* and FMA */
    HAS_AVX_VNNI = 2,
    HAS_AVX512 = 4,      /* F, BW, DQ, VL */
    HAS_AVX512_VNNI = 8,
    HAS_AVX512_BF16 = 16, /* and VNNI */
    HAS_AMX = 32,        /* tiles of bfloat16 and of 8 bits */
    HAS_DOT = 64,        /* NEON's products of 8 bits: FEAT_DotProd */
    HAS_I8MM = 128,      /* and its products of 2 by 2 rows of them: FEAT_I8MM */
};

#if defined(__x86_64__)
#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

/* Request the AMX registers from Linux; returns whether it granted them. */
static int may_use_tiles(void) { return !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */); }
#else
static int may_use_tiles(void) { return 0; }
#endif

/* Intel's manual, volume 2, CPUID: leaves 1 and 7; XCR0 tells which registers the system saves. */
static int64_t abilities_of_processor(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* OSXSAVE */
    int has_fma = c >> 12 & 1;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x06) != 0x06 || !has_fma || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    int64_t found = b >> 5 & 1 ? HAS_AVX2 : 0;
    int has_512 = (low & 0xe6) == 0xe6 && b >> 16 & 1 && b >> 17 & 1 && b >> 30 & 1 && b >> 31 & 1;
    int has_vnni = c >> 11 & 1, has_tiles = (low & 0x60000) == 0x60000 && d >> 22 & 1 && d >> 24 & 1 && d >> 25 & 1;
    if (has_512) found |= HAS_AVX512 | (has_vnni ? HAS_AVX512_VNNI : 0);
    if (a < 1 || !__get_cpuid_count(7, 1, &a, &b, &c, &d)) return found;
    if (a >> 4 & 1) found |= HAS_AVX_VNNI;
    if (has_512 && has_vnni && a >> 5 & 1) found |= HAS_AVX512_BF16;
    if (has_tiles && may_use_tiles()) found |= HAS_AMX;
    return found;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Linux's asm/hwcap.h: HWCAP_ASIMDDP, HWCAP2_I8MM. */
static int64_t abilities_of_processor(void) {
    return (getauxval(AT_HWCAP) >> 20 & 1 ? HAS_DOT : 0) | (getauxval(AT_HWCAP2) >> 13 & 1 ? HAS_I8MM : 0);
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

/* Every Mac with an ARM processor has the products; those since M2 the others. */
static int64_t abilities_of_processor(void) {
    int has_i8mm = 0;
    size_t size = sizeof has_i8mm;
    return HAS_DOT | (!sysctlbyname("hw.optional.arm.FEAT_I8MM", &has_i8mm, &size, NULL, 0) && has_i8mm ? HAS_I8MM : 0);
}
#else
static int64_t abilities_of_processor(void) { return 0; }
#endif
