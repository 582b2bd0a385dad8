/* Scaled rotary positions of models in GGUF files. Llama 3.1's scaling is not among the metadata, but a tensor: a pair
 * of features that turns t times within L positions is divided by
 *
 *     f                          t < low
 *     1                          t > high
 *     1 / ((1 - s) / f + s)      between, s = (t - low) / (high - low)
 *
 * Files have these quotients alone, of which f, low and high for a given L are found again. */
#include <math.h>
#include <stdio.h>

#include "src/io/gguf.h"

#define FACTORS "rope_freqs.weight"

/* The number of times that a pair turns. */
static double turns(const tow_gguf_model *m, int64_t pair, int64_t pairs)
{
    return m->rope_length * pow(m->rope_base, -(double)pair / (double)pairs) / (2 * acos(-1));
}

static double quotient(const tow_gguf_model *m, int64_t pair, int64_t pairs)
{
    const double t = turns(m, pair, pairs), smooth = (t - m->rope_low) / (m->rope_high - m->rope_low);
    return t < m->rope_low ? m->rope_factor : t > m->rope_high ? 1 : 1 / ((1 - smooth) / m->rope_factor + smooth);
}

/* Numbers that a scaling of Llama 3.1 can have. */
static bool is_scaling(const tow_gguf_model *m)
{
    return m->rope_base > 0 && m->rope_factor >= 1 && m->rope_low > 0 && m->rope_high > m->rope_low &&
           m->rope_length > 0 && isfinite(m->rope_base * m->rope_factor * m->rope_high * m->rope_length);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* The numbers of the model give these quotients, within what f32 and its functions leave open. */
static bool explains(const tow_gguf_model *m, const float *q, int64_t pairs)
{
    if (!is_scaling(m)) return false;
    for (int64_t i = 0; i < pairs; i++) {
        const double expected = quotient(m, i, pairs);
        if (!(fabs((double)q[i] - expected) <= 1e-5 * expected)) return false;
    }
    return true;
}

/* s of a quotient between 1 and the factor. */
static double smooth_of(const tow_gguf_model *m, double q)
{
    return (1 / q - 1 / m->rope_factor) / (1 - 1 / m->rope_factor);
}

/* Turns of a pair, also of those before the first and behind the last. */
static double turns_around(const tow_gguf_model *m, int64_t pair, int64_t pairs)
{
    return pair < 0 ? 2 * turns(m, 0, pairs) : pair < pairs ? turns(m, pair, pairs) : 0;
}

/* low and high of the quotients, which are 1, the factor, or between: those on a line through two that are between, or
 * where nothing tells, any that give them. */
static void fit(tow_gguf_model *m, const float *q, int64_t pairs)
{
    int64_t first = 0, last = pairs - 1; /* that are above 1, and below the factor */
    while (first < pairs - 1 && (double)q[first] <= 1) first++;
    while (last > 0 && (double)q[last] >= m->rope_factor) last--;
    const double t = turns(m, first, pairs), before = turns_around(m, first - 1, pairs);
    const double s = smooth_of(m, (double)q[first]);
    double width = fmin(t - turns_around(m, first + 1, pairs), before - t);
    if (last > first) width = (t - turns(m, last, pairs)) / (s - smooth_of(m, (double)q[last]));
    m->rope_low = last < first ? (t + before) / 2 : t - s * width;
    m->rope_high = last < first ? (t + 3 * before) / 4 : m->rope_low + width;
}

static double rounded(double x) { return round(x * 1000) / 1000; }

/* Finds the scaling of which the quotients are. Files of Llama 3.1 have a factor of 8, those of Llama 3.2 one of 32,
 * others that of their slowest pair. */
static bool find_llama3(tow_gguf_model *m, const float *q, int64_t pairs)
{
    const double known[] = {(double)q[pairs - 1], 8, 32};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        m->rope_factor = known[i];
        m->rope_low = 1;
        m->rope_high = 4;
        if (explains(m, q, pairs)) return true;
        fit(m, q, pairs);
        tow_gguf_model near = *m;
        near.rope_low = rounded(m->rope_low);
        near.rope_high = rounded(m->rope_high);
        if (explains(&near, q, pairs)) *m = near;
        if (explains(m, q, pairs)) return true;
    }
    return false;
}

