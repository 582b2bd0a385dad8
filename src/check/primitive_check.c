/* tow_primitive_check: the checks of src/check on cases of a primitive that a user has defined. */
#include "src/check/check.h"

#include "src/base/base.h"
#include "src/base/options.h"
#include "tow/autodiff.h"

const char *tow_check_name(tow_check_kind kind)
{
    static const char *const names[] = {
#define X(symbol, name, what) [symbol] = name,
        TOW_CHECK_LIST(X)
#undef X
    };
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

typedef struct checking {
    tow_context *ctx;
    const tow_primitive *primitive;
    const tow_check_options *options;
    tow_check_summary summary;
    bool out_of_memory;
    char first[1024]; /* what is said of the first failure */
} checking;

/* ---- reports ----------------------------------------------------------------------------------------------------- */

static void take(const tow_check_failure *failure, void *user)
{
    checking *s = user;
    const char *label = failure->label;
    s->out_of_memory |= s->ctx->status == TOW_OUT_OF_MEMORY && failure->kind != TOW_CHECK_MEMORY;
    if (s->summary.failures++ == 0)
        snprintf(s->first, sizeof s->first, "case %zu%s%s%s, %s: %s", failure->index, label ? " (" : "",
                 label ? label : "", label ? ")" : "", tow_check_name(failure->kind), failure->text);
    if (s->options->report) s->options->report(failure, s->options->user);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static bool is_float(tow_dtype dtype) { return dtype == TOW_F32 || dtype == TOW_F64; }

/* Elements that the user has given take the place of those that were drawn. */
static void prepare(const tow__check_case *c, double *const *in)
{
    for (size_t i = 0; i < c->n_in; i++)
        if (c->user->inputs[i].data) tow__check_from_elements(c->user->inputs[i].data, c->user->inputs[i].type, in[i]);
}

static bool has_derivative(const tow_primitive_definition *d)
{
    return !d->no_derivative && (d->jvp || d->linear || d->decompose);
}

static void translate(const checking *s, const tow_check_case *user, tow__check_case *c)
{
    const tow_primitive_definition *d = s->primitive->definition;
    *c = (tow__check_case){.primitive = s->primitive->name, .user = user};
    c->defined = s->primitive;
    c->label = user->label;
    c->params = user->attributes;
    c->n_in = d->n_inputs;
    c->n_out = d->n_outputs;
    c->no_derivative = !has_derivative(d);
    c->loose = 3 * (user->tolerance > 0 ? user->tolerance : 1);
    for (size_t i = 0; i < c->n_in; i++) {
        const tow_check_input *from = &user->inputs[i];
        c->in[i] = (tow__check_input){.dtype = is_float(from->type.dtype) ? TOW_F64 : from->type.dtype,
                                      .rank = from->type.rank,
                                      .low = from->low,
                                      .high = from->high,
                                      .constant = from->constant};
        memcpy(c->in[i].dims, from->type.dims, sizeof c->in[i].dims);
        if (from->data) c->fixed = true;
    }
    if (c->fixed) c->prepare = prepare;
}

/* Finds the float types that the type rule takes, among those that a case with floats may run in. */
static tow_status find_floats(checking *s, tow__check_case *c, size_t index)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_F64};
    bool any = false;
    char text[sizeof s->first] = "";
    for (size_t i = 0; i < c->n_in; i++) any |= c->in[i].dtype == TOW_F64;
    for (int i = 0; i < (any ? 2 : 1); i++) {
        tow__check quiet = {.ctx = s->ctx, .c = c};
        tow_context_clear_error(s->ctx);
        tow_graph *graph = tow__check_graph(&quiet, c, dtypes[i]);
        if (graph) c->floats |= 1u << dtypes[i];
        if (!graph && s->ctx->status == TOW_OUT_OF_MEMORY) return TOW_OUT_OF_MEMORY;
        if (!graph && !text[0]) snprintf(text, sizeof text, "%s", tow_context_error(s->ctx));
        tow_graph_release(graph);
    }
    tow_context_clear_error(s->ctx);
    if (c->floats) return TOW_OK;
    return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                     "tow_primitive_check, case %zu of %s: %s; give operands that it takes", index, s->primitive->name,
                     text);
}

