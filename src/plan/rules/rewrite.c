/* The engine: walks a function, matches, replaces, and keeps counts of uses and lists of instructions right. */
#include "src/plan/rules/rewrite.h"

/* ---- on nodes ---------------------------------------------------------------------------------------------------- */

const tow__node *tow__maker_of(const tow__rewrite *r, uint32_t value)
{
    return r->f->makers[value] == TOW__INPUT ? NULL : &r->f->nodes[r->f->makers[value]];
}

static bool is_dead(const tow__rewrite *r, const tow__node *node)
{
    for (uint32_t j = 0; j < node->e->n_out; j++)
        if (r->uses[node->out[j]] > 0) return false;
    return true;
}

static tow_status count_uses(tow__rewrite *r)
{
    const tow__flat *f = r->f;
    r->uses_capacity = f->n_values;
    r->uses = tow__arena_alloc(r->scratch, f->n_values, sizeof *r->uses);
    if (!r->uses) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        for (uint32_t j = 0; j < f->nodes[i].e->n_in; j++) r->uses[f->nodes[i].in[j]]++;
    for (uint32_t i = 0; i < f->n_outputs; i++) r->uses[f->outputs[i]]++;
    return TOW_OK;
}

static void use(tow__rewrite *r, const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) r->uses[values[i]]++;
}

/* Operands of nodes that die with their last use are used less as well; chains of such nodes are as long as patterns
 * are deep. */
static void drop_use(tow__rewrite *r, uint32_t value)
{
    const tow__node *node = tow__maker_of(r, value);
    if (--r->uses[value] > 0 || !node || !is_dead(r, node)) return;
    for (uint32_t i = 0; i < node->e->n_in; i++) drop_use(r, node->in[i]);
}

tow__equation *tow__new_equation(tow__rewrite *r, const tow_primitive *primitive, const void *params,
                                 size_t params_bytes, uint32_t n_in, uint32_t n_out)
{
    tow__equation *e = tow__arena_alloc(&r->p->memory, 1, sizeof *e);
    const void *copy = tow__arena_copy(&r->p->memory, params, 1, params_bytes);
    if (!e || !copy) return NULL;
    *e = (tow__equation){.primitive = primitive, .params = copy, .n_in = n_in, .n_out = n_out};
    return e;
}

static uint32_t new_value(tow__rewrite *r, tow_type type, bool carries)
{
    uint32_t *uses = tow__extend(r->scratch, r->uses, r->f->n_values, &r->uses_capacity, sizeof *uses);
    if (!uses) return TOW__NONE;
    r->uses = uses;
    uses[r->f->n_values] = 0;
    return tow__add_value(r->scratch, r->f, type, r->f->n_nodes, carries);
}

uint32_t tow__new_node(tow__rewrite *r, const tow__node *like, const tow__equation *e, tow_type type,
                       const uint32_t *in)
{
    tow__node node = *like; /* nodes move when more are added */
    tow__flat *f = r->f;
    uint32_t value = e ? new_value(r, type, f->carries[node.out[0]]) : TOW__NONE;
    tow__node *nodes = tow__extend(r->scratch, f->nodes, f->n_nodes, &f->nodes_capacity, sizeof *nodes);
    if (value == TOW__NONE || !nodes) return TOW__NONE;
    f->nodes = nodes;
    node.e = e;
    node.in = tow__arena_copy(r->scratch, in, e->n_in, sizeof *in);
    node.out = tow__arena_copy(r->scratch, &value, 1, sizeof value);
    node.body = NULL;
    node.kernel = e->primitive->view ? NULL : tow__kernel_of(e->primitive, type.dtype);
    if (!node.in || !node.out) return TOW__NONE;
    use(r, in, e->n_in);
    nodes[f->n_nodes++] = node;
    return value;
}

tow_status tow__change_node(tow__rewrite *r, uint32_t at, const tow__equation *e, const uint32_t *in,
                            const uint32_t *out)
{
    tow__node *node = &r->f->nodes[at];
    if (!e) return TOW_OUT_OF_MEMORY;
    const tow__node before = *node;
    node->in = tow__arena_copy(r->scratch, in, e->n_in, sizeof *in);
    if (out) node->out = tow__arena_copy(r->scratch, out, e->n_out, sizeof *out);
    if (!node->in || !node->out) return TOW_OUT_OF_MEMORY;
    node->e = e;
    node->kernel = e->primitive->view ? NULL : tow__kernel_of(e->primitive, r->f->types[node->out[0]].dtype);
    for (uint32_t i = 0; i < e->n_out; i++) r->f->makers[node->out[i]] = at;
    use(r, in, e->n_in);
    for (uint32_t i = 0; i < before.e->n_in; i++) drop_use(r, before.in[i]);
    return TOW_OK;
}

