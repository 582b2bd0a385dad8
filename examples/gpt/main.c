/* Trains a character-level GPT and writes text with it. `gpt --help` lists the options.
 *
 * The whole run is a function of the options: parameters and batches come from the seed and the step, so a run that was
 * stopped, or killed, and resumed gives the same parameters as one that was not, to the last bit. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/common.h"
#include "common/progress.h"
#include "common/text.h"
#include "model.h"
#include "options.h"
#include "processes.h"
#include "report.h"
#include "sample.h"

enum {
    VALIDATION_BATCHES = 4
};

/* Everything that a run owns. */
typedef struct run {
    options options;
    text text;
    tow_context *context;
    tow_group *group;          /* of processes that train together; NULL: this one alone */
    int64_t first_row, n_rows; /* of a batch, of this process */
    tow_policy *policy;
    gpt model;
    tow_train_state *state;
    size_t limit;        /* bytes, or 0 */
    tow_array *batch[2]; /* tokens and labels, i32 [n_rows, context] */
    tow_array *flag;     /* i32[]: what is true of some process; with a group */
    bool has_percent;    /* some process has a limit in percent, for which all plan the step without a limit */
    char *checkpoint;    /* path of the file, or NULL */
    size_t saved_groups; /* row groups with which the checkpoint that is resumed was trained; 0: there is none */
    FILE *trace;         /* until the second step has written it, if it was asked for */
    bool untraced;       /* that failed */
} run;

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static int make_checkpoint_path(run *r)
{
    static const char name[] = "/checkpoint.safetensors";
    const char *directory = r->options.checkpoint;
    if (!directory) return SUCCESS;
    struct stat info;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "gpt: %s: cannot create the directory: %s\n", directory, strerror(errno));
        return FAILURE;
    }
    /* found out now, and not by the first save, after a hundred steps */
    bool other = stat(directory, &info) == 0 && !S_ISDIR(info.st_mode);
    if (other || access(directory, W_OK | X_OK) != 0) {
        fprintf(stderr, "gpt: %s: cannot write checkpoints there: %s\n", directory, strerror(other ? ENOTDIR : errno));
        return FAILURE;
    }
    r->checkpoint = malloc(strlen(directory) + sizeof name);
    if (!r->checkpoint) {
        fprintf(stderr, "gpt: out of memory\n");
        return FAILURE;
    }
    strcpy(r->checkpoint, directory);
    strcat(r->checkpoint, name);
    return SUCCESS;
}

/* The state of the options with this policy and this limit. The model must stay where it is. */
static tow_status create_state(const run *r, const tow_policy *policy, size_t limit, gpt *model,
                               tow_train_state **state)
{
    const options *o = &r->options;
    gpt_make(model, &(gpt_shape){.vocabulary = r->text.vocabulary,
                                 .layers = o->layers,
                                 .width = o->width,
                                 .heads = o->heads,
                                 .context = o->context,
                                 .policy = policy,
                                 .unrolled = o->unrolled,
                                 .dtype = o->dtype == TOW_F32 ? 0 : o->dtype,
                                 .param_dtype = o->param_dtype == TOW_F32 ? 0 : o->param_dtype});
    char description[96]; /* batches are drawn from the seed, so another one would not go on with the same run */
    snprintf(description, sizeof description, "characters %d, hash %016llx, seed %llu", r->text.vocabulary,
             (unsigned long long)text_vocabulary_hash(&r->text), (unsigned long long)o->seed);
    tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){o->batch, o->context});
    int64_t steps = o->steps > 0 ? o->steps : 1;
    tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.kind = TOW_ADAMW,
                                        .learning_rate = tow_schedule_warmup_cosine(0, o->learning_rate, o->warmup,
                                                                                    steps, o->learning_rate / 10),
                                        .b2 = 0.99,
                                        .weight_decay = 0.1,
                                        .clip_norm = o->early_update ? 0 : 1},
                          .early_update = o->early_update, .memory_limit = limit,
                          .verify = o->verify && state == &r->state, .micro_batches = (size_t)o->micro_batches,
                          .row_groups = (size_t)o->row_groups, .master = o->master,
                          .stochastic_rounding = o->stochastic_rounding, .slot_bits = (int)o->slot_bits,
                          .loss_scale = o->dtype == TOW_F16 || o->param_dtype == TOW_F16 ? 65536 : 0, .seed = o->seed,
                          .n_inputs = 2, .input_types = (tow_type[]){type, type}, .loss = gpt_loss,
                          .evaluation = o->eval_every > 0 || o->checkpoint != NULL, .description = description,
                          .group = r->group, .shard = (int)o->shard, .other_row_groups = true);
    return tow_train_create(r->context, TOW_MODULE(&model->whole), &train, state);
}

