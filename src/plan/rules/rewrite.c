/* The engine: walks a function, matches, replaces, and keeps counts of uses and lists of instructions right. */
#include "src/plan/rules/rewrite.h"
#include "src/plan/lower/inline.h"
#include "src/plan/lower/lower.h"

/* ---- on values -------------------------------------------------------------------------------------------------- */

const tow__instruction *tow__maker_of(const tow__rewrite *r, uint32_t value)
{
    return r->f->makers[value] == TOW__INPUT ? NULL : &r->f->insts[r->f->makers[value]];
}

static bool is_dead(const tow__rewrite *r, const tow__instruction *inst)
{
    for (uint32_t j = 0; j < inst->n_out; j++)
        if (r->uses[inst->results[j]] > 0) return false;
    return true;
}

static tow_status count_uses(tow__rewrite *r)
{
    const tow__body *f = r->f;
    r->uses_capacity = f->n_values;
    r->uses = tow__arena_alloc(r->scratch, f->n_values, sizeof *r->uses);
    if (!r->uses) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < f->n_insts; i++)
        for (uint32_t j = 0; j < f->insts[i].n_in; j++) r->uses[f->insts[i].operands[j]]++;
    for (uint32_t i = 0; i < f->n_outputs; i++) r->uses[f->outputs[i]]++;
    return TOW_OK;
}

static void use(tow__rewrite *r, const uint32_t *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) r->uses[values[i]]++;
}

/* Operands of instructions that die with their last use are used less as well; chains of such instructions are as long
 * as patterns are deep. */
static void drop_use(tow__rewrite *r, uint32_t value)
{
    const tow__instruction *inst = tow__maker_of(r, value);
    if (--r->uses[value] > 0 || !inst || !is_dead(r, inst)) return;
    for (uint32_t i = 0; i < inst->n_in; i++) drop_use(r, inst->operands[i]);
}

/* Gives the instruction the computation: all but its results. */
static tow_status set_computation(tow__rewrite *r, tow__instruction *inst, const tow__computation *c, tow_dtype dtype)
{
    const void *params = c->params_bytes ? tow__arena_copy(&r->p->memory, c->params, 1, c->params_bytes) : c->params;
    uint32_t *operands = tow__arena_copy(r->scratch, c->operands, c->n_in, sizeof *operands);
    if ((c->params && !params) || !operands) return TOW_OUT_OF_MEMORY;
    inst->op = c->op;
    inst->params = params;
    inst->kernel = c->op->view ? NULL : tow__kernel_of(c->op, dtype);
    inst->n_in = c->n_in;
    inst->operands = operands;
    use(r, operands, c->n_in);
    return TOW_OK;
}

static uint32_t new_value(tow__rewrite *r, tow_type type)
{
    uint32_t *uses = tow__extend(r->scratch, r->uses, r->f->n_values, &r->uses_capacity, sizeof *uses);
    if (!uses) return TOW__NONE;
    r->uses = uses;
    uses[r->f->n_values] = 0;
    return tow__add_value(r->scratch, r->f, type, r->f->n_insts);
}

uint32_t tow__new_instruction(tow__rewrite *r, const tow__instruction *like, const tow__computation *c, tow_type type)
{
    tow__instruction inst = *like; /* instructions move when more are added */
    tow__body *f = r->f;
    uint32_t value = new_value(r, type);
    tow__instruction *insts = tow__extend(r->scratch, f->insts, f->n_insts, &f->insts_capacity, sizeof *insts);
    if (value == TOW__NONE || !insts) return TOW__NONE;
    f->insts = insts;
    inst.n_out = 1;
    inst.results = tow__arena_copy(r->scratch, &value, 1, sizeof value);
    inst.body = NULL;
    if (!inst.results || set_computation(r, &inst, c, type.dtype) != TOW_OK) return TOW__NONE;
    insts[f->n_insts++] = inst;
    return value;
}

tow_status tow__change_instruction(tow__rewrite *r, uint32_t at, const tow__computation *c, uint32_t n_out,
                                   const uint32_t *results)
{
    tow__instruction *inst = &r->f->insts[at];
    const tow__instruction before = *inst;
    tow_status status = TOW_OK;
    if (results) {
        inst->n_out = n_out;
        inst->results = tow__arena_copy(r->scratch, results, n_out, sizeof *results);
        if (!inst->results) return TOW_OUT_OF_MEMORY;
    }
    TRY(set_computation(r, inst, c, r->f->types[inst->results[0]].dtype));
    for (uint32_t i = 0; i < inst->n_out; i++) r->f->makers[inst->results[i]] = at;
    for (uint32_t i = 0; i < before.n_in; i++) drop_use(r, before.operands[i]);
done:
    return status;
}

static tow_status try_inst(tow__rewrite *r, const tow__rule *rule, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->f->insts[at];
    if (!rule->is_root(inst->op) || is_dead(r, inst) || !rule->matches(r, at, match)) return r->status;
    return rule->replace(r, at, match);
}

static tow_status rewrite_values(tow__rewrite *r, const tow__rule *rule)
{
    const uint32_t n = r->f->n_insts;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = rule->is_root(r->f->insts[i].op);
    if (!any || (rule->applies && !rule->applies(r))) return r->status;
    void *match = tow__arena_alloc(r->scratch, 1, rule->match_bytes ? rule->match_bytes : 1);
    tow_status status = match ? count_uses(r) : TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < n && status == TOW_OK; i++)
        status = try_inst(r, rule, rule->last_first ? n - 1 - i : i, match);
    return status;
}

/* ---- on views ---------------------------------------------------------------------------------------------------- */

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
    tow__body *body = r->s->body;
    tow__instruction *appended =
        tow__extend(r->scratch, r->appended, r->n_appended, &r->appended_capacity, sizeof *appended);
    if (!appended) return TOW_OUT_OF_MEMORY;
    r->appended = appended;
    tow_status status = tow__add_copy(&r->l, x, storage, backward);
    if (status == TOW_OK) appended[r->n_appended++] = body->insts[--body->n_insts];
    return status;
}

/* The first instruction from `at` on in which the pattern ends; n: there is none. */
static uint32_t next_match(tow__rewrite *r, const tow__rule *rule, uint32_t at, uint32_t n, void *match)
{
    while (at < n && r->status == TOW_OK && !(rule->is_root(r->insts[at].op) && rule->matches(r, at, match))) at++;
    return at;
}

static tow_status rewrite_views(tow__rewrite *r, const tow__rule *rule)
{
    tow__body *body = r->s->body;
    const uint32_t n = body->n_insts;
    tow_status status = TOW_OK;
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++) any = rule->is_root(body->insts[i].op);
    if (!any || (rule->applies && !rule->applies(r))) return r->status;
    void *match = tow__arena_alloc(r->scratch, 1, rule->match_bytes ? rule->match_bytes : 1);
    if (!match) return TOW_OUT_OF_MEMORY;
    r->insts = body->insts;
    r->l = (tow__lowering){.p = r->p, .body = body, .scratch = r->scratch};
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
    for (uint32_t i = 0; i < r->n_appended; i++) TRY(tow__append_instruction(r->p, body, &r->appended[i]));
    tow__invalidate(r->s);
done:
    return status;
}

tow_status tow__apply_rule(tow__function_state *s, const tow__rule *rule)
{
    tow__rewrite r = {.p = s->p, .scratch = s->scratch, .s = s, .f = s->body};
    return rule->on_values ? rewrite_values(&r, rule) : rewrite_views(&r, rule);
}
