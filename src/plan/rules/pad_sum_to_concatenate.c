/* Sums of pads become a concatenation.
 *
 *   the gradient of x, if a program uses slices of x:  add(add(pad(a), pad(b)), pad(c))
 *   the pieces fill x and do not overlap:              concatenate(a + 0, b + 0, c + 0)
 *   a and b share columns, and no piece covers some:   concatenate(a[..] + 0, a[..] + b[..] + 0, 0, c + 0)
 *
 * The padding is +0, so an element is the sum of the pieces that cover it, in their order, plus some zeros. A zero
 * changes -0 into +0 and nothing else, wherever it stands in the sum. So one 0 behind the sum gives the same bits.
 * Slices that share their operand's cotangent (a stack that is cut into runs) pad with -0, which changes nothing. */
#include <stdlib.h>

#include "src/plan/rules/rewrite.h"

enum {
    MOST_PIECES = 16,
    MOST_PARTS = 16, /* of a concatenation */
    MOST_NEW = 128,  /* new instructions, about: pieces times parts */
    MOST_DEPTH = 8,  /* chained elementwise instructions below a pad that are computed part by part */
    MOST_OPERANDS = 4
};

/* A sum of pads along one axis. The begin and end of each piece cut the axis into parts. */
typedef struct pad_sum {
    const tow__instruction *piece[MOST_PIECES];
    int n, n_sums, axis, parts;
    int64_t cuts[2 * MOST_PIECES + 2];
} pad_sum;

static bool is_add(const tow_primitive *op) { return op == &tow__add_p; }

/* ---- pattern ----------------------------------------------------------------------------------------------------- */

/* Is the value a zero? *negative: -0, whose highest bit is set. */
static bool is_zero(const tow__instruction *value, bool *negative)
{
    if (!value || !TOW__COMPUTES(value, const)) return false;
    tow_array *array = ((const tow__const_params *)value->params)->value;
    const unsigned char *bytes = tow_array_data(array);
    const size_t n = tow_type_bytes(tow_array_type(array));
    const size_t top = n - 1; /* little-endian, as all arrays are */
    *negative = n > 0 && bytes[top] == 0x80 && tow_dtype_is_float(tow_array_type(array).dtype);
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0 && !(*negative && i == top)) return false;
    return true;
}

