/* Sums of pads become a concatenation.
 *
 *   the gradient of x, of which slices are used:       add(add(pad(a), pad(b)), pad(c))
 *   where the pieces lie side by side and fill x:      concatenate(a + 0, b + 0, c + 0)
 *   where a and b share columns, and some are bare:    concatenate(a[..] + 0, a[..] + b[..] + 0, 0, c + 0)
 *
 * The padding is +0, so an element is the sum of the pieces that are there, in their order, plus some zeros. Wherever
 * in the sum those come: they change -0 into 0 and nothing else, so one 0 behind the sum gives the same bits. */
#include <stdlib.h>

#include "src/plan/plan.h"

enum {
    MOST_PIECES = 16,
    MOST_PARTS = 16, /* of a concatenation */
    MOST_NEW = 128,  /* sums of parts of pieces, about: pieces times parts */
    MOST_DEPTH = 8,  /* elementwise nodes below a pad, of which parts are made */
    MOST_OPERANDS = 4
};

typedef struct pads {
    tow_program *p;
    tow__arena *scratch;
    tow__flat *f;
    uint32_t *uses;     /* [n_counted] */
    uint32_t n_counted; /* values that were there before */
    const tow__node *piece[MOST_PIECES];
    uint32_t inner[MOST_PIECES]; /* partial sums */
    int n, n_inner;
} pads;

static const tow__node *maker(const pads *s, uint32_t value)
{
    return s->f->makers[value] == TOW__INPUT ? NULL : &s->f->nodes[s->f->makers[value]];
}

/* The axis along which a pad adds elements at the ends, if it is one and nothing else happens; else -1. */
static int padded_axis(const pads *s, const tow__node *pad)
{
    const tow__pad_params *p = pad->e->params;
    const tow__node *value = maker(s, pad->in[1]);
    int axis = -1;
    if (!value || !TOW__IS(value->e, const)) return -1;
    tow_array *zero = ((const tow__const_params *)value->e->params)->value;
    const char *bytes = tow_array_data(zero);
    for (size_t i = 0; i < tow_type_bytes(tow_array_type(zero)); i++)
        if (bytes[i] != 0) return -1;
    for (int i = 0; i < p->low.n; i++) {
        if (p->interior.v[i] != 0 || p->low.v[i] < 0 || p->high.v[i] < 0) return -1;
        if (p->low.v[i] == 0 && p->high.v[i] == 0) continue;
        if (axis >= 0) return -1;
        axis = i;
    }
    return axis;
}

/* Collects the pads below a sum, in order; chains of additions lean to one side, so the depth is kept small. */
static bool collect(pads *s, uint32_t value, int depth)
{
    const tow__node *node = maker(s, value);
    if (!node || s->uses[value] != 1 || depth > MOST_PIECES) return false;
    if (TOW__IS(node->e, add)) {
        if (s->n_inner == MOST_PIECES) return false;
        s->inner[s->n_inner++] = value;
        return collect(s, node->in[0], depth + 1) && collect(s, node->in[1], depth + 1);
    }
    if (!TOW__IS(node->e, pad) || s->n == MOST_PIECES) return false;
    s->piece[s->n++] = node;
    return true;
}

/* The axis along which all pieces are padded, or -1. */
static int common_axis(const pads *s)
{
    int axis = padded_axis(s, s->piece[0]);
    for (int i = 1; i < s->n && axis >= 0; i++)
        if (padded_axis(s, s->piece[i]) != axis) axis = -1;
    return axis;
}

static int64_t low(const tow__node *pad, int axis) { return ((const tow__pad_params *)pad->e->params)->low.v[axis]; }

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Where along the axis pieces begin or end, from 0 to its length; returns how many parts there are in between. */
static int cut(const pads *s, int axis, int64_t *at)
{
    int n = 0, parts = 0;
    at[n++] = 0;
    at[n++] = s->f->types[s->piece[0]->out[0]].dims[axis];
    for (int i = 0; i < s->n; i++) {
        at[n++] = low(s->piece[i], axis);
        at[n++] = low(s->piece[i], axis) + s->f->types[s->piece[i]->in[0]].dims[axis];
    }
    qsort(at, (size_t)n, sizeof *at, ascending);
    for (int i = 1; i < n; i++)
        if (at[i] != at[parts]) at[++parts] = at[i];
    return parts;
}

/* ---- new nodes --------------------------------------------------------------------------------------------------- */

