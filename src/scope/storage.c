/* See storage.h. */
#include "src/scope/storage.h"

#include "src/base/dtypes.h"
#include "src/params/pattern.h"
#include "src/scope/dtypes.h"
#include "src/scope/initializers.h"
#include "src/scope/store.h"
#include "tow/ops.h"

/* ---- paths ------------------------------------------------------------------------------------------------------- */

/* Length of the path of a scope as an entry has it. resolved: the scope of the entry, or a copy without iterations that
 * share it; copies keep their depths. */
static size_t length_of(const tow_scope *at, const tow_scope *resolved)
{
    while (resolved->depth > at->depth && resolved->parent) resolved = resolved->parent;
    return strlen(resolved->path);
}

const char *tow__path_from(const tow_scope *at, const tow_scope *scope, const tow_variable_request *request)
{
    tow__resolved resolved;
    if (!tow__resolve(scope, request->collection, request->name, &resolved)) return NULL;
    size_t length = length_of(at, resolved.scope);
    const char *path = tow__entry_path(resolved.scope, NULL, request->name);
    char *plain = path ? tow__trace_alloc(scope->model->trace, strlen(path) - length + 1, 1) : NULL;
    if (plain) tow__path_plain(path + length + (length > 0), plain);
    return plain;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* The type that the innermost rule of the parameter says; 0: there is none. */
static tow_dtype ruled(const tow_scope *scope, const tow_variable_request *asked)
{
    const tow_param_kind kind = scope->storage ? tow__request_kind(asked) : TOW_PARAM_DEFAULT;
    for (const tow__storage_rules *s = scope->storage; s; s = s->outer) {
        const char *path = tow__path_from(s->at, scope, asked);
        for (size_t i = 0; path && s->rules[i].pattern; i++) {
            if (!tow__param_matches(s->rules[i].pattern, path, kind)) continue;
            s->used[i] = true;
            return s->rules[i].dtype;
        }
    }
    return (tow_dtype)0;
}

tow_scope *tow__scope_with_storage(tow_scope *scope, const tow_dtype_rule *rules)
{
    size_t n = 0;
    if (!rules) return scope;
    for (; rules[n].pattern; n++) {
        if (tow_dtype_is_float(rules[n].dtype) || tow__is_blocks(rules[n].dtype)) continue;
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Precision: .param_dtypes: \"%s\": expected a float type or one of blocks, TOW_Q8_0, TOW_Q4_0, "
                       "TOW_Q4_K or TOW_Q6_K, found %d",
                       rules[n].pattern, (int)rules[n].dtype);
        return NULL;
    }
    tow_scope *here = tow__trace_alloc(scope->model->trace, 1, sizeof *here);
    tow__storage_rules *own = tow__trace_alloc(scope->model->trace, 1, sizeof *own);
    bool *used = tow__trace_alloc(scope->model->trace, n + 1, sizeof *used);
    if (!here || !own || !used) return NULL;
    *here = *scope;
    *own = (tow__storage_rules){scope->storage, rules, used, scope};
    here->storage = own;
    return here;
}

void tow__check_storage_used(tow_scope *scope)
{
    const tow__storage_rules *s = scope->storage;
    for (size_t i = 0; s->rules[i].pattern && !tow__scope_failed(scope); i++)
        if (!s->used[i])
            tow_scope_fail(scope, TOW_NOT_FOUND,
                           "Precision: .param_dtypes: \"%s\" matches no parameter below it that no rule before has "
                           "matched; expected a pattern such as \"**kernel\"",
                           s->rules[i].pattern);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static int64_t product_of(int n, const int64_t *dims)
{
    int64_t product = 1;
    for (int i = 0; i < n; i++) product *= dims[i];
    return product;
}

static bool check_blocks(tow_scope *scope, const tow_variable_request *asked, tow_dtype blocks, int64_t inputs)
{
    if (asked->summed == 0)
        tow_scope_fail(scope, TOW_UNSUPPORTED,
                       "parameter \"%s\": it is not stored as %s: of all layers Dense, DenseGeneral without batch axes "
                       "and Embed have weights in blocks; set .param_dtype of this layer, or a rule of .param_dtypes "
                       "before this one, to a float type",
                       asked->name, tow_dtype_name(blocks));
    else if (inputs % tow_dtype_numbers(blocks) != 0)
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "parameter \"%s\": %s has blocks of %d numbers along the axes that are summed over, found %lld "
                       "of them, no multiple; set .param_dtype of this layer to a float type",
                       asked->name, tow_dtype_name(blocks), tow_dtype_numbers(blocks), (long long)inputs);
    return asked->summed != 0 && inputs % tow_dtype_numbers(blocks) == 0;
}

