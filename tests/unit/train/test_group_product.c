/* Every way to train the same models: numbers of processes, micro-batches, threads, policies of remat, a memory limit,
 * layers in a loop or one by one, and going on with another number of processes in the middle. All have one hash of
 * losses, parameters and variables. TOW_TEST_PRODUCT=all tries the whole product, in
 * minutes; without it, every value of each setting is tried at least once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/support/plain_context.h"
#include "tests/unit/support/row_models.h"

enum {
    STEPS = 4, /* of which the second half may be taken by other processes */
    WORDS = 6
};

static const int counts[] = {1, 2, 3, 4, 8};
static const size_t parts[] = {1, 2, 4, 8};

typedef enum kept {
    ALL_IS_KEPT, /* no remat */
    NOTHING,
    WITHIN_LIMIT,
    WAYS_TO_KEEP
} kept;

/* One way to train. */
typedef struct way {
    int kind;
    int processes, then; /* of the first and of the second half */
    size_t micro_batches;
    int threads;
    kept kept;
    bool unrolled;
    const char *path; /* of the checkpoint between the halves */
    uint64_t *hash;   /* shared with the processes: of losses and numbers */
} way;

/* A normalized perceptron with dropout: statistics of all rows beside masks of single rows. */
static void call_normalized(tow_scope *s, const tow_value *in, tow_value *out)
{
    tow_dense hidden = TOW_DENSE(.features = 12), last = TOW_DENSE(.features = 3);
    tow_dropout dropout = TOW_DROPOUT(.rate = 0.25);
    tow_batch_norm norm = TOW_BATCH_NORM();
    const tow_value x = tow_apply(s, "norm", &norm, tow_apply(s, "hidden", &hidden, in[0]));
    out[0] = tow_apply(s, "last", &last, tow_apply(s, "dropout", &dropout, tow_relu(x)));
}

static void call_either(tow_scope *s, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                        tow_value *out)
{
    const model *m = (const model *)(const void *)module;
    if (m->kind == GPT)
        call_model(s, module, n_in, in, n_out, out);
    else
        call_normalized(s, in, out);
}

static tow_status make_state(tow_context *context, tow_group *group, const way *w, const tow_type *types,
                             tow_train_state **state)
{
    static const tow_module_class class = {.name = "Model", .call = call_either};
    const tow_policy nothing = tow_nothing_saveable();
    const model m = {.module = {.cls = &class},
                     .kind = w->kind,
                     .unrolled = w->unrolled,
                     .policy = w->kept == NOTHING ? &nothing : NULL};
    const char *const streams[] = {"dropout", NULL};
    const tow_model_options options = TOW_MODEL_OPTIONS(.streams = streams);
    return tow_train_create(
        context, &m.module,
        &TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate = tow_schedule_constant(0.01), .clip_norm = 0.5}, .seed = 3,
                           .n_inputs = 1, .input_types = &types[0], .n_extra = 1, .extra_types = &types[1],
                           .loss = loss_function, .n_aux = 2, .model = &options, .micro_batches = w->micro_batches,
                           .row_groups = ROW_GROUPS, .group = group,
                           .memory_limit = w->kept == WITHIN_LIMIT ? 400000 : 0),
        state);
}

static tow_status take_steps(tow_context *context, const way *w, const tow_type *types, tow_train_state *state,
                             int64_t end, int64_t first, int64_t count, uint64_t *losses)
{
    tow_status status = TOW_OK;
    for (int64_t step = tow_train_step_count(state); step < end && !status; step++) {
        double loss = 0;
        drawn = 100 + (uint32_t)step;
        tow_array *whole[2] = {random_array(context, types[0]), random_array(context, types[1])},
                  *own[2] = {NULL, NULL};
        for (int64_t k = 0; w->kind != GPT && whole[1] && k < B; k++) ((int32_t *)tow_array_data(whole[1]))[k] %= 3;
        for (int k = 0; k < 2 && !status; k++)
            if (!whole[k] || !(own[k] = own_rows(context, whole[k], first, count))) status = TOW_OUT_OF_MEMORY;
        if (!status) status = tow_train_step(state, own, &loss);
        *losses = hash(*losses, &loss, sizeof loss);
        for (int k = 0; k < 2; k++) tow_array_release(whole[k]), tow_array_release(own[k]);
    }
    return status;
}

