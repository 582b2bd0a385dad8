/* Exponential averages of parameters.
 *
 *   a <- w p + (1 - w) a,  w = 1 - decay, or with debias (1 - decay) / (1 - decay^t) in update t = 1, 2, ...
 *
 * The second is the average of Optax's `ema` after its division by 1 - decay^t, which so is there all the time.
 * Averages of parameters of 16 bits are kept in f32, and rounded for use. */
#include "src/train/average.h"

#include <math.h>

#include "src/base/arithmetic.h"
#include "src/base/cancel.h"
#include "src/base/dtypes.h"
#include "src/base/options.h"
#include "src/graph/graph.h"
#include "src/params/params.h"
#include "tow/numpy.h"
#include "tow/program.h"

struct tow_average {
    tow_context *ctx;
    const tow_params *params;
    tow_average_options options;
    int64_t count; /* updates */
    size_t n, n_rounded;
    tow_params *kept, *used; /* used: of the parameters' types; the same arrays where that is the type of `kept` */
    tow_array **arrays;      /* [n + n_rounded]: those of `kept`, then those of `used` that differ */
    uint32_t *rounded;       /* [n_rounded] which these are */
    tow_array *weight;       /* f64[] */
    tow_program *program; /* (kept..., used..., parameters..., weight) -> kept..., used...; NULL: of a training state,
                              * whose program updates */
    tow_array **inputs;
};

static tow_type kept_type(tow_type type)
{
    if (type.dtype == TOW_BF16 || type.dtype == TOW_F16) type.dtype = TOW_F32;
    return type;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static tow_value spread(tow_value scalar, tow_value like)
{
    const tow_type type = tow_value_type(like);
    return tow_broadcast_to(tow_convert(scalar, type.dtype), type.rank, type.dims);
}

void tow__record_average(const tow_average *a, const tow_value *arrays, const tow_value *params, tow_value weight,
                         tow_value *out)
{
    tow_value rest = tow_rsub_scalar(weight, 1);
    for (size_t i = 0; i < a->n; i++) {
        tow_value kept = arrays[i], p = tow_convert(params[i], tow_value_type(kept).dtype);
        out[i] = tow_add(tow_mul(p, spread(weight, p)), tow_mul(kept, spread(rest, p)));
    }
    for (size_t i = 0; i < a->n_rounded; i++)
        out[a->n + i] = tow_convert(out[a->rounded[i]], a->params->types[a->rounded[i]].dtype);
}

static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_average *a = user;
    const size_t n = a->n + a->n_rounded;
    (void)trace;
    tow__record_average(a, in, in + n, in[n + a->n], out);
}

