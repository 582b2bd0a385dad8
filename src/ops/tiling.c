/* Tiling rules and costs that several families share. */
#include "src/ops/tiling.h"

bool tow__no_tiling(const tow__operation *o, int axis, int *from)
{
    (void)o, (void)axis, (void)from;
    return false;
}

bool tow__same_extent(const tow__operation *o, int axis, uint32_t i, int at)
{
    return tow__extent(tow__in_type(o, i), at) == tow__extent(&o->out[0].type, axis);
}

bool tow__tile_elementwise(const tow__operation *o, int axis, int *from)
{
    for (uint32_t i = 0; i < o->n_in; i++) {
        bool scalar = tow__in_type(o, i)->rank == 0;
        from[i] = scalar ? TOW__WHOLE : axis;
        if (!scalar && (tow__in_type(o, i)->rank != o->out[0].type.rank || !tow__same_extent(o, axis, i, axis)))
            return false;
    }
    return true;
}

bool tow__tile_rows(const tow__operation *o, int axis, int *from)
{
    if (axis + 1 >= tow__in_type(o, 0)->rank) return false;
    for (uint32_t i = 0; i < o->n_in; i++) {
        from[i] = axis;
        if (!tow__same_extent(o, axis, i, axis)) return false;
    }
    return true;
}

int tow__kept_axis(const tow__ints *removed, int axis)
{
    for (int i = 0; i < removed->n && removed->v[i] <= axis; i++) axis++;
    return axis;
}

bool tow__tile_along_axis(const tow__operation *o, int axis, int *from)
{
    int64_t along = ((const tow__axis_params *)o->params)->axis;
    bool lost = o->out[0].type.rank < tow__in_type(o, 0)->rank;
    int at = lost && along <= axis ? axis + 1 : axis;
    if (!lost && axis == along) return false;
    for (uint32_t i = 0; i < o->n_in; i++) {
        from[i] = at;
        if (!tow__same_extent(o, axis, i, at)) return false;
    }
    return true;
}

/* Cumulative reductions have a result for each element. */
static double reduction_flops(const tow__operation *o)
{
    const double taken = tow__elements(&o->in[0]), results = tow__elements(&o->out[0]);
    if (tow_type_equal(o->in[0].type, o->out[0].type)) return taken;
    return taken > results ? taken - results : 0;
}

double tow__counted_flops(const tow__operation *o)
{
    const tow_primitive *p = o->primitive;
    if (p->kind == TOW__COMPOSITE && p->decompose) return TOW__COST_OF_PARTS;
    if (o->n_out == 0 || !tow_dtype_is_float(o->out[0].type.dtype)) return 0;
    if (p->kind == TOW__ELEMENTWISE) return tow__elements(&o->out[0]);
    return p->kind == TOW__REDUCTION ? reduction_flops(o) : 0;
}

tow__op_cost tow__element_cost(const tow__operation *o)
{
    double elements = 0;
    for (uint32_t i = 0; i < o->n_in; i++) elements += tow__elements(&o->in[i]);
    for (uint32_t i = 0; i < o->n_out; i++) elements += tow__elements(&o->out[i]);
    return (tow__op_cost){tow__counted_flops(o), TOW__PER_ELEMENT * elements};
}