/* The request of the blocks. False: an error. */
static bool in_blocks(tow_scope *scope, const tow_variable_request *asked, tow_dtype blocks,
                      tow_variable_request *stored)
{
    const tow_type type = asked->type;
    const bool table = asked->summed < 0;
    const int64_t inputs = table ? type.dims[type.rank - 1] : product_of(asked->summed, type.dims);
    if (!check_blocks(scope, asked, blocks, inputs)) return false;
    if (table) {
        stored->type.dtype = blocks;
        stored->type.dims[type.rank - 1] /= tow_dtype_numbers(blocks);
        return true;
    }
    tow__turned_draw *draw = tow__trace_alloc(scope->model->trace, 1, sizeof *draw);
    if (!draw) return false;
    *draw = (tow__turned_draw){tow_make_type(TOW_F32, type.rank, type.dims), asked->init};
    stored->init = tow__init_turned(draw);
    const int64_t outputs = product_of(type.rank - asked->summed, type.dims + asked->summed);
    stored->type = tow_make_type(blocks, 2, (int64_t[]){outputs, inputs / tow_dtype_numbers(blocks)});
    return true;
}

/* x with the contracted axes behind all others, as one. */
static tow_value contracted_last(tow_value x, const tow_dot_dims *dot)
{
    const tow_type type = tow_value_type(x);
    int order[TOW_MAX_RANK], n = 0;
    int64_t dims[TOW_MAX_RANK], contracted = 1;
    for (int axis = 0; axis < type.rank; axis++) {
        bool free = true;
        for (int i = 0; i < dot->n_contract; i++) free = free && dot->lhs_contract[i] != axis;
        if (free) dims[n] = type.dims[axis], order[n++] = axis;
    }
    for (int i = 0; i < dot->n_contract; i++) {
        order[n + i] = dot->lhs_contract[i];
        contracted *= type.dims[dot->lhs_contract[i]];
    }
    dims[n] = contracted;
    return tow_reshape(tow_transpose(x, type.rank, order), n + 1, dims);
}

tow_value tow__multiply_blocks(const tow_variable_request *asked, const tow_dot_dims *dot, tow_value x,
                               tow_value stored)
{
    if (tow_is_null(x) || tow_is_null(stored)) return (tow_value){0};
    const tow_value y = tow_quantized_dot(contracted_last(x, dot), stored);
    if (tow_is_null(y)) return y;
    tow_type type = tow_value_type(y);
    type.rank--;
    for (int i = asked->summed; i < asked->type.rank; i++) type.dims[type.rank++] = asked->type.dims[i];
    return tow_reshape(y, type.rank, type.dims);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

tow_value tow__stored_weight(tow_scope *scope, const tow_variable_request *asked)
{
    tow_variable_request stored = *asked;
    if (tow__scope_failed(scope) || !tow__check_param_request(scope, asked)) return (tow_value){0};
    const tow_dtype rule = tow_dtype_is_float(asked->type.dtype) ? ruled(scope, asked) : (tow_dtype)0;
    const tow_dtype dtype = rule ? rule : asked->blocks ? asked->blocks : asked->type.dtype;
    if (!tow__is_blocks(dtype) || tow__is_blocks(asked->type.dtype))
        stored.type.dtype = dtype;
    else if (!in_blocks(scope, asked, dtype, &stored))
        return (tow_value){0};
    return tow__stored_param(scope, &stored);
}

tow_value tow__weight_numbers(const tow_variable_request *asked, tow_value stored)
{
    const tow_type type = asked->type;
    if (tow_is_null(stored) || tow_type_equal(tow_value_type(stored), type)) return stored;
    if (!tow__is_blocks(tow_value_type(stored).dtype)) return tow__as(stored, type.dtype);
    tow_value numbers = tow_dequantize(stored, type.dtype);
    if (asked->summed > 0) numbers = tow_transpose(numbers, 0, NULL);
    return tow_reshape(numbers, type.rank, type.dims);
}
