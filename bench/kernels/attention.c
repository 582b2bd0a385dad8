/* Causal attention, forward and backward, against the peak of fused multiply-adds measured in the same process, for
 * every instruction set of this CPU.
 *
 *     attention [--only T] [--dtype f32 | bf16 | f16]
 *
 * With --dtype, operands and results are stored in this type; those of bf16 also run on each unit for bf16 that there
 * is.
 *
 * Queries, keys and values are slices of one array [B, T, 3, H, D], as a fused projection gives them. Useful flops are
 * those of the causal half: 2 products forward, 5 backward, 2 D flops for each pair of a query and a key that it sees.
 * One thread; times are the thread's own. Batches of one sequence stay in a cache of a few MiB, as in row regions; the
 * others show what memory costs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "limits.h"
#include "src/kernels/attention/attention.h"

enum {
    ROUNDS = 40
};

typedef struct shape {
    int64_t b, t, h, d;
} shape;

static const shape shapes[] = {
    {1, 64, 6, 64},   {1, 128, 6, 64},  {1, 256, 2, 64}, {1, 256, 6, 64},  {1, 512, 2, 64}, {1, 1024, 2, 64},
    {1, 2048, 2, 64}, {1, 4096, 1, 64}, {1, 256, 6, 32}, {1, 256, 3, 128}, {1, 250, 4, 40}, {8, 256, 6, 64},
};

typedef struct memory {
    char *qkv, *out, *ct, *grads[3];
    float *lse;
    void *scratch;
} memory;

/* A kernel and its operands, as they are measured. */
typedef struct way {
    const tow__attention_code *code;
    const tow__gemm_bf16_version *unit;
    bench_isa isa;
    tow_dtype dtype; /* of operands and results */
} way;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In [-0.5, 0.5) */
static void *random_numbers(int64_t count, tow_dtype dtype)
{
    const size_t bytes = (size_t)count * tow_dtype_size(dtype);
    float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
    uint32_t state = 1;
    for (int64_t i = 0; x && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    if (!x || dtype == TOW_F32) return x;
    void *halves = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (halves) tow__narrow_row(dtype, count, x, halves);
    free(x);
    return halves;
}

static void release(memory *m)
{
    free(m->qkv), free(m->out), free(m->lse), free(m->ct), free(m->scratch);
    for (int i = 0; i < 3; i++) free(m->grads[i]);
}

/* The part of q, k and v in an array of all three. */
static tow__heads heads(const shape *s, const way *w, const char *data, int part, int64_t row)
{
    data += (int64_t)tow_dtype_size(w->dtype) * part * s->h * s->d;
    return (tow__heads){data, w->dtype, s->d, s->t * row, row, s->d, 1};
}

static tow__attention_job job_of(const shape *s, const way *w, const memory *m, bool backward)
{
    int64_t width = s->h * s->d;
    tow__buffer lse = {.data = m->lse, .dtype = TOW_F32, .rank = 3, .strides = {s->h * s->t, s->t, 1}};
    return (tow__attention_job){.dtype = TOW_F32,
                                .result = w->dtype,
                                .unit = w->unit,
                                .causal = true,
                                .backward = backward,
                                .scale = 0.125,
                                .batches = s->b,
                                .t = s->t,
                                .s = s->t,
                                .heads = s->h,
                                .groups = s->h,
                                .strips = tow__ceil_div(s->t, TOW__STRIP),
                                .q = heads(s, w, m->qkv, 0, 3 * width),
                                .k = heads(s, w, m->qkv, 1, 3 * width),
                                .v = heads(s, w, m->qkv, 2, 3 * width),
                                .o = heads(s, w, m->out, 0, width),
                                .ct = heads(s, w, m->ct, 0, width),
                                .lse = lse,
                                .out = m->out,
                                .lse_out = m->lse,
                                .dq = m->grads[0],
                                .dk = m->grads[1],
                                .dv = m->grads[2]};
}

static bool allocate(const shape *s, const way *w, memory *m)
{
    int64_t count = s->b * s->t * s->h * s->d;
    *m = (memory){random_numbers(3 * count, w->dtype), random_numbers(count, w->dtype), random_numbers(count, w->dtype),
                  .lse = random_numbers(s->b * s->h * s->t, TOW_F32)};
    bool complete = m->qkv && m->out && m->lse && m->ct;
    for (int i = 0; i < 3; i++) complete &= (m->grads[i] = random_numbers(count, w->dtype)) != NULL;
    tow__attention_job forward = job_of(s, w, m, false), backward = job_of(s, w, m, true);
    size_t bytes = w->code->bytes(&forward), more = w->code->bytes(&backward);
    m->scratch = aligned_alloc(64, ((bytes > more ? bytes : more) + 63) / 64 * 64);
    return complete && m->scratch;
}

/* Seconds of the fastest of several rounds over all heads. */
static double fastest(const shape *s, const way *w, const memory *m, bool backward)
{
    const tow__attention_code *code = w->code;
    tow__attention_job job = job_of(s, w, m, backward);
    double best = 0, spent = 0;
    for (int round = 0; round < ROUNDS && (round < 3 || spent < 0.3); round++) {
        double start = seconds();
        for (int64_t i = 0; i < s->b * s->h; i++) {
            if (backward)
                code->backward(&job, i / s->h, i % s->h, m->scratch);
            else
                code->forward(&job, i / s->h, i % s->h, 0, job.strips, m->scratch);
        }
        double time = seconds() - start;
        spent += time;
        if (round == 0 || time < best) best = time;
    }
    return best;
}

static bool measure(const shape *s, const way *w)
{
    memory m;
    bool complete = allocate(s, w, &m);
    if (complete) {
        double pairs = (double)(s->b * s->h) * (double)s->t * (double)(s->t + 1) / 2,
               product = 2e-9 * pairs * (double)s->d;
        double forward = fastest(s, w, &m, false), backward = fastest(s, w, &m, true);
        double peak = bench_peak_gflops(1, w->isa);
        printf("%-26s %4ld %5ld %4ld %4ld  %8.1f us %6.1f %5.1f %%  %8.1f us %6.1f %5.1f %%\n",
               w->unit ? w->unit->text : bench_isa_name(w->isa), (long)s->b, (long)s->t, (long)s->h, (long)s->d,
               forward * 1e6, 2 * product / forward, 200 * product / forward / peak, backward * 1e6,
               5 * product / backward, 500 * product / backward / peak);
        fflush(stdout);
    }
    release(&m);
    return complete;
}

static bool measure_all(const way *w, int64_t only)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if ((only == 0 || only == shapes[i].t) && !measure(&shapes[i], w)) return false;
    return true;
}

