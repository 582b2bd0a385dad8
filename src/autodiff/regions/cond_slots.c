/* Slots: what crosses between the two choices that cond_partial.c makes of one. Residuals of branches exclude each
 * other, so they share:
 *
 *   a residual that is a known result         no slot but the result, if no other branch could share a slot with it
 *   a constant                                no slot: it is made again
 *   types that residuals of all branches have one slot for one of each
 *   what is left of an element type           slots that residuals of one type share, if these together are not larger
 *                                             than what the branch keeps that needs most; else one slot: an array with
 *                                             room for that branch, in which residuals lie one behind the other
 *
 * so slots take no more bytes than the residuals of one branch do, if they are of one element type. A branch leaves
 * slots that are not its own empty, which costs nothing. */
#include "src/autodiff/regions/cond_partial.h"
#include "src/ops/rules.h"

static uint32_t residual_var(const tow__partial *p, uint32_t r)
{
    return p->known->outputs[p->known->n_outputs - p->n_residuals + r];
}

tow_type tow__slot_residual_type(const tow__partial *p, uint32_t r) { return p->known->vars[residual_var(p, r)].type; }

/* The known result of the choice that residual r of branch k is, or TOW__INPUT. */
static uint32_t result_behind(const tow__choice *c, uint32_t k, uint32_t r)
{
    const tow__partial *p = &c->parts[k];
    uint32_t at = 0, index = 0;
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (!p->out_unknown[i] && !c->out_unknown[i] && p->known->outputs[at] == residual_var(p, r)) return index;
        at += !p->out_unknown[i];
        index += !c->out_unknown[i];
    }
    return TOW__INPUT;
}

/* Does branch k have known result `index` as a residual? */
static bool keeps_result(const tow__choice *c, uint32_t k, uint32_t index)
{
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
        if (result_behind(c, k, r) == index) return true;
    return false;
}

/* Does a branch other than k have residuals of this element type that have no place yet? */
static bool others_need_room(const tow__choice *c, uint32_t k, tow_dtype dtype)
{
    for (uint32_t other = 0; other < c->branches->n; other++)
        for (uint32_t r = 0; other != k && r < c->parts[other].n_residuals; r++)
            if (!c->slots[other][r].placed && tow__slot_residual_type(&c->parts[other], r).dtype == dtype) return true;
    return false;
}

/* Constants; and known results, which need no slot if each branch keeps them (`all`), or if no other branch has
 * something to put into the slot. */
static void place_results(tow__choice *c, uint32_t k, bool all)
{
    const tow__partial *p = &c->parts[k];
    for (uint32_t r = 0; r < p->n_residuals; r++) {
        const tow__equation *source = tow__source_of(p->known, residual_var(p, r));
        uint32_t index = result_behind(c, k, r);
        if (c->slots[k][r].placed) continue;
        if (source) c->slots[k][r] = (tow__slot_of){.source = source, .placed = true};
        if (source || index == TOW__INPUT) continue;
        bool fits = all || !others_need_room(c, k, tow__slot_residual_type(p, r).dtype);
        for (uint32_t other = 0; all && other < c->branches->n; other++) fits &= keeps_result(c, other, index);
        if (fits) c->slots[k][r] = (tow__slot_of){.is_result = true, .index = index, .placed = true};
    }
}

/* A residual of the branch of this type that has no place yet, or TOW__INPUT. */
static uint32_t find_unplaced(const tow__choice *c, uint32_t k, tow_type type)
{
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
        if (!c->slots[k][r].placed && tow_type_equal(tow__slot_residual_type(&c->parts[k], r), type)) return r;
    return TOW__INPUT;
}

/* One slot for residuals of one type that each branch has. */
static void place_common(tow__choice *c)
{
    for (uint32_t r = 0; r < c->parts[0].n_residuals; r++) {
        if (c->slots[0][r].placed) continue;
        tow_type type = tow__slot_residual_type(&c->parts[0], r);
        bool all = true;
        for (uint32_t k = 0; k < c->branches->n; k++) all &= find_unplaced(c, k, type) != TOW__INPUT;
        for (uint32_t k = 0; all && k < c->branches->n; k++)
            c->slots[k][find_unplaced(c, k, type)] = (tow__slot_of){.index = c->n_slots, .placed = true};
        if (all) c->types[c->n_slots++] = type;
    }
}

