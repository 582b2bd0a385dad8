/* The sets of values that are searched for a body take at most 5 % more time for a step than the optimum of an integer
 * program that HiGHS solved (tests/oracle/kept_values_golden.py), for thirty losses and limits between no bytes and
 * all. With TOW_KEPT_VALUES=FILE the program writes the losses to the file, for the oracle.
 *
 * Tests autodiff/limit/body.c, autodiff/limit/kept_sets.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/autodiff/limit/body.h"
#include "src/plan/remat/remat.h"
#include "tests/unit/support/limit_graphs.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

enum {
    ROWS = 4096
};

/* Facts of a machine from which all rates follow, so that prices are the same everywhere. */
#define MACHINE "l1=32K,l2=512K,l3=32M,vector=32,threads=1"

typedef struct searched {
    tow__arena arena;
    tow_graph *loss, *body;
    tow__body_values values;
    tow__kept_set *sets;
    uint32_t n;
} searched;

static void begin(searched *s, int kind)
{
    tow__pricing pricing;
    size_t n;
    tow__arena_init(&s->arena, ctx);
    OK(limit_loss(ctx, kind, ROWS, &s->loss, &n));
    OK(tow__pricing_begin(ctx, s->loss, 1, &pricing));
    OK(tow__body_values_find(&s->arena, s->loss, &pricing.price, &s->body, &s->values));
    tow__pricing_end(&pricing);
    OK(tow__search_kept_sets(&s->arena, &s->values, false, 4096, &s->sets, &s->n));
}

static void end(searched *s)
{
    tow_graph_release(s->body);
    tow_graph_release(s->loss);
    tow__arena_free(&s->arena);
}

static double forward_seconds(const searched *s)
{
    double seconds = 0;
    for (uint32_t k = 0; k < s->values.g->n_equations; k++) seconds += s->values.seconds[k];
    return seconds;
}

/* "graph N", then for each equation its own and its results' bytes, nanoseconds, whether its results are read backward,
 * whether they may be kept, and the equations that make its operands. */
static void write_loss(FILE *f, const searched *s)
{
    const tow_graph *g = s->values.g;
    fprintf(f, "graph %u\n", g->n_equations);
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        uint32_t n = 0;
        fprintf(f, "%zu %zu %.6f %d %d", s->values.own[k], s->values.result[k], s->values.seconds[k] * 1e9,
                s->values.needed[k], e->n_in > 0 && !tow__is_alias(e));
        for (uint32_t i = 0; i < e->n_in; i++) n += g->vars[e->in[i]].equation != TOW__INPUT;
        fprintf(f, " %u", n);
        for (uint32_t i = 0; i < e->n_in; i++)
            if (g->vars[e->in[i]].equation != TOW__INPUT) fprintf(f, " %u", g->vars[e->in[i]].equation);
        fprintf(f, "\n");
    }
}

/* The fewest seconds of a set with so many bytes. */
static double least_seconds(const searched *s, size_t bytes)
{
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->sets[i].bytes <= bytes && s->sets[i].seconds < least) least = s->sets[i].seconds;
    return least;
}

static void sets_are_near_the_optimum(void **state)
{
    (void)state;
    setenv("TOW_MACHINE", MACHINE, 1);
    const char *to = getenv("TOW_KEPT_VALUES");
    FILE *f = to ? fopen(to, "w") : fopen(TOW_TEST_DATA "/oracle/golden/kept_values.txt", "r");
    assert_non_null(f);
    for (int kind = 0; kind < LIMIT_GRAPHS; kind++) {
        searched s = {.n = 0};
        int number, n_limits = 0;
        begin(&s, kind);
        if (to) {
            write_loss(f, &s);
            end(&s);
            continue;
        }
        const double step = 3 * forward_seconds(&s); /* the backward pass takes twice as long as the forward pass */
        assert_int_equal(fscanf(f, " loss %d %d", &number, &n_limits), 2);
        assert_int_equal(number, kind);
        for (int i = 0; i < n_limits; i++) {
            size_t bytes;
            double nanoseconds;
            assert_int_equal(fscanf(f, "%zu %lf", &bytes, &nanoseconds), 2);
            const double least = least_seconds(&s, bytes), optimum = nanoseconds * 1e-9;
            if (least < optimum - 1e-6 * step || step + least > 1.05 * (step + optimum))
                fail_msg("loss %d, %zu bytes: %g s again, optimum %g s, a step takes %g s", kind, bytes, least, optimum,
                         step);
        }
        end(&s);
    }
    fclose(f);
    unsetenv("TOW_MACHINE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sets_are_near_the_optimum, setup, teardown),
    };
    return cmocka_run_group_tests_name("values to keep", tests, NULL, NULL);
}
