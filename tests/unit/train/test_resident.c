/* A run takes what its plan says: processes train within limits, and the resident memory that each gains, at its peak,
 * is the bytes of the plan and a little more. Without the limit the same training takes many times as much.
 *
 * Tests train/programs.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/kernels/products/gemm.h"
#include "tow/tow.h"

enum {
    ROWS = 8192,
    WIDTH = 64,
    LAYERS = 20,
    VALUE = ROWS * WIDTH * 4, /* bytes of the output of a layer: 2 MiB */
    /* A process has plans that were compared, packed operands of products, and pages at the ends of arrays besides. */
    SLACK = 4 << 20
};

typedef struct measured {
    bool ran;
    size_t plan, grown, least; /* bytes; least: of the error */
} measured;

/* A line of /proc/self/status, in bytes; 0: there is none. */
static size_t resident(const char *line)
{
    char text[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(text, sizeof text, file))
        if (strncmp(text, line, strlen(line)) == 0) kib = strtoull(text + strlen(line), NULL, 10);
    if (file) fclose(file);
    return kib * 1024;
}

static void sum_of_squares(tow_trace *trace, const tow_value *out, const tow_value *extra, tow_value *loss,
                           tow_value *aux, void *user)
{
    (void)trace, (void)extra, (void)aux, (void)user;
    *loss = tow_mean(tow_square(out[0]), 0, NULL);
}

static bool train(tow_context *ctx, int64_t rows, size_t limit, measured *m)
{
    tow_dense layer = TOW_DENSE(.features = WIDTH);
    tow_activation_layer gelu = TOW_ACTIVATION(tow_gelu);
    tow_sequential block = TOW_SEQUENTIAL(TOW_MODULE(&layer), TOW_MODULE(&gelu));
    tow_scan model = TOW_SCAN(&block, .length = LAYERS);
    const tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){rows, WIDTH});
    const tow_train_options options =
        TOW_TRAIN_OPTIONS(.n_inputs = 1, .input_types = &type, .loss = sum_of_squares, .memory_limit = limit,
                          .optimizer = {.learning_rate = {.peak_value = 0.01}});
    tow_train_state *s = NULL;
    tow_array *batch = NULL;
    bool fine = tow_train_create(ctx, TOW_MODULE(&model), &options, &s) == TOW_OK;
    if (!fine) {
        const char *at = strstr(tow_context_error(ctx), "at least ");
        m->least = at ? strtoull(at + strlen("at least "), NULL, 10) : 0;
        return m->least > 0;
    }
    fine = tow_array_create(ctx, type, &batch) == TOW_OK;
    for (int64_t i = 0; fine && i < rows * WIDTH; i++) ((float *)tow_array_data(batch))[i] = (float)(i % 17) / 17;
    for (int i = 0; fine && i < 2; i++) fine = tow_train_step(s, &batch, NULL) == TOW_OK;
    const tow_program_bytes b = tow_program_get_bytes(tow_train_program(s));
    m->plan = b.inputs + b.outputs + b.constants + b.arena;
    m->ran = fine;
    tow_array_release(batch);
    tow_train_free(s);
    return fine;
}

/* In a process of its own, with one thread. Pages of the program itself do not count: how many of them one fault
 * brings is the system's choice. Nor do the rests of huge pages. */
static measured measure(size_t limit)
{
    measured m = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const tow_context_options one = TOW_CONTEXT_OPTIONS(.threads = 1);
        tow_context *ctx = NULL;
        (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        bool fine = tow_context_create(&one, &ctx) == TOW_OK;
        fine = fine && train(ctx, 64, 0, &(measured){0}); /* libraries are loaded, their buffers made */
        const size_t before = resident("RssAnon:") + resident("RssShmem:");
        fine = fine && train(ctx, ROWS, limit, &m);
        m.grown = resident("VmHWM:") - resident("RssFile:") - before;
        fine = fine && write(ends[1], &m, sizeof m) == (ssize_t)sizeof m;
        _exit(fine ? 0 : 1);
    }
    int status;
    close(ends[1]);
    const ssize_t got = read(ends[0], &m, sizeof m);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(got, sizeof m);
    return m;
}

static void a_run_takes_what_its_plan_says(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* shadow memory is resident, too */
#endif
    if (resident("VmHWM:") == 0 || resident("RssAnon:") == 0) skip();
    if (tow__gemm_find("blis")) setenv("TOW_ENGINE", "-blis", 1); /* it keeps buffers of its own after large products */
    const measured free = measure(0), refused = measure(1);
    assert_true(free.ran && !refused.ran && refused.least > 0);
    assert_true(free.plan > refused.least + 4 * (size_t)SLACK);
    const size_t limits[] = {0, (free.plan + refused.least) / 2, refused.least};
    for (int i = 0; i < 3; i++) {
        const measured m = i ? measure(limits[i]) : free;
        assert_true(m.ran);
        assert_true(!limits[i] || m.plan <= limits[i]);
        if (m.grown > m.plan + SLACK || m.grown + SLACK < m.plan)
            fail_msg("limit %zu: expected %zu bytes and at most %d more or fewer, found %zu", limits[i], m.plan, SLACK,
                     m.grown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_takes_what_its_plan_says),
    };
    return cmocka_run_group_tests_name("resident", tests, NULL, NULL);
}
