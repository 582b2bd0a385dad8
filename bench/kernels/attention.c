/* Causal attention, forward and backward, against the peak of fused multiply-adds measured in the same process, for
 * every instruction set of this CPU.
 *
 *     attention [--only T]
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
    float *qkv, *out, *lse, *ct, *grads[3];
    void *scratch;
} memory;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *random_numbers(int64_t count)
{
    float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
    uint32_t state = 1;
    for (int64_t i = 0; x && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

static void release(memory *m)
{
    free(m->qkv), free(m->out), free(m->lse), free(m->ct), free(m->scratch);
    for (int i = 0; i < 3; i++) free(m->grads[i]);
}

static tow__heads heads(const shape *s, const float *data, int64_t row)
{
    return (tow__heads){(const char *)data, s->d, s->t * row, row, s->d, 1};
}

static tow__attention_job job_of(const shape *s, const memory *m, bool backward)
{
    int64_t width = s->h * s->d;
    tow__buffer lse = {.data = m->lse, .dtype = TOW_F32, .rank = 3, .strides = {s->h * s->t, s->t, 1}};
    return (tow__attention_job){.dtype = TOW_F32,
                                .causal = true,
                                .backward = backward,
                                .scale = 0.125,
                                .batches = s->b,
                                .t = s->t,
                                .s = s->t,
                                .heads = s->h,
                                .groups = s->h,
                                .strips = tow__ceil_div(s->t, TOW__STRIP),
                                .q = heads(s, m->qkv, 3 * width),
                                .k = heads(s, m->qkv + width, 3 * width),
                                .v = heads(s, m->qkv + 2 * width, 3 * width),
                                .o = heads(s, m->out, width),
                                .ct = heads(s, m->ct, width),
                                .lse = lse,
                                .out = m->out,
                                .lse_out = m->lse,
                                .dq = m->grads[0],
                                .dk = m->grads[1],
                                .dv = m->grads[2]};
}

static bool allocate(const shape *s, const tow__attention_code *code, memory *m)
{
    int64_t count = s->b * s->t * s->h * s->d;
    *m = (memory){random_numbers(3 * count), random_numbers(count), random_numbers(s->b * s->h * s->t),
                  random_numbers(count)};
    bool complete = m->qkv && m->out && m->lse && m->ct;
    for (int i = 0; i < 3; i++) complete &= (m->grads[i] = random_numbers(count)) != NULL;
    tow__attention_job forward = job_of(s, m, false), backward = job_of(s, m, true);
    size_t bytes = code->bytes(&forward), more = code->bytes(&backward);
    m->scratch = aligned_alloc(64, ((bytes > more ? bytes : more) + 63) / 64 * 64);
    return complete && m->scratch;
}

/* Seconds of the fastest of several rounds over all heads. */
static double fastest(const shape *s, const tow__attention_code *code, const memory *m, bool backward)
{
    tow__attention_job job = job_of(s, m, backward);
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

static bool measure(const shape *s, const tow__attention_code *code, bench_isa isa)
{
    memory m;
    bool complete = allocate(s, code, &m);
    if (complete) {
        double pairs = (double)(s->b * s->h) * (double)s->t * (double)(s->t + 1) / 2,
               product = 2e-9 * pairs * (double)s->d;
        double forward = fastest(s, code, &m, false), backward = fastest(s, code, &m, true);
        double peak = bench_peak_gflops(1, isa);
        printf("%-8s %4ld %5ld %4ld %4ld  %8.1f us %6.1f %5.1f %%  %8.1f us %6.1f %5.1f %%\n", bench_isa_name(isa),
               (long)s->b, (long)s->t, (long)s->h, (long)s->d, forward * 1e6, 2 * product / forward,
               200 * product / forward / peak, backward * 1e6, 5 * product / backward, 500 * product / backward / peak);
        fflush(stdout);
    }
    release(&m);
    return complete;
}

int main(int argc, char **argv)
{
    int64_t only = argc == 3 && strcmp(argv[1], "--only") == 0 ? atoll(argv[2]) : 0;
    if (argc > 1 && only < 1) {
        fprintf(stderr, "attention: expected nothing or --only T, a number of queries\n");
        return 2;
    }
    printf("%-8s %4s %5s %4s %4s  %11s %6s %7s  %11s %6s %7s\n", "", "B", "T", "H", "D", "forward", "GF/s", "of peak",
           "backward", "GF/s", "of peak");
    for (int choice = 0; tow__attention_f32(choice); choice++) {
        bench_isa isa = (bench_isa)((int)bench_best_isa() - choice);
        if (isa == BENCH_PLAIN)
            break; /* for other machines: without an instruction for it, fmaf takes a hundred times longer */
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if ((only == 0 || only == shapes[i].t) && !measure(&shapes[i], tow__attention_f32(choice), isa)) return 1;
    }
    return 0;
}
