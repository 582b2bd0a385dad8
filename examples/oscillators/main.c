/* The gradient of a million steps of an integrator, in double precision and 64 MiB. Coupled oscillators in a ring go
 * into step; the loss is how far they are from it. `oscillators --help` lists the options. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "common/options.h"

typedef struct task {
    int64_t steps, oscillators, memory, slots, file_slots, threads;
    const char *folder;
    bool compare;
    bool keeps_all; /* what --compare compares with */
    tow_value coupling, frequency;
} task;

/* ---- the equation ------------------------------------------------------------------------------------------------ */

/* x' = w + k (sin(left - x) + sin(right - x)) (Kuramoto, 1975) */
static tow_value slope(const task *t, tow_value x)
{
    const tow_value left = tow_sin(tow_sub(tow_roll(x, 1, 0), x)), right = tow_sin(tow_sub(tow_roll(x, -1, 0), x));
    return tow_add(t->frequency, tow_mul(t->coupling, tow_add(left, right)));
}

/* A step of Heun's method. */
static void step(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const task *t = user;
    const double h = 1e-3;
    (void)trace;
    const tow_value first = slope(t, in[0]), second = slope(t, tow_add(in[0], tow_mul_scalar(first, h)));
    out[0] = tow_add(in[0], tow_mul_scalar(tow_add(first, second), h / 2));
}

/* in: coupling [], frequencies [n], angles [n] at the beginning; the loss is the mean of 1 - cos(neighbor - x) */
static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    task *t = user;
    tow_scan_options options = TOW_SCAN_OPTIONS(.length = t->steps);
    if (!t->keeps_all) options.schedule = (tow_scan_schedule){.slots = t->slots, .file_slots = t->file_slots};
    tow_value last;
    t->coupling = in[0], t->frequency = in[1];
    tow_scan_function(trace, step, t, &options, 1, &in[2], 0, NULL, 0, &last, NULL);
    const tow_value near = tow_cos(tow_sub(tow_roll(last, 1, 0), last));
    out[0] = tow_add_scalar(tow_neg(tow_mean(near, 0, NULL)), 1);
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

enum {
    INPUTS = 3,
    OUTPUTS = 4 /* the loss, and the gradient of each input */
};

static void list_types(const task *t, tow_type types[INPUTS])
{
    types[0] = tow_make_type(TOW_F64, 0, NULL);
    types[1] = types[2] = tow_make_type(TOW_F64, 1, &t->oscillators);
}

static tow_status compile(tow_context *context, task *t, bool plan_only, tow_program **program)
{
    tow_graph *graph = NULL, *gradient = NULL;
    tow_type types[INPUTS];
    list_types(t, types);
    tow_status status = tow_trace_function(context, loss, t, INPUTS, types, NULL, 1, &graph);
    if (!status) status = tow_value_and_grad(graph, INPUTS, (const size_t[]){0, 1, 2}, false, &gradient);
    if (!status) status = tow_compile(context, gradient, &TOW_COMPILE_OPTIONS(.plan_only = plan_only), program);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    return status;
}

static size_t bytes_of(const tow_program *program)
{
    const tow_program_bytes bytes = tow_program_get_bytes(program);
    return bytes.inputs + bytes.outputs + bytes.arena + bytes.constants;
}

/* Bytes of a plan with so many slots. */
static tow_status plan_bytes(tow_context *context, task *t, int64_t slots, size_t *bytes)
{
    tow_program *program = NULL;
    t->slots = slots;
    const tow_status status = compile(context, t, true, &program);
    if (!status) *bytes = bytes_of(program);
    tow_program_free(program);
    return status;
}

/* Sets the most slots with which the program keeps within --memory: each takes as many bytes as another one. */
static tow_status choose_slots(tow_context *context, task *t)
{
    const int64_t limit = t->memory << 20, some = 1000;
    size_t few, more;
    if (t->slots > 0) return TOW_OK;
    tow_status status = plan_bytes(context, t, some, &few);
    if (!status) status = plan_bytes(context, t, 2 * some, &more);
    if (status) return status;
    const int64_t each = ((int64_t)more - (int64_t)few + some - 1) / some, left = limit - (int64_t)few;
    t->slots = each > 0 ? some + left / each : t->steps;
    if (t->slots > t->steps) t->slots = t->steps;
    if (t->slots < 1) t->slots = 1;
    for (status = plan_bytes(context, t, t->slots, &more); !status && (int64_t)more > limit && t->slots > 1;)
        status = plan_bytes(context, t, t->slots - 1, &more);
    return status;
}

/* Steps that run forward, those beside their derivatives included: n + t n - C(s + t, t - 1) + 1, with the least t for
 * which C(s + t, t) >= n. */
