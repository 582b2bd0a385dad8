/* Timings of the machine: a product, which the tuning of products has timed, and sums of arrays that lie in L3 and in
 * memory. Each is the best of a few, so that what else runs meanwhile rarely matters. */
#include "src/kernels/machine_rates.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "src/base/arithmetic.h"
#include "src/base/clones.h"
#include "src/kernels/products/gemm_tuning.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    ROUNDS = 3,
    LEAST_BYTES = 256 << 10, /* of an array; two of them are more than L2 holds */
    MOST_BYTES = 2 << 20
};

static tow__measured_rates measured;
static atomic_bool is_measured;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

TOW__CLONES static void add(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

/* Moves data from all caches to memory. False: there is no instruction for it. */
static bool flush(const char *data, int64_t bytes)
{
#if defined(__x86_64__)
    for (int64_t i = 0; i < bytes; i += 64) _mm_clflush(data + i);
    _mm_mfence();
    return true;
#else
    (void)data, (void)bytes;
    return false;
#endif
}

/* Bytes per second of x += y, both of so many bytes, which reads two arrays and writes one. */
static double sum_rate(char *memory, int64_t bytes, bool from_memory)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        if (from_memory && !flush(memory, 2 * bytes)) return 0;
        const double start = now();
        add((float *)(void *)memory, (const float *)(const void *)(memory + bytes), bytes / 4);
        const double rate = 3 * (double)bytes / (now() - start);
        if (rate > best) best = rate;
    }
    return best;
}

static void measure(void)
{
    const tow__machine *here = tow__machine_here();
    const int64_t wanted = here->l2.bytes;
    const int64_t bytes = wanted < LEAST_BYTES ? LEAST_BYTES : wanted > MOST_BYTES ? MOST_BYTES : wanted;
    char *memory = mmap(NULL, 2 * (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        TOW__ARITHMETIC(false);
        memset(memory, 0, 2 * (size_t)bytes);
        if (2 * bytes <= here->l3.bytes) measured.l3 = sum_rate(memory, bytes, false);
        measured.memory = sum_rate(memory, bytes, true);
        munmap(memory, 2 * (size_t)bytes);
    }
    if (here->vector_bytes > 0) tow__gemm_time();
    measured.f32 = tow__gemm_rate();
    atomic_store_explicit(&is_measured, true, memory_order_release);
}

tow__measured_rates tow__measure_machine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, measure);
    return measured;
}

tow__measured_rates tow__machine_rates_here(void)
{
    return atomic_load_explicit(&is_measured, memory_order_acquire) ? measured : (tow__measured_rates){.f32 = 0};
}

/* Products of f64 and functions are as much faster or slower as products of f32, and L1 and L2 as L3. */
tow__rates tow__correct_rates(const tow__machine *m, const tow__measured_rates *t)
{
    tow__rates r = tow__machine_nominal(m);
    const double products = tow__machine_correct(r.f32, t->f32) / r.f32;
    const double caches = tow__machine_correct(r.bytes[TOW__IN_L3], t->l3) / r.bytes[TOW__IN_L3];
    const double memory = tow__machine_correct(r.bytes[TOW__IN_MEMORY], t->memory) / r.bytes[TOW__IN_MEMORY];
    r.f32 *= products, r.f64 *= products, r.functions *= products;
    r.bytes[TOW__IN_L1] *= caches, r.bytes[TOW__IN_L2] *= caches, r.bytes[TOW__IN_L3] *= caches;
    r.bytes[TOW__IN_MEMORY] *= memory, r.shared *= memory;
    return r;
}