/* The bytes of a step with this policy without a limit. */
static tow_status plan_without_limit(run *r, const tow_policy *policy, tow_memory_point *point)
{
    tow_train_state *state = NULL;
    gpt model;
    const tow_status status = create_state(r, policy, 0, &model, &state);
    if (status == TOW_OK) *point = tow_program_memory_point(tow_train_program(state));
    tow_train_free(state);
    return status;
}

/* Percents become bytes. Processes make a state together, so all make one if one of them has percents. */
static tow_status find_limit(run *r)
{
    tow_memory_point point;
    r->limit = r->options.memory_limit;
    if (!r->has_percent) return TOW_OK;
    const tow_status status = plan_without_limit(r, r->policy, &point);
    if (status != TOW_OK || !(r->options.limit_percent > 0)) return status;
    const double bytes = r->options.limit_percent / 100 * (double)point.bytes;
    r->limit = bytes < 1 ? 1 : bytes < 9e18 ? (size_t)bytes : SIZE_MAX;
    return TOW_OK;
}

/* The step is compiled from the options, so what fails here is reported as an option that does not fit. */
static int make_state(run *r)
{
    const options *o = &r->options;
    const tow_type type = tow_make_type(TOW_I32, 2, (int64_t[]){r->n_rows, o->context});
    tow_status status = find_limit(r);
    if (status == TOW_OK) status = create_state(r, r->policy, r->limit, &r->model, &r->state);
    if (status == TOW_OK) status = tow_array_create(r->context, type, &r->batch[0]);
    if (status == TOW_OK) status = tow_array_create(r->context, type, &r->batch[1]);
    if (status == TOW_OK) return SUCCESS;
    report_error("gpt", r->context);
    return status == TOW_OUT_OF_MEMORY ? FAILURE : BAD_OPTION;
}

static bool has_checkpoint(const run *r)
{
    struct stat info;
    return stat(r->checkpoint, &info) == 0 || errno != ENOENT;
}

/* A run that goes on does so with its row groups, so that it gives the losses that it would have given; another one
 * has as many as processes. */
static int choose_row_groups(run *r)
{
    options *o = &r->options;
    int64_t groups = 1;
    if (o->resume && has_checkpoint(r) &&
        tow_train_saved_row_groups(r->context, r->checkpoint, &r->saved_groups) != TOW_OK)
        return report_error("gpt", r->context);
    if (o->row_groups > 0) return SUCCESS;
    while (groups < o->processes) groups *= 2;
    o->row_groups = r->saved_groups > 0 ? (int64_t)r->saved_groups : groups;
    return SUCCESS;
}

static int resume(run *r)
{
    const long long groups = (long long)r->options.row_groups;
    if (!r->options.resume) return SUCCESS;
    if (!has_checkpoint(r)) {
        printf("%s: no checkpoint yet; starting at step 0\n", r->checkpoint);
        return SUCCESS;
    }
    if (tow_train_load(r->state, r->checkpoint) != TOW_OK) return report_error("gpt", r->context);
    const int64_t done = tow_train_step_count(r->state);
    printf("%s: going on after step %lld\n", r->checkpoint, (long long)done);
    if (r->saved_groups > 0 && (long long)r->saved_groups != groups)
        printf(
            "it was trained with --row-groups %zu: with %lld, sums over the batch are made in another order from here "
            "on, and losses may differ in their last bits\n",
            r->saved_groups, groups);
    if (done >= r->options.steps)
        printf("nothing is left to train: --steps %lld counts those before, too\n", (long long)r->options.steps);
    return SUCCESS;
}