static bool read_dtype(const char *text, tow_dtype *dtype)
{
    *dtype = strcmp(text, "bf16") == 0 ? TOW_BF16 : strcmp(text, "f16") == 0 ? TOW_F16 : TOW_F32;
    return *dtype != TOW_F32 || strcmp(text, "f32") == 0;
}

int main(int argc, char **argv)
{
    int64_t only = 0;
    tow_dtype dtype = TOW_F32;
    bool right = argc % 2 == 1;
    for (int i = 1; right && i < argc; i += 2) {
        if (strcmp(argv[i], "--only") == 0)
            right = (only = atoll(argv[i + 1])) > 0;
        else
            right = strcmp(argv[i], "--dtype") == 0 && read_dtype(argv[i + 1], &dtype);
    }
    if (!right) {
        fprintf(stderr, "attention: expected --only T, a number of queries, or --dtype f32 | bf16 | f16\n");
        return 2;
    }
    printf("%-26s %4s %5s %4s %4s  %11s %6s %7s  %11s %6s %7s\n", "", "B", "T", "H", "D", "forward", "GF/s", "of peak",
           "backward", "GF/s", "of peak");
#ifdef TOW__BF16_UNITS
    const tow__gemm_bf16_version *const units[] = {&tow__gemm_bf16_amx, &tow__gemm_bf16_dots};
    for (int i = 0; i < 2 && dtype == TOW_BF16; i++)
        if (units[i]->usable() && !measure_all(&(way){tow__attention_f32(0), units[i], bench_best_isa(), dtype}, only))
            return 1;
#endif
    for (int choice = 0; tow__attention_f32(choice); choice++) {
        bench_isa isa = (bench_isa)((int)bench_best_isa() - choice);
        if (isa == BENCH_PLAIN)
            break; /* for other machines: without an instruction for it, fmaf takes a hundred times longer */
        if (!measure_all(&(way){tow__attention_f32(choice), NULL, isa, dtype}, only)) return 1;
    }
    return 0;
}
