/* The options of AdamW and SGD: checked, and made into a chain of gradient transforms. */
#include "src/train/optimizer.h"

#include <float.h>
#include <math.h>

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* A share: at least 0, below 1. */
static tow_status check_share(tow_context *ctx, const char *name, double value)
{
    if (value >= 0.0 && (float)value < 1.0f) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: expected %s in [0, 1), found %.9g", name, value);
}

static tow_status check_range(tow_context *ctx, const char *name, double value, double low, double high)
{
    if (value >= low && value <= high) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: expected %s in [%.9g, %.9g], found %.9g", name, low, high,
                     value);
}

/* Updates are computed in f32, where a larger rate is infinite. */
static tow_status check_schedule(tow_context *ctx, const tow_schedule *s)
{
    tow_status status = TOW_OK;
    if (s->kind > TOW_SCHEDULE_WARMUP_COSINE && s->kind <= TOW_SCHEDULE_JOINED)
        return isfinite(tow_schedule_at(s, 0))
                   ? TOW_OK
                   : tow__fail(
                         ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: expected a learning rate that is a finite number at step 0, found %g; does the "
                         "schedule have its function, its steps and its arrays?",
                         tow_schedule_at(s, 0));
    if (s->kind != TOW_SCHEDULE_CONSTANT && s->kind != TOW_SCHEDULE_WARMUP_COSINE)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: %d is no kind of schedule", (int)s->kind);
    TRY(check_range(ctx, "learning_rate.init_value", s->init_value, -FLT_MAX, FLT_MAX));
    TRY(check_range(ctx, "learning_rate.peak_value", s->peak_value, -FLT_MAX, FLT_MAX));
    TRY(check_range(ctx, "learning_rate.end_value", s->end_value, -FLT_MAX, FLT_MAX));
    TRY(check_range(ctx, "learning_rate.exponent", s->exponent, 0.0, DBL_MAX));
    if (s->kind == TOW_SCHEDULE_CONSTANT &&
        (s->init_value != 0 || s->end_value != 0 || s->warmup_steps != 0 || s->decay_steps != 0 || s->exponent != 0))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: the schedule has a warm-up or a decay but is of kind TOW_SCHEDULE_CONSTANT, which "
                         "reads .peak_value alone; use tow_schedule_warmup_cosine");
    if (s->kind == TOW_SCHEDULE_WARMUP_COSINE && (s->warmup_steps < 0 || s->decay_steps <= s->warmup_steps))
        return tow__fail(
            ctx, TOW_INVALID_ARGUMENT,
            "optimizer: expected 0 <= warmup_steps < decay_steps (which include the warm-up), found %lld and %lld",
            (long long)s->warmup_steps, (long long)s->decay_steps);
done:
    return status;
}

tow_status tow__optimizer_resolve(tow_context *ctx, const tow_standard_optimizer *options,
                                  tow_standard_optimizer *resolved)
{
    tow_status status = TOW_OK;
    *resolved = *options;
    if (resolved->b1 == 0.0) resolved->b1 = 0.9;
    if (resolved->b2 == 0.0) resolved->b2 = 0.999;
    if (resolved->eps == 0.0) resolved->eps = 1e-8;
    if (options->kind != TOW_ADAMW && options->kind != TOW_SGD)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "optimizer: expected TOW_ADAMW or TOW_SGD, found %d",
                         (int)options->kind);
    if (options->kind == TOW_SGD ? options->b1 != 0 || options->b2 != 0 || options->eps != 0
                                 : options->momentum != 0 || options->nesterov)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "optimizer: .b1, .b2 and .eps belong to TOW_ADAMW, .momentum and .nesterov to TOW_SGD, found "
                         "some of them with %s; set .kind, or leave them 0",
                         options->kind == TOW_SGD ? "TOW_SGD" : "TOW_ADAMW");
    TRY(check_schedule(ctx, &resolved->learning_rate));
    TRY(check_share(ctx, "b1", resolved->b1));
    TRY(check_share(ctx, "b2", resolved->b2));
    TRY(check_range(ctx, "eps", resolved->eps, FLT_MIN, FLT_MAX)); /* neither 0 when flushed nor infinite */
    TRY(check_range(ctx, "momentum", resolved->momentum, 0.0, 1.0));
    TRY(check_range(ctx, "weight_decay", resolved->weight_decay, 0.0, FLT_MAX));
    TRY(check_range(ctx, "clip_norm", resolved->clip_norm, 0.0, DBL_MAX));
done:
    return status;
}

const char *tow__optimizer_name(const tow_standard_optimizer *optimizer)
{
    if (optimizer->kind == TOW_ADAMW) return "adamw";
    return optimizer->momentum != 0.0 ? "sgd with momentum" : "sgd";
}

void tow__optimizer_chain(const tow_standard_optimizer *o, tow__optimizer_transforms *t)
{
    size_t n = 0;
    *t = (tow__optimizer_transforms){
        .clip = TOW_CLIP_BY_GLOBAL_NORM(.max_norm = o->clip_norm),
        .adam = TOW_SCALE_BY_ADAM(.b1 = o->b1, .b2 = o->b2, .eps = o->eps),
        .trace = TOW_TRACE_GRADIENTS(.decay = o->momentum, .nesterov = o->nesterov),
        .decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = o->weight_decay, .decay_all = o->decay_all),
        .rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = o->learning_rate)};
    if (o->clip_norm > 0) t->list[n++] = TOW_GRADIENT_TRANSFORM(&t->clip);
    if (o->kind == TOW_ADAMW) t->list[n++] = TOW_GRADIENT_TRANSFORM(&t->adam);
    if (o->weight_decay > 0) t->list[n++] = TOW_GRADIENT_TRANSFORM(&t->decay);
    if (o->kind == TOW_SGD && o->momentum != 0) t->list[n++] = TOW_GRADIENT_TRANSFORM(&t->trace);
    t->list[n++] = TOW_GRADIENT_TRANSFORM(&t->rate);
    t->chain = (tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)}, .transforms = t->list, .n = n};
}
