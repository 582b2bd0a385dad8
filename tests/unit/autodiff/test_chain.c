/* Chains of blocks within limits of bytes: the seconds are those of the optimum that tests/oracle/chains_golden.py
 * finds for 200 random chains, and the steps, executed on bytes, keep the limit and take so many seconds.
 *
 * Tests autodiff/limit/chain.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "src/autodiff/limit/chain.h"
#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/threaded_context.h"
#include "tow/tow.h"

enum {
    MOST_BLOCKS = 16,
    MOST_OPTIONS = 4
};

typedef struct problem {
    tow__chain chain;
    tow__chain_block blocks[MOST_BLOCKS];
    tow__chain_option options[MOST_BLOCKS][MOST_OPTIONS];
    uint64_t most; /* bytes at which more do not help */
} problem;

static uint64_t read_number(FILE *f)
{
    unsigned long long x;
    assert_int_equal(fscanf(f, "%llu", &x), 1);
    return x;
}

static void read_chain(FILE *f, problem *p)
{
    *p = (problem){.chain = {.n = (uint32_t)read_number(f), .blocks = p->blocks}};
    assert_in_range(p->chain.n, 1, MOST_BLOCKS);
    for (uint32_t i = 0; i < p->chain.n; i++) {
        tow__chain_block *b = &p->blocks[i];
        b->seconds = (double)read_number(f);
        b->results = read_number(f);
        b->temporary = read_number(f);
        b->n_options = (uint32_t)read_number(f);
        b->options = p->options[i];
        assert_in_range(b->n_options, 1, MOST_OPTIONS);
        for (uint32_t k = 0; k < b->n_options; k++) {
            tow__chain_option *o = &p->options[i][k];
            o->bytes = read_number(f);
            o->seconds = (double)read_number(f);
            o->working = read_number(f);
            p->most += o->bytes + o->working;
        }
    }
}

/* ---- steps, executed ------------------------------------------------------------------------------------------ */

typedef struct execution {
    const problem *p;
    const tow__chain_step *steps;
    uint64_t limit;
    double seconds;
} execution;

static void hold(const execution *x, uint64_t bytes)
{
    if (bytes > x->limit) fail_msg("%llu bytes, limit %llu", (unsigned long long)bytes, (unsigned long long)x->limit);
}

/* The step behind the part that step i opens. */
static uint32_t behind(const execution *x, uint32_t i)
{
    uint32_t open = 0;
    do {
        open += x->steps[i].kind == TOW__CHAIN_OPEN;
        open -= x->steps[i].kind == TOW__CHAIN_CLOSE;
        i++;
    } while (open > 0);
    return i;
}

/* Runs steps begin to end - 1 forward, then backward, with so many bytes alive beside them; the last block is `last` -
 * 1. */
static void execute(execution *x, uint32_t begin, uint32_t end, uint32_t last, uint64_t alive)
{
    const tow__chain_block *b = x->p->blocks;
    const uint64_t cotangent = b[last - 1].results;
    uint32_t order[8 * MOST_BLOCKS], n = 0;
    uint64_t kept[8 * MOST_BLOCKS];
    for (uint32_t i = begin; i < end;) {
        const tow__chain_step *s = &x->steps[i];
        order[n] = i;
        if (s->kind == TOW__CHAIN_BLOCK) {
            const uint64_t bytes = b[s->first].options[s->option].bytes;
            hold(x, alive + cotangent + bytes + b[s->first].temporary);
            kept[n] = s->last < last ? bytes : 0; /* the last block's are part of its working set */
            i++;
        } else {
            for (uint32_t k = s->first; k < s->last; k++)
                hold(x, alive + cotangent + (k > s->first ? b[k - 1].results : 0) + b[k].results + b[k].temporary);
            kept[n] = b[s->last - 1].results;
            i = behind(x, i);
        }
        alive += kept[n++];
    }
    while (n-- > 0) {
        const tow__chain_step *s = &x->steps[order[n]];
        alive -= kept[n];
        if (s->kind == TOW__CHAIN_BLOCK) {
            hold(x, alive + b[s->first].options[s->option].working);
            x->seconds += b[s->first].options[s->option].seconds;
        } else {
            for (uint32_t k = s->first; k < s->last; k++) x->seconds += b[k].seconds;
            execute(x, order[n] + 1, behind(x, order[n]) - 1, s->last, alive);
        }
    }
}

static void expect_optimum(const problem *p, const tow__chain_table *table, uint64_t limit, long seconds)
{
    tow__chain_step *steps;
    uint32_t n;
    OK(tow__chain_steps(table, limit, &steps, &n));
    if (seconds < 0) {
        assert_true(isinf(tow__chain_seconds(table, limit)));
        assert_int_equal(n, 0);
        return;
    }
    assert_true(tow__chain_seconds(table, limit) == (double)seconds);
    execution x = {.p = p, .steps = steps, .limit = limit};
    execute(&x, 0, n, p->chain.n, 0);
    assert_true(x.seconds == (double)seconds);
}

static void random_chains_take_the_least(void **state)
{
    (void)state;
    FILE *f = fopen(TOW_TEST_DATA "/oracle/golden/chains.txt", "r");
    assert_non_null(f);
    static problem p;
    tow__arena arena;
    tow__chain_table *table = NULL;
    char word[16];
    int n_chains = 0;
    tow__arena_init(&arena, ctx);
    while (fscanf(f, "%15s", word) == 1) {
        if (word[0] == 'c') {
            read_chain(f, &p);
            tow__arena_free(&arena);
            tow__arena_init(&arena, ctx);
            OK(tow__chain_solve(&arena, &p.chain, p.most, 1, &table));
            n_chains++;
            continue;
        }
        long limit, seconds;
        assert_int_equal(fscanf(f, "%ld %ld", &limit, &seconds), 2);
        expect_optimum(&p, table, (uint64_t)limit, seconds);
    }
    assert_int_equal(n_chains, 200);
    tow__arena_free(&arena);
    fclose(f);
}

/* Bytes that are not told apart are rounded up: the limit is kept, and more bytes never take more seconds. */
static void coarse_limits_hold(void **state)
{
    (void)state;
    FILE *f = fopen(TOW_TEST_DATA "/oracle/golden/chains.txt", "r");
    assert_non_null(f);
    static problem p;
    tow__chain_table *table;
    tow__arena arena;
    char word[16];
    tow__arena_init(&arena, ctx);
    for (int n = 0; n < 40 && fscanf(f, "%15s", word) == 1;) {
        if (word[0] != 'c') continue;
        read_chain(f, &p);
        OK(tow__chain_solve(&arena, &p.chain, p.most, 7, &table));
        double last = INFINITY;
        for (uint64_t limit = 0; limit <= p.most; limit += 3) {
            const double seconds = tow__chain_seconds(table, limit);
            assert_true(seconds <= last);
            last = seconds;
            if (!isinf(seconds)) expect_optimum(&p, table, limit, (long)seconds);
        }
        n++;
    }
    tow__arena_free(&arena);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(random_chains_take_the_least, setup, teardown),
        cmocka_unit_test_setup_teardown(coarse_limits_hold, setup, teardown),
    };
    return cmocka_run_group_tests_name("chains within limits", tests, NULL, NULL);
}
