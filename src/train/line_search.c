/* Line searches: the rate at which parameters move along the direction that an optimizer makes, by calls of a function
 * on the host.
 *
 *   parameters -> origin
 *   the program:  gradients -> direction u
 *   trials:       origin + t u -> parameters, loss, gradients, slope g.u
 *
 * The interval is searched by larger and larger steps, then it is narrowed by interpolation (Nocedal and Wright,
 * Numerical Optimization, 2006, algorithms 3.5 and 3.6). Numbers and their order are those of Optax 0.2.8's
 * zoom_linesearch. */
#include <float.h>
#include <math.h>

#include "src/base/base.h"
#include "src/base/options.h"
#include "src/graph/graph.h"
#include "src/train/transforms.h"
#include "src/train/update.h"
#include "tow/numpy.h"

struct tow__search {
    tow_context *ctx;
    size_t n;
    tow_array **arrays; /* [3 n]: origin, direction, gradients */
    tow_array *rate, *slope;
    tow_program *move, *dot; /* origin..., direction..., rate -> parameters...;  gradients..., direction... -> slope */
    tow_array **inputs;      /* [2 n + 1] */
    double loss, last_rate;
    bool known; /* loss and gradients are those of the parameters, as the last search left them */
};

static tow_array **origin(const struct tow__search *s) { return s->arrays; }
static tow_array **direction(const struct tow__search *s) { return s->arrays + s->n; }
static tow_array **gradients(const struct tow__search *s) { return s->arrays + 2 * s->n; }
tow_array *const *tow__search_directions(const struct tow__search *s) { return direction(s); }

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static void record_move(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const size_t n = *(const size_t *)user;
    (void)trace;
    for (size_t i = 0; i < n; i++) {
        const tow_dtype dtype = tow_value_type(in[i]).dtype;
        tow_value rate = dtype == TOW_F64 ? in[2 * n] : tow_convert(in[2 * n], dtype);
        out[i] = tow_add(in[i], tow_mul(tow__spread(rate, in[i]), in[n + i]));
    }
}

static void record_dot(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const size_t n = *(const size_t *)user;
    out[0] = tow_scalar(trace, TOW_F64, 0);
    for (size_t i = 0; i < n; i++) {
        tow_value g = tow_convert(in[i], TOW_F64), u = tow_convert(in[n + i], TOW_F64);
        out[0] = tow_add(out[0], tow_reduce_sum(tow_mul(g, u), 0, NULL));
    }
}

static tow_status make_program(struct tow__search *s, tow_function function, size_t n_in, const tow_type *types,
                               size_t n_out, tow_program **program)
{
    tow_graph *graph = NULL;
    tow_status status = tow_trace_function(s->ctx, function, &s->n, n_in, types, NULL, n_out, &graph);
    if (status == TOW_OK) status = tow_compile(s->ctx, graph, &TOW_COMPILE_OPTIONS(.flush_subnormals = true), program);
    tow_graph_release(graph);
    return status;
}

static tow_status make_programs(struct tow__search *s, const tow_params *params)
{
    tow_status status = TOW_OK;
    tow_type *types = tow__alloc(s->ctx, 2 * s->n + 1, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < 2 * s->n; i++) types[i] = params->types[i % s->n];
    types[2 * s->n] = tow_make_type(TOW_F64, 0, NULL);
    TRY(make_program(s, record_move, 2 * s->n + 1, types, s->n, &s->move));
    TRY(make_program(s, record_dot, 2 * s->n, types, 1, &s->dot));
done:
    tow__free(s->ctx, types, 2 * s->n + 1, sizeof *types);
    return status;
}

