/* Seconds of value and gradients within memory limits, by the clock.
 *
 *     memory_clock --model gpt-small [--limits 20] [--from 0 --count 20] [--steps 20] [--unrolled | --policies]
 *
 * Limits lie evenly between the fewest bytes that are possible and those of the plan of least time. All plans are made
 * first. Then they run in turns, each once in every round, so that a machine that others use is as slow for all of
 * them, and the median of each counts. "rise": the most that a plan takes beside one within a smaller limit.
 *
 * --unrolled: beside each plan that of the model without a loop over its layers, within the same limit.
 * --policies: in place of limits, JAX's policies around each layer, and beside each the plan without regions within a
 * limit of the bytes that the policy takes. "beside": the most that a plan takes of the time of the one beside it (with
 * policies, the plan within the limit of the time of the policy). --from, --count: those limits or policies alone. */
#include <math.h>
#include <stdlib.h>

#include "memory_models.h"

enum {
    POINTS = 512, /* of a curve, at most */
    ROWS = 64     /* limits or policies, at most */
};

/* A gradient and the arrays that its plans share. */
typedef struct form {
    tow_graph *gradient;
    size_t n_in, n_out;
    tow_array **in, **out;
    size_t least, most; /* bytes of its curve */
} form;

typedef struct plan {
    const form *form;
    tow_program *program;
    tow_memory_point point;
    double *seconds; /* [rounds] */
    double best, median;
} plan;

/* A plan, and the one beside it. */
typedef struct row {
    const char *name;
    size_t limit;
    const plan *plan, *beside;
} row;

typedef struct clocked {
    bench *b;
    tow_compile_options options;
    plan plans[2 * ROWS];
    uint32_t n_plans;
    row rows[ROWS];
    uint32_t n_rows;
    int64_t rounds;
} clocked;

/* ---- forms ------------------------------------------------------------------------------------------------------- */

static void make_arrays(const bench *b, form *f)
{
    f->n_in = tow_graph_input_count(f->gradient);
    f->n_out = tow_graph_output_count(f->gradient);
    f->in = calloc(f->n_in + 1, sizeof *f->in);
    f->out = calloc(f->n_out + 1, sizeof *f->out);
    if (!f->in || !f->out) bench_fail("memory_clock: out of memory");
    for (size_t i = 0; i < f->n_in; i++) {
        const tow_type type = tow_graph_input_type(f->gradient, i);
        bench_check(b, tow_array_create(b->context, type, &f->in[i]));
        bench_fill(f->in[i], i, type.dtype == TOW_I32 ? 2 : 0.1);
    }
    for (size_t i = 0; i < f->n_out; i++)
        bench_check(b, tow_array_create(b->context, tow_graph_output_type(f->gradient, i), &f->out[i]));
}

static void make_form(const clocked *c, const memory_model *m, bool unrolled, form *f)
{
    tow_memory_point points[POINTS];
    size_t n = 0;
    f->gradient = memory_gradient(c->b, m, NULL, unrolled);
    make_arrays(c->b, f);
    bench_check(c->b, tow_memory_curve(c->b->context, f->gradient, &c->options, POINTS, points, &n));
    f->least = points[0].bytes;
    f->most = points[(n < POINTS ? n : POINTS) - 1].bytes;
}

