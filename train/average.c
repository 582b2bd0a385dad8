/* Exponential averages of parameters.
 *
 *   a <- w p + (1 - w) a,  w = 1 - decay, or with debias (1 - decay) / (1 - decay^t) in update t = 1, 2, ...
 *
 * The second is the average of Optax's `ema` after its division by 1 - decay^t, which so is there all the time. Averages of
 * parameters of 16 bits are kept in f32, and rounded for use. */
#include "train/average.h"

#include <math.h>

#include "layers/params.h"
#include "src/base/base.h"
#include "src/base/cancel.h"
#include "tow/numpy.h"
#include "tow/ops.h"
#include "tow/program.h"

struct tow_average {
    tow_context *ctx;
    const tow_params *params;
    tow_average_options options;
    int64_t count; /* updates */
    size_t n, n_rounded;
    tow_params *kept, *used; /* used: of the parameters' types; the same arrays where that is the type of `kept` */
    tow_array *weight;       /* f64[] */
    tow_program *update;     /* (parameters..., kept..., weight) -> kept... */
    tow_program *round;      /* kept... -> used..., of those that differ */
    tow_array **inputs, **outputs, **exact, **rounded;
};

static tow_type kept_type(tow_type type)
{
    if (type.dtype == TOW_BF16 || type.dtype == TOW_F16) type.dtype = TOW_F32;
    return type;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

static tow_value spread(tow_value scalar, tow_value like)
{
    const tow_type type = tow_value_type(like);
    return tow_broadcast_to(tow_convert(scalar, type.dtype), type.rank, type.dims);
}

static void record_update(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const size_t n = *(const size_t *)user;
    tow_value weight = in[2 * n], rest = tow_rsub_scalar(weight, 1);
    (void)trace;
    for (size_t i = 0; i < n; i++) {
        tow_value kept = in[n + i], p = tow_convert(in[i], tow_value_type(kept).dtype);
        out[i] = tow_add(tow_mul(p, spread(weight, p)), tow_mul(kept, spread(rest, p)));
    }
}

static tow_status make_update(tow_average *a)
{
    const size_t n = a->n;
    tow_graph *graph = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    tow_type *types = tow__alloc(a->ctx, 2 * n + 1, sizeof *types);
    tow_donation *donations = tow__alloc(a->ctx, n + 1, sizeof *donations);
    if (!types || !donations) goto done;
    for (size_t i = 0; i < n; i++) {
        types[i] = a->params->types[i];
        types[n + i] = a->kept->types[i];
        donations[i] = (tow_donation){i, n + i};
        a->inputs[i] = a->params->arrays[i];
        a->inputs[n + i] = a->outputs[i] = a->kept->arrays[i];
    }
    types[2 * n] = tow_make_type(TOW_F64, 0, NULL);
    TRY(tow_array_create(a->ctx, types[2 * n], &a->weight));
    a->inputs[2 * n] = a->weight;
    TRY(tow_trace_function(a->ctx, record_update, &a->n, 2 * n + 1, types, NULL, n, &graph));
    TRY(tow_compile(a->ctx, graph,
                    &(tow_compile_options){.flush_subnormals = true, .donations = donations, .n_donations = n},
                    &a->update));
done:
    tow_graph_release(graph);
    if (types) tow__free(a->ctx, types, 2 * n + 1, sizeof *types);
    if (donations) tow__free(a->ctx, donations, n + 1, sizeof *donations);
    return status;
}

static void record_rounding(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_average *a = user;
    (void)trace;
    for (size_t i = 0; i < a->n_rounded; i++) out[i] = tow_convert(in[i], tow_array_type(a->rounded[i]).dtype);
}

static tow_status make_rounding(tow_average *a)
{
    tow_graph *graph = NULL;
    tow_status status = TOW_OK;
    tow_type *types = tow__alloc(a->ctx, a->n_rounded + 1, sizeof *types);
    if (!types) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < a->n_rounded; i++) types[i] = tow_array_type(a->exact[i]);
    TRY(tow_trace_function(a->ctx, record_rounding, a, a->n_rounded, types, NULL, a->n_rounded, &graph));
    TRY(tow_compile(a->ctx, graph, NULL, &a->round));
done:
    tow_graph_release(graph);
    tow__free(a->ctx, types, a->n_rounded + 1, sizeof *types);
    return status;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static tow_status make_lists(tow_average *a)
{
    tow_status status = TOW_OK;
    TRY(tow__params_create(a->ctx, &a->kept));
    TRY(tow__params_create(a->ctx, &a->used));
    for (size_t i = 0; i < a->n; i++) {
        const char *path = a->params->names.names[i];
        const tow_type type = a->params->types[i], kept = kept_type(type);
        TRY(tow__params_add_like(a->kept, path, kept, a->params, (uint32_t)i));
        TRY(tow__params_add_like(a->used, path, type, a->params, (uint32_t)i));
        TRY(tow_array_create(a->ctx, kept, &a->kept->arrays[i]));
        if (tow_type_equal(type, kept)) {
            a->used->arrays[i] = tow_array_retain(a->kept->arrays[i]);
            continue;
        }
        TRY(tow_array_create(a->ctx, type, &a->used->arrays[i]));
        a->exact[a->n_rounded] = a->kept->arrays[i];
        a->rounded[a->n_rounded++] = a->used->arrays[i];
    }
    TRY(make_update(a));
    if (a->n_rounded > 0) TRY(make_rounding(a));
    TRY(tow__average_restart(a));
done:
    return status;
}

static tow_status check(tow_context *ctx, const tow_params *params, const tow_average_options *options)
{
    if (!(options->decay > 0 && options->decay < 1))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "average: expected .decay between 0 and 1, found %.9g",
                         options->decay);
    for (size_t i = 0; i < tow_params_count(params); i++)
        if (!tow_dtype_is_float(params->types[i].dtype))
            return tow__fail(ctx, TOW_TYPE_MISMATCH, "params/%s: expected a float type, which has averages, found %s",
                             params->names.names[i], tow__type_name(params->types[i]).text);
    return TOW_OK;
}