static tow__equation *new_equation(pads *s, const tow_primitive *primitive, const void *params, size_t params_size,
                                   uint32_t n_in)
{
    tow__equation *e = tow__arena_alloc(&s->p->memory, 1, sizeof *e);
    const void *copy = tow__arena_copy(&s->p->memory, params, 1, params_size);
    if (!e || !copy) return NULL;
    *e = (tow__equation){.primitive = primitive, .params = copy, .n_in = n_in, .n_out = 1};
    return e;
}

/* A node that runs where `like` does; its value, or TOW__NONE. */
static uint32_t add_node(pads *s, const tow__node *like, const tow__equation *e, tow_type type, const uint32_t *in)
{
    tow__node node = *like;
    uint32_t value = e ? tow__add_value(s->scratch, s->f, type, s->f->n_nodes, s->f->carries[like->out[0]]) : TOW__NONE;
    tow__node *nodes = tow__extend(s->scratch, s->f->nodes, s->f->n_nodes, &s->f->nodes_capacity, sizeof *nodes);
    if (value == TOW__NONE || !nodes) return TOW__NONE;
    s->f->nodes = nodes;
    node.e = e;
    node.in = tow__arena_copy(s->scratch, in, e->n_in, sizeof *in);
    node.out = tow__arena_copy(s->scratch, &value, 1, sizeof value);
    node.body = NULL;
    node.kernel = e->primitive->view ? NULL : tow__kernel_of(e->primitive, type.dtype);
    if (!node.in || !node.out) return TOW__NONE;
    nodes[s->f->n_nodes++] = node;
    return value;
}

