/* A training step of the example's GPT on random tokens: loss, gradients and AdamW.
 *
 *     gpt --layers 6 --width 384 --heads 6 --context 256 --batch 8 --vocabulary 65 [--policy nothing]
 *         [--memory-limit BYTES] [--no-scan] [--early-update] [--only-compile] [--dtype mixed]
 *         [--processes 2 [--shard 3]]
 *
 * Element types: f32; `mixed`, activations of bf16 with parameters of f32 (`mixed-f16`: of f16); bf16 or f16, the
 * parameters too.
 *
 * --processes: so many processes of this machine share the rows of a batch and the threads. Rank 0 is timed, for
 * --steps steps (10). Without it, one process has all. --shard: the stage, of tow_train_options.
 *
 * Useful flops: 6 per parameter that takes part in products and token, plus causal attention (two products forward and
 * four backward over half of the T x T pairs). */
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/model.h"
#include "models.h"

typedef struct shape {
    int64_t layers, width, heads, context, batch, vocabulary, row_groups;
} shape;

static double useful_flops(const shape *s)
{
    double tokens = (double)(s->batch * s->context), width = (double)s->width;
    double parameters = 12 * width * width * (double)s->layers + width * (double)s->vocabulary;
    double attention = 6 * (double)s->context * (double)s->context * width * (double)(s->layers * s->batch);
    return 6 * parameters * tokens + attention;
}

/* Ways to make a step. */
typedef struct way {
    bool early_update;
    int64_t memory_limit, stage;
} way;

static void set_bytes(bench *b, const tow_train_state *state)
{
    tow_train_bytes bytes = tow_train_get_bytes(state);
    tow_program_bytes program = tow_program_get_bytes(tow_train_program(state));
    bench_set(b, "planned",
              json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)bytes.parameters,
                        "optimizer", (json_int_t)bytes.optimizer, "residuals", (json_int_t)bytes.residuals, "workspace",
                        (json_int_t)bytes.workspace, "total", (json_int_t)bytes.total, "arena",
                        (json_int_t)program.arena, "lower_bound", (json_int_t)program.lower_bound, "temporary",
                        (json_int_t)(bytes.total - bytes.parameters - bytes.optimizer)));
}

/* Tracing, differentiating and compiling the loss: all that a step waits for, beside drawing the parameters. */
static void time_compiling(bench *b, const tow_module *model, tow_type type)
{
    tow_params *params = NULL;
    tow_graph *loss = NULL, *gradient = NULL;
    tow_program *program = NULL;
    bench_check(b, tow_model_init(b->context, model, 0, 1, &type, &params));
    size_t n = tow_params_count(params), *wrt = malloc((n + 1) * sizeof *wrt);
    if (!wrt) bench_fail("gpt: out of memory");
    for (size_t i = 0; i < n; i++) wrt[i] = i;
    double start = bench_now();
    bench_check(
        b, tow_model_loss_graph(model, params, 2, (tow_type[]){type, type}, 0, NULL, gpt_loss, NULL, 0, NULL, &loss));
    bench_check(b, tow_value_and_grad(loss, n, wrt, false, &gradient));
    bench_check(b, tow_compile(b->context, gradient, &TOW_COMPILE_OPTIONS(.flush_subnormals = true), &program));
    bench_set(b, "compile_seconds", json_real(bench_now() - start));
    bench_set_program_bytes(b, program);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    tow_params_free(params);
    free(wrt);
}

static void time_steps(bench *b, const shape *s, const tow_module *model, tow_type type, const way *w, tow_group *group)
{
    bench_training t = {0};
    const int count = tow_group_count(group);
    size_t row_groups = (size_t)s->row_groups;
    int begin = 0, end = 1;
    while (row_groups < (size_t)count) row_groups *= 2;
    tow_train_options train = TOW_TRAIN_OPTIONS(
            .optimizer = {.kind = TOW_ADAMW, .learning_rate = tow_schedule_constant(3e-4), .weight_decay = 0.01},
            .n_inputs = 2, .input_types = (tow_type[]){type, type}, .loss = gpt_loss, .early_update = w->early_update,
            .memory_limit = (size_t)w->memory_limit, .row_groups = row_groups, .group = group, .shard = (int)w->stage);
    bench_create_training(b, model, &train, &t);
    tow_group_rows(tow_group_rank(group), count, (int)row_groups, &begin, &end);
    type.dims[0] = type.dims[0] / (int64_t)row_groups * (end - begin);
    for (int i = 0; i < 2; i++) bench_make_batch(b, &t, i, type, (double)s->vocabulary);
    set_bytes(b, t.state);
    bench_run_training(b, &t);
}

