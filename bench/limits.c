/* Probes of peak arithmetic and memory bandwidth. Every thread works between two barriers; a pass counts as long as its
 * slowest thread took. */
#include "limits.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "src/base/clones.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    MOST_THREADS = 1024,
    BURSTS = 24,
    PEAK_ROUNDS = 250000,    /* of one burst: about a millisecond */
    CACHED_BYTES = 24 << 10, /* three quarters of the smallest first-level cache */
    CHAINS = 14              /* independent sums: more than latency times units of any CPU so far */
};

#define REPEAT14(X)                                                                                                    \
    X(0)                                                                                                               \
    X(1)                                                                                                               \
    X(2)                                                                                                               \
    X(3)                                                                                                               \
    X(4)                                                                                                               \
    X(5)                                                                                                               \
    X(6)                                                                                                               \
    X(7)                                                                                                               \
    X(8)                                                                                                               \
    X(9)                                                                                                               \
    X(10)                                                                                                              \
    X(11)                                                                                                              \
    X(12)                                                                                                              \
    X(13)

/* ---- multiply-adds: `rounds` on each of 14 sums; returns flops per round ----------------------------------------- */

/* Every sum is a variable of its own: an array of them ends up in memory, and the loop then measures stores. The empty
 * asm keeps each in a register and its chain in place. */
#if defined(__x86_64__)
#define IN_REGISTER(v) __asm__ volatile("" : "+v"(v))
#elif defined(__aarch64__)
#define IN_REGISTER(v) __asm__ volatile("" : "+w"(v))
#else
#define IN_REGISTER(v) (void)0
#endif
#define DECLARE(j) lanes s##j = start;
#define KEEP(j)    IN_REGISTER(s##j);
#define IN_REGISTERS(j)                                                                                                \
    s##j = MULTIPLY_ADD(s##j, a, b);                                                                                   \
    KEEP(j)
#define IN_CACHE(j) x[j] = MULTIPLY_ADD(x[j], a, b);

/* `rounds` on vectors of n floats, in registers or in the first-level cache, from which each is read and to which it is
 * written. */
#define DEFINE_ROUNDS(name, target, lanes_type, n)                                                                     \
    target static int name(int64_t rounds, bool cached)                                                                \
    {                                                                                                                  \
        typedef lanes_type lanes;                                                                                      \
        enum {                                                                                                         \
            VECTORS = CACHED_BYTES / (4 * (n)) / CHAINS * CHAINS                                                       \
        };                                                                                                             \
        lanes start = {0}, a = start + 1.0f, b = start + 1e-30f, all[VECTORS] = {start};                               \
        REPEAT14(DECLARE)                                                                                              \
        for (int64_t i = 0; i < rounds && !cached; i++) { REPEAT14(IN_REGISTERS) }                                     \
        for (int64_t i = 0; i < rounds && cached;)                                                                     \
            for (lanes *x = all; x < all + VECTORS && i < rounds; x += CHAINS, i++) {                                  \
                REPEAT14(IN_CACHE)                                                                                     \
                __asm__ volatile("" : : "r"(x) : "memory"); /* nothing is left out */                                  \
            }                                                                                                          \
        REPEAT14(KEEP)                                                                                                 \
        return CHAINS * (n)*2;                                                                                         \
    }

typedef float plain_lanes __attribute__((vector_size(16)));
#define MULTIPLY_ADD(s, a, b) ((s) * (a) + (b))
DEFINE_ROUNDS(plain_rounds, , plain_lanes, 4)
#undef MULTIPLY_ADD

#if defined(__x86_64__)
#define MULTIPLY_ADD _mm256_fmadd_ps
DEFINE_ROUNDS(avx2_rounds, __attribute__((target("avx2,fma"))), __m256, 8)
#undef MULTIPLY_ADD
#define MULTIPLY_ADD _mm512_fmadd_ps
DEFINE_ROUNDS(avx512_rounds, __attribute__((target("avx512f"))), __m512, 16)
#undef MULTIPLY_ADD

bench_isa bench_best_isa(void)
{
    __builtin_cpu_init();
    if (tow__processor_has_avx512()) return BENCH_AVX512;
    return tow__has_avx2() ? BENCH_AVX2 : BENCH_PLAIN;
}

static int rounds_of(bench_isa isa, int64_t rounds, bool cached)
{
    if (isa == BENCH_AVX512) return avx512_rounds(rounds, cached);
    return isa == BENCH_AVX2 ? avx2_rounds(rounds, cached) : plain_rounds(rounds, cached);
}
#else
bench_isa bench_best_isa(void) { return BENCH_PLAIN; }

static int rounds_of(bench_isa isa, int64_t rounds, bool cached)
{
    (void)isa;
    return plain_rounds(rounds, cached);
}
#endif

const char *bench_isa_name(bench_isa isa)
{
    return isa == BENCH_AVX512 ? "AVX-512" : isa == BENCH_AVX2 ? "AVX2" : "plain C";
}

/* ---- the same work on all threads at once ------------------------------------------------------------------------ */

typedef struct probe {
    pthread_barrier_t barrier;
    double work; /* of one thread in one burst: flops or bytes */
    int bursts;
    double fastest; /* seconds of the best burst */
    double rate;    /* the rates of all threads in all bursts together, waiting for each other left out */
    double seconds; /* of the slowest thread in all bursts */
    bench_isa isa;
    int64_t rounds;
    bool cached;  /* arithmetic: in the first-level cache, not in registers */
    size_t bytes; /* per thread; 0: arithmetic */
    bool copies;
} probe;