/* Is it asked what processes will do that are not there? */
static bool plans_alone(const options *o) { return o->processes > 1 && o->steps == 0; }

/* ---- several processes ------------------------------------------------------------------------------------------- */

/* Is it true of one of the processes? */
static bool is_true_of_any(run *r, bool own)
{
    if (!r->group || plans_alone(&r->options)) return own;
    int32_t *flag = tow_array_data(r->flag);
    *flag = own;
    if (tow_group_all_reduce(r->group, (int)r->options.row_groups, r->flag) != TOW_OK)
        tow_group_abort(r->group, FAILURE, "%s", tow_context_error(r->context));
    return *flag != 0;
}

/* Finds the rows of this process, and that all have been told the same. */
static int join_processes(run *r)
{
    const options *o = &r->options;
    const int count = tow_group_count(r->group);
    int begin = 0, end = 1;
    char numbers[240], characters[80];
    r->n_rows = o->batch;
    r->has_percent = o->limit_percent > 0;
    if (!r->group) return SUCCESS;
    if (o->row_groups > INT32_MAX || o->batch % o->row_groups != 0 ||
        tow_group_rows(tow_group_rank(r->group), count, (int)o->row_groups, &begin, &end) != TOW_OK) {
        fprintf(stderr,
                "gpt: expected --row-groups of at least %d, the number of processes, a power of two that divides "
                "--batch %lld, found %lld%s\n",
                count, (long long)o->batch, (long long)o->row_groups,
                (int64_t)r->saved_groups == o->row_groups
                    ? " in the checkpoint; another number goes on with sums in another order"
                    : "");
        return BAD_OPTION;
    }
    r->first_row = o->batch / o->row_groups * begin;
    r->n_rows = o->batch / o->row_groups * (end - begin);
    if (tow_group_rank(r->group) > 0 && !plans_alone(&r->options)) {
        r->options.log = r->options.tensorboard = r->options.plan = r->options.memory = r->options.html = NULL;
        r->options.graph = r->options.trace = NULL;
        r->options.residuals = r->options.why = r->options.instructions = false;
        if (r->options.curve) r->options.curve = "/dev/null";
        if (!freopen("/dev/null", "w", stdout)) return FAILURE;
    }
    snprintf(numbers, sizeof numbers,
             "%lld, learning rate %g, warm-up %lld, save every %lld, evaluate every %lld%s%s%s", (long long)o->steps,
             o->learning_rate, (long long)o->warmup, (long long)o->save_every, (long long)o->eval_every,
             o->checkpoint ? ", with checkpoint" : "", o->resume ? ", resume" : "", o->curve ? ", curve" : "");
    snprintf(characters, sizeof characters, "%zu characters, vocabulary hash %016llx", r->text.size,
             (unsigned long long)text_vocabulary_hash(&r->text));
    const tow_group_fact facts[] = {{"the number of steps", numbers}, {"the text", characters}};
    if (tow_group_check_same(r->group, 2, facts) != TOW_OK) return report_error("gpt", r->context);
    const tow_type flag = tow_make_type(TOW_I32, 0, NULL);
    if (tow_array_create(r->context, flag, &r->flag) != TOW_OK) return report_error("gpt", r->context);
    r->has_percent = is_true_of_any(r, r->has_percent);
    return SUCCESS;
}

/* Was this process interrupted, or one of the others? They all stop after the same step. */
static bool is_interrupted(run *r) { return is_true_of_any(r, interrupted() || (r->group && asked_to_end())); }

/* They have read the same checkpoint, or all none. */
static int check_resumed(const run *r)
{
    char step[32];
    snprintf(step, sizeof step, "%lld", (long long)tow_train_step_count(r->state));
    const tow_group_fact fact = {"the step of the checkpoint", step};
    return tow_group_check_same(r->group, 1, &fact) == TOW_OK ? SUCCESS : report_error("gpt", r->context);
}

