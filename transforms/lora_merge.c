/* Folding the updates of LoRA into kernels, and taking them out again. */
#include <math.h>
#include <string.h>

#include "src/scope/layer.h"
#include "tow/autodiff.h"
#include "tow/program.h"
#include "tow/transforms.h"

/* An update: w [batch..., contracted..., features...], a [batch..., contracted..., rank], b [batch..., rank,
 * features...]; stacked layers are axes of the batch, and brought to the front. */
typedef struct operand {
    tow_array *array; /* NULL: there is none */
    tow_type type;    /* with layers in front */
    int n, axes[TOW_MAX_RANK];
} operand;

typedef struct update {
    operand w, a, b;
    int64_t batch, contracted, features; /* products of these axes */
    double factor;
} update;

/* The paths of w and b for that of a, "layer/LoRA/kernel/a"; false if it is no such path. kernel, b: as large as
 * path. */
static bool read_path(const char *path, char *kernel, char *b)
{
    size_t length = strlen(path);
    if (length < 3 || strcmp(path + length - 2, "/a") != 0) return false;
    size_t name = length - 2;
    while (name > 0 && path[name - 1] != '/') name--;
    if (name < 5 || strncmp(path + name - 5, "LoRA/", 5) != 0 || (name > 5 && path[name - 6] != '/')) return false;
    memcpy(kernel, path, name - 5);
    memcpy(kernel + name - 5, path + name, length - 2 - name);
    kernel[length - 7] = '\0';
    memcpy(b, path, length + 1);
    b[length - 1] = 'b';
    return true;
}

static bool same_dims(const int64_t *x, const int64_t *y, int n)
{
    for (int i = 0; i < n; i++)
        if (x[i] != y[i]) return false;
    return true;
}

static int64_t product_of(const int64_t *dims, int n)
{
    int64_t product = 1;
    for (int i = 0; i < n; i++) product *= dims[i];
    return product;
}

/* Fills the sizes; false if the shapes do not fit. */
static bool read_shapes(update *u, double alpha, double sign)
{
    tow_type w = u->w.type, a = u->a.type, b = u->b.type;
    int batch = a.rank + b.rank - 2 - w.rank, contracted = a.rank - 1 - batch, features = b.rank - 1 - batch;
    if (batch < 0 || contracted < 0 || features < 0 || a.dims[a.rank - 1] != b.dims[batch] || b.dims[batch] < 1)
        return false;
    if (!same_dims(w.dims, a.dims, a.rank - 1) || !same_dims(w.dims, b.dims, batch) ||
        !same_dims(w.dims + a.rank - 1, b.dims + batch + 1, features))
        return false;
    u->batch = product_of(w.dims, batch);
    u->contracted = product_of(w.dims + batch, contracted);
    u->features = product_of(w.dims + batch + contracted, features);
    u->factor = sign * (alpha != 0 ? alpha / (double)b.dims[batch] : 1);
    return tow_dtype_is_float(w.dtype) && tow_dtype_is_float(a.dtype) && tow_dtype_is_float(b.dtype);
}

/* w + factor a b, summed in f32 at least */
static void record(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    const update *u = user;
    tow_type w = u->w.type;
    tow_dtype wide = w.dtype == TOW_F64 ? TOW_F64 : TOW_F32;
    int64_t rank = tow_type_element_count(u->b.type) / (u->batch * u->features > 0 ? u->batch * u->features : 1);
    tow_value a = tow__axes_to_front(in[1], u->a.n, u->a.axes), b = tow__axes_to_front(in[2], u->b.n, u->b.axes);
    a = tow_reshape(tow__as(a, wide), 3, (int64_t[]){u->batch, u->contracted, rank});
    b = tow_reshape(tow__as(b, wide), 3, (int64_t[]){u->batch, rank, u->features});
    tow_dot_dims dot = {
        .n_batch = 1, .lhs_batch = {0}, .rhs_batch = {0}, .n_contract = 1, .lhs_contract = {2}, .rhs_contract = {1}};
    tow_value ab = tow_reshape(tow_mul_scalar(tow_dot_general(a, b, dot), u->factor), w.rank, w.dims);
    (void)trace;
    ab = tow__axes_from_front(ab, u->w.n, u->w.axes);
    out[0] = tow__as(tow_add(tow__as(in[0], wide), ab), w.dtype);
}

static tow_status compute(tow_context *ctx, update *u, tow_array **result)
{
    tow_array *in[3] = {u->w.array, u->a.array, u->b.array};
    tow_type types[3];
    tow_graph *graph = NULL;
    for (int i = 0; i < 3; i++) types[i] = tow_array_type(in[i]);
    if (tow_type_element_count(types[0]) == 0) return tow_array_create(ctx, types[0], result);
    tow_status status = tow_trace_function(ctx, record, u, 3, types, NULL, 1, &graph);
    if (status == TOW_OK) status = tow_evaluate(graph, in, result);
    tow_graph_release(graph);
    return status;
}