typedef struct worker {
    probe *p;
    bool leads;
    double busy; /* seconds in bursts, without waiting for others */
    char *source, *target;
} worker;

static void read_all(const char *source, size_t bytes)
{
    uint64_t sums[8] = {0};
    const uint64_t *x = (const uint64_t *)(const void *)source;
    for (size_t i = 0; i < bytes / sizeof *x; i += 8)
        for (size_t j = 0; j < 8; j++) sums[j] ^= x[i + j];
    volatile uint64_t sink = sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
    (void)sink;
}

static void burst(const worker *w)
{
    const probe *p = w->p;
    if (p->bytes == 0) rounds_of(p->isa, p->rounds, p->cached);
    for (int64_t i = 0; p->bytes > 0 && i < p->rounds; i++) {
        if (p->copies)
            memcpy(w->target, w->source, p->bytes);
        else
            read_all(w->source, p->bytes);
        __asm__ volatile("" : : "r"(w->target), "r"(w->source) : "memory"); /* every pass counts */
    }
}

static void *work(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < w->p->bursts; i++) {
        pthread_barrier_wait(&w->p->barrier);
        double start = bench_now();
        burst(w);
        w->busy += bench_now() - start;
        pthread_barrier_wait(&w->p->barrier);
        double seconds = bench_now() - start;
        if (w->leads && seconds < w->p->fastest) w->p->fastest = seconds;
    }
    return NULL;
}

/* Work per second of all threads, 0 if one of them cannot be made. The caller is the first. */
static double measure(probe *p, int threads)
{
    if (threads < 1 || threads > MOST_THREADS) return 0;
    pthread_t *others = calloc((size_t)threads, sizeof *others);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    bool fine = others != NULL && workers && pthread_barrier_init(&p->barrier, NULL, (unsigned)threads) == 0;
    bool barrier = fine;
    for (int i = 0; fine && i < threads; i++) {
        workers[i] = (worker){.p = p, .leads = i == 0};
        if (p->bytes == 0) continue;
        workers[i].source = aligned_alloc(64, p->bytes);
        workers[i].target = aligned_alloc(64, p->bytes);
        fine = workers[i].source != NULL && workers[i].target;
        if (fine) memset(workers[i].source, 1, p->bytes);
        if (fine) memset(workers[i].target, 1, p->bytes);
    }
    p->fastest = 1e30;
    int made = 1;
    for (; fine && made < threads; made++)
        if (pthread_create(&others[made], NULL, work, &workers[made]) != 0) abort(); /* the rest would wait for ever */
    if (fine) work(&workers[0]);
    for (int i = 1; fine && i < made; i++) pthread_join(others[i], NULL);
    for (int i = 0; fine && i < threads; i++) {
        p->rate += p->work * p->bursts / workers[i].busy;
        if (workers[i].busy > p->seconds) p->seconds = workers[i].busy;
    }
    for (int i = 0; workers && i < threads; i++) {
        free(workers[i].source);
        free(workers[i].target);
    }
    if (barrier) pthread_barrier_destroy(&p->barrier);
    free(workers);
    free(others);
    return fine ? p->work * threads / p->fastest : 0;
}

double bench_peak_gflops(int threads, bench_isa isa)
{
    probe p = {.isa = isa, .rounds = PEAK_ROUNDS, .bursts = BURSTS};
    p.work = (double)PEAK_ROUNDS * rounds_of(isa, 1, false);
    return measure(&p, threads) * 1e-9;
}

void bench_sustained_add(bench_sustained *sum, int threads, bench_isa isa, bool cached, double seconds)
{
    const double start = bench_now();
    probe p = {.isa = isa, .rounds = PEAK_ROUNDS, .cached = cached, .bursts = 1};
    p.work = (double)PEAK_ROUNDS * rounds_of(isa, 1, false);
    /* The first burst does not count: idle threads of a pool may not have gone to sleep yet. */
    if (measure(&p, threads) == 0) return;
    const double left = seconds - (bench_now() - start);
    probe rest = {.isa = isa, .rounds = PEAK_ROUNDS, .cached = cached, .work = p.work};
    rest.bursts = 1 + (int)(left > 0 ? left / p.fastest : 0);
    const double best = 1e-9 * measure(&rest, threads);
    if (best == 0) return;
    if (best > sum->best) sum->best = best;
    sum->seconds += rest.seconds;
    sum->gflop += 1e-9 * rest.rate * rest.seconds;
}

static double bandwidth(int threads, size_t bytes, bool copies)
{
    const size_t least = (size_t)32 << 20; /* per burst, so that the barriers do not count */
    probe p = {
        .bytes = bytes, .copies = copies, .bursts = BURSTS, .rounds = bytes < least ? (int64_t)(least / bytes) : 1};
    p.work = (copies ? 2.0 : 1.0) * (double)bytes * (double)p.rounds;
    return bytes >= 64 && bytes % 64 == 0 ? measure(&p, threads) * 1e-9 : 0;
}

double bench_copy_bandwidth(int threads, size_t bytes) { return bandwidth(threads, bytes, true); }
double bench_read_bandwidth(int threads, size_t bytes) { return bandwidth(threads, bytes, false); }
