/* An update by AdamW, as a chain of recorded transforms, and in turns with it the same arithmetic as a loop in C that
 * is written for it: this file has the loop.
 *
 *     update --elements 4194304 --threads 1
 *
 * Adds loop_seconds, the ratio of the two fastest times, and bytes_per_second: 28 bytes for each element, as four
 * arrays are read and three written. With more than one thread the loop's share of each is equal. With --slot-bits 8
 * Tow keeps its moments in 8 bits, the loop in f32; slot_bytes are those of Tow. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "bench.h"
#include "src/base/clones.h"

enum {
    AHEAD = 1024, /* elements from what is computed to what is fetched */
    LINE = 16,
    MOST_THREADS = 64,
    TURNS = 8
};

typedef struct share {
    float *p, *m, *v, *g;
    int64_t n;
} share;

static inline __attribute__((always_inline)) void elements(int64_t n, float *restrict p, float *restrict m,
                                                           float *restrict v, const float *restrict g)
{
    const float bias1 = 0.1f, bias2 = 0.001f;
    for (int64_t i = 0; i < n; i++) {
        float mi = 0.1f * g[i] + 0.9f * m[i], vi = 0.001f * (g[i] * g[i]) + 0.999f * v[i];
        m[i] = mi;
        v[i] = vi;
        p[i] -= 1e-3f * (mi / bias1 / (sqrtf(vi / bias2) + 1e-8f) + 0.1f * p[i]);
    }
}

TOW__CLONES static void loop(const share *a)
{
    int64_t i = 0;
    for (; i + LINE <= a->n; i += LINE) {
        const uintptr_t ahead = (uintptr_t)(i + AHEAD) * sizeof(float); /* perhaps behind the end */
        __builtin_prefetch((const void *)((uintptr_t)a->p + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)a->m + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)a->v + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)a->g + ahead));
        elements(LINE, a->p + i, a->m + i, a->v + i, a->g + i);
    }
    elements(a->n - i, a->p + i, a->m + i, a->v + i, a->g + i);
}

static void *run_share(void *user)
{
    loop(user);
    return NULL;
}

/* The loop on `threads` threads; seconds. */
static double time_loop(const share *whole, int64_t threads)
{
    pthread_t ids[MOST_THREADS];
    share shares[MOST_THREADS];
    double start = bench_now();
    for (int64_t i = 0; i < threads; i++) {
        int64_t from = whole->n * i / threads, to = whole->n * (i + 1) / threads;
        shares[i] = (share){whole->p + from, whole->m + from, whole->v + from, whole->g + from, to - from};
        if (i > 0 && pthread_create(&ids[i], NULL, run_share, &shares[i]) != 0) bench_fail("update: no thread");
    }
    loop(&shares[0]);
    for (int64_t i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    return bench_now() - start;
}

typedef struct updating {
    tow_optimizer_state *state;
    tow_array *gradient;
} updating;

static tow_status update(void *user)
{
    updating *u = user;
    return tow_optimizer_update(u->state, &u->gradient);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t elements = 1 << 22, slot_bits = 0;
    const bench_option options[] = {
        {"elements", .number = &elements, .least = 1}, {"slot-bits", .number = &slot_bits, .least = 0}, {0}};
    bench_start(&b, "update", argc, argv, options);
    if (b.threads > MOST_THREADS) bench_fail("update: expected at most %d threads", MOST_THREADS);

    tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
    tow_add_decayed_weights decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = 0.1, .decay_all = true);
    tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(1e-3));
    tow_chain chain =
        TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&adam), TOW_GRADIENT_TRANSFORM(&decay), TOW_GRADIENT_TRANSFORM(&rate));
    tow_type type = tow_make_type(TOW_F32, 1, &elements);
    tow_array *own[4];
    for (int i = 0; i < 4; i++) {
        bench_check(&b, tow_array_create(b.context, type, &own[i]));
        bench_fill(own[i], (uint64_t)i, 1);
    }
    for (int64_t i = 0; i < elements; i++) ((float *)tow_array_data(own[2]))[i] *= ((float *)tow_array_data(own[2]))[i];
    share whole = {tow_array_data(own[0]), tow_array_data(own[1]), tow_array_data(own[2]), tow_array_data(own[3]),
                   elements};
    tow_array *parameter, *gradient;
    tow_params *params;
    updating u;
    bench_check(&b, tow_array_create(b.context, type, &parameter));
    bench_check(&b, tow_array_create(b.context, type, &gradient));
    bench_fill(parameter, 4, 1);
    bench_fill(gradient, 5, 1);
    bench_check(&b, tow_params_from_arrays(b.context, 1, (const char *const[]){"w"}, &parameter, &params));
    const tow_optimizer_options of_state = TOW_OPTIMIZER_OPTIONS(.slot_bits = (int)slot_bits);
    bench_check(&b, tow_optimizer_create(b.context, TOW_GRADIENT_TRANSFORM(&chain), params, &of_state, &u.state));
    u.gradient = gradient;

    double loop_seconds = INFINITY, seconds = INFINITY;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < 20; i++) loop_seconds = fmin(loop_seconds, time_loop(&whole, b.threads));
        for (int i = 0; i < 20; i++) {
            double start = bench_now();
            bench_check(&b, update(&u));
            seconds = fmin(seconds, bench_now() - start);
        }
    }
    bench_repeat(&b, update, &u, 1);
    bench_set(&b, "loop_seconds", json_real(loop_seconds));
    bench_set(&b, "ratio", json_real(seconds / loop_seconds));
    bench_set(&b, "bytes_per_second", json_real(28.0 * (double)elements / seconds));
    bench_set(&b, "slot_bytes", json_integer((json_int_t)tow_optimizer_bytes(u.state)));
    tow_optimizer_free(u.state);
    tow_params_free(params);
    tow_array_release(parameter);
    tow_array_release(gradient);
    for (int i = 0; i < 4; i++) tow_array_release(own[i]);
    return bench_finish(&b, 0);
}
