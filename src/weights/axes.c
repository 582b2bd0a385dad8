/* Sizes of the named axes of a rule, from the shapes of both sides, and where the elements of a parameter lie in a
 * tensor. */
#include <inttypes.h>

#include "src/base/dtypes.h"
#include "src/weights/mapping.h"

enum {
    UNKNOWN = -1
};

typedef struct solver {
    tow_context *ctx;
    const tow__axes *axes;
    int64_t sizes[TOW__MAX_FACTORS];
    int n_parts;
} solver;

static int64_t factor_size(const solver *s, int factor)
{
    return factor == TOW__PART_FACTOR ? s->n_parts : s->sizes[factor];
}

/* The size of an axis; *missing: the only factor that is not known, or of several the last one, of which *n are. */
static int64_t product(const solver *s, const tow__axis *axis, int *missing, int *n)
{
    int64_t size = 1;
    *n = 0;
    for (int i = 0; i < axis->n; i++) {
        const int64_t factor = factor_size(s, axis->factors[i]);
        if (factor == UNKNOWN) {
            *missing = axis->factors[i];
            ++*n;
        } else if (__builtin_mul_overflow(size, factor, &size)) {
            size = INT64_MAX;
        }
    }
    return size;
}

/* Finds the sizes of factors that are alone unknown in an axis of known size. True if one was found. */
static bool find_factors(solver *s, int n, const tow__axis *axes, const tow_type *type, int except)
{
    bool found = false;
    if (type->rank < 0) return false;
    for (int i = 0; i < n; i++) {
        int missing = 0, unknown;
        const int64_t known = product(s, &axes[i], &missing, &unknown);
        if (i == except || unknown != 1 || known == 0 || type->dims[i] % known != 0) continue;
        s->sizes[missing] = type->dims[i] / known;
        found = true;
    }
    return found;
}

static tow_status check_rank(const solver *s, const tow_type *type, int n, const char *side)
{
    if (type->rank < 0 || type->rank == n) return TOW_OK;
    return tow__fail(s->ctx, TOW_SHAPE_MISMATCH, "expected %d axes of the %s, as the rule says, found %s", n, side,
                     tow__type_name(*type).text);
}

/* Compares a shape with the factors, or makes it. */
static tow_status check_shape(const solver *s, int n, const tow__axis *axes, tow_type *type, int except,
                              const char *side)
{
    const tow_type given = *type;
    type->rank = n;
    for (int i = 0; i < n; i++) {
        int missing = 0, unknown;
        const int64_t size = product(s, &axes[i], &missing, &unknown);
        if (i == except) continue;
        if (unknown > 0)
            return tow__fail(s->ctx, TOW_INVALID_ARGUMENT,
                             "the shapes do not tell the size of the axis '%s': give it a size",
                             s->axes->names[missing]);
        type->dims[i] = size;
    }
    for (int i = 0; i < n && given.rank >= 0; i++)
        if (i != except && given.dims[i] != type->dims[i])
            return tow__fail(s->ctx, TOW_SHAPE_MISMATCH, "expected a %s of %" PRId64 " on axis %d, found %s", side,
                             type->dims[i], i, tow__type_name(given).text);
    return TOW_OK;
}

/* Strides of factors in a tensor, and of "*". */
typedef struct strides {
    int64_t factors[TOW__MAX_FACTORS], part;
    int64_t joined; /* of the axis along which parts follow one another */
} strides;

/* Of arrays without elements the other axes may have any size. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_mul_overflow(a, b, &result) ? 0 : result;
}

static void find_strides(const solver *s, const tow_type *theirs, strides *st)
{
    int64_t stride = 1;
    for (int i = s->axes->n_theirs - 1; i >= 0; i--) {
        int64_t inner = stride;
        if (i == s->axes->joined) st->joined = stride;
        for (int j = s->axes->theirs[i].n - 1; j >= 0; j--) {
            const int factor = s->axes->theirs[i].factors[j];
            *(factor == TOW__PART_FACTOR ? &st->part : &st->factors[factor]) = inner;
            inner = times(inner, factor_size(s, factor));
        }
        stride = times(stride, theirs->dims[i]);
    }
}

/* Adds a loop around which the others so far are; loops that continue one another become one. */
static void add_loop(tow__layout *l, int64_t size, int64_t stride)
{
    if (size == 1) return;
    const int last = l->n - 1;
    if (last >= 0 && size > 0 && l->strides[last] == times(stride, size)) {
        l->sizes[last] = times(l->sizes[last], size);
        l->strides[last] = stride;
        return;
    }
    l->sizes[l->n] = size;
    l->strides[l->n++] = stride;
}

static void lay_out(const solver *s, const strides *st, int64_t offset, tow__layout *l)
{
    *l = (tow__layout){.offset = offset};
    for (int i = 0; i < s->axes->n_ours; i++)
        for (int j = 0; j < s->axes->ours[i].n; j++) {
            const int factor = s->axes->ours[i].factors[j];
            add_loop(l, s->sizes[factor], st->factors[factor]);
        }
}

