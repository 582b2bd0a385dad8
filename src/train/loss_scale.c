/* Dynamic loss scaling (loss_scale.h). */
#include "src/train/loss_scale.h"

#include <math.h>

#include "src/scope/layer.h"
#include "src/train/transforms.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"

enum {
    USUAL_PERIOD = 2000
};
static const double largest = 0x1p126; /* whose inverse is no subnormal number */
static const char owner[] = "loss_scale", scale_name[] = "loss_scale/scale";

tow_status tow__loss_scale_begin(tow_optimizer_state *o, const tow_optimizer_options *options)
{
    int exponent;
    const double scale = options->loss_scale;
    if (scale == 0 && options->loss_scale_period == 0) return TOW_OK;
    if (!(scale >= 1 && scale <= largest) || frexp(scale, &exponent) != 0.5)
        return tow__fail(
            o->ctx, TOW_INVALID_ARGUMENT,
            "optimizer: expected a .loss_scale that is a power of two from 1 to 2^126, found %.9g; 65536 is "
            "usual",
            scale);
    if (options->examples || options->line_search)
        return tow__fail(o->ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected no .loss_scale with .examples and .line_search, found %.9g", scale);
    o->loss_scale = scale;
    o->loss_scale_period = options->loss_scale_period ? (uint64_t)options->loss_scale_period : USUAL_PERIOD;
    o->skip_not_finite = SIZE_MAX;
    return TOW_OK;
}

/* ---- in updates -------------------------------------------------------------------------------------------------- */

static double scale_of(int64_t step, const void *state)
{
    (void)step;
    return ((const tow_optimizer_state *)state)->loss_scale;
}

static double inverse_of(int64_t step, const void *state) { return 1 / scale_of(step, state); }

tow_value tow__unscale(tow_update *u, tow_value gradient)
{
    if (u->o->loss_scale == 0 || tow_is_null(gradient)) return gradient;
    tow_update own = *u;
    own.owner = owner;
    const tow_dtype dtype = tow_value_type(gradient).dtype, wide = tow_promote_types(dtype, TOW_F32);
    tow_update_function(&own, "scale", scale_of, u->o, TOW_F32);
    tow_value inverse = tow_update_function(&own, "inverse", inverse_of, u->o, wide), g = tow__as(gradient, wide);
    return tow__as(tow_mul(g, tow__spread(inverse, g)), dtype);
}

void tow__loss_scale_after(tow_optimizer_state *o, bool finite)
{
    if (o->loss_scale == 0) return;
    if (!finite) {
        o->loss_scale = fmax(o->loss_scale / 2, 1);
        o->loss_scale_updates = 0;
    } else if (++o->loss_scale_updates >= o->loss_scale_period) {
        o->loss_scale = fmin(2 * o->loss_scale, largest);
        o->loss_scale_updates = 0;
    }
}

/* ---- in steps ---------------------------------------------------------------------------------------------------- */

static void identity(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = in[0];
}

static void keep_scale(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = in[0];
    out[1] = in[1];
}

/* in: scale, cotangent of the loss. */
static void multiply(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_mul(in[1], tow__as(in[0], tow_value_type(in[1]).dtype));
    out[1] = tow_zeros_like(in[0]);
}

static void record_scaled(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const tow_graph *loss = user;
    tow_inline(trace, loss, in, out);
    const tow_value operands[2] = {out[0], in[tow_graph_input_count(loss)]};
    tow_custom_vjp_function(trace, identity, keep_scale, multiply, NULL, &TOW_CUSTOM_OPTIONS(.name = "scaled_loss"), 2,
                            operands, 1, 1, out);
}

tow_status tow__scale_loss(const tow_train_state *s, const tow_graph *loss, tow_graph **scaled)
{
    const size_t n = tow_graph_input_count(loss);
    if (s->optimizer->loss_scale == 0) {
        *scaled = tow__graph_share(loss);
        return TOW_OK;
    }
    tow_type *types = tow__alloc(s->ctx, n + 1, sizeof *types);
    const char **names = tow__alloc(s->ctx, n + 1, sizeof *names);
    tow_status status = types && names ? TOW_OK : TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n && status == TOW_OK; i++) {
        types[i] = tow_graph_input_type(loss, i);
        names[i] = tow_graph_input_name(loss, i);
    }
    if (status == TOW_OK) {
        types[n] = tow_make_type(TOW_F32, 0, NULL);
        names[n] = scale_name;
        status = tow_trace_function(s->ctx, record_scaled, (void *)(uintptr_t)loss, n + 1, types, names,
                                    tow_graph_output_count(loss), scaled);
    }
    if (types) tow__free(s->ctx, types, n + 1, sizeof *types);
    if (names) tow__free(s->ctx, names, n + 1, sizeof *names);
    return status;
}

tow_value tow__step_scale(const tow_train_state *s, const tow_value *numbers)
{
    return tow_convert(numbers[tow__names_find(&s->optimizer->number_names, scale_name)], TOW_F32);
}
