/* SpaceToDepth: blocks of neighbors become features, and back.
 *
 *   x [B, n b, C]  -reshape->  [B, n, b, C]  -transpose->  [B, n, b, C]  -reshape->  [B, n, b C]
 *
 * with n and b standing for all spatial axes: the transpose puts all of b behind all of n. */
#include "layers/convolution.h"
#include "src/scope/tree.h"

/* The axes [B, n1, b1, n2, b2, ..., C] of the finer shape, as [B, n1, n2, ..., b1, b2, ..., C]. */
static void order(int n, bool inverse, int *permutation)
{
    for (int i = 0; i < 2 * n + 2; i++) permutation[i] = i;
    for (int i = 0; i < n; i++) {
        int fine = 1 + 2 * i, coarse = 1 + i;
        if (inverse) {
            permutation[fine] = coarse;
            permutation[fine + 1] = 1 + n + i;
        } else {
            permutation[coarse] = fine;
            permutation[1 + n + i] = fine + 1;
        }
    }
}

static bool check_sizes(tow_scope *scope, const tow_space_to_depth *m, int n, tow_type type, int64_t block)
{
    int first = type.rank - 1 - n;
    if (m->inverse && type.dims[type.rank - 1] % block != 0) {
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "SpaceToDepth: the features of %s are not a multiple of the %lld elements of a block",
                       tow__type_name(type).text, (long long)block);
        return false;
    }
    for (int i = 0; i < n && !m->inverse; i++) {
        if (type.dims[first + i] % m->block[i] == 0) continue;
        tow_scope_fail(scope, TOW_SHAPE_MISMATCH,
                       "SpaceToDepth: axis %d of %s is not a multiple of .block[%d] = %lld; pad it", first + i,
                       tow__type_name(type).text, i, (long long)m->block[i]);
        return false;
    }
    if (2 * n + 2 <= TOW_MAX_RANK) return true;
    tow_scope_fail(scope, TOW_UNSUPPORTED, "SpaceToDepth: .block has %d entries; expected at most %d", n,
                   (TOW_MAX_RANK - 2) / 2);
    return false;
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_space_to_depth *m = (const tow_space_to_depth *)module;
    if (!tow__check_counts(scope, "SpaceToDepth", n_in, 1, 1, n_out)) return;
    int n = tow__spatial_axes(scope, "SpaceToDepth", "block", m->block, in[0]);
    if (n == 0) return;
    tow_type type = tow_value_type(in[0]);
    int64_t block = 1, fine[TOW_MAX_RANK], result[TOW_MAX_RANK];
    int permutation[TOW_MAX_RANK];
    for (int i = 0; i < n; i++) {
        block *= m->block[i];
        bool small = block < TOW__SIZE_LIMIT && type.dims[type.rank - 1 - n + i] < TOW__SIZE_LIMIT;
        if (!tow__check_option(scope, "SpaceToDepth", small, "block", (double)m->block[i],
                               "blocks and axes below 2^30"))
            return;
    }
    if (!check_sizes(scope, m, n, type, block)) return;
    tow_value x = tow__one_batch_axis(in[0], n);
    if (tow_is_null(x)) return;
    type = tow_value_type(x);
    int64_t features = type.dims[n + 1];
    fine[0] = result[0] = type.dims[0];
    for (int i = 0; i < n; i++) {
        int64_t size = type.dims[1 + i], b = m->block[i];
        fine[m->inverse ? 1 + i : 1 + 2 * i] = m->inverse ? size : size / b;
        fine[m->inverse ? 1 + n + i : 2 + 2 * i] = b;
        result[1 + i] = m->inverse ? size * b : size / b;
    }
    fine[2 * n + 1] = m->inverse ? features / block : features;
    result[n + 1] = m->inverse ? features / block : features * block;
    order(n, m->inverse, permutation);
    x = tow_transpose(tow_reshape(x, 2 * n + 2, fine), 2 * n + 2, permutation);
    out[0] = tow__batch_axes_of(tow_reshape(x, n + 2, result), tow_value_type(in[0]), n);
}

const tow_module_class tow_space_to_depth_class = {TOW__MADE_BY(TOW_SPACE_TO_DEPTH, tow_space_to_depth),
                                                   .name = "SpaceToDepth", .call = call,
                                                   .layout = TOW__LAYOUT(tow_space_to_depth)};