static int64_t forward_steps(int64_t n, int64_t slots, int64_t *repetitions)
{
    double reach = 1, less = 1; /* C(s + t, t), C(s + t, t - 1) */
    int64_t t = 0;
    if (slots >= n) slots = n - 1;
    for (; slots > 0 && reach < (double)n; less = reach * (double)t / (double)(slots + 1))
        t++, reach = reach * (double)(slots + t) / (double)t;
    *repetitions = t;
    return t == 0 ? n : n + t * n - (int64_t)llround(less) + 1;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

/* Loss and gradients of a program; *seconds: what the run takes. */
static tow_status run(tow_context *context, const task *t, tow_program *program, tow_array *out[OUTPUTS],
                      double *seconds)
{
    tow_array *in[INPUTS] = {0};
    tow_type types[INPUTS];
    tow_status status = TOW_OK;
    list_types(t, types);
    for (int i = 0; i < INPUTS && !status; i++) {
        status = tow_array_create(context, types[i], &in[i]);
        const int64_t n = status ? 0 : tow_type_element_count(types[i]);
        for (int64_t j = 0; j < n; j++)
            ((double *)tow_array_data(in[i]))[j] = i == 0 ? 2 : random_normal((uint64_t)i, (uint64_t)j) / 3;
    }
    for (int i = 0; i < OUTPUTS && !status; i++) status = tow_array_create(context, types[i ? i - 1 : 0], &out[i]);
    const double before = seconds_now();
    if (!status) status = tow_program_run(program, in, out);
    *seconds = seconds_now() - before;
    for (int i = 0; i < INPUTS; i++) tow_array_release(in[i]);
    return status;
}

static double norm(const tow_array *a)
{
    double sum = 0;
    const double *x = tow_array_data(a);
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(a)); i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void print(const task *t, const tow_program *program, tow_array *const out[OUTPUTS], double seconds)
{
    int64_t repetitions;
    const int64_t forward = forward_steps(t->steps, t->slots + t->file_slots, &repetitions);
    printf("steps                 %12" PRId64 "\n", t->steps);
    printf("states kept           %12" PRId64 " in memory, %" PRId64 " in a file\n", t->slots, t->file_slots);
    printf("steps forward         %12" PRId64 ", each at most %" PRId64 " times and once beside its derivative\n",
           forward, repetitions);
    printf("bytes of memory       %12zu\n", bytes_of(program));
    printf("bytes of all states   %12" PRId64 "\n", t->steps * t->oscillators * (int64_t)sizeof(double));
    printf("seconds               %12.2f\n", seconds);
    printf("loss                  %12.9f\n", *(const double *)tow_array_data(out[0]));
    printf("d loss / d coupling   %12.9f\n", *(const double *)tow_array_data(out[1]));
    printf("norm of d frequencies %12.9f\n", norm(out[2]));
}

/* Compares with the loop that keeps what each step computes. */
static tow_status compare(tow_context *context, task *t, tow_array *const out[OUTPUTS])
{
    tow_array *expected[OUTPUTS] = {0};
    tow_program *program = NULL;
    double seconds;
    t->keeps_all = true;
    tow_status status = compile(context, t, false, &program);
    if (!status) status = run(context, t, program, expected, &seconds);
    bool same = true;
    for (int i = 0; i < OUTPUTS && !status; i++)
        same &=
            memcmp(tow_array_data(out[i]), tow_array_data(expected[i]), tow_type_bytes(tow_array_type(out[i]))) == 0;
    if (!status)
        printf("without a schedule    %12zu bytes, %s\n", bytes_of(program), same ? "the same bits" : "OTHER BITS");
    for (int i = 0; i < OUTPUTS; i++) tow_array_release(expected[i]);
    tow_program_free(program);
    return status;
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

static tow_status differentiate(tow_context *context, task *t)
{
    tow_program *program = NULL;
    tow_array *out[OUTPUTS] = {0};
    double seconds = 0;
    tow_status status = choose_slots(context, t);
    if (!status) status = compile(context, t, false, &program);
    if (!status) status = run(context, t, program, out, &seconds);
    if (!status) print(t, program, out, seconds);
    if (!status && t->compare) status = compare(context, t, out);
    for (int i = 0; i < OUTPUTS; i++) tow_array_release(out[i]);
    tow_program_free(program);
    return status;
}

int main(int argc, char **argv)
{
    task t = {.steps = 1000000, .oscillators = 256, .memory = 64};
    const example_option table[] = {
        {"steps", "N", "Steps of the integrator", OPTION_WHOLE, &t.steps, 1, INT32_MAX},
        {"oscillators", "N", "Numbers in a state", OPTION_WHOLE, &t.oscillators, 2, 1 << 20},
        {"memory", "MIB", "What the program may take", OPTION_WHOLE, &t.memory, 1, 1 << 20},
        {"slots", "N", "States in memory, in place of --memory", OPTION_WHOLE, &t.slots, 1, INT32_MAX},
        {"file-slots", "N", "States in a file besides", OPTION_WHOLE, &t.file_slots, 0, INT32_MAX},
        {"folder", "DIR", "Where the file is (TMPDIR, or /var/tmp)", OPTION_PATH, (void *)&t.folder, 0, 0},
        {"threads", "N", "Threads (as many as the CPUs that may be used)", OPTION_WHOLE, &t.threads, 1, 1024},
        {"compare", NULL, "Compare with the gradient of the loop that keeps everything", OPTION_FLAG, &t.compare, 0, 0},
        {0}};
    read_command_line(argc, argv, "oscillators",
                      "Differentiates a million steps of coupled oscillators within a limit of memory.", table);
    tow_context *context = NULL;
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = (int)t.threads, .scratch_folder = t.folder);
    tow_status status = tow_context_create(&options, &context);
    if (!status) status = differentiate(context, &t);
    if (status) report_error("oscillators", context);
    const int result = finish_output("oscillators", status ? FAILURE : SUCCESS);
    tow_context_free(context);
    return result;
}