tow_status tow__search_create(tow_optimizer_state *o)
{
    const tow_type scalar = tow_make_type(TOW_F64, 0, NULL);
    tow_status status = TOW_OK;
    struct tow__search *s = o->search = tow__alloc(o->ctx, 1, sizeof *s);
    if (!s) return TOW_OUT_OF_MEMORY;
    s->ctx = o->ctx;
    s->n = o->params->names.count;
    s->last_rate = 1;
    for (size_t i = 0; i < s->n; i++)
        if (o->params->types[i].dtype != TOW_F32 && o->params->types[i].dtype != TOW_F64)
            return tow__fail(o->ctx, TOW_UNSUPPORTED,
                             "optimizer: params/%s is %s; a line search needs parameters of f32 or f64",
                             o->params->names.names[i], tow__type_name(o->params->types[i]).text);
    s->arrays = tow__alloc(o->ctx, 3 * s->n + 1, sizeof *s->arrays);
    s->inputs = tow__alloc(o->ctx, 2 * s->n + 1, sizeof *s->inputs);
    if (!s->arrays || !s->inputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < 3 * s->n; i++) TRY(tow_array_create(o->ctx, o->params->types[i % s->n], &s->arrays[i]));
    TRY(tow_array_create(o->ctx, scalar, &s->rate));
    TRY(tow_array_create(o->ctx, scalar, &s->slope));
    TRY(make_programs(s, o->params));
done:
    return status;
}

void tow__search_free(struct tow__search *s)
{
    if (!s) return;
    for (size_t i = 0; s->arrays && i < 3 * s->n; i++) tow_array_release(s->arrays[i]);
    if (s->arrays) tow__free(s->ctx, s->arrays, 3 * s->n + 1, sizeof *s->arrays);
    if (s->inputs) tow__free(s->ctx, s->inputs, 2 * s->n + 1, sizeof *s->inputs);
    tow_array_release(s->rate);
    tow_array_release(s->slope);
    tow_program_free(s->move);
    tow_program_free(s->dot);
    tow__free(s->ctx, s, 1, sizeof *s);
}

/* ---- one search -------------------------------------------------------------------------------------------------- */

/* A point on the line. */
typedef struct point {
    double rate, loss, slope;
} point;

typedef struct zoom {
    tow_optimizer_state *o;
    tow_line_search_options options;
    tow_loss_and_gradients function;
    void *user;
    point start, now, low, high;
    double cubic_rate, cubic_loss; /* a third point of the interpolation */
    double safe_rate, safe_loss;   /* the best point with enough decrease; rate 0: none */
    double decrease_error, curvature_error;
    int calls, count;
    bool interval_found, done, failed;
} zoom;

/* Moves the parameters to origin + rate u. */
static tow_status move_to(zoom *z, double rate)
{
    struct tow__search *s = z->o->search;
    *(double *)tow_array_data(s->rate) = rate;
    memcpy(s->inputs, origin(s), s->n * sizeof *s->inputs);
    memcpy(s->inputs + s->n, direction(s), s->n * sizeof *s->inputs);
    s->inputs[2 * s->n] = s->rate;
    return tow_program_run(s->move, s->inputs, z->o->params->arrays);
}

static tow_status slope_of(zoom *z, double *slope)
{
    struct tow__search *s = z->o->search;
    memcpy(s->inputs, gradients(s), s->n * sizeof *s->inputs);
    memcpy(s->inputs + s->n, direction(s), s->n * sizeof *s->inputs);
    tow_status status = tow_program_run(s->dot, s->inputs, &s->slope);
    *slope = *(const double *)tow_array_data(s->slope);
    return status;
}

static tow_status call_function(zoom *z, double *loss)
{
    z->calls++;
    return z->function(loss, gradients(z->o->search), z->user);
}

static tow_status try_rate(zoom *z, double rate)
{
    tow_status status = TOW_OK;
    z->now.rate = rate;
    TRY(move_to(z, rate));
    TRY(call_function(z, &z->now.loss));
    TRY(slope_of(z, &z->now.slope));
done:
    return status;
}

static double larger_than_zero(double error) { return isnan(error) ? INFINITY : error > 0 ? error : 0; }

/* Sufficient decrease (3.7a), or the approximate one near a minimum; small curvature (3.7b). */
static void measure(zoom *z)
{
    const tow_line_search_options *o = &z->options;
    double decrease = z->now.loss - z->start.loss - o->slope_rtol * z->now.rate * z->start.slope;
    if (o->approx_dec_rtol >= 0) {
        const double slope = z->now.slope - (2 * o->slope_rtol - 1) * z->start.slope;
        const double difference = z->now.loss - z->start.loss - o->approx_dec_rtol * fabs(z->start.loss);
        const double approximate = isnan(slope) || isnan(difference) ? (double)NAN : fmax(slope, difference);
        decrease = isnan(decrease) || isnan(approximate) ? (double)NAN : fmin(approximate, decrease);
    }
    z->decrease_error = larger_than_zero(decrease);
    z->curvature_error = larger_than_zero(fabs(z->now.slope) - o->curv_rtol * fabs(z->start.slope));
}