static void learn(solver *s, size_t n_known, const tow_weight_mapping_axis *known)
{
    for (int f = 0; f < s->axes->n_factors; f++) {
        s->sizes[f] = UNKNOWN;
        for (size_t k = 0; k < n_known; k++)
            if (strcmp(known[k].name, s->axes->names[f]) == 0) s->sizes[f] = known[k].size;
        if (s->axes->fixed && s->axes->fixed[f]) s->sizes[f] = s->axes->fixed[f];
    }
}

/* Sizes of the factors of one part. */
static tow_status solve_part(solver *s, size_t n_known, const tow_weight_mapping_axis *known, const tow_type *theirs,
                             tow_type *ours)
{
    const tow__axes *a = s->axes;
    learn(s, n_known, known);
    for (bool found = true; found;) { /* both sides in each round: what one finds helps the other */
        found = find_factors(s, a->n_ours, a->ours, ours, -1);
        found |= find_factors(s, a->n_theirs, a->theirs, theirs, a->joined);
    }
    return check_shape(s, a->n_ours, a->ours, ours, -1, "parameter");
}

/* Axes are given: several parts, each with its sizes. */
static tow_status solve_axes(solver *s, size_t n_known, const tow_weight_mapping_axis *known, tow_type *theirs,
                             tow_type *ours, tow__layout *layouts)
{
    const tow__axes *a = s->axes;
    tow_status status = TOW_OK;
    int64_t begins[TOW__MAX_PARTS] = {0}, end = 0;
    int missing, unknown;
    TRY(check_rank(s, theirs, a->n_theirs, "tensor"));
    const tow_type given = *theirs;
    for (int p = 0; p < s->n_parts; p++) {
        TRY(check_rank(s, &ours[p], a->n_ours, "parameter"));
        TRY(solve_part(s, n_known, known, theirs, &ours[p]));
        begins[p] = end;
        if (a->joined >= 0 && __builtin_add_overflow(end, product(s, &a->theirs[a->joined], &missing, &unknown), &end))
            end = INT64_MAX;
        TRY(check_shape(s, a->n_theirs, a->theirs, theirs, a->joined, "tensor"));
    }
    if (a->joined >= 0) theirs->dims[a->joined] = end;
    if (a->joined >= 0 && given.rank >= 0 && given.dims[a->joined] != end)
        TRY(tow__fail(s->ctx, TOW_SHAPE_MISMATCH, "expected a tensor of %" PRId64 " on axis %d, found %s", end,
                      a->joined, tow__type_name(given).text));
    for (int p = 0; p < s->n_parts; p++)
        if (!tow__type_valid(ours[p]) || !tow__type_valid(*theirs))
            TRY(tow__fail(s->ctx, TOW_SHAPE_MISMATCH, "the shape has more bytes than can be addressed"));
    for (int p = 0; p < s->n_parts; p++) {
        strides st = {.part = 0};
        TRY(solve_part(s, n_known, known, theirs, &ours[p]));
        find_strides(s, theirs, &st);
        lay_out(s, &st, times(p, st.part) + times(begins[p], st.joined), &layouts[p]);
    }
    layouts[0].whole = s->n_parts == 1 && layouts[0].n <= 1 && (layouts[0].n == 0 || layouts[0].strides[0] == 1);
done:
    return status;
}

tow_status tow__axes_solve(tow_context *ctx, const tow__tensor_rule *rule, size_t n_known,
                           const tow_weight_mapping_axis *known, tow_type *theirs, tow_type *ours, tow__layout *layouts)
{
    solver s = {.ctx = ctx, .axes = rule->axes, .n_parts = rule->n_ours};
    tow_status status = TOW_OK;
    if (rule->axes) {
        TRY(solve_axes(&s, n_known, known, theirs, ours, layouts));
    } else {
        const tow_type *from = theirs->rank >= 0 ? theirs : ours;
        tow_type *to = theirs->rank >= 0 ? ours : theirs;
        const tow_dtype dtype = to->dtype;
        if (to->rank >= 0 &&
            (to->rank != from->rank || memcmp(to->dims, from->dims, (size_t)to->rank * sizeof *to->dims) != 0))
            return tow__fail(ctx, TOW_SHAPE_MISMATCH, "expected the shape of the parameter, %s, found %s",
                             tow__type_name(*ours).text, tow__type_name(*theirs).text);
        *to = *from;
        to->dtype = dtype;
        layouts[0] = (tow__layout){.whole = true};
        add_loop(&layouts[0], tow_type_element_count(*from), 1);
    }
    if (!tow__type_valid(*theirs))
        return tow__fail(ctx, TOW_SHAPE_MISMATCH, "the shape has more bytes than can be addressed");
    for (int p = 0; p < rule->n_ours; p++) layouts[p].plus = rule->plus;
    if (rule->plus != 0) layouts[0].whole = false;
done:
    return status;
}

