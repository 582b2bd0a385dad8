/* Checkpoints that processes write together. Tests checkpoint.c. */
#include "tests/unit/support/group_flight.h"
#include "tests/unit/support/training.h"

typedef struct job {
    const fixture *f;
    training *t;
    tow_status expected;
    const char *message;
} job;

static size_t read_file(const char *path, char *bytes, size_t size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, size, file);
    fclose(file);
    return n;
}

/* Each process has a copy of the state. */
static int save_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    const tow_status status = tow_train_save_all(j->t->state, group, j->f->b);
    EXPECT(status == j->expected);
    EXPECT(!j->message || strstr(tow_context_error(context), j->message) != NULL);
    return 0;
}

static int save_of_another_step_body(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    double loss;
    if (tow_group_rank(group) == 1) OK(tow_train_step(j->t->state, j->t->batch, &loss));
    return save_body(context, group, user);
}

static void files_do_not_depend_on_the_number_of_processes(void **state)
{
    const fixture *f = *state;
    static const int counts[] = {1, 2, 3, 8};
    static char expected[1 << 15], found[1 << 15];
    tow_dense model = TOW_DENSE(.features = 5);
    training t = start(f->ctx, TOW_MODULE(&model), 7, 5, TOW_TRAIN_OPTIONS(.optimizer = usual));
    double of_whole, of_resumed;
    job j = {.f = f, .t = &t};
    step(&t, 3);
    assert_int_equal(tow_train_save(t.state, f->a), TOW_OK);
    const size_t n = read_file(f->a, expected, sizeof expected);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (tow_processes_run(f->ctx, &TOW_PROCESSES_OPTIONS(.count = counts[i]), save_body, &j) != TOW_OK)
            fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(read_file(f->b, found, sizeof found), n);
        assert_memory_equal(found, expected, n);
    }
    assert_int_equal(tow_train_save_all(t.state, NULL, f->b), TOW_OK);
    assert_int_equal(read_file(f->b, found, sizeof found), n);
    assert_memory_equal(found, expected, n);
    assert_int_equal(tow_train_step(t.state, t.batch, &of_whole), TOW_OK);
    assert_int_equal(tow_train_load(t.state, f->b), TOW_OK);
    assert_int_equal(tow_train_step(t.state, t.batch, &of_resumed), TOW_OK);
    assert_true(of_whole == of_resumed);
    stop(&t);
}

static void states_that_differ_are_refused(void **state)
{
    const fixture *f = *state;
    tow_dense model = TOW_DENSE(.features = 5);
    training t = start(f->ctx, TOW_MODULE(&model), 7, 5, TOW_TRAIN_OPTIONS(.optimizer = usual));
    job j = {.f = f, .t = &t, .expected = TOW_INVALID_ARGUMENT, .message = "step is 0 at rank 0"};
    if (tow_processes_run(f->ctx, &TOW_PROCESSES_OPTIONS(.count = 3), save_of_another_step_body, &j) != TOW_OK)
        fail_msg("%s", tow_context_error(f->ctx));
    assert_int_equal(tow_train_save_all(NULL, NULL, f->b), TOW_INVALID_ARGUMENT);
    stop(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_do_not_depend_on_the_number_of_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(states_that_differ_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
