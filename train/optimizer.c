/* SGD with momentum and AdamW as fused loops: one pass over gradients for the norm, one pass for everything else.
 *
 * Both passes run over fixed blocks of BLOCK elements. The norm is the root of a sum of doubles, each the sum of one
 * block over LANES interleaved lanes, added in a fixed order. */
#include "train/optimizer.h"

#include <float.h>
#include <math.h>

#include "src/base/clones.h"

enum {
    BLOCK = 1 << 14,
    LANES = 16,
    LINE = 16,  /* elements */
    AHEAD = 512 /* elements that are fetched early */
};

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

tow_status tow__optimizer_resolve(tow_context *ctx, const tow_optimizer *options, tow_optimizer *resolved)
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

size_t tow__optimizer_slots(const tow_optimizer *optimizer)
{
    if (optimizer->kind == TOW_ADAMW) return 2;
    return optimizer->momentum != 0.0 ? 1 : 0;
}

const char *tow__optimizer_slot_prefix(const tow_optimizer *optimizer, size_t index)
{
    static const char *const prefixes[][2] = {[TOW_ADAMW] = {"adam/mu/", "adam/nu/"}, [TOW_SGD] = {"sgd/trace/", NULL}};
    return prefixes[optimizer->kind][index];
}

const char *tow__optimizer_name(const tow_optimizer *optimizer)
{
    if (optimizer->kind == TOW_ADAMW) return "adamw";
    return optimizer->momentum != 0.0 ? "sgd with momentum" : "sgd";
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

tow_status tow__updater_init(tow_context *ctx, tow__updater *u)
{
    size_t n = 0;
    for (size_t i = 0; i < u->n_parameters; i++) n += (size_t)((u->parameters[i].count + BLOCK - 1) / BLOCK);
    u->blocks = tow__alloc(ctx, n + 1, sizeof *u->blocks);
    u->partial = tow__alloc(ctx, n + 1, sizeof *u->partial);
    u->n_blocks = n;
    if (!u->blocks || !u->partial) return TOW_OUT_OF_MEMORY;
    tow__block *block = u->blocks;
    for (size_t i = 0; i < u->n_parameters; i++)
        for (int64_t at = 0, count = u->parameters[i].count; at < count; at += BLOCK)
            *block++ = (tow__block){(int64_t)i, at, at + BLOCK < count ? at + BLOCK : count};
    return TOW_OK;
}

void tow__updater_free(tow_context *ctx, tow__updater *u)
{
    if (u->blocks) tow__free(ctx, u->blocks, u->n_blocks + 1, sizeof *u->blocks);
    if (u->partial) tow__free(ctx, u->partial, u->n_blocks + 1, sizeof *u->partial);
    if (u->parameters) tow__free(ctx, u->parameters, u->n_parameters, sizeof *u->parameters);
    u->blocks = NULL;
    u->partial = NULL;
    u->parameters = NULL;
}

/* ---- the norm ---------------------------------------------------------------------------------------------------- */

/* partial[block] = sum g^2 */
static void sum_squares(void *user, int64_t block)
{
    const tow__updater *u = user;
    const tow__block *b = &u->blocks[block];
    const float *g = u->parameters[b->parameter].g + b->begin;
    int64_t count = b->end - b->begin, whole = count - count % LANES;
    double lanes[LANES] = {0};
    for (int64_t i = 0; i < whole; i += LANES)
        for (int j = 0; j < LANES; j++) lanes[j] += (double)g[i + j] * (double)g[i + j];
    for (int64_t i = whole; i < count; i++) lanes[i - whole] += (double)g[i] * (double)g[i];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) lanes[j] += lanes[j + width];
    u->partial[block] = lanes[0];
}

