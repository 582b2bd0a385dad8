/* Numbers along one axis, repeated along the others, are a view of one row of them:
 *
 *   iota [shape] axis   =>   broadcast_in_dim [shape] (iota [n])        n: the size of that axis */
#include "src/plan/rules/rewrite.h"

static bool is_iota(const tow_primitive *op) { return op == &tow__iota_p; }

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow_type type = r->f->types[r->f->insts[at].results[0]];
    (void)match;
    return type.rank > 1 && tow_type_element_count(type) > 0;
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__iota_params *p = r->f->insts[at].params;
    const tow_type row = tow_make_type(p->dtype, 1, &p->shape.v[p->axis]);
    const tow__iota_params numbers = {.dtype = p->dtype, .shape = {.n = 1, .v = {row.dims[0]}}};
    const tow__broadcast_params repeated = {.shape = p->shape, .axes = {.n = 1, .v = {p->axis}}};
    (void)match;
    const tow__computation iota = {&tow__iota_p, &numbers, sizeof numbers, 0, NULL};
    const uint32_t value = tow__new_instruction(r, &r->f->insts[at], &iota, row);
    if (value == TOW__NONE) return TOW_OUT_OF_MEMORY;
    const tow__computation broadcast = {&tow__broadcast_in_dim_p, &repeated, sizeof repeated, 1, &value};
    return tow__change_instruction(r, at, &broadcast, 1, NULL);
}

const tow__rule tow__rule_iota_to_broadcast = {
    .on_values = true, .is_root = is_iota, .matches = matches, .replace = replace};
