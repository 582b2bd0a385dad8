/* WeightNorm and SpectralNorm: layers around another one, which sees its parameters divided by a norm.
 *
 *   WeightNorm     w' = w rsqrt(sum(w^2) + epsilon) scale, the sum over the axes that are not features
 *   SpectralNorm   w' = w / sigma, sigma = v w u'; v = normalized u w', u = normalized v w, n_steps times
 *
 * The inner layer is called in the scope of the norm itself, so nothing about its names and initial values changes;
 * what a norm keeps of a parameter stands beside it, in a child of the scope that asked for it:
 * "layer/WeightNorm/kernel/scale". */
#include "src/scope/layer.h"
#include "src/scope/store.h"
#include "src/scope/tree.h"
#include "tow/numpy.h"
#include "tow/transforms.h"
#include "transforms/view.h"

/* Some of the filter's strings is in "layer/kernel", the path of the parameter below the norm. */
static bool is_listed(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    static const char *const kernels[] = {"kernel", NULL};
    const tow_weight_norm *m = view->user;
    const char *path = tow__is_param(request) ? tow__viewed_path(view, scope, request) : NULL;
    if (!path || m->everything) return path != NULL;
    for (const char *const *part = m->filter ? m->filter : kernels; *part; part++)
        if (strstr(path, *part)) return true;
    return false;
}

/* x / |x|, the norm over n axes, which stay with size 1; of no axis: of each element. */
static tow_value normalized(tow_value x, int n, const int *axes, double epsilon)
{
    tow_value square = tow_square(x);
    if (n > 0) square = tow_reduce_sum_keepdims(square, n, axes);
    return tow_mul(x, tow_rsqrt(tow_add_scalar(square, epsilon)));
}

/* ---- WeightNorm -------------------------------------------------------------------------------------------------- */

/* The axes of a parameter of this type that are reduced, the shape of the scale, and that shape beside the
 * parameter. */
static bool read_shape(tow_scope *scope, const tow_weight_norm *m, tow_type type, int *n_reduced, int *reduced, int *n,
                       int64_t *dims, int64_t *spread)
{
    int features[TOW_MAX_RANK];
    *n = *n_reduced = 0;
    if (!m->whole && type.rank > 0 && !tow__read_axes(scope, "WeightNorm", type, m->n_axes, m->axes, features, n))
        return false;
    for (int axis = 0, next = 0; axis < type.rank; axis++) {
        bool feature = next < *n && features[next] == axis;
        spread[axis] = feature ? type.dims[axis] : 1;
        if (feature)
            dims[next++] = type.dims[axis];
        else
            reduced[(*n_reduced)++] = axis;
    }
    return true;
}

static tow_value weight_normed(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request)
{
    const tow_weight_norm *m = view->user;
    tow_value value = tow__request(scope, request);
    const tow_type type = request->type;
    int n, n_reduced, reduced[TOW_MAX_RANK];
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    if (!read_shape(scope, m, type, &n_reduced, reduced, &n, dims, spread)) return (tow_value){0};
    tow_dtype wide = tow_promote_types(type.dtype, TOW_F32); /* norms are f32 at least */
    tow_value y = normalized(tow__as(value, wide), n_reduced, reduced, m->epsilon > 0 ? m->epsilon : 1e-12);
    if (m->no_scale) return tow__as(y, type.dtype);
    if (!tow__check_kept_once(view, scope, request, "WeightNorm")) return (tow_value){0};
    tow_scope *beside = tow__open_beside(scope, "WeightNorm", request->name);
    tow_value scale = tow_param(beside, "scale", n, dims, tow__init_or(m->scale_init, tow_initializer_ones()));
    tow__close_beside(beside);
    return tow__as(tow_mul(y, tow_reshape(tow__as(scale, wide), type.rank, spread)), type.dtype);
}

static void call_weight_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                             tow_value *out)
{
    const tow_weight_norm *m = (const tow_weight_norm *)module;
    if (!tow__check_option(scope, "WeightNorm", m->epsilon >= 0, "epsilon", m->epsilon, "a positive number")) return;
    tow__call_viewed(scope, m->inner, &(tow__scope_view){.takes = is_listed, .read = weight_normed, .user = m}, n_in,
                     in, n_out, out);
}

/* ---- SpectralNorm ------------------------------------------------------------------------------------------------ */

