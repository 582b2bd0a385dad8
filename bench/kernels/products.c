/* Every engine of matrix products on the products of training, and the rule that picks among them, against the peak of
 * fused multiply-adds measured in the same process.
 *
 *   products [--seconds S] [--only SUBSTRING] [--json FILE] [--set plain | avx2 | avx512] [--peer COMMAND]
 *            [--dtype f32 | bf16 | f16]
 *
 * With --dtype, operands and results are stored in this type, and sums are f32: on the engines that take them so.
 *
 * With --set, the own kernel alone with this instruction set, against its peak. With --peer, a program that computes
 * the same products in turn with the engines, as bench/peers/products_torch.py does by PyTorch: it reads lines
 * "m k n kind times" and answers each with the seconds of one product.
 *
 * For Y[m, n] = X[m, k] W[k, n]: the forward product, dX = dY W^T and dW = X^T dY, on one thread, matrices in huge
 * pages as in the memory of programs. Engines run in turn; each figure is the best of many rounds. Rounds of up to a
 * few milliseconds count by the clock on the wall, which the best one finds undisturbed, longer ones by the thread's
 * own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "src/kernels/products/gemm_bf16.h"
#include "src/kernels/products/gemm_trial.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- the peak ---------------------------------------------------------------------------------------------------- */

typedef struct instant {
    double wall, thread;
} instant;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static instant start_clock(void)
{
    double thread = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    return (instant){seconds_of(CLOCK_MONOTONIC), thread};
}

static double seconds_since(instant start)
{
    double wall = seconds_of(CLOCK_MONOTONIC) - start.wall;
    return wall < 2e-3 ? wall : seconds_of(CLOCK_THREAD_CPUTIME_ID) - start.thread;
}