static tow_status read_factors(const tow_tensors *tensors, size_t index, tow_gguf_model *m)
{
    const tow_type type = tow_tensors_type(tensors, index);
    const int64_t pairs = m->rope_width / 2;
    tow_context *ctx = tensors->ctx;
    tow_array *array = NULL;
    if (strcmp(m->rope_scaling, "none") != 0)
        return tow__fail(ctx, TOW_UNSUPPORTED, FACTORS ": expected no rope.scaling.type beside it, found %.40s",
                         m->rope_scaling);
    if (!tow_dtype_is_float(type.dtype) || type.rank != 1 || pairs < 1 || type.dims[0] != pairs)
        return tow__fail(ctx, TOW_BAD_FORMAT,
                         FACTORS ": expected f32[%lld], a number for each pair of features that positions turn, found "
                                 "%s",
                         (long long)pairs, tow__type_name(type).text);
    tow_status status = tow_tensors_get_with(tensors, FACTORS, TOW_F32, &array);
    if (status != TOW_OK) return status;
    const float *q = tow_array_data(array);
    if (find_llama3(m, q, pairs))
        m->rope_scaling = "llama3";
    else
        status = tow__fail(ctx, TOW_UNSUPPORTED,
                           FACTORS ": expected the factors of Llama 3 (1 for fast pairs, one larger number for slow "
                                   "ones, and what is between), found %g ... %g, which are others",
                           (double)q[0], (double)q[pairs - 1]);
    tow_array_release(array);
    return status;
}

/* Positions of Llama turn all features of a head, or rows of queries and keys are in another order than that of Llama;
 * llama.cpp refuses the others. It multiplies the cosines and sines of all models by attn_factor. */
static tow_status check_rope(const tow_tensors *tensors, const tow_gguf_model *m)
{
    char key[160];
    if (strcmp(m->architecture, "llama") == 0 && m->head_width > 0 && m->rope_width != m->head_width)
        return tow__fail(tensors->ctx, TOW_UNSUPPORTED,
                         "metadata 'llama.rope.dimension_count': expected %lld, the features of a head, found %lld",
                         (long long)m->head_width, (long long)m->rope_width);
    snprintf(key, sizeof key, "%.100s.rope.scaling.attn_factor", m->architecture);
    const tow_metadata_value factor = tow_tensors_metadata_value(tensors, key);
    const bool known = strcmp(m->rope_scaling, "none") == 0 || strcmp(m->rope_scaling, "linear") == 0;
    if (!known || factor.type == TOW_METADATA_NONE || factor.number == 1) return TOW_OK;
    return tow__fail(tensors->ctx, TOW_UNSUPPORTED, "metadata '%s': expected 1, found %g", key, factor.number);
}

tow_status tow__gguf_read_rope(const tow_tensors *tensors, tow_gguf_model *m)
{
    char key[160];
    const ptrdiff_t index = tow__tensors_lookup(tensors, FACTORS);
    snprintf(key, sizeof key, "%.100s.rope.scaling.type", m->architecture);
    const tow_metadata_value type = tow_tensors_metadata_value(tensors, key);
    if (type.type != TOW_METADATA_NONE && type.type != TOW_METADATA_STRING)
        return tow__fail(tensors->ctx, TOW_BAD_FORMAT, "metadata '%s': expected a string", key);
    if (type.type == TOW_METADATA_STRING && strcmp(type.text, "llama3") == 0)
        return tow__fail(tensors->ctx, TOW_UNSUPPORTED,
                         "metadata '%s': found llama3, which files say by the tensor " FACTORS, key);
    if (m->rope_factor == 0) m->rope_factor = 1;
    m->rope_scaling = type.type == TOW_METADATA_STRING ? type.text : m->rope_factor == 1 ? "none" : "linear";
    if (strcmp(m->rope_scaling, "none") == 0) m->rope_factor = 1;
    const tow_status status = check_rope(tensors, m);
    return status == TOW_OK && index >= 0 ? read_factors(tensors, (size_t)index, m) : status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

tow_status tow_gguf_rope_factors(tow_context *context, const tow_gguf_model *model, tow_array **factors)
{
    if (factors) *factors = NULL;
    if (!context || !model || !factors)
        return tow__missing(context, __func__, "a context, a model and a place for the array");
    const int64_t pairs = model->rope_width / 2;
    if (!model->rope_scaling || strcmp(model->rope_scaling, "llama3") != 0 || pairs < 1 || model->rope_width % 2 != 0 ||
        !is_scaling(model))
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_gguf_rope_factors: expected llama3 as rope_scaling, an even rope_width, rope_factor 1 or "
                         "above, and 0 < rope_low < rope_high, found %.40s, %lld, %g, %g and %g",
                         model->rope_scaling ? model->rope_scaling : "NULL", (long long)model->rope_width,
                         model->rope_factor, model->rope_low, model->rope_high);
    const tow_status status = tow_array_create(context, tow_make_type(TOW_F32, 1, &pairs), factors);
    if (status != TOW_OK) return status;
    for (int64_t i = 0; i < pairs; i++) ((float *)tow_array_data(*factors))[i] = (float)quotient(model, i, pairs);
    return TOW_OK;
}
