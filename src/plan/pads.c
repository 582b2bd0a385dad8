/* Sums of pads become a concatenation.
 *
 *   the gradient of x, of which slices are used:       add(add(pad(a), pad(b)), pad(c))
 *   where the pieces lie side by side and fill x:      concatenate(a + 0, b + 0, c + 0)
 *
 * The padding is +0, so an element is a plus some zeros: the bits of a + 0, which differ from a where it is -0. */
#include "src/plan/plan.h"

enum {
    MOST_PIECES = 16
};

typedef struct pads {
    tow_program *p;
    tow__arena *scratch;
    tow__flat *f;
    uint32_t *uses; /* [n_values] */
    const tow__node *piece[MOST_PIECES];
    int n;
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
    if (!value || !tow__is(value->e, "const")) return -1;
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
    if (tow__is(node->e, "add")) return collect(s, node->in[0], depth + 1) && collect(s, node->in[1], depth + 1);
    if (!tow__is(node->e, "pad") || s->n == MOST_PIECES) return false;
    s->piece[s->n++] = node;
    return true;
}

static int64_t low(const tow__node *pad, int axis) { return ((const tow__pad_params *)pad->e->params)->low.v[axis]; }

/* Sorts the pieces; the axis that they fill without gaps or overlaps, or -1. */
static int filled_axis(pads *s)
{
    int axis = padded_axis(s, s->piece[0]);
    for (int i = 1; i < s->n && axis >= 0; i++)
        if (padded_axis(s, s->piece[i]) != axis) axis = -1;
    if (axis < 0) return -1;
    for (int i = 1; i < s->n; i++)
        for (int k = i; k > 0 && low(s->piece[k], axis) < low(s->piece[k - 1], axis); k--) {
            const tow__node *other = s->piece[k];
            s->piece[k] = s->piece[k - 1];
            s->piece[k - 1] = other;
        }
    int64_t end = 0;
    for (int i = 0; i < s->n; i++) {
        if (low(s->piece[i], axis) != end) return -1;
        end += s->f->types[s->piece[i]->in[0]].dims[axis];
    }
    return end == s->f->types[s->piece[0]->out[0]].dims[axis] ? axis : -1;
}

/* ---- new nodes --------------------------------------------------------------------------------------------------- */

static tow__equation *new_equation(pads *s, const char *name, const void *params, size_t params_size, uint32_t n_in)
{
    tow__equation *e = tow__arena_alloc(&s->p->memory, 1, sizeof *e);
    const void *copy = tow__arena_copy(&s->p->memory, params, 1, params_size);
    if (!e || !copy) return NULL;
    *e =
        (tow__equation){.primitive = tow__primitive_find(name, strlen(name)), .params = copy, .n_in = n_in, .n_out = 1};
    return e;
}

/* A node that runs where `like` does; its value, or TOW__NONE. */
static uint32_t add_node(pads *s, const tow__node *like, const tow__equation *e, tow_type type, const uint32_t *in)
{
    tow__node node = *like;
    uint32_t value =
        e ? tow__flat_value(s->scratch, s->f, type, s->f->n_nodes, s->f->carries[like->out[0]]) : TOW__NONE;
    tow__node *nodes = tow__extend(s->scratch, s->f->nodes, s->f->n_nodes, &s->f->nodes_capacity, sizeof *nodes);
    if (value == TOW__NONE || !nodes) return TOW__NONE;
    s->f->nodes = nodes;
    node.e = e;
    node.in = tow__arena_copy(s->scratch, in, e->n_in, sizeof *in);
    node.out = tow__arena_copy(s->scratch, &value, 1, sizeof value);
    node.body = NULL;
    node.kernel = tow__view_is_move(e->primitive) ? NULL : tow__kernel_find(e->primitive->name, type.dtype);
    if (!node.in || !node.out) return TOW__NONE;
    nodes[s->f->n_nodes++] = node;
    return value;
}

/* piece + 0 */
static uint32_t add_zero(pads *s, const tow__node *sum, const tow__node *pad)
{
    tow_type type = s->f->types[pad->in[0]];
    tow__broadcast_params p = {.shape = {.n = type.rank}};
    memcpy(p.shape.v, type.dims, sizeof p.shape.v);
    uint32_t zero = add_node(s, sum, new_equation(s, "broadcast_in_dim", &p, sizeof p, 1), type, &pad->in[1]);
    if (zero == TOW__NONE) return TOW__NONE;
    return add_node(s, sum, new_equation(s, "add", NULL, 0, 2), type, (uint32_t[]){pad->in[0], zero});
}

/* Node `at`, a sum of pads, becomes a concatenation of the pieces. Nodes move when more are added. */
static tow_status concatenate(pads *s, uint32_t at, int axis)
{
    uint32_t in[MOST_PIECES];
    tow__node pieces[MOST_PIECES];
    for (int i = 0; i < s->n; i++) pieces[i] = *s->piece[i];
    const tow__node sum = s->f->nodes[at];
    for (int i = 0; i < s->n; i++)
        if ((in[i] = add_zero(s, &sum, &pieces[i])) == TOW__NONE) return TOW_OUT_OF_MEMORY;
    tow__axis_params p = {.axis = axis};
    tow__node *node = &s->f->nodes[at];
    node->e = new_equation(s, "concatenate", &p, sizeof p, (uint32_t)s->n);
    node->in = tow__arena_copy(s->scratch, in, (size_t)s->n, sizeof *in);
    node->kernel = tow__kernel_find("concatenate", s->f->types[node->out[0]].dtype);
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

tow_status tow__merge_pads(tow_program *p, tow__arena *scratch, tow__flat *f)
{
    pads s = {.p = p, .scratch = scratch, .f = f};
    uint32_t n = f->n_nodes;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = tow__is(f->nodes[i].e, "pad");
    if (!any) return TOW_OK;
    if (!(s.uses = count_uses(scratch, f))) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = n; i-- > 0;) { /* outer sums first */
        const tow__node *node = &f->nodes[i];
        if (!tow__is(node->e, "add")) continue;
        s.n = 0;
        if (!collect(&s, node->in[0], 0) || !collect(&s, node->in[1], 0)) continue;
        int axis = filled_axis(&s);
        tow_status status = axis >= 0 ? concatenate(&s, i, axis) : TOW_OK;
        if (status != TOW_OK) return status;
    }
    return TOW_OK;
}