/* One half of the steps. */
static int train_half(tow_context *context, tow_group *group, void *user)
{
    const way *w = user;
    const tow_type types[2] = {w->kind == GPT ? tow_make_type(TOW_I32, 2, (int64_t[]){B, WORDS}) : F32(B, 5),
                               tow_make_type(TOW_I32, w->kind == GPT ? 2 : 1, (int64_t[]){B, WORDS})};
    const bool resumes = w->path && access(w->path, R_OK) == 0;
    uint64_t result = w->hash[0];
    tow_train_state *state = NULL;
    int begin = 0, end = ROW_GROUPS;
    tow_group_rows(tow_group_rank(group), tow_group_count(group), ROW_GROUPS, &begin, &end);
    const int64_t first = begin * B / ROW_GROUPS, count = (end - begin) * B / ROW_GROUPS;
    tow_status status = make_state(context, group, w, types, &state);
    if (!status && resumes) status = tow_train_load(state, w->path);
    if (!status)
        status = take_steps(context, w, types, state, w->path && !resumes ? STEPS / 2 : STEPS, first, count, &result);
    if (!status && w->path && !resumes) status = tow_train_save_all(state, group, w->path);
    if (!status && (!w->path || resumes))
        result += hash_of_list(tow_train_params(state)) + 31 * hash_of_list(tow_train_variables(state));
    if (status) tow_group_abort(group, 1, "%s", tow_context_error(context));
    /* All ranks have the same, or the last one that writes shows it. */
    w->hash[1 + tow_group_rank(group)] = result;
    tow_train_free(state);
    return 0;
}

static uint64_t hash_of(way w, uint64_t *shared)
{
    const int halves = w.path ? 2 : 1;
    w.hash = shared;
    shared[0] = 14695981039346656037u;
    if (w.path) unlink(w.path);
    for (int half = 0; half < halves; half++) {
        const int count = half == 0 ? w.processes : w.then;
        tow_context *own;
        OK(tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = w.threads), &own));
        if (tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = count), train_half, &w) != TOW_OK)
            fail_msg("%d processes, %zu micro-batches, %d threads: %s", count, w.micro_batches, w.threads,
                     tow_context_error(own));
        tow_context_free(own);
        for (int r = 1; r < count; r++)
            if (shared[1 + r] != shared[1]) fail_msg("rank %d of %d has another hash than rank 0", r, count);
        shared[0] = shared[1];
    }
    return shared[0];
}

static void print_way(const way *w, char *text, size_t size)
{
    static const char *const names[] = {"nothing made again", "all made again", "a limit"};
    snprintf(text, size, "%s, %d and then %d processes, %zu micro-batches, %d threads, %s, layers %s%s",
             w->kind == GPT ? "GPT" : "BatchNorm", w->processes, w->then, w->micro_batches, w->threads, names[w->kept],
             w->unrolled ? "one by one" : "in a loop", w->path ? ", resumed" : "");
}

/* Everyday tests take every 157th or 23rd way: among these is each value of each setting. */
static void product(int kind)
{
    const bool all = getenv("TOW_TEST_PRODUCT") != NULL;
    char folder[] = "/tmp/tow_product_XXXXXX", path[64], text[200];
    uint64_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), expected = 0;
    int n = 0, tried = 0;
    assert_true(shared != MAP_FAILED);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    for (int c = 0; c < 5; c++)
        for (int p = 0; p < 4; p++)
            for (int threads = 1; threads <= 2; threads++)
                for (int k = 0; k < WAYS_TO_KEEP; k++)
                    for (int unrolled = 0; unrolled < 2; unrolled++)
                        for (int then = -1; then < 5; then++) {
                            const way w = {.kind = kind,
                                           .processes = counts[c],
                                           .then = counts[then < 0 ? c : then],
                                           .micro_batches = parts[p],
                                           .threads = threads,
                                           .kept = (kept)k,
                                           .unrolled = unrolled != 0,
                                           .path = then < 0 ? NULL : path};
                            /* It has no layers in a loop, and statistics of a batch are not those of its parts. */
                            if (kind != GPT && (k == NOTHING || unrolled || p > 0)) continue;
                            if (!all && n++ % (kind == GPT ? 157 : 23) != 0) continue;
                            const uint64_t found = hash_of(w, shared);
                            if (tried++ == 0) expected = found;
                            print_way(&w, text, sizeof text);
                            if (found != expected) fail_msg("%s: another hash", text);
                        }
    print_message("%s: %d ways to train %d steps, one hash %016llx\n", kind == GPT ? "GPT" : "BatchNorm", tried, STEPS,
                  (unsigned long long)expected);
    unlink(path), rmdir(folder);
    munmap(shared, 4096);
}

static void test_gpt(void **state)
{
    (void)state;
    product(GPT);
}

static void test_batch_norm(void **state)
{
    (void)state;
    product(NORMALIZED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt), cmocka_unit_test(test_batch_norm)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
