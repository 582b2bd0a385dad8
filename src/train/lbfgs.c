/* L-BFGS as a transform: the two-loop recursion over the last m differences s of parameters and y of gradients (Nocedal
 * and Wright, Numerical Optimization, 2006, algorithm 7.4), in the order of Optax 0.2.8. Inner products over all
 * parameters are f64.
 *
 *   newest to oldest:  a_k = rho_k s_k.v;  v -= a_k y_k
 *                      v *= gamma
 *   oldest to newest:  v += (a_k - rho_k y_k.v) s_k */
#include <stdio.h>

#include "src/scope/layer.h"
#include "src/train/recording.h"
#include "src/train/transforms.h"
#include "tow/numpy.h"

enum {
    MOST = 100,
    NAME = 32
};

typedef struct memory {
    tow_update *u;
    size_t n; /* parameters */
    int m;
    tow_value **s, **y; /* [m][n], oldest first */
    tow_value *rho;     /* [m] f64[] */
} memory;

static tow_value inner_product(size_t n, const tow_value *a, const tow_value *b)
{
    tow_value sum = {0};
    for (size_t i = 0; i < n; i++) {
        tow_value part = tow_reduce_sum(tow_mul(tow__as(a[i], TOW_F64), tow__as(b[i], TOW_F64)), 0, NULL);
        sum = i == 0 ? part : tow_add(sum, part);
    }
    return sum;
}

/* v + factor d, with factor f64[] */
static void add_scaled(size_t n, tow_value *v, tow_value factor, const tow_value *d)
{
    for (size_t i = 0; i < n; i++) {
        tow_value by = tow__as(factor, tow_value_type(v[i]).dtype);
        v[i] = tow_add(v[i], tow_mul(tow__spread(by, d[i]), d[i]));
    }
}

static bool allocate(memory *h)
{
    tow_trace *t = h->u->trace;
    h->s = tow__trace_alloc(t, (size_t)h->m, sizeof *h->s);
    h->y = tow__trace_alloc(t, (size_t)h->m, sizeof *h->y);
    h->rho = tow__trace_alloc(t, (size_t)h->m, sizeof *h->rho);
    for (int k = 0; k < h->m && h->s && h->y; k++) {
        h->s[k] = tow__trace_alloc(t, h->n, sizeof **h->s);
        h->y[k] = tow__trace_alloc(t, h->n, sizeof **h->y);
        if (!h->s[k] || !h->y[k]) return false;
    }
    return h->s && h->y && h->rho;
}

/* The value of the slot `name`_k becomes entry k - 1, and the new one the last; all are written back. */
static void shift(memory *h, const char *name, tow_value **entries, const tow_value *newest)
{
    char slot[NAME];
    for (int k = 0; k < h->m; k++)
        for (size_t i = 0; i < h->n; i++) {
            snprintf(slot, sizeof slot, "%s_%d", name, k);
            tow_value old = tow__parameter_slot(h->u, i, slot);
            if (k > 0) entries[k - 1][i] = old;
            if (k == h->m - 1) entries[k][i] = newest[i];
        }
    for (int k = 0; k < h->m; k++)
        for (size_t i = 0; i < h->n; i++) {
            snprintf(slot, sizeof slot, "%s_%d", name, k);
            tow__set_parameter_slot(h->u, i, slot, entries[k][i]);
        }
}

static void shift_weights(memory *h, tow_value newest)
{
    const tow_type f64 = tow_make_type(TOW_F64, 0, NULL);
    char slot[NAME];
    for (int k = 0; k < h->m; k++) {
        snprintf(slot, sizeof slot, "weight_%d", k);
        tow_value old = tow_slot_with(h->u, slot, f64, 0);
        if (k > 0) h->rho[k - 1] = old;
    }
    h->rho[h->m - 1] = newest;
    for (int k = 0; k < h->m; k++) {
        snprintf(slot, sizeof slot, "weight_%d", k);
        tow_set_slot(h->u, slot, h->rho[k]);
    }
}