static operand operand_of(const tow_params *params, size_t i)
{
    operand o = {.array = tow_params_array(params, i)};
    o.type = tow__type_in_front(tow_params_path(params, i), tow_array_type(o.array));
    o.n = tow__path_axes(tow_params_path(params, i), o.type.rank, o.axes);
    return o;
}

/* The entry at `path`, or else one whose path says other axes of layers, which rules may give to kernels and updates:
 * then that path replaces it. No array: there is none. */
static operand find_operand(const tow_params *params, char *path)
{
    const size_t n = tow_params_count(params);
    size_t at = tow__params_index(params, path, 0);
    for (size_t i = 0; i < n && at >= n; i++)
        if (tow__paths_alike(tow_params_path(params, i), path)) at = i;
    if (at >= n) return (operand){0};
    strcpy(path, tow_params_path(params, at));
    return operand_of(params, at);
}

/* The update whose a is entry i, computed; *result stays NULL if entry i is no a. */
static tow_status compute_entry(const tow_params *params, size_t i, double alpha, double sign, char *kernel, char *b,
                                tow_array **result)
{
    tow_context *ctx = params->ctx;
    const char *path = tow_params_path(params, i);
    if (!read_path(path, kernel, b)) return TOW_OK;
    update u = {.w = find_operand(params, kernel), .a = operand_of(params, i), .b = find_operand(params, b)};
    if (!u.w.array || !u.b.array)
        return tow__fail(ctx, TOW_NOT_FOUND,
                         "tow_lora_merge: %s is there, but not %s; give all parameters of the model", path,
                         u.w.array ? b : kernel);
    if (tow_dtype_numbers(tow_array_type(u.w.array).dtype) > 1)
        return tow__fail(ctx, TOW_UNSUPPORTED,
                         "tow_lora_merge: %s is %s, which would round the update away; make parameters of the model in "
                         "floats of these (tow_params_convert), and merge there",
                         kernel, tow__type_name(tow_array_type(u.w.array)).text);
    if (!read_shapes(&u, alpha, sign))
        return tow__fail(ctx, TOW_SHAPE_MISMATCH, "tow_lora_merge: %s is %s, which is no update of %s, %s", path,
                         tow__type_name(tow_array_type(u.a.array)).text, kernel,
                         tow__type_name(tow_array_type(u.w.array)).text);
    return compute(ctx, &u, result);
}

/* Adds the updates, times the sign, to their kernels, all or none. */
static tow_status fold(tow_params *params, double alpha, double sign)
{
    if (!params) return TOW_INVALID_ARGUMENT;
    tow_context *ctx = params->ctx;
    if (!isfinite(alpha))
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_lora_merge: alpha is %g; expected a finite number", alpha);
    size_t n = tow_params_count(params), count = 0, longest = 1;
    for (size_t i = 0; i < n; i++)
        longest = longest > strlen(tow_params_path(params, i)) ? longest : strlen(tow_params_path(params, i));
    size_t size = longest + 1;
    tow_status status = TOW_OK;
    tow_params *changed = NULL;
    tow_array **arrays = tow__alloc(ctx, n + 1, sizeof *arrays);
    const char **paths = tow__alloc(ctx, n + 1, sizeof *paths);
    char *text = tow__alloc(ctx, n + 1, size), *b = tow__alloc(ctx, size, 1);
    if (!arrays || !paths || !text || !b) TRY(TOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < n; i++) {
        TRY(compute_entry(params, i, alpha, sign, text + count * size, b, &arrays[count]));
        paths[count] = text + count * size;
        count += arrays[count] != NULL;
    }
    if (count == 0)
        TRY(tow__fail(ctx, TOW_NOT_FOUND,
                      "tow_lora_merge: no \"LoRA/.../a\" among %zu parameters; give those of a LoRA", n));
    TRY(tow_params_from_arrays(ctx, count, paths, arrays, &changed));
    status = tow_params_assign(params, changed);
done:
    tow_params_free(changed);
    for (size_t i = 0; arrays && i < count; i++) tow_array_release(arrays[i]);
    if (arrays) tow__free(ctx, arrays, n + 1, sizeof *arrays);
    if (paths) tow__free(ctx, (void *)paths, n + 1, sizeof *paths);
    if (text) tow__free(ctx, text, n + 1, size);
    if (b) tow__free(ctx, b, size, 1);
    return status;
}

tow_status tow_lora_merge(tow_params *params, double alpha) { return fold(params, alpha, 1); }
tow_status tow_lora_unmerge(tow_params *params, double alpha) { return fold(params, alpha, -1); }