static tow_status try_node(tow__rewrite *r, const tow__rule *rule, uint32_t at, void *match)
{
    const tow__node *node = &r->f->nodes[at];
    if (!rule->is_root(node->e->primitive) || is_dead(r, node) || !rule->matches(r, at, match)) return r->status;
    return rule->replace(r, at, match);
}

static tow_status rewrite_nodes(tow__rewrite *r, const tow__rule *rule)
{
    const uint32_t n = r->f->n_nodes;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = rule->is_root(r->f->nodes[i].e->primitive);
    if (!any || (rule->applies && !rule->applies(r))) return r->status;
    void *match = tow__arena_alloc(r->scratch, 1, rule->match_bytes ? rule->match_bytes : 1);
    tow_status status = match ? count_uses(r) : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n && status == TOW_OK; i++)
        status = try_node(r, rule, rule->last_first ? n - 1 - i : i, match);
    return status;
}

/* ---- on instructions --------------------------------------------------------------------------------------------- */

tow__instruction *tow__copy_instruction(tow__rewrite *r, uint32_t at)
{
    const tow__instruction *before = &r->insts[at];
    tow__instruction *inst = tow__add_instruction(&r->l, before->op, before->n_in, before->n_out);
    if (!inst) return NULL;
    tow__view *in = inst->in, *out = inst->out;
    *inst = *before;
    inst->in = in;
    inst->out = out;
    inst->scratch = TOW__NONE;
    if (before->n_in) memcpy(in, before->in, before->n_in * sizeof *in);
    if (before->n_out) memcpy(out, before->out, before->n_out * sizeof *out);
    return inst;
}

tow_status tow__copy_late(tow__rewrite *r, const tow__view *x, uint32_t storage, bool backward)
{
    tow__plan *body = r->s->body;
    tow__instruction *late = tow__extend(r->scratch, r->late, r->n_late, &r->late_capacity, sizeof *late);
    if (!late) return TOW_OUT_OF_MEMORY;
    r->late = late;
    tow_status status = tow__add_copy(&r->l, x, storage, backward);
    if (status == TOW_OK) late[r->n_late++] = body->insts[--body->n_insts];
    return status;
}

/* The first instruction from `at` on in which the pattern ends; n: there is none. */
static uint32_t next_match(tow__rewrite *r, const tow__rule *rule, uint32_t at, uint32_t n, void *match)
{
    while (at < n && r->status == TOW_OK && !(rule->is_root(r->insts[at].base) && rule->matches(r, at, match))) at++;
    return at;
}

static tow_status rewrite_instructions(tow__rewrite *r, const tow__rule *rule)
{
    tow__plan *body = r->s->body;
    const uint32_t n = body->n_insts;
    tow_status status = TOW_OK;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = rule->is_root(body->insts[i].base);
    if (!any || (rule->applies && !rule->applies(r))) return r->status;
    void *match = tow__arena_alloc(r->scratch, 1, rule->match_bytes ? rule->match_bytes : 1);
    if (!match) return TOW_OUT_OF_MEMORY;
    r->insts = body->insts;
    r->l = (tow__lowering){.p = r->p, .plan = body, .scratch = r->scratch};
    uint32_t at = next_match(r, rule, 0, n, match);
    if (r->status != TOW_OK || at == n) return r->status;
    body->insts = NULL; /* most functions have no match and keep their list */
    body->n_insts = body->insts_capacity = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == at) {
            TRY(rule->replace(r, i, match));
            at = next_match(r, rule, i + 1, n, match);
            TRY(r->status);
        } else {
            TRY(tow__append_instruction(r->p, body, &r->insts[i]));
        }
    }
    for (uint32_t i = 0; i < r->n_late; i++) TRY(tow__append_instruction(r->p, body, &r->late[i]));
    tow__invalidate(r->s);
done:
    return status;
}

tow_status tow__apply_rule(tow__function_state *s, const tow__rule *rule)
{
    tow__rewrite r = {.p = s->p, .scratch = s->scratch, .s = s, .f = s->flat};
    return rule->on_nodes ? rewrite_nodes(&r, rule) : rewrite_instructions(&r, rule);
}