/* ---- the value --------------------------------------------------------------------------------------------------- */

/* The case with a descriptor of its own. */
typedef struct other_way {
    tow__check_case c; /* first: it is what `build` gets */
    tow_primitive primitive;
    tow_primitive_definition definition;
} other_way;

static void record_other(tow_trace *trace, const tow_value *in, tow_value *out, const tow__check_case *c)
{
    const other_way *other = (const other_way *)c;
    tow__bind(trace, &other->primitive, c->params, c->n_in, in, c->n_out, out);
}

static void compare_values(tow__check *k, const tow_graph *graph, const tow__check_values *found,
                           const tow__check_values *expected, tow_dtype floats, const char *what)
{
    const double tolerance = (floats == TOW_F64 ? 1e-12 : 1e-5) * k->c->loose / 3;
    for (size_t i = 0; i < found->n; i++) {
        const bool exact = !tow_dtype_is_float(tow_graph_output_type(graph, i).dtype);
        int64_t e;
        if (!tow__check_close(found->arrays[i], expected->arrays[i], found->counts[i], exact ? 0 : tolerance, &e))
            tow__check_fail_at(k, i, e, expected->arrays[i][e], found->arrays[i][e],
                               "%s: result %zu, element %lld: the %s gives %.17g, the kernel %.17g",
                               tow_dtype_name(floats), i, (long long)e, what, expected->arrays[i][e],
                               found->arrays[i][e]);
    }
}

/* The kernel against the reference or, if there is none, against the decomposition. */
static void check_kernel_value(tow__check *k, tow_dtype floats, const tow__check_values *x)
{
    const tow_primitive_definition *d = k->c->defined->definition;
    other_way other = {.c = *k->c, .primitive = *k->c->defined, .definition = *d};
    if (!d->kernel.run || (!d->reference.run && !d->decompose)) return;
    other.c.build = record_other;
    other.definition.kernel = d->reference; /* without one, it is decomposed */
    other.primitive.definition = &other.definition;
    tow_graph *graph = tow__check_graph(k, k->c, floats), *reference = tow__check_graph(k, &other.c, floats);
    tow__check_values found = tow__check_no_values(k), expected = found;
    k->kind = TOW_CHECK_VALUE;
    k->done |= 1u << TOW_CHECK_VALUE;
    if (graph && reference && tow__check_evaluate(k, graph, x, &found) &&
        tow__check_evaluate(k, reference, x, &expected))
        compare_values(k, graph, &found, &expected, floats, d->reference.run ? "reference" : "decomposition");
    tow_graph_release(graph);
    tow_graph_release(reference);
    tow__check_free(&found);
    tow__check_free(&expected);
}

/* ---- all checks -------------------------------------------------------------------------------------------------- */

static bool wanted(const checking *s, tow_check_kind kind) { return !(s->options->without >> kind & 1); }

static bool wants_derivatives(const checking *s)
{
    return wanted(s, TOW_CHECK_JVP) && wanted(s, TOW_CHECK_TRANSPOSE) && wanted(s, TOW_CHECK_GRADIENT);
}

static void check_in(checking *s, tow__check *k, tow_dtype floats)
{
    tow__check_values x = {0};
    if (!tow__check_draw(k, k->c, 0, &x)) {
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    } else {
        if (wanted(s, TOW_CHECK_KERNEL)) tow__check_kernel(k, floats);
        if (wanted(s, TOW_CHECK_VALUE)) check_kernel_value(k, floats, &x);
        if (wanted(s, TOW_CHECK_CLEANING)) tow__check_value(k, floats, &x);
    }
    tow__check_free(&x);
}