/* ---- parameters in blocks of few bits ---------------------------------------------------------------------------- */

/* Factors of the parameter in order. */
static int list_factors(const tow__axes *a, int8_t *factors)
{
    int n = 0;
    for (int i = 0; i < a->n_ours; i++)
        for (int j = 0; j < a->ours[i].n; j++) factors[n++] = a->ours[i].factors[j];
    return n;
}

/* If the factors of an axis of the tensor follow one another in the parameter, too, their product alone matters: all
 * unknown ones but the first become 1. */
static bool join_factors(solver *s, const tow__axis *axis, const int8_t *order, int n_order)
{
    int last = -1;
    bool first = true, joined = false;
    for (int j = 0; j < axis->n; j++) {
        if (axis->factors[j] == TOW__PART_FACTOR) continue;
        int at = 0;
        while (at < n_order && order[at] != axis->factors[j]) at++;
        if (last >= 0 && at != last + 1) return false;
        last = at;
    }
    for (int j = 0; j < axis->n; j++) {
        if (axis->factors[j] == TOW__PART_FACTOR || s->sizes[axis->factors[j]] != UNKNOWN) continue;
        if (!first) s->sizes[axis->factors[j]] = 1;
        joined |= !first;
        first = false;
    }
    return joined;
}

static tow_status refuse_blocks(const solver *s, const tow_type *theirs, const tow_type *ours)
{
    return tow__fail(s->ctx, TOW_SHAPE_MISMATCH,
                     "expected the parameter %s to be the tensor in blocks, features by inputs, found %s",
                     tow__type_name(*ours).text, tow__type_name(*theirs).text);
}

/* The layout of part p: features in the order of the parameter, around the blocks of a row. */
static tow_status lay_out_blocks(const solver *s, const int8_t *order, int n_order, const tow_type *theirs,
                                 const tow_type *ours, int p, tow__layout *l)
{
    const tow__axis *inputs = &s->axes->theirs[1];
    const int numbers = tow_dtype_numbers(ours->dtype);
    const int64_t row = theirs->dims[1] / numbers;
    int64_t features = 1;
    strides st = {.part = 0};
    find_strides(s, theirs, &st);
    for (int j = 0; j < inputs->n; j++)
        if (j >= n_order || order[j] != inputs->factors[j]) return refuse_blocks(s, theirs, ours);
    *l = (tow__layout){.offset = times(p, st.part) / numbers, .blocks = true};
    for (int j = inputs->n; j < n_order; j++) {
        features = times(features, s->sizes[order[j]]);
        add_loop(l, s->sizes[order[j]], st.factors[order[j]] / numbers);
    }
    add_loop(l, row, 1);
    return ours->rank == 2 && ours->dims[0] == features && ours->dims[1] == row ? TOW_OK
                                                                                : refuse_blocks(s, theirs, ours);
}

static tow_status solve_block_axes(solver *s, size_t n_known, const tow_weight_mapping_axis *known, tow_type *theirs,
                                   const tow_type *ours, tow__layout *layouts)
{
    const tow__axes *a = s->axes;
    int8_t order[TOW_MAX_RANK * TOW__MAX_FACTORS];
    const int n_order = list_factors(a, order);
    tow_status status = TOW_OK;
    if (a->n_theirs != 2 || a->joined >= 0 || n_order == TOW__MAX_FACTORS || theirs->rank != 2 ||
        theirs->dims[1] % tow_dtype_numbers(ours->dtype) != 0)
        return refuse_blocks(s, theirs, ours);
    learn(s, n_known, known);
    find_factors(s, a->n_theirs, a->theirs, theirs, -1);
    for (int i = 0; i < 2; i++)
        if (join_factors(s, &a->theirs[i], order, n_order)) find_factors(s, a->n_theirs, a->theirs, theirs, -1);
    TRY(check_shape(s, a->n_theirs, a->theirs, theirs, -1, "tensor"));
    for (int p = 0; p < s->n_parts; p++) TRY(lay_out_blocks(s, order, n_order, theirs, &ours[p], p, &layouts[p]));
done:
    return status;
}

tow_status tow__axes_solve_blocks(tow_context *ctx, const tow__tensor_rule *rule, size_t n_known,
                                  const tow_weight_mapping_axis *known, tow_type theirs, const tow_type *ours,
                                  tow__layout *layouts)
{
    solver s = {.ctx = ctx, .axes = rule->axes, .n_parts = rule->n_ours};
    tow_type blocks = theirs;
    if (rule->plus != 0) return refuse_blocks(&s, &theirs, ours);
    if (rule->axes) return solve_block_axes(&s, n_known, known, &theirs, ours, layouts);
    if (!tow__type_in_blocks(&blocks, ours->dtype) || !tow_type_equal(blocks, *ours))
        return refuse_blocks(&s, &theirs, ours);
    layouts[0] = (tow__layout){.blocks = true};
    add_loop(&layouts[0], tow_type_element_count(blocks), 1);
    return TOW_OK;
}