/* 0 in this shape; `zero`: the scalar that pads. */
static uint32_t zeros(pads *s, const tow__node *like, uint32_t zero, tow_type type)
{
    tow__broadcast_params p = {.shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    return add_node(s, like, new_equation(s, &tow__broadcast_in_dim_p, &p, sizeof p, 1), type, &zero);
}

/* One part of the sum: [first, end) of the axis. */
typedef struct part {
    const tow__node *like;
    int axis;
    int64_t first, end;
    uint32_t zero;
    bool padded; /* some piece is not there */
} part;

/* Elements [first, end) of `value` along the axis. What only this sum reads, in its part of the program, is not made as
 * a whole: the slices are those of its operands, so that each part is one pass from there. */
static tow_status slice_value(pads *s, const part *x, uint32_t value, int64_t first, int64_t end, int depth,
                              uint32_t *slice)
{
    tow_type type = s->f->types[value];
    const tow__node *made = maker(s, value);
    bool sliced = made && made->e->primitive->kind == TOW__ELEMENTWISE && made->e->n_out == 1 &&
                  made->e->n_in <= MOST_OPERANDS && made->backward == x->like->backward && depth < MOST_DEPTH;
    sliced = sliced && value < s->n_counted && s->uses[value] == 1;
    *slice = value;
    if (type.rank == 0 || end - first == type.dims[x->axis]) return TOW_OK;
    tow_type smaller = type;
    smaller.dims[x->axis] = end - first;
    if (sliced) {
        const tow__node node = *made; /* nodes move when more are added */
        uint32_t in[MOST_OPERANDS];
        for (uint32_t i = 0; i < node.e->n_in; i++) {
            tow_status status = slice_value(s, x, node.in[i], first, end, depth + 1, &in[i]);
            if (status != TOW_OK) return status;
        }
        *slice = add_node(s, x->like, node.e, smaller, in);
        if (*slice == TOW__NONE) return TOW_OUT_OF_MEMORY;
        s->f->nodes[s->f->makers[*slice]].kernel = node.kernel;
        return TOW_OK;
    }
    tow__slice_params p = {.start = {.n = type.rank}, .limit = {.n = type.rank}, .stride = {.n = type.rank}};
    for (int i = 0; i < type.rank; i++) p.limit.v[i] = type.dims[i], p.stride.v[i] = 1;
    p.start.v[x->axis] = first;
    p.limit.v[x->axis] = end;
    *slice = add_node(s, x->like, new_equation(s, &tow__slice_p, &p, sizeof p, 1), smaller, &value);
    return *slice == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* The piece of a pad in the part, TOW__NONE if it is not there. */
static tow_status slice_piece(pads *s, part *x, tow__node pad, uint32_t *value)
{
    const int64_t begin = low(&pad, x->axis), length = s->f->types[pad.in[0]].dims[x->axis];
    const bool there = x->first >= begin && x->end <= begin + length;
    x->zero = pad.in[1];
    x->padded |= !there;
    *value = TOW__NONE;
    return there ? slice_value(s, x, pad.in[0], x->first - begin, x->end - begin, 0, value) : TOW_OK;
}

/* The sum that makes `value`, in the part and without zeros; TOW__NONE if no piece is there. */
static tow_status sum_part(pads *s, part *x, uint32_t value, uint32_t *sum)
{
    const tow__node node = s->f->nodes[s->f->makers[value]]; /* nodes move when more are added */
    uint32_t terms[2];
    if (TOW__IS(node.e, pad)) return slice_piece(s, x, node, sum);
    for (int i = 0; i < 2; i++) {
        tow_status status = sum_part(s, x, node.in[i], &terms[i]);
        if (status != TOW_OK) return status;
    }
    *sum = terms[terms[0] == TOW__NONE];
    if (terms[0] == TOW__NONE || terms[1] == TOW__NONE) return TOW_OK;
    *sum = add_node(s, x->like, new_equation(s, &tow__add_p, NULL, 0, 2), s->f->types[terms[0]], terms);
    return *sum == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* The same with a zero, if any belongs there. */
static tow_status make_part(pads *s, part *x, uint32_t value, uint32_t *made)
{
    tow_type type = s->f->types[value];
    tow_status status = sum_part(s, x, value, made);
    if (status != TOW_OK || !x->padded) return status;
    type.dims[x->axis] = x->end - x->first;
    uint32_t zero = zeros(s, x->like, x->zero, type), sum = *made;
    if (zero == TOW__NONE) return TOW_OUT_OF_MEMORY;
    *made = zero;
    if (sum == TOW__NONE) return TOW_OK;
    *made = add_node(s, x->like, new_equation(s, &tow__add_p, NULL, 0, 2), type, (uint32_t[]){sum, zero});
    return *made == TOW__NONE ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* Node `at`, a sum of pads, becomes a concatenation of its parts. */
static tow_status concatenate(pads *s, uint32_t at, int axis, const int64_t *cuts, int parts)
{
    uint32_t in[MOST_PARTS];
    const tow__node sum = s->f->nodes[at];
    for (int i = 0; i < parts; i++) {
        part x = {.like = &sum, .axis = axis, .first = cuts[i], .end = cuts[i + 1]};
        tow_status status = make_part(s, &x, sum.out[0], &in[i]);
        if (status != TOW_OK) return status;
    }
    tow__axis_params p = {.axis = axis};
    tow__node *node = &s->f->nodes[at];
    node->e = new_equation(s, &tow__concatenate_p, &p, sizeof p, (uint32_t)parts);
    node->in = tow__arena_copy(s->scratch, in, (size_t)parts, sizeof *in);
    node->kernel = tow__kernel_of(&tow__concatenate_p, s->f->types[node->out[0]].dtype);
    for (int i = 0; i < s->n_inner; i++) s->uses[s->inner[i]] = 0;
    return node->e && node->in ? TOW_OK : TOW_OUT_OF_MEMORY;
}

static uint32_t *count_uses(tow__arena *scratch, const tow__flat *f)
{
    uint32_t *uses = tow__arena_alloc(scratch, f->n_values, sizeof *uses);
    if (!uses) return NULL;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        for (uint32_t j = 0; j < f->nodes[i].e->n_in; j++) uses[f->nodes[i].in[j]]++;
    for (uint32_t i = 0; i < f->n_outputs; i++) uses[f->outputs[i]]++;
    return uses;
}

tow_status tow__pad_sums_to_concatenate(tow_program *p, tow__arena *scratch, tow__flat *f)
{
    pads s = {.p = p, .scratch = scratch, .f = f};
    uint32_t n = f->n_nodes;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = TOW__IS(f->nodes[i].e, pad);
    if (!any) return TOW_OK;
    s.n_counted = f->n_values;
    if (!(s.uses = count_uses(scratch, f))) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = n; i-- > 0;) { /* outer sums first */
        const tow__node *node = &f->nodes[i];
        if (!TOW__IS(node->e, add) || s.uses[node->out[0]] == 0) continue;
        s.n = s.n_inner = 0;
        if (!collect(&s, node->in[0], 0) || !collect(&s, node->in[1], 0)) continue;
        int64_t cuts[2 * MOST_PIECES + 2];
        int axis = common_axis(&s), parts = axis >= 0 ? cut(&s, axis, cuts) : 0;
        if (parts == 0 || parts > MOST_PARTS || parts * s.n > MOST_NEW) continue;
        tow_status status = concatenate(&s, i, axis, cuts, parts);
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}