/* x - the slot, zeros in the first update; x is in the slot then. */
static void difference(memory *h, const char *name, const tow_value *x, tow_value first, tow_value *d)
{
    for (size_t i = 0; i < h->n; i++) {
        tow_value old = tow__parameter_slot(h->u, i, name);
        d[i] = tow_where(tow__spread(first, old), tow_full_like(old, 0), tow_sub(x[i], old));
        tow__set_parameter_slot(h->u, i, name, x[i]);
    }
}

/* Of what the approximation begins with: y.s / y.y, in the first update min(1, 1 / |g|). */
static tow_value first_scale(memory *h, tow_value sy, const tow_value *y, const tow_value *g, tow_value first)
{
    tow_value yy = inner_product(h->n, y, y), zero = tow_full_like(yy, 0), one = tow_full_like(yy, 1);
    tow_value later = tow_where(tow_gt(yy, zero), tow_div(sy, yy), one);
    tow_value norm = tow__root_value(tow__root_of_squares(h->n, g));
    return tow_where(first, tow_min(one, tow_div(one, norm)), later);
}

static void precondition(const memory *h, tow_value scale, tow_value *v)
{
    tow_value alpha[MOST];
    for (int k = h->m - 1; k >= 0; k--) {
        alpha[k] = tow_mul(h->rho[k], inner_product(h->n, h->s[k], v));
        add_scaled(h->n, v, tow_neg(alpha[k]), h->y[k]);
    }
    for (size_t i = 0; i < h->n && !tow_is_null(scale); i++)
        v[i] = tow_mul(tow__spread(tow__as(scale, tow_value_type(v[i]).dtype), v[i]), v[i]);
    for (int k = 0; k < h->m; k++) {
        tow_value beta = tow_mul(h->rho[k], inner_product(h->n, h->y[k], v));
        add_scaled(h->n, v, tow_sub(alpha[k], beta), h->s[k]);
    }
}

static void lbfgs_all(tow_update *u, const tow_gradient_transform *self)
{
    const tow_scale_by_lbfgs *o = (const tow_scale_by_lbfgs *)self;
    memory h = {.u = u, .n = tow_update_parameter_count(u), .m = o->memory_size ? o->memory_size : 10};
    if (h.m < 1 || h.m > MOST) {
        tow_trace_fail(u->trace, TOW_INVALID_ARGUMENT, "optimizer: lbfgs: expected a memory_size in [1, %d], found %d",
                       MOST, h.m);
        return;
    }
    if (h.n == 0) return;
    tow_value *lists = tow__trace_alloc(u->trace, 4 * h.n, sizeof *lists);
    if (!lists || !allocate(&h)) return;
    tow_value *p = lists, *g = p + h.n, *s = g + h.n, *y = s + h.n, first = tow__first_update(u);
    for (size_t i = 0; i < h.n; i++) {
        p[i] = tow_update_parameter(u, i);
        g[i] = tow_update_gradient(u, i);
    }
    difference(&h, "params", p, first, s);
    difference(&h, "updates", g, first, y);
    if (tow__failed(u->trace)) return;
    tow_value sy = inner_product(h.n, y, s), zero = tow_full_like(sy, 0);
    shift(&h, "diff_params", h.s, s);
    shift(&h, "diff_updates", h.y, y);
    shift_weights(&h, tow_where(tow_eq(sy, zero), zero, tow_div(tow_full_like(sy, 1), sy)));
    tow_value scale = o->no_scaled_precond ? (tow_value){0} : first_scale(&h, sy, y, g, first);
    if (tow__failed(u->trace)) return;
    precondition(&h, scale, g);
    for (size_t i = 0; i < h.n; i++) tow_update_set_gradient(u, i, g[i]);
}
const tow_gradient_transform_class tow_scale_by_lbfgs_class = {TOW__MADE_BY(TOW_SCALE_BY_LBFGS, tow_scale_by_lbfgs),
                                                               .name = "lbfgs", .all = lbfgs_all};
