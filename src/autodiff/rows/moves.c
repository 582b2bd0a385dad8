/* Moves: where rows are in results of which plans make views, and others whose parameters hold sizes. See rows.h. */
#include "src/autodiff/rows/rows.h"

/* The parameters of the equation, which rules change to those for the blocks at hand. */
typedef int (*move_rule)(const tow__row_equation *r, const tow__row_blocks *b, void *params);

static const tow_type *in_type(const tow__row_equation *r, uint32_t i) { return &r->o.in[i].type; }
static const tow_type *out_type(const tow__row_equation *r) { return &r->o.out[0].type; }

static int stay(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    (void)b, (void)params;
    return r->at[0];
}

/* The axis of the result that begins where the axis of the operand does, and can be cut into the same blocks. */
static int through_reshape(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    tow__ints *shape = &((tow__shape_params *)params)->shape;
    int64_t before = 1, group = 1;
    for (int d = 0; d < r->at[0]; d++) before *= in_type(r, 0)->dims[d];
    for (int axis = 0; axis < shape->n; group *= shape->v[axis++]) {
        if (group != before || shape->v[axis] == 1) continue;
        if (shape->v[axis] % b->groups != 0) return TOW__WHOLE;
        shape->v[axis] = tow__rows_of_part(b, shape->v[axis]);
        return axis;
    }
    return TOW__WHOLE;
}

static int through_transpose(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    const tow__ints *permutation = &((const tow__transpose_params *)params)->permutation;
    (void)b;
    for (int axis = 0; axis < permutation->n; axis++)
        if (permutation->v[axis] == r->at[0]) return axis;
    return TOW__WHOLE;
}

/* All rows, or none in groups. */
static int through_slice(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    tow__slice_params *p = params;
    const int axis = r->at[0];
    const int64_t n = in_type(r, 0)->dims[axis];
    if (p->start.v[axis] != 0 || p->limit.v[axis] != n || p->stride.v[axis] != 1) return TOW__WHOLE;
    p->limit.v[axis] = tow__rows_of_part(b, n);
    return axis;
}

static int through_rev(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    (void)b;
    return tow__ints_contain(&((const tow__axes_params *)params)->axes, r->at[0]) ? TOW__WHOLE : r->at[0];
}

static int through_broadcast(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    tow__broadcast_params *p = params;
    const int axis = (int)p->axes.v[r->at[0]];
    p->shape.v[axis] = tow__rows_of_part(b, p->shape.v[axis]);
    return axis;
}

/* Slices whose starts are values: all rows, and starts that are the same for all. */
static int through_dynamic_slice(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    tow__sizes_params *p = params;
    const int axis = r->at[0];
    if (axis == TOW__WHOLE || p->sizes.v[axis] != in_type(r, 0)->dims[axis]) return TOW__WHOLE;
    p->sizes.v[axis] = tow__rows_of_part(b, p->sizes.v[axis]);
    return axis;
}

static int through_dynamic_update(const tow__row_equation *r, const tow__row_blocks *b, void *params)
{
    const int axis = r->at[0] == TOW__WHOLE ? r->at[1] : r->at[0];
    (void)b, (void)params;
    if (axis == TOW__WHOLE || (r->at[0] != TOW__WHOLE && r->at[1] != TOW__WHOLE && r->at[0] != r->at[1]))
        return TOW__WHOLE;
    if (in_type(r, 1)->dims[axis] != out_type(r)->dims[axis]) return TOW__WHOLE;
    r->from[0] = r->from[1] = axis;
    return axis;
}

static const struct {
    const tow_primitive *primitive;
    move_rule rule;
} moves[] = {{&tow__reshape_p, through_reshape},
             {&tow__transpose_p, through_transpose},
             {&tow__slice_p, through_slice},
             {&tow__rev_p, through_rev},
             {&tow__broadcast_in_dim_p, through_broadcast},
             {&tow__dynamic_slice_p, through_dynamic_slice},
             {&tow__dynamic_update_slice_p, through_dynamic_update},
             {&tow__name_p, stay}};

bool tow__rows_move(const tow__row_equation *r, const tow__row_blocks *b, int *axis, void *params)
{
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        if (moves[i].primitive != r->e->primitive) continue;
        for (uint32_t k = 0; k < r->e->n_in; k++) r->from[k] = r->at[k];
        *axis = moves[i].rule(r, b, params);
        return true;
    }
    return false;
}
