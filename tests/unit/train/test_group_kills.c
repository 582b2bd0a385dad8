/* Processes that train together, and one of them is killed at a random moment: processes of another number, which share
 * more or less of the state, go on from the checkpoint. All losses that were ever computed, and the last checkpoint,
 * byte for byte, are those of one process that nobody killed. TOW_TEST_KILLS: how often; 5 without. A process without
 * memory ends all, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

enum {
    EXAMPLES = 5 * B,   /* an epoch has five batches, in another order each time */
    SAVE_EVERY = 2,     /* steps, so that some are lost and repeated */
    STEPS_OF_A_KILL = 3 /* for each kill there are so many steps */
};

/* All that the processes of one attempt know. */
typedef struct attempt {
    int kind, shard;
    const char *path;
    double *losses; /* [steps], shared; NAN: no process has ever computed it */
    int64_t steps;
    int killed;    /* rank; -1: none */
    int64_t at;    /* steps that it takes before, and */
    long after_us; /* the time from then on; counted from the beginning if `at` is negative */
    counting *memory;
    long fail_at; /* the allocation that fails at rank 1, if there is .memory */
} attempt;

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

static void set_timer(const attempt *a)
{
    const struct itimerval timer = {.it_value = {.tv_usec = a->after_us}};
    if (setitimer(ITIMER_REAL, &timer, NULL) != 0) raise(SIGKILL);
}

/* ---- one attempt ------------------------------------------------------------------------------------------------- */

typedef struct training {
    tow_train_state *state;
    tow_loader *loader;
    tow_source *sources[2];
    tow_array *data[2];
} training;

static void free_training(training *t)
{
    tow_train_free(t->state);
    tow_loader_free(t->loader);
    for (int k = 0; k < 2; k++) {
        tow_source_release(t->sources[k]);
        tow_array_release(t->data[k]);
    }
}

static tow_status make_data(tow_context *context, tow_group *group, tow_type input, training *t)
{
    tow_type type = input;
    tow_status status = TOW_OK;
    type.dims[0] = EXAMPLES;
    drawn = 19;
    t->data[0] = random_array(context, type);
    t->data[1] = random_array(context, tow_make_type(TOW_I32, 1, (int64_t[]){EXAMPLES}));
    if (!t->data[0] || !t->data[1]) return TOW_OUT_OF_MEMORY;
    for (int64_t k = 0; k < EXAMPLES; k++) ((int32_t *)tow_array_data(t->data[1]))[k] %= 3;
    for (int k = 0; k < 2 && !status; k++) status = tow_source_array(context, t->data[k], &t->sources[k]);
    const tow_field fields[2] = {{.source = t->sources[0]}, {.source = t->sources[1], .keep_type = true}};
    if (!status)
        status = tow_loader_create(context,
                                   &TOW_LOADER_OPTIONS(.n_fields = 2, .fields = fields, .batch = B, .shuffle = true,
                                                       .rank = tow_group_rank(group), .no_thread = true,
                                                       .ranks = tow_group_count(group), .row_groups = ROW_GROUPS),
                                   &t->loader);
    return status;
}

/* The state of the checkpoint, or that of the beginning if there is none. */
static tow_status make_training(tow_context *context, tow_group *group, const attempt *a, training *t)
{
    static const tow_module_class class = {.name = "Model", .call = call_model};
    const model m = {.module = {.cls = &class}, .kind = a->kind};
    const tow_type types[2] = {a->kind == NORMALIZED ? F32(B, 8, 8, 2) : F32(B, 5),
                               tow_make_type(TOW_I32, 1, (int64_t[]){B})};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options with_dropout = TOW_MODEL_OPTIONS(.streams = streams);
    const tow_average_options average = TOW_AVERAGE_OPTIONS(.decay = 0.9);
    *t = (training){.state = NULL};
    tow_status status = make_data(context, group, types[0], t);
    if (!status)
        status = tow_train_create(
            context, &m.module,
            &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 0.5}, .seed = 4,
                               .n_inputs = 1, .input_types = &types[0], .n_extra = 1, .extra_types = &types[1],
                               .loss = loss_function, .n_aux = 2, .model = &with_dropout, .row_groups = ROW_GROUPS,
                               .average = &average, .group = group, .shard = a->shard),
            &t->state);
    if (!status && access(a->path, R_OK) == 0) status = tow_train_load(t->state, a->path);
    if (!status) status = tow_loader_seek(t->loader, tow_train_data_position(t->state));
    return status;
}

