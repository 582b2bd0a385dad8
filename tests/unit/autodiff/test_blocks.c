/* Gradients of loops in blocks (.every, .levels) have the bits of the plain loop, also where a sum of cotangents leads
 * from one iteration into another. Tests regions/scan_record.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/tow.h"

enum {
    LONGEST = 7
};

typedef enum kind {
    STATE_IS_RESULT,   /* x -> (h, [h, 2 x, h]) */
    CARRY_IS_XS,       /* one array is the first state and the xs */
    CONSTANT_IS_XS,    /* or an outer value and the xs */
    CARRIES_SWAP,      /* (x, v) -> (h, x) */
    CARRIES_COINCIDE,  /* (x, v) -> (h, h) */
    CONSTANT_IS_STATE, /* (x, v) -> (h, w) */
    KINDS
} kind;

typedef struct loop {
    kind kind;
    int64_t length;
    bool reverse;
    tow_scan_schedule schedule;
    tow_value w;
} loop;

/* in: x, v, row. The derivative of tanh has two terms. */
static void step(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const loop *l = user;
    (void)t;
    tow_value row = tow_broadcast_to(in[2], 2, tow_value_type(in[0]).dims);
    tow_value h = tow_tanh(tow_add(tow_add(tow_mul(in[0], l->w), row), tow_mul_scalar(in[1], 0.75)));
    out[0] = h;
    out[1] = l->kind == CARRIES_SWAP        ? in[0]
             : l->kind == CARRIES_COINCIDE  ? h
             : l->kind == CONSTANT_IS_STATE ? l->w
                                            : tow_sin(in[1]);
    out[2] = out[4] = l->kind == STATE_IS_RESULT ? h : tow_mul(h, in[0]);
    out[3] = tow_mul_scalar(in[0], 2);
}

/* in: a, b, w [n, n] */
static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    loop *l = user;
    tow_value y[5], xs = l->kind == CARRY_IS_XS ? in[0] : l->kind == CONSTANT_IS_XS ? in[2] : tow_sin(in[0]);
    const tow_scan_options options = TOW_SCAN_OPTIONS(.reverse = l->reverse, .schedule = l->schedule);
    l->w = in[2];
    tow_scan_function(t, step, l, &options, 2, in, 1, &xs, 3, y, y + 2);
    tow_value sum =
        tow_reduce_sum(tow_add(tow_mul(y[0], tow_sin(y[1])), tow_mul(in[0], tow_mul(in[1], in[2]))), 0, NULL);
    for (int i = 2; i < 5; i++) sum = tow_add(sum, tow_reduce_sum(tow_mul_scalar(tow_sin(y[i]), i), 0, NULL));
    out[0] = sum;
}

/* The loss and its three gradients, [1 + 3 n n] numbers. */
static void gradients(loop l, float *found)
{
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){l.length, l.length});
    tow_array *in[3], *out[4] = {NULL, NULL, NULL, NULL};
    tow_graph *g, *gradient;
    OK(tow_trace_function(ctx, loss, &l, 3, (tow_type[]){type, type, type}, NULL, 1, &g));
    OK(tow_value_and_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient));
    for (int i = 0; i < 3; i++) {
        OK(tow_array_create(ctx, type, &in[i]));
        for (int64_t k = 0; k < l.length * l.length; k++)
            ((float *)tow_array_data(in[i]))[k] = (float)((k * 7919 + i * 31) % 257 - 128) / 100;
    }
    OK(tow_evaluate(gradient, in, out));
    for (int i = 0; i < 4; i++) {
        const size_t bytes = tow_type_bytes(tow_array_type(out[i]));
        memcpy(found, tow_array_data(out[i]), bytes);
        found += bytes / sizeof *found;
        tow_array_release(out[i]);
        if (i < 3) tow_array_release(in[i]);
    }
    tow_graph_release(gradient);
    tow_graph_release(g);
}

static void bits_are_those_of_the_plain_loop(void **state)
{
    (void)state;
    static float plain[1 + 3 * LONGEST * LONGEST], found[1 + 3 * LONGEST * LONGEST];
    for (int k = 0; k < KINDS; k++)
        for (int64_t length = 2; length <= LONGEST; length += k % 2 ? 2 : 3)
            for (int way = 0; way < 7; way++) {
                loop l = {.kind = (kind)k, .length = length, .reverse = (way + length) % 2};
                const size_t bytes = sizeof(float) * (size_t)(1 + 3 * length * length);
                gradients(l, plain);
                if (way < 4)
                    l.schedule.every = 1 + way;
                else
                    l.schedule.levels = way - 3;
                gradients(l, found);
                if (memcmp(plain, found, bytes) != 0)
                    fail_msg("kind %d, length %d, every %d, levels %d: other bits than the plain loop", k,
                             (int)length, (int)l.schedule.every, (int)l.schedule.levels);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bits_are_those_of_the_plain_loop, setup, teardown),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