static tow_status make_program(tow_average *a)
{
    const size_t n = a->n + a->n_rounded, n_inputs = n + a->n + 1;
    tow_graph *graph = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    tow_type *types = tow__alloc(a->ctx, n_inputs, sizeof *types);
    tow_donation *donations = tow__alloc(a->ctx, n + 1, sizeof *donations);
    a->inputs = tow__alloc(a->ctx, n_inputs, sizeof *a->inputs);
    if (!types || !donations || !a->inputs) goto done;
    TRY(tow_array_create(a->ctx, tow_make_type(TOW_F64, 0, NULL), &a->weight));
    for (size_t i = 0; i < n; i++) {
        donations[i] = (tow_donation){i, i};
        a->inputs[i] = a->arrays[i];
    }
    for (size_t i = 0; i < a->n; i++) a->inputs[n + i] = a->params->arrays[i];
    a->inputs[n + a->n] = a->weight;
    for (size_t i = 0; i < n_inputs; i++) types[i] = tow_array_type(a->inputs[i]);
    TRY(tow_trace_function(a->ctx, record, a, n_inputs, types, NULL, n, &graph));
    TRY(tow_compile(a->ctx, graph,
                    &TOW_COMPILE_OPTIONS(.flush_subnormals = true, .donations = donations, .n_donations = n),
                    &a->program));
done:
    tow_graph_release(graph);
    if (types) tow__free(a->ctx, types, n_inputs, sizeof *types);
    if (donations) tow__free(a->ctx, donations, n + 1, sizeof *donations);
    return status;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* Entry i of `params` with another element type, as a share if it is one. */
static tow_status add_like(tow_params *list, const char *path, tow_type type, const tow_params *params, uint32_t i)
{
    tow_status status = TOW_OK;
    const bool is_share = tow__params_whole_layer(params, i).rank >= 0;
    tow_type whole = is_share ? params->wholes[i] : type;
    whole.dtype = type.dtype;
    TRY(tow__params_add(list, path, whole));
    list->frozen[i] = params->frozen[i];
    list->kinds[i] = params->kinds[i];
    if (is_share) TRY(tow__params_set_share(list, i, params->shards, type));
done:
    return status;
}

static tow_status make_lists(tow_average *a)
{
    tow_status status = TOW_OK;
    TRY(tow__params_create(a->ctx, &a->kept));
    TRY(tow__params_create(a->ctx, &a->used));
    for (size_t i = 0; i < a->n; i++) {
        const char *path = a->params->names.names[i];
        const tow_type type = a->params->types[i], kept = kept_type(type);
        TRY(add_like(a->kept, path, kept, a->params, (uint32_t)i));
        TRY(add_like(a->used, path, type, a->params, (uint32_t)i));
        TRY(tow_array_create(a->ctx, kept, &a->kept->arrays[i]));
        a->arrays[i] = a->kept->arrays[i];
        if (tow_type_equal(type, kept)) {
            a->used->arrays[i] = tow_array_retain(a->kept->arrays[i]);
            continue;
        }
        TRY(tow_array_create(a->ctx, type, &a->used->arrays[i]));
        a->rounded[a->n_rounded] = (uint32_t)i;
        a->arrays[a->n + a->n_rounded++] = a->used->arrays[i];
    }
    tow__average_restart(a);
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

tow_status tow__average_create(tow_context *context, const tow_params *params, const tow_average_options *options,
                               bool with_program, tow_average **average)
{
    tow_status status = check(context, params, options);
    if (status != TOW_OK) return status;
    tow_average *a = tow__alloc(context, 1, sizeof *a);
    if (!a) return TOW_OUT_OF_MEMORY;
    *a = (tow_average){.ctx = context, .params = params, .options = *options, .n = tow_params_count(params)};
    a->arrays = tow__alloc(context, 2 * a->n + 1, sizeof *a->arrays);
    a->rounded = tow__alloc(context, a->n + 1, sizeof *a->rounded);
    status = a->arrays && a->rounded ? make_lists(a) : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK && with_program) status = make_program(a);
    if (status == TOW_OK)
        *average = a;
    else
        tow_average_free(a);
    return status;
}

tow_status tow_average_create(tow_context *context, const tow_params *params, const tow_average_options *options,
                              tow_average **average)
{
    if (average) *average = NULL;
    if (!context || !params || !options || !average)
        return tow__missing(context, __func__, "a context, parameters, options and a place for the average");
    tow_average_options own;
    if (!TOW__OPTIONS_TAKE(context, tow_average_options, options, &own)) return TOW_INVALID_ARGUMENT;
    TOW__ARITHMETIC(false);
    return tow__average_create(context, params, options, true, average);
}

void tow_average_free(tow_average *a)
{
    if (!a) return;
    tow_context *ctx = a->ctx;
    tow_params_free(a->kept);
    tow_params_free(a->used);
    tow_array_release(a->weight);
    tow_program_free(a->program);
    if (a->inputs) tow__free(ctx, a->inputs, 2 * a->n + a->n_rounded + 1, sizeof *a->inputs);
    if (a->arrays) tow__free(ctx, a->arrays, 2 * a->n + 1, sizeof *a->arrays);
    if (a->rounded) tow__free(ctx, a->rounded, a->n + 1, sizeof *a->rounded);
    tow__free(ctx, a, 1, sizeof *a);
}

/* ---- using ------------------------------------------------------------------------------------------------------- */

double tow__average_weight(const tow_average *a)
{
    const double d = a->options.decay;
    return a->options.debias ? (1 - d) / (1 - pow(d, (double)a->count + 1)) : 1 - d;
}

void tow__average_updated(tow_average *a) { a->count++; }

tow_status tow_average_update(tow_average *a)
{
    if (!a) return tow__missing(NULL, __func__, "an average");
    tow__cancellation *before = tow__cancellation_shield(); /* the parameters have been updated */
    *(double *)tow_array_data(a->weight) = tow__average_weight(a);
    tow_status status = tow_program_run(a->program, a->inputs, a->arrays);
    tow__cancellation_enter(before);
    if (status == TOW_OK) tow__average_updated(a);
    return status;
}

static void round_used(tow_average *a)
{
    for (size_t i = 0; i < a->n_rounded; i++) {
        const tow_array *from = a->kept->arrays[a->rounded[i]], *to = a->used->arrays[a->rounded[i]];
        const tow_type type = tow_array_type(from);
        tow__convert_elements(tow_array_type(to).dtype, tow_array_data(to), type.dtype, tow_array_data(from),
                              tow_type_element_count(type));
    }
}

/* With all the weight on the parameters: 1 p + 0, as a program computes it, in which subnormal numbers are zeros. */
static void begin_with(const tow_array *params, tow_array *kept)
{
    const tow_dtype from = tow_array_type(params).dtype, to = tow_array_type(kept).dtype;
    const int64_t n = tow_type_element_count(tow_array_type(kept));
    const void *x = tow_array_data(params);
    void *y = tow_array_data(kept);
    TOW__ARITHMETIC(true);
    if (from == TOW_F32)
        for (int64_t i = 0; i < n; i++) ((float *)y)[i] = ((const float *)x)[i] + 0.0f;
    else
        for (int64_t i = 0; i < n; i++) tow__store_element(to, y, i, tow__load_element(from, x, i).f + 0.0);
}

void tow__average_restart(tow_average *a)
{
    a->count = 0;
    for (size_t i = 0; i < a->n; i++) begin_with(a->params->arrays[i], a->kept->arrays[i]);
    round_used(a);
}

tow_params *tow_average_params(const tow_average *a) { return a->used; }

tow_params *tow__average_state(const tow_average *a) { return a->kept; }
size_t tow__average_arrays(const tow_average *a, tow_array *const **arrays)
{
    *arrays = a->arrays;
    return a->n + a->n_rounded;
}
int64_t tow__average_count(const tow_average *a) { return a->count; }

void tow__average_loaded(tow_average *a, int64_t count)
{
    a->count = count;
    round_used(a);
}

size_t tow__average_bytes(const tow_average *a)
{
    size_t bytes = 0;
    for (size_t i = 0; i < a->n + a->n_rounded; i++) bytes += tow_type_bytes(tow_array_type(a->arrays[i]));
    return bytes;
}
