/* Processes that agree about a status, and hand bytes along the chain of their shares. Tests agreement.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/group/agreement.h"
#include "tests/unit/support/group_flight.h"

static tow_context *ctx;

static int setup(void **state)
{
    (void)state;
    return tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &ctx) == TOW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tow_context_free(ctx);
    return 0;
}

static void run(int count, int (*body)(tow_context *context, tow_group *group, void *user))
{
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = count), body, NULL) != TOW_OK)
        fail_msg("%d processes: %s", count, tow_context_error(ctx));
}

/* Ranks 1 and 2 fail: all hear of rank 1. */
static int agree_body(tow_context *context, tow_group *group, void *user)
{
    const int rank = tow_group_rank(group);
    tow_status own = TOW_OK;
    (void)user;
    OK(tow__group_agree(context, group, TOW_OK));
    if (rank == 1) own = tow_group_fail(context, TOW_IO_ERROR, "the disk of rank one");
    if (rank == 2) own = tow_group_fail(context, TOW_OUT_OF_MEMORY, "the memory of rank two");
    EXPECT(tow__group_agree(context, group, own) == (tow_group_count(group) > 1 ? TOW_IO_ERROR : TOW_OK));
    if (tow_group_count(group) > 1) {
        const char *text = tow_context_error(context);
        EXPECT(strstr(text, "the disk of rank one") != NULL);
        EXPECT((strstr(text, "rank 1 (") != NULL) == (rank != 1));
    }
    OK(tow__group_agree(context, group, TOW_OK)); /* and goes on */
    return 0;
}

static void all_hear_of_the_lowest_rank_that_failed(void **state)
{
    (void)state;
    for (int count = 1; count <= 5; count++) run(count, agree_body);
    assert_int_equal(tow__group_agree(ctx, NULL, TOW_IO_ERROR), TOW_IO_ERROR);
    assert_int_equal(tow__group_agree(ctx, NULL, TOW_OK), TOW_OK);
}

/* All hear what is true of the last rank alone, and of none. */
static int any_body(tow_context *context, tow_group *group, void *user)
{
    bool last = tow_group_rank(group) == tow_group_count(group) - 1, none = false;
    (void)user;
    OK(tow__group_any(context, group, &last));
    EXPECT(last);
    OK(tow__group_any(context, group, &none));
    EXPECT(!none);
    return 0;
}

static void all_hear_what_is_true_of_one(void **state)
{
    (void)state;
    bool own = true;
    for (int count = 1; count <= 5; count++) run(count, any_body);
    assert_int_equal(tow__group_any(ctx, NULL, &own), TOW_OK);
    assert_true(own);
}

/* Each rank adds what its share of 1000 numbers has: in the order of the shares, 0 to 999 come one after the other. */
static int chain_body(tow_context *context, tow_group *group, void *user)
{
    tow__share_chain chain;
    int64_t first, n;
    (void)user;
    EXPECT(tow_group_share(tow_group_rank(group), tow_group_count(group), 1000, &first, &n) == TOW_OK);
    for (int twice = 0; twice < 2; twice++) {
        OK(tow__share_chain_create(context, group, "numbers", &chain));
        for (int64_t message = 0; message < 600; message++) { /* more than there are tags */
            int64_t state[2] = {0, message};
            OK(tow__share_chain_receive(&chain, state, sizeof state));
            EXPECT(state[0] == first && state[1] == message);
            state[0] += n;
            OK(tow__share_chain_send(&chain, state, sizeof state));
            EXPECT(chain.next >= 0 || state[0] == 1000);
        }
        EXPECT((chain.previous < 0) == (tow_group_rank(group) == chain.first));
        EXPECT((chain.next < 0) == (tow_group_rank(group) == chain.last));
        int64_t done = chain.next < 0;
        OK(tow__group_send_to_all(group, chain.last, &done, sizeof done, "numbers"));
        EXPECT(done == 1);
        tow__share_chain_free(&chain);
    }
    return 0;
}

static void states_pass_along_the_shares(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 4, 7};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run(counts[i], chain_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hear_of_the_lowest_rank_that_failed),
        cmocka_unit_test(all_hear_what_is_true_of_one),
        cmocka_unit_test(states_pass_along_the_shares),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