/* Larger and larger steps, until one of them is good or the interval holds a good one. */
static tow_status search_interval(zoom *z)
{
    const tow_line_search_options *o = &z->options;
    const point before = z->now;
    double rate =
        z->count == 0 ? (o->keep_learning_rate ? z->o->search->last_rate : 1) : o->increase_factor * before.rate;
    const bool at_most = o->max_learning_rate > 0 && rate >= o->max_learning_rate;
    if (at_most) rate = o->max_learning_rate;
    tow_status status = try_rate(z, rate);
    if (status != TOW_OK) return status;
    measure(z);
    const double error = fmax(z->decrease_error, z->curvature_error);
    if (z->decrease_error <= o->tol) z->safe_rate = rate, z->safe_loss = z->now.loss;
    const bool high = z->decrease_error > 0 || (z->now.loss >= before.loss && z->count > 0);
    const bool low = z->now.slope >= 0 && !high;
    z->low = low ? z->now : before;
    z->high = low ? before : z->now;
    z->cubic_rate = z->low.rate, z->cubic_loss = z->low.loss;
    z->interval_found = high || low || error <= o->tol;
    z->done = error <= o->tol || (at_most && !z->interval_found);
    z->failed = z->count + 1 >= o->max_steps && !z->done;
    z->count++;
    return TOW_OK;
}

/* The minimum of the cubic with f(a), f'(a), f(b), f(c), and of the parabola with f(a), f'(a), f(b). */
static double cubic_minimum(point a, point b, double c_rate, double c_loss)
{
    const double db = b.rate - a.rate, dc = c_rate - a.rate, denominator = (db * dc) * (db * dc) * (db - dc);
    const double fb = b.loss - a.loss - a.slope * db, fc = c_loss - a.loss - a.slope * dc;
    const double p = (dc * dc * fb - db * db * fc) / denominator,
                 q = (-dc * dc * dc * fb + db * db * db * fc) / denominator;
    return a.rate + (-q + sqrt(q * q - 3 * p * a.slope)) / (3 * p);
}

static double parabola_minimum(point a, point b)
{
    const double d = b.rate - a.rate, q = (b.loss - a.loss - a.slope * d) / (d * d);
    return a.rate - a.slope / (2 * q);
}

/* A rate between the ends, not too near to either. NaN is near to all. */
static double interpolate(const zoom *z, double width)
{
    const double left = fmin(z->low.rate, z->high.rate), right = fmax(z->low.rate, z->high.rate);
    const double cubic = cubic_minimum(z->low, z->high, z->cubic_rate, z->cubic_loss);
    if (cubic > left + 0.2 * width && cubic < right - 0.2 * width) return cubic;
    const double parabola = parabola_minimum(z->low, z->high);
    if (parabola > left + 0.1 * width && parabola < right - 0.1 * width) return parabola;
    return (z->low.rate + z->high.rate) / 2;
}

static tow_status narrow_interval(zoom *z)
{
    const tow_line_search_options *o = &z->options;
    const point low = z->low, high = z->high;
    const double width = fabs(high.rate - low.rate);
    tow_status status = try_rate(z, interpolate(z, width));
    if (status != TOW_OK) return status;
    measure(z);
    if (z->decrease_error <= o->tol && z->now.loss < z->safe_loss)
        z->safe_rate = z->now.rate, z->safe_loss = z->now.loss;
    z->done = fmax(z->decrease_error, z->curvature_error) <= o->tol;
    const bool middle_is_high = z->decrease_error > 0 || z->now.loss >= low.loss;
    const bool low_is_high = !middle_is_high && z->now.slope * (high.rate - low.rate) >= 0;
    if (middle_is_high)
        z->high = z->now;
    else
        z->low = z->now;
    if (low_is_high) z->high = low;
    const point third = middle_is_high || low_is_high ? high : low;
    z->cubic_rate = third.rate, z->cubic_loss = third.loss;
    const bool narrow = width <= o->stepsize_precision && z->safe_rate > 0;
    z->failed = (z->count + 1 >= o->max_steps || narrow) && !z->done;
    z->count++;
    return TOW_OK;
}