static double global_norm(tow__updater *u)
{
    tow__team_run(&u->team, (int64_t)u->n_blocks, sum_squares, u);
    double sum = 0;
    for (size_t i = 0; i < u->n_blocks; i++) sum += u->partial[i];
    return sqrt(sum);
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

/* Elements [0, n). m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
 * p -= rate (m/bias1 / (sqrt(v/bias2) + eps) + decay p) */
static inline __attribute__((always_inline)) void adamw_elements(const tow__coefficients *c, float decay, int64_t n,
                                                                 float *restrict p, float *restrict m,
                                                                 float *restrict v, const float *restrict g)
{
    for (int64_t i = 0; i < n; i++) {
        float gi = g[i] * c->scale;
        float mi = c->c1 * gi + c->b1 * m[i];
        float vi = c->c2 * (gi * gi) + c->b2 * v[i];
        m[i] = mi;
        v[i] = vi;
        float update = mi / c->bias1 / (sqrtf(vi / c->bias2) + c->eps) + decay * p[i];
        p[i] -= c->rate * update;
    }
}

/* Line by line: four arrays from memory at once are more than the processor fetches early by itself. What lies behind
 * the arrays is only hinted at. */
TOW__CLONES static void adamw(const tow__coefficients *c, float decay, int64_t n, float *restrict p, float *restrict m,
                              float *restrict v, const float *restrict g)
{
    int64_t i = 0;
    for (; i + LINE <= n; i += LINE) {
        const uintptr_t ahead = (uintptr_t)(i + AHEAD) * sizeof *p; /* perhaps behind the end */
        __builtin_prefetch((const void *)((uintptr_t)p + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)m + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)v + ahead), 1);
        __builtin_prefetch((const void *)((uintptr_t)g + ahead));
        adamw_elements(c, decay, LINE, p + i, m + i, v + i, g + i);
    }
    adamw_elements(c, decay, n - i, p + i, m + i, v + i, g + i);
}

/* g += decay p;  m = g + momentum m;  p -= rate m, with nesterov rate (g + momentum m) */
static void sgd(const tow__coefficients *c, float decay, int64_t n, float *restrict p, float *restrict m,
                const float *restrict g)
{
    for (int64_t i = 0; i < n; i++) {
        float update = g[i] * c->scale + decay * p[i];
        if (m) {
            m[i] = update + c->b1 * m[i];
            update = c->nesterov ? update + c->b1 * m[i] : m[i];
        }
        p[i] -= c->rate * update;
    }
}

/* g: gradient of elements [first, first + n) of x */
static void update_range(const tow__updater *u, const tow__parameter *x, int64_t first, int64_t n, const float *g)
{
    const tow__coefficients *c = &u->now;
    float decay = x->decay ? c->decay : 0.0f;
    if (u->optimizer.kind == TOW_ADAMW)
        adamw(c, decay, n, x->p + first, x->m + first, x->v + first, g);
    else
        sgd(c, decay, n, x->p + first, x->m ? x->m + first : NULL, g);
}

static void update_block(void *user, int64_t block)
{
    const tow__updater *u = user;
    const tow__block *b = &u->blocks[block];
    const tow__parameter *x = &u->parameters[b->parameter];
    update_range(u, x, b->begin, b->end - b->begin, x->g + b->begin);
}

typedef struct piece {
    const tow__updater *u;
    const tow__parameter *x;
    int64_t first, count;
    const float *g;
} piece;

static void update_piece_block(void *user, int64_t block)
{
    const piece *r = user;
    int64_t begin = block * BLOCK, rest = r->count - begin;
    update_range(r->u, r->x, r->first + begin, rest < BLOCK ? rest : BLOCK, r->g + begin);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void tow__update_begin(tow__updater *u, int64_t step)
{
    const tow_optimizer *o = &u->optimizer;
    tow__coefficients *c = &u->now;
    *c = (tow__coefficients){.scale = 1.0f,
                             .rate = (float)tow_schedule_at(&o->learning_rate, step),
                             .decay = (float)o->weight_decay,
                             .nesterov = o->nesterov};
    if (o->kind == TOW_ADAMW) {
        double t = (double)step + 1.0;
        c->b1 = (float)o->b1;
        c->b2 = (float)o->b2;
        c->c1 = (float)(1.0 - o->b1);
        c->c2 = (float)(1.0 - o->b2);
        c->bias1 = (float)(1.0 - pow(o->b1, t));
        c->bias2 = (float)(1.0 - pow(o->b2, t));
        c->eps = (float)o->eps;
    } else {
        c->b1 = (float)o->momentum;
    }
}

void tow__update_piece(tow__updater *u, const tow__parameter *x, int64_t first, int64_t count, const float *g)
{
    piece r = {u, x, first, count, g};
    tow__team_run(&u->team, (count + BLOCK - 1) / BLOCK, update_piece_block, &r);
}

double tow__update(tow__updater *u, int64_t step)
{
    double norm = 0;
    tow__update_begin(u, step);
    if (u->optimizer.clip_norm > 0) {
        norm = global_norm(u);
        if (!(norm < u->optimizer.clip_norm)) /* a NaN norm reaches all parameters, and is seen */
            u->now.scale = (float)(u->optimizer.clip_norm / norm);
    }
    tow__team_run(&u->team, (int64_t)u->n_blocks, update_block, u);
    return norm;
}