/* All that one process of several times. */
typedef struct job {
    bench *b;
    const shape *s;
    const tow_module *model;
    tow_type type;
    const way *w;
} job;

static int time_rank(tow_context *context, tow_group *group, void *user)
{
    const job *j = user;
    j->b->context = context;
    time_steps(j->b, j->s, j->model, j->type, j->w, group);
    return tow_group_rank(group) == 0 ? bench_finish(j->b, useful_flops(j->s)) : 0;
}

/* Processes do not look at the clock: all take the same steps. */
static int time_processes(const job *j, int64_t processes)
{
    bench *b = j->b;
    tow_context *own = NULL;
    const int threads = (int)(b->threads / processes > 0 ? b->threads / processes : 1);
    if (b->steps == 0) b->steps = 10;
    bench_check(b, tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = threads), &own));
    b->context = own;
    bench_check(
        b, tow_processes_run(own, &TOW_PROCESSES_OPTIONS(.count = (int)processes), time_rank, (void *)(uintptr_t)j));
    tow_context_free(own);
    return 0;
}

int main(int argc, char **argv)
{
    static gpt model;
    static tow_precision precision;
    bench b;
    shape s = {.layers = 6, .width = 384, .heads = 6, .context = 256, .batch = 8, .vocabulary = 65, .row_groups = 1};
    const char *policy_text = "none", *dtype = "f32";
    bool unrolled = false, scan = false, only_compile = false;
    int64_t processes = 1;
    way w = {.stage = 0};
    tow_policy *policy = NULL;
    const bench_option options[] = {{"layers", .number = &s.layers, .least = 1},
                                    {"width", .number = &s.width, .least = 1},
                                    {"heads", .number = &s.heads, .least = 1},
                                    {"context", .number = &s.context, .least = 1},
                                    {"batch", .number = &s.batch, .least = 1},
                                    {"vocabulary", .number = &s.vocabulary, .least = 1},
                                    {"row-groups", .number = &s.row_groups, .least = 1, .most = 1 << 16},
                                    {"policy", .text = &policy_text},
                                    {"dtype", .text = &dtype},
                                    {"no-scan", .flag = &unrolled},
                                    {"scan", .flag = &scan},
                                    {"early-update", .flag = &w.early_update},
                                    {"memory-limit", .number = &w.memory_limit, .most = INT64_MAX},
                                    {"processes", .number = &processes, .least = 1, .most = 64},
                                    {"shard", .number = &w.stage, .most = TOW_SHARD_PARAMETERS},
                                    {"only-compile", .flag = &only_compile},
                                    {0}};
    bench_start(&b, "gpt", argc, argv, options);
    if (scan && unrolled) bench_fail("gpt: --scan and --no-scan exclude each other");
    if (strcmp(policy_text, "none") != 0) bench_check(&b, tow_policy_parse(b.context, policy_text, &policy));
    gpt_make(&model, &(gpt_shape){.vocabulary = s.vocabulary,
                                  .layers = s.layers,
                                  .width = s.width,
                                  .heads = s.heads,
                                  .context = s.context,
                                  .policy = policy,
                                  .unrolled = unrolled});
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){s.batch, s.context});
    const tow_module *module = bench_with_dtypes(TOW_MODULE(&model), dtype, &precision);
    if (processes > 1 && !only_compile) return time_processes(&(job){&b, &s, module, type, &w}, processes);
    if (only_compile)
        time_compiling(&b, module, type);
    else
        time_steps(&b, &s, module, type, &w, NULL);
    tow_policy_free(policy);
    return bench_finish(&b, useful_flops(&s));
}