static void check_case(checking *s, const tow__check_case *c, size_t index)
{
    size_t axes = 0;
    tow__check k = {.ctx = s->ctx,
                    .c = c,
                    .index = index,
                    .report = take,
                    .user = s,
                    .first_order = c->user->first_order,
                    .varies = s->primitive->varies,
                    .rounds_apart = s->primitive->varies || !s->ctx->portable};
    for (int floats = TOW_F32; floats <= TOW_F64; floats++)
        if (tow__check_runs(c, (tow_dtype)floats)) check_in(s, &k, (tow_dtype)floats);
    if (wants_derivatives(s)) {
        tow__check_values x = {0};
        if (tow__check_draw(&k, c, 0, &x)) tow__check_derivatives(&k, &x);
        tow__check_free(&x);
    }
    const bool derives = k.failures == 0; /* what uses wrong derivatives would say the same again */
    if (derives && wanted(s, TOW_CHECK_TEXT)) tow__check_round_trips(&k);
    if (derives && wanted(s, TOW_CHECK_BATCH)) tow__check_batching(&k);
    for (int floats = TOW_F32; floats <= TOW_F64 && wanted(s, TOW_CHECK_SIZES); floats++)
        if (tow__check_runs(c, (tow_dtype)floats)) tow__check_sizes(&k, (tow_dtype)floats);
    if (wanted(s, TOW_CHECK_TILING)) tow__check_tiling(&k, false, &axes);
    if (wanted(s, TOW_CHECK_MEMORY)) tow__check_failing(&k);
    s->summary.done |= k.done;
    s->summary.cases++;
}

static tow_status check_arguments(const checking *s, size_t n, const tow_check_case *cases)
{
    const tow_primitive *p = s->primitive;
    if (!p->definition || tow__primitive_defined(s->ctx, p->name, strlen(p->name)) != p)
        return tow__fail(
            s->ctx, TOW_INVALID_ARGUMENT,
            "tow_primitive_check: expected a primitive that was defined in this context, found %s; define it "
            "here",
            p->name);
    for (size_t i = 0; i < n; i++)
        if (!cases[i].inputs || (p->params_size > 0 && !cases[i].attributes))
            return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                             "tow_primitive_check, case %zu of %s: expected %s, found NULL; pass what is missing", i,
                             p->name, cases[i].inputs ? "attributes" : "inputs");
    return TOW_OK;
}

static tow_status verdict(const checking *s)
{
    if (s->out_of_memory) return tow__fail(s->ctx, TOW_OUT_OF_MEMORY, "%s, %s", s->primitive->name, s->first);
    tow_context_clear_error(s->ctx);
    if (s->summary.failures == 0) return TOW_OK;
    return tow__fail(s->ctx, TOW_CHECK_FAILED, "%s, %s (%zu failure%s in %zu case%s)", s->primitive->name, s->first,
                     s->summary.failures, s->summary.failures == 1 ? "" : "s", s->summary.cases,
                     s->summary.cases == 1 ? "" : "s");
}

tow_status tow_primitive_check(tow_context *context, const tow_primitive *primitive, size_t n,
                               const tow_check_case *cases, const tow_check_options *options,
                               tow_check_summary *summary)
{
    static const tow_check_options all = TOW_CHECK_OPTIONS();
    if (summary) *summary = (tow_check_summary){0};
    if (!context || !primitive || (n > 0 && !cases))
        return tow__missing(context, __func__, "a context, a primitive and cases");
    tow_check_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_check_options, options, &own)) return TOW_INVALID_ARGUMENT;
    checking s = {.ctx = context, .primitive = primitive, .options = options ? options : &all};
    tow_status status = check_arguments(&s, n, cases);
    for (size_t i = 0; i < n && status == TOW_OK && !s.out_of_memory; i++) {
        tow__check_case c;
        translate(&s, &cases[i], &c);
        status = find_floats(&s, &c, i);
        if (status == TOW_OK) check_case(&s, &c, i);
    }
    if (summary) *summary = s.summary;
    return status == TOW_OK ? verdict(&s) : status;
}