static tow_status take_step(training *t, const attempt *a, bool first_rank)
{
    const int64_t step = tow_train_step_count(t->state);
    tow_array *const *batch;
    double loss;
    tow_status status = tow_loader_next(t->loader, &batch);
    if (!status) status = tow_train_step(t->state, batch, &loss);
    if (status) return status;
    tow_train_set_data_position(t->state, tow_loader_position(t->loader));
    if (first_rank && !isnan(a->losses[step]) && memcmp(&a->losses[step], &loss, sizeof loss) != 0) {
        fprintf(stderr, "step %lld: the loss is %.17g, and was %.17g before the kill\n", (long long)step, loss,
                a->losses[step]);
        return TOW_CHECK_FAILED;
    }
    if (first_rank) a->losses[step] = loss;
    return TOW_OK;
}

static int go_on(tow_context *context, tow_group *group, void *user)
{
    const attempt *a = user;
    const bool dies = tow_group_rank(group) == a->killed;
    training t;
    signal(SIGALRM, die);
    if (a->memory) a->memory->calls = 0;
    if (a->memory && tow_group_rank(group) == 1) a->memory->fail_at = a->fail_at;
    if (dies && a->at < 0) set_timer(a);
    tow_status status = make_training(context, group, a, &t);
    const int64_t first = status ? 0 : tow_train_step_count(t.state);
    for (int64_t step = first; !status && step < a->steps; step++) {
        if (dies && a->at == step - first) set_timer(a);
        status = take_step(&t, a, tow_group_rank(group) == 0);
        if (!status && ((step + 1) % SAVE_EVERY == 0 || step + 1 == a->steps))
            status = tow_train_save_all(t.state, group, a->path);
    }
    if (dies && !status) raise(SIGKILL); /* all steps were taken before the timer ended it */
    if (status) tow_group_abort(group, 1, "%s", tow_context_error(context));
    free_training(&t);
    return 0;
}

/* ---- many attempts ----------------------------------------------------------------------------------------------- */

static size_t read_file(const char *path, char *bytes, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s was not written", path);
    const size_t n = fread(bytes, 1, size, file);
    fclose(file);
    assert_true(n < size);
    return n;
}

static uint64_t next_random(uint64_t *x) /* xorshift of Marsaglia (2003) */
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

/* Kills, each in an attempt of its own, until all are used up or all steps are taken; the last attempt ends by itself.
 * Counts kills that hit a step or a checkpoint. */
static void kill_and_resume(attempt a, int kills, uint64_t seed, int *done, int64_t *repeated)
{
    static const int counts[] = {2, 3, 4, 8, 1};
    int64_t steps_before = 0;
    for (int i = 0; i <= kills; i++) {
        tow_context *own;
        const int count = counts[next_random(&seed) % 5];
        a.killed = i < kills ? (int)(next_random(&seed) % (unsigned)count) : -1;
        a.at = (int64_t)(next_random(&seed) % (2 * STEPS_OF_A_KILL)) - 1;
        a.after_us = 1 + (long)(next_random(&seed) % 3000);
        a.shard = (int)(next_random(&seed) % (TOW_SHARD_PARAMETERS + 1));
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &own));
        const tow_status status = tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), go_on, &a);
        if (status != (i < kills ? TOW_INTERRUPTED : TOW_OK) ||
            (i < kills && !strstr(tow_context_error(own), "was killed by signal 9")))
            fail_msg("attempt %d, %d processes: status %d: %s", i, count, (int)status, tow_context_error(own));
        tow_context_free(own);
        int64_t steps = 0;
        while (steps < a.steps && !isnan(a.losses[steps])) steps++;
        *done += steps > steps_before;
        *repeated += steps % SAVE_EVERY;
        steps_before = steps;
    }
}