static int prepare(run *r)
{
    const options *o = &r->options;
    if (o->policy && tow_policy_parse(r->context, o->policy, &r->policy) != TOW_OK) {
        fprintf(stderr, "gpt: --policy %s: %s\n", o->policy, tow_context_error(r->context));
        return BAD_OPTION;
    }
    if (!text_read(&r->text, "gpt", o->text, (size_t)o->context)) return FAILURE;
    int status = make_checkpoint_path(r);
    if (status == SUCCESS) status = choose_row_groups(r);
    if (status == SUCCESS) status = join_processes(r);
    if (status == SUCCESS) status = make_state(r);
    if (status == SUCCESS) status = resume(r);
    if (status == SUCCESS) status = check_resumed(r);
    return status;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static void fill_batch(run *r, split part, uint64_t position)
{
    const options *o = &r->options;
    text_batch(&r->text, part, o->seed, position + (uint64_t)r->first_row, (size_t)r->n_rows, (size_t)o->context,
               tow_array_data(r->batch[0]), tow_array_data(r->batch[1]));
}

/* Mean loss over the same few batches every time; NAN after an error. */
static double validation_loss(run *r)
{
    double sum = 0, loss;
    for (int i = 0; i < VALIDATION_BATCHES; i++) {
        fill_batch(r, VALIDATION, (uint64_t)(i * r->options.batch));
        if (tow_train_evaluate(r->state, r->batch, &loss) != TOW_OK) return NAN;
        sum += loss;
    }
    return sum / VALIDATION_BATCHES;
}

static bool due(int64_t step, int64_t every, int64_t last) { return every > 0 && (step % every == 0 || step == last); }

static void complain_of_trace(run *r, const char *why)
{
    fprintf(stderr, "gpt: %s: cannot write the trace: %s\n", r->options.trace, why);
    r->untraced = true;
}

/* Obstacles to a trace are found out now, and not after training. */
static int open_trace(run *r)
{
    if (!r->options.trace) return SUCCESS;
    if (r->options.steps - tow_train_step_count(r->state) < 2) {
        complain_of_trace(r, "it is that of the second step, and fewer are left; use more --steps");
        return FAILURE;
    }
    r->trace = fopen(r->options.trace, "w");
    if (r->trace) return SUCCESS;
    complain_of_trace(r, strerror(errno));
    return FAILURE;
}

/* A step that leaves a trace. A disk that is full by then does not end the run, but lets it fail in the end. */
static tow_status traced_step(run *r, double *loss)
{
    tow_status status = tow_train_step_with(r->state, r->batch, loss, r->trace);
    int error = errno;
    bool written = status != TOW_IO_ERROR;
    if (fclose(r->trace) != 0 && written) {
        error = errno;
        written = false;
    }
    r->trace = NULL;
    if (!written) complain_of_trace(r, strerror(error));
    return status == TOW_IO_ERROR ? TOW_OK : status;
}

/* An update can leave parameters whose loss is not finite: such ones must not replace a checkpoint that is good. A disk
 * that is full, or a file that is being written by another process, may be only for now: if further saves follow, the
 * run goes on. */
static int save(run *r, bool last)
{
    double loss;
    if (tow_train_evaluate(r->state, r->batch, &loss) != TOW_OK) return report_error("gpt", r->context);
    if (!isfinite(loss)) {
        fprintf(stderr,
                "gpt: the parameters after step %lld give a loss that is not finite; %s was left as it was; go on from "
                "it, if it is there, with a smaller --learning-rate\n",
                (long long)tow_train_step_count(r->state), r->checkpoint);
        return FAILURE;
    }
    if (tow_train_save_all(r->state, r->group, r->checkpoint) == TOW_OK) return SUCCESS;
    if (!last && isatty(STDOUT_FILENO)) puts(""); /* ends the line of the bar */
    report_error("gpt", r->context);
    if (last) return FAILURE;
    fprintf(stderr, "gpt: nothing was saved after step %lld; training goes on, and the next save tries again\n",
            (long long)tow_train_step_count(r->state));
    return SUCCESS;
}

/* One step and what follows it. */
static int step(run *r, progress *p)
{
    const options *o = &r->options;
    double loss, val_loss = NAN;
    uint64_t position = tow_train_data_position(r->state);
    fill_batch(r, TRAIN, position);
    bool traced = r->trace != NULL && tow_train_step_count(r->state) == p->options.first + 1;
    if ((traced ? traced_step(r, &loss) : tow_train_step(r->state, r->batch, &loss)) != TOW_OK)
        return report_error("gpt", r->context);
    tow_train_set_data_position(r->state, position + (uint64_t)o->batch);
    if (!isfinite(loss)) {
        fprintf(stderr,
                "gpt: the loss of step %lld is not finite; nothing was saved after it; use a smaller "
                "--learning-rate, or go on from an earlier checkpoint\n",
                (long long)tow_train_step_count(r->state));
        return FAILURE;
    }
    int64_t done = tow_train_step_count(r->state);
    if (due(done, o->eval_every, o->steps) || (o->eval_every > 0 && done == 1)) {
        val_loss = validation_loss(r);
        if (isnan(val_loss) && tow_context_status(r->context) != TOW_OK) return report_error("gpt", r->context);
    }
    if (!progress_step(p, done, loss, val_loss)) return FAILURE;
    bool saves = r->checkpoint != NULL && (due(done, o->save_every, o->steps) || done == o->steps);
    return saves ? save(r, done == o->steps) : SUCCESS;
}

static int train(run *r)
{
    const options *o = &r->options;
    progress p;
    const progress_options shown = {.program = "gpt",
                                    .first = tow_train_step_count(r->state),
                                    .steps = o->steps,
                                    .unit = "tokens",
                                    .units_per_step = o->batch * o->context,
                                    .log = o->log,
                                    .events = o->tensorboard};
    if (!progress_start(&p, &shown)) return FAILURE;
    int status = SUCCESS;
    catch_interrupts();
    bool stopped = is_interrupted(r);
    while (status == SUCCESS && !stopped && tow_train_step_count(r->state) < o->steps) {
        status = step(r, &p);
        if (status == SUCCESS) stopped = is_interrupted(r);
    }
    if (!progress_end(&p) && status == SUCCESS) status = FAILURE;
    const long long steps = (long long)(tow_train_step_count(r->state) - shown.first);
    if (o->verify && status == SUCCESS)
        printf("verified: %llu values that were made again in each of %lld steps, all equal to the first ones bit by "
               "bit\n",
               count_compared(r->state), steps);
    if (status != SUCCESS || !stopped) return status;
    if (r->checkpoint && (status = save(r, true)) != SUCCESS) return status;
    if (r->checkpoint)
        printf("stopped after step %lld; saved to %s; add --resume to go on\n",
               (long long)tow_train_step_count(r->state), r->checkpoint);
    else
        printf("stopped after step %lld; nothing saved, as there was no --checkpoint\n",
               (long long)tow_train_step_count(r->state));
    return INTERRUPTED;
}

/* ---- the curve --------------------------------------------------------------------------------------------------- */

/* The plan of a step with the policy for each block, without a limit. */
static tow_status mark_policy(run *r, const char *name, tow_memory_mark *mark)
{
    tow_policy *policy = NULL;
    tow_status status = tow_policy_parse(r->context, name, &policy);
    if (status == TOW_OK) status = plan_without_limit(r, policy, &mark->point);
    mark->name = name;
    tow_policy_free(policy);
    return status;
}

static int report_curve(run *r)
{
    static const char *const policies[] = {"everything", "nothing", "dots", "dots_with_no_batch_dims",
                                           "names:attn_out,mlp_pre"};
    enum {
        POLICIES = sizeof policies / sizeof *policies,
        MARKS = 1 + POLICIES
    };
    tow_memory_mark marks[MARKS] = {{"no limit", {0}}};
    tow_memory_point *points = NULL;
    size_t n = 0;
    tow_status status = tow_train_memory_curve(r->state, 0, NULL, &n);
    if (status == TOW_OK && !(points = malloc(n * sizeof *points))) {
        fprintf(stderr, "gpt: out of memory\n");
        return FAILURE;
    }
    if (status == TOW_OK) status = tow_train_memory_curve(r->state, n, points, &n);
    if (status == TOW_OK) status = plan_without_limit(r, r->policy, &marks[0].point);
    for (size_t i = 0; i < POLICIES && status == TOW_OK; i++) status = mark_policy(r, policies[i], &marks[1 + i]);
    if (status == TOW_OK) status = tow_memory_curve_draw(r->context, r->options.curve, n, points, MARKS, marks);
    if (status == TOW_OK) report_plans(n, points, MARKS, marks);
    free(points);
    return status == TOW_OK ? SUCCESS : report_error("gpt", r->context);
}

static int report(run *r)
{
    const options *o = &r->options;
    char machine[1024];
    tow_context_describe(r->context, machine, sizeof machine);
    printf("%s\n%s: %zu characters, %d different ones\n\n", machine, o->text, r->text.size, r->text.vocabulary);
    report_parameters(r->state);
    report_plan(r->state);
    if (r->group) report_exchange(r->state, r->group, o->bandwidth, o->latency);
    if (r->limit) report_limit(r->state, r->limit);
    if (o->verify) printf("  verify: a step compares %llu values that it makes again\n", count_compared(r->state));
    putchar('\n');
    if (o->instructions && !report_instructions(r->state)) return FAILURE;
    if ((o->residuals || o->why) && report_residuals(r->state, r->limit > 0, o->why) != TOW_OK)
        return report_error("gpt", r->context);
    if (o->curve && report_curve(r) != SUCCESS) return FAILURE;
    if (o->plan && !write_plan(r->state, o->plan, o->bandwidth, o->latency)) return FAILURE;
    if (o->memory && !write_memory(r->state, o->memory)) return FAILURE;
    if (o->graph && !write_graph(r->state, o->graph)) return FAILURE;
    if (o->html && tow_program_write_html(tow_train_program(r->state), NULL, o->html) != TOW_OK)
        return report_error("gpt", r->context);
    fflush(stdout);
    return SUCCESS;
}

static int finish(run *r)
{
    const options *o = &r->options;
    if (o->sample == 0 || o->steps == 0) return SUCCESS;
    tow_params *params;
    tow_status status = tow_params_gather(tow_train_params(r->state), &params); /* whole ones, in all processes */
    if (status == TOW_OK && tow_group_rank(r->group) == 0) {
        printf("\ntext from the model:\n\n");
        status = sample_text(r->context, &r->model, params, &r->text, o->context, o->seed, o->sample);
    }
    tow_params_free(params);
    return status == TOW_OK ? SUCCESS : report_error("gpt", r->context);
}

static void run_free(run *r)
{
    tow_array_release(r->batch[0]);
    tow_array_release(r->batch[1]);
    tow_array_release(r->flag);
    tow_train_free(r->state);
    if (r->context) tow_policy_free(r->policy);
    if (r->trace) fclose(r->trace);
    text_free(&r->text);
    free(r->checkpoint);
}

/* The whole run, in each of its processes. One that fails ends the others, which would wait for it. */
static int work(tow_context *context, tow_group *group, void *user)
{
    run *r = user;
    r->context = context;
    r->group = group;
    int status = prepare(r);
    if (status == SUCCESS) status = report(r);
    if (status == SUCCESS && plans_alone(&r->options)) {
        run_free(r);
        return finish_output("gpt", status);
    }
    if (status == SUCCESS) status = open_trace(r);
    if (status == SUCCESS) status = train(r);
    if (status == SUCCESS) status = finish(r);
    if (status == SUCCESS && r->untraced) status = FAILURE;
    status = finish_output("gpt", status);
    if (group && status != SUCCESS && status != INTERRUPTED)
        tow_group_abort(group, status, "ends the run, for the reason above");
    run_free(r);
    return status;
}

int main(int argc, char **argv)
{
    static run r;
    tow_context *context = NULL;
    read_options(argc, argv, &r.options);
    int status = SUCCESS;
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = r.options.threads), &context) != TOW_OK)
        status = report_error("gpt", context);
    const options *o = &r.options;
    if (status == SUCCESS)
        status = plans_alone(o) ? plan_for_processes(context, o->rank, o->processes, work, &r)
                                : run_in_processes(context, o->processes, (double)o->watchdog, work, &r);
    tow_context_free(context);
    return status;
}