tow_status tow_average_create(tow_context *context, const tow_params *params, const tow_average_options *options,
                              tow_average **average)
{
    if (average) *average = NULL;
    if (!context || !params || !options || !average)
        return tow__missing(context, __func__, "a context, parameters, options and a place for the average");
    tow_status status = check(context, params, options);
    if (status != TOW_OK) return status;
    tow_average *a = tow__alloc(context, 1, sizeof *a);
    if (!a) return TOW_OUT_OF_MEMORY;
    *a = (tow_average){.ctx = context, .params = params, .options = *options, .n = tow_params_count(params)};
    a->inputs = tow__alloc(context, 2 * a->n + 1, sizeof *a->inputs);
    a->outputs = tow__alloc(context, a->n + 1, sizeof *a->outputs);
    a->exact = tow__alloc(context, a->n + 1, sizeof *a->exact);
    a->rounded = tow__alloc(context, a->n + 1, sizeof *a->rounded);
    status = a->inputs && a->outputs && a->exact && a->rounded ? make_lists(a) : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK)
        *average = a;
    else
        tow_average_free(a);
    return status;
}

void tow_average_free(tow_average *a)
{
    if (!a) return;
    tow_context *ctx = a->ctx;
    tow_params_free(a->kept);
    tow_params_free(a->used);
    tow_array_release(a->weight);
    tow_program_free(a->update);
    tow_program_free(a->round);
    if (a->inputs) tow__free(ctx, a->inputs, 2 * a->n + 1, sizeof *a->inputs);
    if (a->outputs) tow__free(ctx, a->outputs, a->n + 1, sizeof *a->outputs);
    if (a->exact) tow__free(ctx, a->exact, a->n + 1, sizeof *a->exact);
    if (a->rounded) tow__free(ctx, a->rounded, a->n + 1, sizeof *a->rounded);
    tow__free(ctx, a, 1, sizeof *a);
}

/* ---- using ------------------------------------------------------------------------------------------------------- */

static tow_status round_used(tow_average *a)
{
    return a->n_rounded > 0 ? tow_program_run(a->round, a->exact, a->rounded) : TOW_OK;
}

static tow_status mix(tow_average *a, double weight)
{
    *(double *)tow_array_data(a->weight) = weight;
    tow_status status = tow_program_run(a->update, a->inputs, a->outputs);
    return status == TOW_OK ? round_used(a) : status;
}

tow_status tow_average_update(tow_average *a)
{
    if (!a) return tow__missing(NULL, __func__, "an average");
    const double d = a->options.decay;
    const double t = (double)a->count + 1;
    tow__cancellation *before = tow__cancellation_shield(); /* the parameters have been updated */
    tow_status status = mix(a, a->options.debias ? (1 - d) / (1 - pow(d, t)) : 1 - d);
    tow__cancellation_enter(before);
    if (status == TOW_OK) a->count++;
    return status;
}

/* With all the weight on the parameters: 0 times what was there must not be NaN. */
tow_status tow__average_restart(tow_average *a)
{
    for (size_t i = 0; i < a->n; i++) memset(tow_array_data(a->kept->arrays[i]), 0, tow_type_bytes(a->kept->types[i]));
    a->count = 0;
    return mix(a, 1);
}

tow_params *tow_average_params(const tow_average *a) { return a->used; }

tow_params *tow__average_state(const tow_average *a) { return a->kept; }
int64_t tow__average_count(const tow_average *a) { return a->count; }

tow_status tow__average_loaded(tow_average *a, int64_t count)
{
    a->count = count;
    return round_used(a);
}

size_t tow__average_bytes(const tow_average *a)
{
    const tow_program_bytes update = tow_program_get_bytes(a->update);
    size_t bytes = update.arena + update.constants + sizeof(double);
    for (size_t i = 0; i < a->n; i++) bytes += tow_type_bytes(a->kept->types[i]);
    for (size_t i = 0; i < a->n_rounded; i++) bytes += tow_type_bytes(tow_array_type(a->rounded[i]));
    if (!a->round) return bytes;
    const tow_program_bytes round = tow_program_get_bytes(a->round);
    return bytes + round.arena + round.constants;
}