enum {
    CHAINS = 16,
    STEPS = 10000
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float chains_512(void)
{
    __m512 sum[CHAINS], x = _mm512_set1_ps(0.5f), y = _mm512_set1_ps(0.25f);
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int step = 0; step < STEPS; step++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_fmadd_ps(sum[i], x, y);
    __m512 total = sum[0];
#pragma GCC unroll 16
    for (int i = 1; i < CHAINS; i++) total = _mm512_add_ps(total, sum[i]);
    return _mm512_cvtss_f32(total);
}

__attribute__((target("avx2,fma"))) static float chains_256(void)
{
    enum {
        FEWER = 12
    };
    __m256 sum[FEWER], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
#pragma GCC unroll 16
    for (int i = 0; i < FEWER; i++) sum[i] = _mm256_set1_ps((float)i);
    for (int step = 0; step < STEPS * CHAINS / FEWER; step++)
#pragma GCC unroll 16
        for (int i = 0; i < FEWER; i++) sum[i] = _mm256_fmadd_ps(sum[i], x, y);
    __m256 total = sum[0];
#pragma GCC unroll 16
    for (int i = 1; i < FEWER; i++) total = _mm256_add_ps(total, sum[i]);
    return _mm256_cvtss_f32(total);
}
#endif

static float chains_plain(void)
{
    float sum[CHAINS] = {0};
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * 0.5f + 0.25f;
    float total = 0;
    for (int i = 0; i < CHAINS; i++) total += sum[i];
    return total;
}

/* True if the processor can run the own kernel with this instruction set. */
static bool is_there(tow__gemm_set isa)
{
    return isa == TOW__GEMM_AVX512 ? tow__has_avx512() : isa == TOW__GEMM_AVX2 ? tow__has_avx2() : true;
}

/* GFLOP/s of this instruction set, or of the widest; called between products, the best counts. */
static double peak(tow__gemm_set isa)
{
    float (*chains)(void) = chains_plain;
    double lanes = 1;
#if defined(__x86_64__)
    bool widest = isa == TOW__GEMM_AUTO;
    if (isa == TOW__GEMM_AVX2 || (widest && tow__has_avx2())) chains = chains_256, lanes = 8;
    if (isa == TOW__GEMM_AVX512 || (widest && tow__has_avx512())) chains = chains_512, lanes = 16;
#else
    (void)isa;
#endif
    double best = 0;
    for (int i = 0; i < 5; i++) {
        instant start = start_clock();
        volatile float keep = chains();
        (void)keep;
        double rate = 2 * lanes * CHAINS * STEPS / seconds_since(start) * 1e-9;
        if (rate > best) best = rate;
    }
    return best;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct shape {
    const char *name;
    int64_t m, k, n;
} shape;

static const shape shapes[] = {
    {"mlp", 4, 8, 32},
    {"mlp", 4, 32, 32},
    {"mlp", 4, 32, 4},
    {"lstm", 1, 32, 128},
    {"lstm", 16, 128, 512},
    {"chain", 64, 64, 64},
    {"chain", 128, 128, 128},
    {"head", 256, 64, 256},
    {"head", 256, 256, 64},
    {"decode", 1, 384, 1152},
    {"decode", 1, 768, 3072},
    {"decode", 8, 512, 2048},
    {"", 16, 32, 32},
    {"", 16, 64, 256},
    {"", 16, 512, 512},
    {"", 16, 512, 2048},
    {"", 16, 2048, 512},
    {"", 16, 1000, 1000},
    {"", 32, 256, 256},
    {"", 32, 512, 2048},
    {"", 32, 4096, 1024},
    {"", 64, 32, 32},
    {"", 64, 128, 512},
    {"", 64, 512, 512},
    {"", 64, 1024, 1024},
    {"", 64, 768, 3072},
    {"seed 003", 64, 512, 8192},
    {"seed 003", 64, 8192, 512},
    {"seed 003", 2048, 512, 8192},
    {"seed 003", 2048, 8192, 512},
    {"", 100, 100, 100},
    {"", 100, 300, 700},
    {"", 128, 256, 1024},
    {"", 128, 1024, 256},
    {"", 200, 2048, 2048},
    {"gpt", 256, 384, 384},
    {"gpt", 256, 384, 1152},
    {"gpt", 256, 384, 1536},
    {"gpt", 256, 1536, 384},
    {"gpt", 2048, 384, 384},
    {"gpt", 2048, 384, 1152},
    {"gpt", 2048, 384, 1536},
    {"gpt", 2048, 1536, 384},
    {"gpt", 2048, 384, 65},
    {"gpt2", 64, 768, 768},
    {"gpt2", 64, 768, 2304},
    {"gpt2", 256, 768, 768},
    {"gpt2", 256, 768, 2304},
    {"gpt2", 256, 768, 3072},
    {"gpt2", 256, 3072, 768},
    {"gpt2", 256, 768, 50257},
    {"resnet", 6272, 64, 128},
    {"resnet", 6272, 1152, 128},
    {"resnet", 1568, 128, 256},
    {"resnet", 1568, 2304, 256},
    {"resnet", 392, 256, 512},
    {"resnet", 392, 4608, 512},
    {"", 300, 8, 500},
    {"", 500, 500, 500},
    {"", 512, 512, 512},
    {"", 777, 333, 1111},
    {"", 1000, 8, 8},
    {"", 1000, 64, 1000},
    {"", 1000, 1000, 64},
    {"", 1000, 1000, 1000},
    {"", 1024, 1024, 1024},
    {"", 512, 4096, 4096},
};
enum {
    SHAPES = sizeof shapes / sizeof shapes[0],
    KINDS = 3,
    MOST_ENGINES = 6,
    PEER = MOST_ENGINES - 1 /* its place among the engines; the reference has none */
};
static const char *const kinds[KINDS] = {"fwd", "dX", "dW"};

static tow__gemm product_of(const shape *s, int kind, const float *x, const float *y)
{
    tow__gemm g = {.dtype = TOW_F32, .threads = 1, .m = s->m, .n = s->n, .k = s->k, .a = x, .b = y};
    g.a_row = s->k, g.a_column = 1;
    g.b_row = s->n, g.b_column = 1;
    if (kind == 1) {
        g.n = s->k, g.k = s->n;
        g.a_row = s->n, g.b_row = 1, g.b_column = s->n;
    } else if (kind == 2) {
        g.m = s->k, g.k = s->m;
        g.a_row = 1, g.a_column = s->k, g.b_row = s->n;
    }
    g.ldc = g.n;
    return g;
}

/* Seconds of one product: the mean of enough repetitions for the clock. */
static double time_once(const tow__gemm *g, const tow__gemm_engine *engine, int64_t repetitions)
{
    instant start = start_clock();
    for (int64_t i = 0; i < repetitions; i++) tow__gemm_run(g, engine);
    return seconds_since(start) / (double)repetitions;
}

/* The program of --peer. */
typedef struct peer {
    FILE *to, *from; /* NULL: there is none */
} peer;

static bool start_peer(peer *p, const char *command)
{
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return false;
    const pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        if (dup2(to[0], STDIN_FILENO) < 0 || dup2(from[1], STDOUT_FILENO) < 0) _exit(1);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(1);
    }
    close(to[0]), close(from[1]);
    p->to = fdopen(to[1], "w");
    p->from = fdopen(from[0], "r");
    return p->to && p->from;
}

/* Seconds of one product; 0: the peer says nothing. */
static double ask_peer(const peer *p, const shape *s, int kind, int64_t times)
{
    char line[64];
    fprintf(p->to, "%ld %ld %ld %s %ld\n", (long)s->m, (long)s->k, (long)s->n, kinds[kind], (long)times);
    fflush(p->to);
    return fgets(line, sizeof line, p->from) != NULL ? atof(line) : 0;
}

typedef struct figures {
    double best[MOST_ENGINES]; /* seconds */
    int chosen;
} figures;

typedef struct setting {
    const tow__gemm_engine *engines[MOST_ENGINES];
    int n_engines;
    double budget; /* seconds per product and engine */
    void *scratch;
    tow__gemm_set isa; /* of the own kernel; AUTO: all engines, at their best */
    tow_dtype dtype;   /* of operands and results that are stored in 16 bits; 0: f32 */
    const char *only, *path;
    peer peer;
} setting;

static bool bf16_vectors(void)
{
#ifdef TOW__BF16_UNITS
    return tow__gemm_bf16_dots.usable();
#else
    return false;
#endif
}

/* The engine that the rule finds, when the first runs have decided where they are to. */
static const tow__gemm_engine *engine_of(const setting *set, tow__gemm *g)
{
    const tow__gemm_engine *chosen = tow__gemm_choose(g), *engine = tow__gemm_prepare(g, chosen);
    g->scratch = set->scratch;
    for (int i = 0; i < TOW__CONTEST_RUNS && g->code != NULL && g->code->contest != NULL; i++) tow__gemm_run(g, engine);
    return tow__gemm_prepare(g, chosen);
}

static figures measure(const setting *set, tow__gemm *g, const shape *s, int kind)
{
    figures f = {.chosen = -1};
    bool unit = set->isa == TOW__GEMM_AUTO && tow__gemm_amx_usable();
    const bool dots = set->isa == TOW__GEMM_AUTO && bf16_vectors();
    g->choice = &(tow__gemm_choice){.matrix_unit = unit, .dots = tow__gemm_bf16_dots_gain(), .set = (int)set->isa};
    const tow__gemm_engine *rule = engine_of(set, g);
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    int64_t repetitions = 1 + (int64_t)(20e-6 * 100e9 / flops);
    double spent = 0, limit = set->budget * set->n_engines;
    for (int round = 0; round < 1000 && (round < 3 || spent < limit); round++) {
        for (int e = 0; e < set->n_engines; e++) {
            tow__gemm_choice choice = {
                .engine = set->engines[e], .matrix_unit = unit, .dots = dots, .set = (int)set->isa};
            g->choice = &choice;
            if (!set->engines[e]->applicable(g) || (set->dtype && !set->engines[e]->halves)) continue;
            (void)tow__gemm_prepare(g, set->engines[e]);
            if (set->engines[e]->needs_code && !g->code) continue; /* it would leave the product to the own kernel */
            g->scratch = tow__gemm_scratch(g, set->engines[e]) > 0 ? set->scratch : NULL;
            double t = time_once(g, set->engines[e], repetitions);
            spent += t * (double)repetitions;
            if (round == 0 || t < f.best[e]) f.best[e] = t;
            if (set->engines[e] == rule) f.chosen = e;
        }
        if (!set->peer.to) continue;
        const double t = ask_peer(&set->peer, s, kind, repetitions);
        spent += t * (double)repetitions;
        if (t > 0 && (f.best[PEER] == 0 || t < f.best[PEER])) f.best[PEER] = t;
    }
    g->choice = NULL;
    return f;
}

typedef struct summary {
    int products, near, behind;
    double share, worst_share, worst_ratio;
    double mean[MOST_ENGINES];
    int counts[MOST_ENGINES];
    double logs; /* of the shares of models */
    int models;
} summary;

static const char *name_of(const setting *set, int e) { return e == PEER ? "peer" : set->engines[e]->name; }

/* The engines in use, and the peer: their next one from e on; MOST_ENGINES: none. */
static int next_engine(const setting *set, int e)
{
    if (e < set->n_engines) return e;
    return e <= PEER && set->peer.to ? PEER : MOST_ENGINES;
}

static void print_row(const setting *set, const shape *s, int kind, const tow__gemm *g, const figures *f, double top,
                      summary *all, FILE *json)
{
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k, best = 0;
    printf("%-9s %5ld %5ld %5ld  %-3s", s->name, (long)s->m, (long)s->k, (long)s->n, kinds[kind]);
    if (json)
        fprintf(json, "%s\n  {\"name\": \"%s\", \"m\": %ld, \"k\": %ld, \"n\": %ld, \"kind\": \"%s\", \"peak\": %.1f",
                all->products > 0 ? "," : "", s->name, (long)s->m, (long)s->k, (long)s->n, kinds[kind], top);
    for (int e = next_engine(set, 0); e < MOST_ENGINES; e = next_engine(set, e + 1)) {
        double rate = f->best[e] > 0 ? flops / f->best[e] * 1e-9 : 0;
        if (rate > best) best = rate;
        if (rate > 0) {
            printf("%s%8.2f%s", e == f->chosen ? " >" : "  ", rate, "");
            all->mean[e] += rate / top;
            all->counts[e]++;
        } else {
            printf("         -");
        }
        if (json && rate > 0) fprintf(json, ", \"%s\": %.3f", name_of(set, e), rate);
    }
    double chosen = flops / f->best[f->chosen] * 1e-9;
    printf("  %5.1f %%  %5.2f  %9.2f us\n", 100 * chosen / top, chosen / best, f->best[f->chosen] * 1e6);
    if (json) fprintf(json, ", \"rule\": \"%s\"}", set->engines[f->chosen]->name);
    all->products++;
    all->near += chosen >= 0.9 * best;
    all->behind += chosen < 0.97 * best;
    if (strncmp(s->name, "gpt", 3) == 0 || strcmp(s->name, "resnet") == 0)
        all->logs += log(chosen / top), all->models++;
    all->share += chosen / top;
    if (all->products == 1 || chosen / top < all->worst_share) all->worst_share = chosen / top;
    if (all->products == 1 || chosen / best < all->worst_ratio) all->worst_ratio = chosen / best;
}

static void print_summary(const setting *set, const summary *all, double top)
{
    if (all->products == 0) return;
    printf("\n%d products, peak %.1f GFLOP/s\n", all->products, top);
    printf("the rule: mean %.1f %% of peak, worst %.1f %%; within 10 %% of the best engine on %d, worst ratio %.2f\n",
           100 * all->share / all->products, 100 * all->worst_share, all->near, all->worst_ratio);
    printf("%d below 0.97 of the best\n", all->behind);
    if (all->models > 0)
        printf("geometric mean of %d products of GPT, GPT-2 and ResNet: %.1f %% of peak\n", all->models,
               100 * exp(all->logs / all->models));
    for (int e = next_engine(set, 0); e < MOST_ENGINES; e = next_engine(set, e + 1))
        if (all->counts[e] > 0)
            printf("%-10s mean %.1f %% of peak on %d products\n", name_of(set, e), 100 * all->mean[e] / all->counts[e],
                   all->counts[e]);
}

/* halves: numbers of 16 bits, positive and of ordinary size as bf16 and as f16. */
static float *random_matrix(size_t elements, bool halves)
{
    enum {
        HUGE = 2 << 20
    };
    size_t bytes = (elements * sizeof(float) + HUGE - 1) / HUGE * HUGE;
    float *x = aligned_alloc(HUGE, bytes);
    uint32_t state = 1;
    if (x) (void)madvise(x, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; x && i < bytes / sizeof(float); i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-23f - 1;
        if (halves) ((uint32_t *)(void *)x)[i] = 0x3C003C00 | (state >> 6 & 0x03FF03FF);
    }
    return x;
}

static int run(const setting *set, FILE *json)
{
    double top = peak(set->isa);
    summary all = {0};
    printf("%-9s %5s %5s %5s  %-3s", "", "m", "k", "n", "");
    for (int e = next_engine(set, 0); e < MOST_ENGINES; e = next_engine(set, e + 1)) printf("  %8s", name_of(set, e));
    printf("  of peak  of best\n");
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        if (set->only && !strstr(s->name, set->only)) continue;
        float *x = random_matrix((size_t)(s->m * tow__max(s->k, s->n)), set->dtype != 0);
        float *y = random_matrix((size_t)(tow__max(s->k, s->m) * s->n), set->dtype != 0);
        float *c = random_matrix((size_t)tow__max(s->m * tow__max(s->n, s->k), s->k * s->n), set->dtype != 0);
        if (!x || !y || !c) return 1;
        for (int kind = 0; kind < KINDS; kind++) {
            tow__gemm g = product_of(s, kind, x, y);
            g.c = c;
            g.a_dtype = g.b_dtype = g.c_dtype = set->dtype;
            figures f = measure(set, &g, s, kind);
            double now = peak(set->isa);
            if (now > top) top = now;
            print_row(set, s, kind, &g, &f, top, &all, json);
            fflush(stdout);
        }
        free(x), free(y), free(c);
    }
    print_summary(set, &all, top);
    return 0;
}