static void free_form(form *f)
{
    for (size_t i = 0; i < f->n_in; i++) tow_array_release(f->in[i]);
    for (size_t i = 0; i < f->n_out; i++) tow_array_release(f->out[i]);
    free(f->in);
    free(f->out);
    tow_graph_release(f->gradient);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* The plan of this graph, which has the inputs and outputs of the form, within the limit; 0: none. Plans of the same
 * bytes within limits are one. */
static const plan *add_plan(clocked *c, const form *f, const tow_graph *graph, size_t limit)
{
    tow_compile_options options = c->options;
    plan *p = &c->plans[c->n_plans];
    options.memory_limit = limit;
    *p = (plan){.form = f};
    bench_check(c->b, tow_compile(c->b->context, graph, &options, &p->program));
    p->point = tow_program_memory_point(p->program);
    for (uint32_t i = 0; i < c->n_plans && limit > 0; i++) {
        if (c->plans[i].form != f || c->plans[i].point.bytes != p->point.bytes) continue;
        tow_program_free(p->program);
        return &c->plans[i];
    }
    p->seconds = calloc((size_t)c->rounds, sizeof *p->seconds);
    if (!p->seconds) bench_fail("memory_clock: out of memory");
    c->n_plans++;
    return p;
}

static void add_limits(clocked *c, const form *f, const form *beside, int64_t limits, int64_t from, int64_t count)
{
    const size_t least = beside && beside->least > f->least ? beside->least : f->least;
    for (int64_t i = from; i < limits && i < from + count; i++) {
        row *r = &c->rows[c->n_rows++];
        r->limit = least + (size_t)((double)(f->most - least) * (double)i / (double)(limits > 1 ? limits - 1 : 1));
        r->plan = add_plan(c, f, f->gradient, r->limit);
        if (beside) r->beside = add_plan(c, beside, beside->gradient, r->limit);
    }
}

static void add_policies(clocked *c, const memory_model *m, const form *f, int64_t from, int64_t count)
{
    static const char *const names[] = {"nothing", "dots_with_no_batch_dims", "dots", "everything"};
    for (int64_t i = from; i < (int64_t)(sizeof names / sizeof *names) && i < from + count; i++) {
        row *r = &c->rows[c->n_rows++];
        tow_policy *policy = NULL;
        bench_check(c->b, tow_policy_parse(c->b->context, names[i], &policy));
        tow_graph *gradient = memory_gradient(c->b, m, policy, false);
        r->name = names[i];
        r->beside = add_plan(c, f, gradient, 0);
        r->limit = r->beside->point.bytes;
        r->plan = add_plan(c, f, f->gradient, r->limit);
        tow_graph_release(gradient);
        tow_policy_free(policy);
    }
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_all(clocked *c)
{
    for (int64_t round = -1; round < c->rounds; round++) /* the first one warms up */
        for (uint32_t i = 0; i < c->n_plans; i++) {
            const plan *p = &c->plans[i];
            const double start = bench_now();
            bench_check(c->b, tow_program_run(p->program, p->form->in, p->form->out));
            if (round >= 0) p->seconds[round] = bench_now() - start;
        }
    for (uint32_t i = 0; i < c->n_plans; i++) {
        plan *p = &c->plans[i];
        qsort(p->seconds, (size_t)c->rounds, sizeof *p->seconds, compare);
        p->best = p->seconds[0];
        p->median = p->seconds[c->rounds / 2];
    }
}

/* ---- report ------------------------------------------------------------------------------------------------------ */

static json_t *json_plan(const plan *p)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "bytes", (json_int_t)p->point.bytes, "flops", p->point.flops,
                     "modelled_seconds", p->point.seconds, "best_seconds", p->best, "seconds", p->median);
}

static void report_rows(const clocked *c)
{
    double fastest = INFINITY, rise = 0, beside = 0;
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const row *r = &c->rows[i];
        json_t *line =
            json_pack("{s:s*, s:I, s:o}", "policy", r->name, "limit", (json_int_t)r->limit, "plan", json_plan(r->plan));
        if (r->beside) json_object_set_new(line, "beside", json_plan(r->beside));
        json_array_append_new(list, line);
        if (!r->name) rise = fmax(rise, r->plan->median / fastest);
        fastest = fmin(fastest, r->plan->median);
        if (r->beside) beside = fmax(beside, r->plan->median / r->beside->median);
    }
    bench_set(c->b, "rows", list);
    if (rise > 0) bench_set(c->b, "rise", json_real(rise));
    if (beside > 0) bench_set(c->b, "beside", json_real(beside));
}

int main(int argc, char **argv)
{
    static clocked c;
    bench b;
    const char *name = "gpt-small";
    int64_t limits = 20, from = 0, count = ROWS;
    bool unrolled = false, policies = false;
    form f = {0}, other = {0};
    const bench_option options[] = {{"model", .text = &name},
                                    {"limits", .number = &limits, .least = 1, .most = ROWS},
                                    {"from", .number = &from, .most = ROWS},
                                    {"count", .number = &count, .least = 1, .most = ROWS},
                                    {"unrolled", .flag = &unrolled},
                                    {"policies", .flag = &policies},
                                    {0}};
    bench_start(&b, "memory_clock", argc, argv, options);
    const memory_model *m = memory_model_named(name);
    if (unrolled && policies) bench_fail("memory_clock: --unrolled and --policies exclude each other");
    if (unrolled && !m->has_loop) bench_fail("memory_clock: --unrolled: %s has no loop over layers", name);
    c = (clocked){.b = &b, .rounds = b.steps > 0 ? b.steps : 20};
    c.options = TOW_COMPILE_OPTIONS(.threads = (int)b.threads, .flush_subnormals = true);
    bench_check(&b, tow_shared_arena_create(b.context, &c.options.shared_arena));
    make_form(&c, m, false, &f);
    if (unrolled) make_form(&c, m, true, &other);
    if (policies)
        add_policies(&c, m, &f, from, count);
    else
        add_limits(&c, &f, unrolled ? &other : NULL, limits, from, count);
    run_all(&c);
    report_rows(&c);
    for (uint32_t i = 0; i < c.n_plans; i++) {
        tow_program_free(c.plans[i].program);
        free(c.plans[i].seconds);
    }
    free_form(&f);
    free_form(&other);
    tow_shared_arena_release(c.options.shared_arena);
    return bench_finish(&b, 0);
}
