/* Processes that train, and of which one fails, is killed or stops, or differs from the others in what it was given or
 * in its machine: all end, and say why. Tests autodiff/rows/processes.c, group/watchdog.c, train/state.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "src/base/base.h"
#include "src/kernels/products/gemm.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/printing_processes.h"
#include "tests/unit/support/row_models.h"

/* A state of the model with a dense layer, and two batches of zeros for it. */
typedef struct small {
    tow_train_state *state;
    tow_array *batch[2];
} small;

static tow_status make_small(tow_context *context, tow_group *group, uint64_t seed, size_t row_groups, small *s)
{
    static const tow_module_class class = {.name = "Model", .call = call_small};
    static const tow_module small_model = {.cls = &class};
    const tow_type types[2] = {F32(B, 5), tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const int64_t rows = B / tow_group_count(group);
    *s = (small){.state = NULL};
    tow_status status = tow_train_create(
        context, &small_model,
        &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .seed = seed, .n_inputs = 1,
                           .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                           .n_aux = 2, .row_groups = row_groups, .group = group),
        &s->state);
    if (!status) status = tow_array_create(context, F32(rows, 5), &s->batch[0]);
    if (!status) status = tow_array_create(context, tow_make_type(TOW_I32, 1, &rows), &s->batch[1]);
    for (int k = 0; k < 2 && !status; k++)
        memset(tow_array_data(s->batch[k]), 0, tow_type_bytes(tow_array_type(s->batch[k])));
    return status;
}

static void free_small(small *s)
{
    tow_train_free(s->state);
    for (int k = 0; k < 2; k++) tow_array_release(s->batch[k]);
}

/* The trouble that rank `rank` makes in front of its second step. */
typedef struct trouble {
    int rank, signal; /* 0: abort */
} trouble;

static int be_troubled(tow_context *context, tow_group *group, void *user)
{
    const trouble *t = user;
    small s;
    if (make_small(context, group, 1, 4, &s) != TOW_OK) return 2;
    for (int i = 0; i < 3; i++) {
        const bool now = i == 1 && tow_group_rank(group) == t->rank;
        if (now && t->signal) raise(t->signal);
        if (now) tow_group_abort(group, 1, "the disk is full");
        if (tow_train_step(s.state, s.batch, NULL) != TOW_OK) return 3;
    }
    free_small(&s);
    return 0;
}

/* All end, with the message of the one that failed, or with the name of the one that is stopped. */
static void test_troubles(void **state)
{
    (void)state;
    trouble t = {.rank = 1};
    assert_int_equal(run(4, 0, be_troubled, &t), TOW_INTERRUPTED);
    expect_printed("tow: rank 1 (");
    expect_printed("the disk is full");
    t = (trouble){.rank = 3, .signal = SIGKILL};
    assert_int_equal(run(4, 0, be_troubled, &t), TOW_INTERRUPTED);
    t = (trouble){.rank = 2, .signal = SIGSTOP};
    assert_int_equal(run(4, 1, be_troubled, &t), TOW_INTERRUPTED);
    expect_printed("rank 2 (");
    expect_printed("has not arrived");
    expect_printed("; step 2");
    expect_printed("sum of ");
    expect_printed("row_models.h:"); /* the line that recorded what is summed */
}

static int differ(tow_context *context, tow_group *group, void *user)
{
    const int what = *(const int *)user, rank = tow_group_rank(group);
    small s;
    const tow_status status =
        make_small(context, group, what == 0 && rank == 1 ? 2 : 1, what == 1 && rank == 1 ? 8 : 4, &s);
    const bool says =
        strstr(tow_context_error(context), what == 0 ? "the seed is 1 at rank 0" : "row groups is 4 in 1");
    if (!says) fprintf(stderr, "%s\n", tow_context_error(context));
    free_small(&s);
    return status == TOW_INVALID_ARGUMENT && says ? 0 : 1;
}

static int have_few_groups(tow_context *context, tow_group *group, void *user)
{
    small s;
    (void)user;
    const tow_status status = make_small(context, group, 1, 1, &s);
    free_small(&s);
    return status == TOW_INVALID_ARGUMENT && strstr(tow_context_error(context), "number of processes, 2") ? 0 : 1;
}

/* On the machine of rank 1, products would run on another unit. */
static int have_another_unit(tow_context *context, tow_group *group, void *user)
{
    const tow__gemm_choice *here = context->products;
    tow__gemm_choice other = *here;
    small s;
    (void)user;
    other.engine = tow__gemm_find("reference");
    if (tow_group_rank(group) == 1) context->products = &other;
    const tow_status status = make_small(context, group, 1, 4, &s);
    free_small(&s);
    context->products = here;
    static const char *const parts[] = {"the unit of products, which .portable_bits of contexts makes the same",
                                        " for bf16 at rank 0 (",
                                        "and reference for f32 and reference for bf16 at rank 1"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(tow_context_error(context), parts[i])) {
            fprintf(stderr, "%s\n", tow_context_error(context));
            return 1;
        }
    return status == TOW_INVALID_ARGUMENT ? 0 : 1;
}

static void test_differences(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++)
        if (run(2, 0, differ, &what) != TOW_OK) fail_msg("difference %d: %s", what, printed);
    if (run(2, 0, have_few_groups, NULL) != TOW_OK) fail_msg("few groups: %s", printed);
    if (run(2, 0, have_another_unit, NULL) != TOW_OK) fail_msg("another unit: %s", printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_troubles), cmocka_unit_test(test_differences)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
