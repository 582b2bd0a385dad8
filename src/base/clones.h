/* Functions in several versions, one per instruction set. */
#ifndef TOW_SRC_CLONES_H
#define TOW_SRC_CLONES_H

#include <limits.h> /* says which libc this is */
#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOW__SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TOW__SANITIZED
#endif
#endif

/* One version of the function per instruction set, chosen when the program starts. Contraction is off and fused
 * multiply-adds are written out, so all versions give the same bits. Not with sanitizers: all versions access the same
 * memory, and the functions that choose one run before the thread sanitizer is set up, and crash. Only with glibc: the
 * loader of musl does not call them. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__OPTIMIZE__) && !defined(TOW__SANITIZED) &&                  \
    (!defined(__clang__) || __clang_major__ >= 19)
#define TOW__HAVE_CLONES
#if defined(TOW_WITHOUT_AVX512)
#define TOW__CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define TOW__CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
#else
#define TOW__CLONES
#endif

/* The instructions that code for an instruction set may use: the processor has all of it, and may be used so. */
#if defined(__x86_64__)
static inline bool tow__has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static inline bool tow__processor_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
/* false if the environment variable TOW_INSTRUCTIONS is avx2, and in a build TOW_WITHOUT_AVX512 */
bool tow__allows_avx512(void);
static inline bool tow__has_avx512(void) { return tow__processor_has_avx512() && tow__allows_avx512(); }
#else
static inline bool tow__has_avx2(void) { return false; }
static inline bool tow__processor_has_avx512(void) { return false; }
static inline bool tow__has_avx512(void) { return false; }
#endif

#endif