/* w [rows, columns], u [1, columns] -> sigma []; *u is the vector that the steps lead to. */
static tow_value largest_singular_value(tow_value w, int64_t steps, double epsilon, tow_value *u)
{
    const tow_dot_dims with_transpose = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {1}};
    tow_value v = {0};
    int axes[] = {0, 1};
    for (int64_t i = 0; i < steps; i++) {
        v = normalized(tow_dot_general(*u, w, with_transpose), 2, axes, epsilon); /* [1, rows] */
        *u = normalized(tow_dot(v, w), 2, axes, epsilon);
    }
    *u = tow_stop_gradient(*u);
    return tow_reshape(tow_dot_general(tow_dot(tow_stop_gradient(v), w), *u, with_transpose), 0, NULL);
}

static bool is_matrix(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request)
{
    return tow__takes_params(view, scope, request) && request->type.rank >= 2;
}

static tow_value spectral_normed(const tow__scope_view *view, tow_scope *scope, const tow_variable_request *request)
{
    const tow_spectral_norm *m = view->user;
    tow_value value = tow__request(scope, request);
    const tow_type type = request->type;
    if (tow_is_null(value) || !tow__check_kept_once(view, scope, request, "SpectralNorm")) return (tow_value){0};
    if (type.rank > 2 && m->matrices_only) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "SpectralNorm: the parameter \"%s\" is %s; expected matrices, or .matrices_only = false",
                       request->name, tow__type_name(type).text);
        return (tow_value){0};
    }
    int64_t columns = type.dims[type.rank - 1];
    tow_dtype wide = tow_promote_types(type.dtype, TOW_F32); /* the iteration is f32 at least */
    tow_value w = tow_reshape(tow__as(value, wide), 2,
                              (int64_t[]){tow_type_element_count(type) / (columns ? columns : 1), columns});
    tow_scope *beside = tow__open_beside(scope, "SpectralNorm", request->name);
    tow_value u = tow_variable(beside, "batch_stats", "u", tow_make_type(TOW_F32, 2, (int64_t[]){1, columns}),
                               tow_initializer_normal(1));
    tow_variable(beside, "batch_stats", "sigma", tow_make_type(TOW_F32, 0, NULL), tow_initializer_ones());
    u = tow__as(u, wide);
    tow_value sigma = largest_singular_value(w, m->n_steps ? m->n_steps : 1, m->epsilon > 0 ? m->epsilon : 1e-12, &u);
    if (!m->keep_stats && !tow_scope_is_deterministic(scope)) {
        tow_set_variable(beside, "batch_stats", "u", tow__as(u, TOW_F32));
        tow_set_variable(beside, "batch_stats", "sigma", tow__as(tow_stop_gradient(sigma), TOW_F32));
    }
    tow__close_beside(beside);
    tow_value one = tow_full_like(sigma, 1), zero = tow_zeros_like(sigma);
    return tow__as(tow_div(tow__as(value, wide), tow_where(tow_ne(sigma, zero), sigma, one)), type.dtype);
}

static void call_spectral_norm(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in,
                               size_t n_out, tow_value *out)
{
    const tow_spectral_norm *m = (const tow_spectral_norm *)module;
    if (!tow__check_option(scope, "SpectralNorm", m->epsilon >= 0, "epsilon", m->epsilon, "a positive number") ||
        !tow__check_option(scope, "SpectralNorm", m->n_steps >= 0, "n_steps", (double)m->n_steps, "a positive number"))
        return;
    tow__call_viewed(scope, m->inner, &(tow__scope_view){.takes = is_matrix, .read = spectral_normed, .user = m}, n_in,
                     in, n_out, out);
}

const tow_module_class tow_weight_norm_class = {
    TOW__MADE_BY(TOW_WEIGHT_NORM, tow_weight_norm), .name = "WeightNorm", .call = call_weight_norm,
    .layout = TOW__LAYOUT_OF(tow_weight_norm, TOW_MEMBER(tow_weight_norm, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_weight_norm, filter, TOW_MEMBER_NAMES))};
const tow_module_class tow_spectral_norm_class = {
    TOW__MADE_BY(TOW_SPECTRAL_NORM, tow_spectral_norm), .name = "SpectralNorm", .call = call_spectral_norm,
    .layout = TOW__LAYOUT_OF(tow_spectral_norm, TOW_MEMBER(tow_spectral_norm, inner, TOW_MEMBER_LAYER))};
