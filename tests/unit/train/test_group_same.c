/* Processes of a group do the same: what differs is refused or agreed on, and what does not differ is not refused.
 * Tests group/collective.c, train/loop.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

static int say(tow_context *context, const tow_group *group, tow_status status)
{
    fprintf(stderr, "rank %d: status %d: %s\n", tow_group_rank(group), (int)status, tow_context_error(context));
    return 1;
}

static void run(int count, int (*body)(tow_context *context, tow_group *group, void *user), void *user)
{
    if (tow_processes_run(ctx, &TOW_PROCESSES_OPTIONS(.count = count, .watchdog = 10), body, user) != TOW_OK)
        fail_msg("%s", tow_context_error(ctx));
}

/* ---- options of a small model ------------------------------------------------------------------------------------ */

static void call_dense(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                       tow_value *out)
{
    tow_dense last = TOW_DENSE(.features = 3);
    (void)module, (void)n_in, (void)n_out;
    out[0] = tow_apply(s, "last", &last, in[0]);
}

static const tow_module_class dense_class = {.name = "Model", .call = call_dense};
static const tow_module dense = {.cls = &dense_class};
static tow_type types[2];

static tow_train_options small_options(tow_group *group)
{
    types[0] = F32(B, 5);
    types[1] = tow_make_type(TOW_I32, 1, (int64_t[]){B});
    return TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01)}, .n_inputs = 1,
                             .input_types = &types[0], .n_extra = 1, .extra_types = &types[1], .loss = loss_function,
                             .n_aux = 2, .row_groups = ROW_GROUPS, .group = group);
}

/* ---- what does not differ ---------------------------------------------------------------------------------------- */

/* Of eight row groups, rank 0 has four and the others two, so with four micro-batches it alone sums in a loop: the
 * sources of its sums are other ones. */
static int scale_the_loss(tow_context *context, tow_group *group, void *user)
{
    tow_train_state *state = NULL;
    tow_train_options o = small_options(group);
    (void)user;
    o.micro_batches = 4;
    o.loss_scale = 1024;
    const tow_status status = tow_train_create(context, &dense, &o, &state);
    tow_train_free(state);
    return status == TOW_OK ? 0 : say(context, group, status);
}

static void test_sources(void **state)
{
    (void)state;
    run(3, scale_the_loss, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sources)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