/* The parameters go where the decrease is enough, or stay where the last trial was; back, where that had no value. */
static tow_status give_up(zoom *z)
{
    if (!(z->safe_rate > 0) && !isinf(z->decrease_error)) return TOW_OK;
    z->now.rate = z->safe_rate;
    z->now.loss = z->safe_loss;
    z->o->search->known = false; /* the gradients are those of the last trial */
    return move_to(z, z->safe_rate);
}

static tow_status search(zoom *z)
{
    struct tow__search *s = z->o->search;
    tow_status status = TOW_OK;
    const bool known = s->known && !z->options.new_function;
    s->known = false;
    if (!known) TRY(call_function(z, &s->loss));
    for (size_t i = 0; i < s->n; i++)
        memcpy(tow_array_data(origin(s)[i]), tow_array_data(z->o->params->arrays[i]),
               tow_type_bytes(z->o->params->types[i]));
    TRY(tow__optimizer_run(z->o, gradients(s), s->loss));
    z->now = (point){.rate = 0, .loss = s->loss};
    TRY(slope_of(z, &z->now.slope));
    z->start = z->low = z->high = z->now;
    z->safe_loss = z->cubic_loss = s->loss;
    z->decrease_error = z->curvature_error = INFINITY;
    while (!z->done && !z->failed) {
        status = z->interval_found ? narrow_interval(z) : search_interval(z);
        if (status != TOW_OK) break;
    }
    if (status != TOW_OK) {
        move_to(z, 0);
        return status;
    }
    s->known = true;
    if (z->failed) TRY(give_up(z));
    s->loss = z->now.loss;
    s->last_rate = z->now.rate;
done:
    return status;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static double usually(double given, double usual) { return given == 0 ? usual : given; }

static tow_status check_options(tow_context *ctx, tow_line_search_options *o)
{
    o->max_steps = o->max_steps ? o->max_steps : 20;
    o->increase_factor = usually(o->increase_factor, 2);
    o->slope_rtol = usually(o->slope_rtol, 1e-4);
    o->curv_rtol = usually(o->curv_rtol, 0.9);
    o->approx_dec_rtol = usually(o->approx_dec_rtol, 1e-6);
    o->stepsize_precision = usually(o->stepsize_precision, 1e-5);
    if (o->max_steps > 0 && o->increase_factor > 1 && o->slope_rtol > 0 && o->curv_rtol > 0 && o->tol >= 0 &&
        o->stepsize_precision > 0 && o->max_learning_rate >= 0 && isfinite(o->max_learning_rate) &&
        !isnan(o->approx_dec_rtol))
        return TOW_OK;
    return tow__fail(
        ctx, TOW_INVALID_ARGUMENT,
        "tow_optimizer_line_search: expected max_steps, slope_rtol, curv_rtol and stepsize_precision above 0, "
        "an increase_factor above 1, and a tol and max_learning_rate that are not negative, found %d, %.9g, "
        "%.9g, %.9g, %.9g, %.9g and %.9g",
        o->max_steps, o->slope_rtol, o->curv_rtol, o->stepsize_precision, o->increase_factor, o->tol,
        o->max_learning_rate);
}

tow_status tow_optimizer_line_search(tow_optimizer_state *state, const tow_line_search_options *options,
                                     tow_loss_and_gradients function, void *user, tow_line_search_result *result)
{
    if (!state || !function) return tow__missing(state ? state->ctx : NULL, __func__, "a state and a function");
    if (!state->search)
        return tow__fail(state->ctx, TOW_INVALID_ARGUMENT,
                         "tow_optimizer_line_search: the state was made without .line_search; set it in its options");
    tow_line_search_options own;
    if (!TOW__OPTIONS_TAKE(state->ctx, tow_line_search_options, options, &own)) return TOW_INVALID_ARGUMENT;
    zoom z = {
        .o = state, .options = options ? *options : TOW_LINE_SEARCH_OPTIONS(), .function = function, .user = user};
    tow_status status = check_options(state->ctx, &z.options);
    if (status == TOW_OK) status = search(&z);
    if (status == TOW_OK && result)
        *result = (tow_line_search_result){.loss = z.now.loss,
                                           .learning_rate = z.now.rate,
                                           .calls = z.calls,
                                           .decrease_error = z.decrease_error,
                                           .curvature_error = z.curvature_error,
                                           .failed = z.failed};
    return status;
}