static void compare(int kind, int kills)
{
    static char expected_bytes[1 << 20], bytes[sizeof expected_bytes];
    char folder[] = "/tmp/tow_kills_XXXXXX", path[64];
    const int64_t steps = (int64_t)kills * STEPS_OF_A_KILL;
    const size_t size = (size_t)steps * sizeof(double);
    double *losses = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int done = 0;
    int64_t repeated = 0;
    assert_true(losses != MAP_FAILED);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    for (int64_t i = 0; i < 2 * steps; i++) losses[i] = NAN;
    attempt a = {.kind = kind, .path = path, .losses = losses, .steps = steps, .killed = -1};
    assert_int_equal(go_on(ctx, NULL, &a), 0);
    const size_t n = read_file(path, expected_bytes, sizeof expected_bytes);
    unlink(path);
    a.losses = losses + steps;
    kill_and_resume(a, kills, 88172645463325252ULL + (unsigned)kind, &done, &repeated);
    for (int64_t i = 0; i < steps; i++)
        if (memcmp(&losses[i], &losses[steps + i], sizeof *losses) != 0)
            fail_msg("model %d: the loss of step %d is %.17g, expected %.17g", kind, (int)i, losses[steps + i],
                     losses[i]);
    assert_int_equal(read_file(path, bytes, sizeof bytes), n);
    if (memcmp(bytes, expected_bytes, n) != 0) fail_msg("model %d: the last checkpoint has other bytes", kind);
    if (done < 2) fail_msg("model %d: all kills were too early", kind);
    print_message("model %d: %d kills, %d attempts took steps of %d, %d had to be repeated\n", kind, kills, done,
                  (int)steps, (int)repeated);
    unlink(path), rmdir(folder);
    munmap(losses, 2 * size);
}

static void random_kills(void **state)
{
    const char *text = getenv("TOW_TEST_KILLS");
    const int kills = text ? atoi(text) : 5;
    (void)state;
    compare(MLP, kills);
    compare(NORMALIZED, kills);
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

/* The standard error of the processes. */
static tow_status run_quietly(tow_context *own, int count, attempt *a, char *printed, size_t size)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    assert_true(kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    const tow_status status = tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), go_on, a);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    printed[fread(printed, 1, size - 1, file)] = '\0';
    fclose(file);
    return status;
}

/* An allocation fails at one rank, early or late: it says so, and all end. */
static void no_memory(void **state)
{
    enum {
        PLACES = 6,
        STEPS = 2
    };
    char folder[] = "/tmp/tow_memory_XXXXXX", path[64];
    static char printed[1 << 14];
    double losses[STEPS] = {NAN, NAN};
    counting memory;
    (void)state;
    const tow_context_options options = counting_options(&memory, -1);
    tow_context *own;
    OK(tow_context_create(&options, &own));
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    attempt a = {.kind = MLP, .path = path, .losses = losses, .steps = STEPS, .killed = -1, .memory = &memory};
    assert_int_equal(go_on(own, NULL, &a), 0);
    const long all = memory.calls;
    for (long i = 0; i < PLACES; i++) {
        unlink(path);
        losses[0] = losses[1] = NAN;
        a.fail_at = all * i / PLACES;
        assert_int_equal(run_quietly(own, 3, &a, printed, sizeof printed), TOW_INTERRUPTED);
        /* all may know of it where they agree on an error, and then any of them is the first to end */
        if (!strstr(tow_context_error(own), ") ended with status 1;") || !strstr(printed, "rank 1 ("))
            fail_msg("allocation %ld: %s; %s", a.fail_at, tow_context_error(own), printed);
    }
    tow_context_free(own);
    assert_int_equal(memory.wrong_sizes, 0);
    unlink(path), rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_kills), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