/* Elements of `dtype` without a place in branch k. */
static int64_t count_left(const tow__choice *c, uint32_t k, tow_dtype dtype)
{
    int64_t n = 0;
    for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
        tow_type type = tow__slot_residual_type(&c->parts[k], r);
        if (!c->slots[k][r].placed && type.dtype == dtype) n += tow_type_element_count(type);
    }
    return n;
}

/* Residuals before r of branch k that have its type and no place yet; r n_residuals: all of `type`. */
static uint32_t count_before(const tow__choice *c, uint32_t k, uint32_t r, tow_type type)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r; i++)
        n += !c->slots[k][i].placed && tow_type_equal(tow__slot_residual_type(&c->parts[k], i), type);
    return n;
}

/* Elements of all slots if those of each type were its own. */
static int64_t count_typed(const tow__choice *c, tow_dtype dtype)
{
    int64_t elements = 0;
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            const tow_type type = tow__slot_residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            const uint32_t before = count_before(c, k, r, type);
            bool more = true; /* than any earlier branch has */
            for (uint32_t i = 0; i < k; i++) more &= count_before(c, i, c->parts[i].n_residuals, type) <= before;
            if (more) elements += tow_type_element_count(type);
        }
    return elements;
}

/* A slot for each residual that has none, which a residual of the same type of each other branch shares. */
static void place_typed(tow__choice *c, tow_dtype dtype)
{
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            const tow_type type = tow__slot_residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            for (uint32_t i = k; i < c->branches->n; i++) {
                const uint32_t other = find_unplaced(c, i, type);
                if (other != TOW__INPUT) c->slots[i][other] = (tow__slot_of){.index = c->n_slots, .placed = true};
            }
            c->types[c->n_slots++] = type;
        }
}

/* One slot, in which the residuals of a branch lie one behind the other. */
static void place_joined(tow__choice *c, tow_dtype dtype, int64_t most)
{
    for (uint32_t k = 0; k < c->branches->n; k++) {
        int64_t start = 0;
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++) {
            tow_type type = tow__slot_residual_type(&c->parts[k], r);
            if (c->slots[k][r].placed || type.dtype != dtype) continue;
            c->slots[k][r] = (tow__slot_of){.joined = true, .index = c->n_slots, .start = start, .placed = true};
            start += tow_type_element_count(type);
        }
    }
    c->types[c->n_slots++] = tow_make_type(dtype, 1, &most);
}

/* Places the remaining residuals of one element type. */
static void place_rest(tow__choice *c, tow_dtype dtype)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < c->branches->n; k++) {
        const int64_t n = count_left(c, k, dtype);
        most = n > most ? n : most;
    }
    if (count_typed(c, dtype) <= most)
        place_typed(c, dtype);
    else
        place_joined(c, dtype, most);
}

bool tow__place_residuals(tow__choice *c)
{
    tow_trace *t = c->s->k;
    size_t most = TOW__DTYPE_LIMIT;
    c->slots = tow__trace_alloc(t, c->branches->n, sizeof *c->slots);
    for (uint32_t k = 0; k < c->branches->n; k++) most += c->parts[k].n_residuals;
    c->types = tow__trace_alloc(t, most, sizeof *c->types);
    if (!c->slots || !c->types) return false;
    for (uint32_t k = 0; k < c->branches->n; k++) {
        c->slots[k] = tow__trace_alloc(t, c->parts[k].n_residuals, sizeof *c->slots[k]);
        if (!c->slots[k]) return false;
    }
    for (uint32_t k = 0; k < c->branches->n; k++) place_results(c, k, true);
    place_common(c);
    for (uint32_t k = 0; k < c->branches->n; k++) place_results(c, k, false);
    for (int dtype = 1; dtype < TOW__DTYPE_LIMIT; dtype++) place_rest(c, (tow_dtype)dtype);
    return true;
}

/* True if a branch takes known result `index` as a residual. */
bool tow__is_slot_residual(const tow__choice *c, uint32_t index)
{
    for (uint32_t k = 0; k < c->branches->n; k++)
        for (uint32_t r = 0; r < c->parts[k].n_residuals; r++)
            if (c->slots[k][r].is_result && c->slots[k][r].index == index) return true;
    return false;
}