/* The axis of a pad that adds zeros along one axis, at its ends, and changes nothing else; else -1. */
static int padded_axis(const tow__rewrite *r, const tow__instruction *pad)
{
    const tow__pad_params *p = pad->params;
    int axis = -1;
    bool negative;
    if (!is_zero(tow__maker_of(r, pad->operands[1]), &negative)) return -1;
    for (int i = 0; i < p->low.n; i++) {
        if (p->interior.v[i] != 0 || p->low.v[i] < 0 || p->high.v[i] < 0) return -1;
        if (p->low.v[i] == 0 && p->high.v[i] == 0) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    return axis;
}

/* Collects the pads below a sum, in order. The depth counts additions, since a chain of additions leans to one side. */
static bool collect(const tow__rewrite *r, pad_sum *s, uint32_t value, int depth)
{
    const tow__instruction *inst = tow__maker_of(r, value);
    if (!inst || (depth > 0 && r->uses[value] != 1) || depth > MOST_PIECES + 1) return false;
    if (TOW__COMPUTES(inst, add))
        return s->n_sums++ <= MOST_PIECES && collect(r, s, inst->operands[0], depth + 1) &&
               collect(r, s, inst->operands[1], depth + 1);
    if (!TOW__COMPUTES(inst, pad) || s->n == MOST_PIECES) return false;
    s->piece[s->n++] = inst;
    return true;
}

static int64_t low(const tow__instruction *pad, int axis)
{
    return ((const tow__pad_params *)pad->params)->low.v[axis];
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void cut(const tow__rewrite *r, pad_sum *s)
{
    int n = 0;
    s->cuts[n++] = 0;
    s->cuts[n++] = r->f->types[s->piece[0]->results[0]].dims[s->axis];
    for (int i = 0; i < s->n; i++) {
        s->cuts[n++] = low(s->piece[i], s->axis);
        s->cuts[n++] = low(s->piece[i], s->axis) + r->f->types[s->piece[i]->operands[0]].dims[s->axis];
    }
    qsort(s->cuts, (size_t)n, sizeof *s->cuts, ascending);
    s->parts = 0;
    for (int i = 1; i < n; i++)
        if (s->cuts[i] != s->cuts[s->parts]) s->cuts[++s->parts] = s->cuts[i];
}

/* True if all pieces are padded along one axis, and the parts are few enough. */
static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    pad_sum *s = match;
    s->n = s->n_sums = 0;
    if (!collect(r, s, r->f->insts[at].results[0], 0)) return false;
    s->axis = padded_axis(r, s->piece[0]);
    for (int i = 1; i < s->n && s->axis >= 0; i++)
        if (padded_axis(r, s->piece[i]) != s->axis) return false;
    if (s->axis < 0) return false;
    cut(r, s);
    return s->parts > 0 && s->parts <= MOST_PARTS && s->parts * s->n <= MOST_NEW;
}

/* ---- replacement ------------------------------------------------------------------------------------------------- */

/* One part of the sum: [first, end) of the axis. */
typedef struct part {
    const tow__instruction *like;
    int axis;
    int64_t first, end;
    uint32_t n_values, zero; /* values before the rewrite; the scalar that pads */
    bool padded;             /* some piece that is padded with +0 does not cover the part */
} part;

/* A zero of this type. */
static uint32_t zeros(tow__rewrite *r, const part *x, tow_type type)
{
    tow__broadcast_params p = {.shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    return tow__new_instruction(r, x->like, &(tow__computation){&tow__broadcast_in_dim_p, &p, sizeof p, 1, &x->zero},
                                type);
}

static uint32_t add(tow__rewrite *r, const part *x, uint32_t a, uint32_t b)
{
    const uint32_t operands[] = {a, b};
    return tow__new_instruction(r, x->like, &(tow__computation){&tow__add_p, NULL, 0, 2, operands}, r->f->types[a]);
}

/* True if `value` is computed part by part: only this sum reads it, in its own pass of the program. Then its operands
 * are sliced in its place, and each part is one pass over memory. */
static bool is_made_in_parts(const tow__rewrite *r, const part *x, uint32_t value, int depth)
{
    const tow__instruction *made = tow__maker_of(r, value);
    return made && made->op->kind == TOW__ELEMENTWISE && made->n_out == 1 && made->n_in <= MOST_OPERANDS &&
           made->backward == x->like->backward && depth < MOST_DEPTH && value < x->n_values && r->uses[value] == 1;
}

/* Elements [first, end) of `value` along the axis. */
static tow_status slice_value(tow__rewrite *r, const part *x, uint32_t value, int64_t first, int64_t end, int depth,
                              uint32_t *slice)
{
    tow_type type = r->f->types[value];
    *slice = value;
    if (type.rank == 0 || end - first == type.dims[x->axis]) return TOW_OK;
    tow_type smaller = type;
    smaller.dims[x->axis] = end - first;
    if (is_made_in_parts(r, x, value, depth)) {
        const tow__instruction inst = *tow__maker_of(r, value); /* instructions move when more are added */
        uint32_t in[MOST_OPERANDS];
        for (uint32_t i = 0; i < inst.n_in; i++) {
            tow_status status = slice_value(r, x, inst.operands[i], first, end, depth + 1, &in[i]);
            if (status != TOW_OK) return status;
        }
        *slice = tow__new_instruction(r, x->like, &(tow__computation){inst.op, inst.params, 0, inst.n_in, in}, smaller);
        if (*slice == TOW__NONE) return TOW_OUT_OF_MEMORY;
        r->f->insts[r->f->makers[*slice]].kernel = inst.kernel;
        return TOW_OK;
    }
    tow__slice_params p = {.start = {.n = type.rank}, .limit = {.n = type.rank}, .stride = {.n = type.rank}};
    for (int i = 0; i < type.rank; i++) p.limit.v[i] = type.dims[i], p.stride.v[i] = 1;
    p.start.v[x->axis] = first;
    p.limit.v[x->axis] = end;
    *slice = tow__new_instruction(r, x->like, &(tow__computation){&tow__slice_p, &p, sizeof p, 1, &value}, smaller);
    return *slice == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* The section of a pad's piece in the part; TOW__NONE if the piece does not cover the part. */
static tow_status slice_piece(tow__rewrite *r, part *x, tow__instruction pad, uint32_t *value)
{
    const int64_t begin = low(&pad, x->axis), length = r->f->types[pad.operands[0]].dims[x->axis];
    const bool there = x->first >= begin && x->end <= begin + length;
    bool negative;
    is_zero(tow__maker_of(r, pad.operands[1]), &negative);
    if (!x->padded) x->zero = pad.operands[1];
    x->padded |= !there && !negative;
    *value = TOW__NONE;
    return there ? slice_value(r, x, pad.operands[0], x->first - begin, x->end - begin, 0, value) : TOW_OK;
}

/* The sum that makes `value`, for the part and without zeros; TOW__NONE if no piece covers the part. */
static tow_status sum_part(tow__rewrite *r, part *x, uint32_t value, uint32_t *sum)
{
    const tow__instruction inst = *tow__maker_of(r, value); /* instructions move when more are added */
    uint32_t terms[2];
    if (TOW__COMPUTES(&inst, pad)) return slice_piece(r, x, inst, sum);
    for (int i = 0; i < 2; i++) {
        tow_status status = sum_part(r, x, inst.operands[i], &terms[i]);
        if (status != TOW_OK) return status;
    }
    *sum = terms[terms[0] == TOW__NONE];
    if (terms[0] == TOW__NONE || terms[1] == TOW__NONE) return TOW_OK;
    *sum = add(r, x, terms[0], terms[1]);
    return *sum == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* The same sum, plus a zero if some piece that is padded with +0 does not cover the part. */
static tow_status make_part(tow__rewrite *r, part *x, uint32_t value, uint32_t *made)
{
    tow_type type = r->f->types[value];
    tow_status status = sum_part(r, x, value, made);
    if (status != TOW_OK || (!x->padded && *made != TOW__NONE)) return status;
    type.dims[x->axis] = x->end - x->first;
    uint32_t zero = zeros(r, x, type);
    if (zero == TOW__NONE) return TOW_OUT_OF_MEMORY;
    *made = *made == TOW__NONE ? zero : add(r, x, *made, zero);
    return *made == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* Instruction `at` becomes a concatenation of the parts. */
static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const pad_sum *s = match;
    const tow__instruction sum = r->f->insts[at];
    const uint32_t n_values = r->f->n_values;
    const tow__axis_params p = {.axis = s->axis};
    uint32_t in[MOST_PARTS];
    for (int i = 0; i < s->parts; i++) {
        part x = {.like = &sum, .axis = s->axis, .first = s->cuts[i], .end = s->cuts[i + 1], .n_values = n_values};
        tow_status status = make_part(r, &x, sum.results[0], &in[i]);
        if (status != TOW_OK) return status;
    }
    const uint32_t n = (uint32_t)s->parts;
    return tow__change_instruction(r, at, &(tow__computation){&tow__concatenate_p, &p, sizeof p, n, in}, 1, NULL);
}

const tow__rule tow__rule_pads_to_concatenate = {.on_values = true,
                                                 .is_root = is_add,
                                                 .last_first = true,
                                                 .match_bytes = sizeof(pad_sum),
                                                 .matches = matches,
                                                 .replace = replace};