static bool read_option(setting *set, const char *name, const char *value)
{
    static const char *const sets[] = {"", "plain", "avx2", "avx512"}; /* tow__gemm_set */
    if (strcmp(name, "--seconds") == 0) return (set->budget = atof(value)) > 0;
    if (strcmp(name, "--only") == 0) return (set->only = value) != NULL;
    if (strcmp(name, "--json") == 0) return (set->path = value) != NULL;
    if (strcmp(name, "--peer") == 0) return start_peer(&set->peer, value);
    if (strcmp(name, "--dtype") == 0) {
        set->dtype = strcmp(value, "bf16") == 0 ? TOW_BF16 : strcmp(value, "f16") == 0 ? TOW_F16 : (tow_dtype)0;
        return set->dtype || strcmp(value, "f32") == 0;
    }
    if (strcmp(name, "--set") != 0) return false;
    for (int k = TOW__GEMM_PLAIN; k <= TOW__GEMM_AVX512; k++)
        if (strcmp(value, sets[k]) == 0) set->isa = (tow__gemm_set)k;
    return set->isa != TOW__GEMM_AUTO && is_there(set->isa);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"amx", "avx512_bf16", "own", "blis", "xsmm", "reference"};
    setting set = {.budget = 0.02, .scratch = aligned_alloc(64, 4 << 20)};
    bool known = argc % 2 == 1;
    for (int i = 1; i + 1 < argc; i += 2) known &= read_option(&set, argv[i], argv[i + 1]);
    if (!known) {
        fputs("products: expected [--seconds S] [--only SUBSTRING] [--json FILE] [--set plain | avx2 | avx512] [--peer "
              "COMMAND] [--dtype f32 | bf16 | f16]; "
              "the processor must have the instruction set\n",
              stderr);
        return 2;
    }
    if (!set.scratch) return 1;
    for (size_t i = 0; i + 1 < sizeof names / sizeof names[0]; i++) { /* the reference is a hundred times slower */
        if (set.isa != TOW__GEMM_AUTO && strcmp(names[i], "own") != 0) continue;
        if (tow__gemm_find(names[i])) set.engines[set.n_engines++] = tow__gemm_find(names[i]);
    }
    FILE *json = set.path != NULL ? fopen(set.path, "w") : NULL;
    if (set.path && !json) {
        fprintf(stderr, "products: cannot write %s\n", set.path);
        return 1;
    }
    if (json) fputs("[", json);
    int failed = run(&set, json);
    if (json) {
        fputs("\n]\n", json);
        failed |= fclose(json) != 0;
    }
    free(set.scratch);
    return failed;
}
