/* An elementwise function of constants is computed once, when the program is compiled:
 *
 *   y = f(constants)   =>   y becomes a constant        where its elements are few
 *
 * What somebody else provides memory for, an output or a row of a loop, is copied there from the constant, last of
 * all. */
#include "src/base/arithmetic.h"
#include "src/plan/analysis/view.h"
#include "src/plan/lower/lower.h"
#include "src/plan/rules/rewrite.h"

enum {
    FOLDED = 512, /* bytes of results that are computed when the program is compiled */
    FOLDED_IN = 4,
    FOLDED_OUT = 2
};

static bool is_elementwise(const tow_primitive *op) { return op->kind == TOW__ELEMENTWISE; }

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const tow__instruction *inst = &r->insts[at];
    size_t bytes = 0;
    (void)match;
    if (!inst->kernel || inst->kernel->scratch || inst->n_in == 0) return false;
    if (inst->n_in > FOLDED_IN || inst->n_out > FOLDED_OUT) return false;
    for (uint32_t i = 0; i < inst->n_in; i++)
        if (r->p->storages[inst->in[i].storage].kind != TOW__S_CONSTANT) return false;
    for (uint32_t i = 0; i < inst->n_out; i++) bytes += tow_type_bytes(inst->out[i].type);
    return bytes > 0 && bytes <= FOLDED;
}

/* The result in memory of somebody else gets a storage of its own, to which the constant is copied. */
static tow_status copy_out(tow__rewrite *r, const tow__view *y, bool backward)
{
    const tow__storage before = r->p->storages[y->storage];
    tow__loop *loop = r->s->loop;
    uint32_t s = tow__add_storage(r->p, r->s->body, before.kind, before.index, before.bytes);
    if (s == TOW__NONE) return TOW_OUT_OF_MEMORY;
    if (before.kind == TOW__S_CARRY_OUT) loop->carry[before.index].out = s;
    if (before.kind == TOW__S_ROW_OUT) loop->ys[before.index].row = s;
    return tow__copy_late(r, y, s, backward);
}

/* Memory for the result, whose storage becomes a constant. NULL: out of memory. */
static void *make_constant(tow__rewrite *r, const tow__view *y, bool backward)
{
    const bool is_handed_out = r->p->storages[y->storage].kind != TOW__S_ARENA;
    if (is_handed_out && copy_out(r, y, backward) != TOW_OK) return NULL;
    return tow__become_constant(&r->l, y->storage, tow_type_bytes(y->type));
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tow__instruction *inst = &r->insts[at];
    tow__buffer in[FOLDED_IN], out[FOLDED_OUT];
    (void)match;
    for (uint32_t i = 0; i < inst->n_in; i++) {
        const tow__view *x = &inst->in[i];
        const char *data = r->p->storages[x->storage].data;
        in[i] = tow__view_buffer(x);
        in[i].data = (char *)data + x->offset * (int64_t)tow_dtype_size(x->type.dtype);
    }
    for (uint32_t i = 0; i < inst->n_out; i++) {
        out[i] = tow__view_buffer(&inst->out[i]);
        out[i].data = make_constant(r, &inst->out[i], inst->backward);
        if (!out[i].data) return TOW_OUT_OF_MEMORY;
    }
    TOW__ARITHMETIC(r->p->flush_subnormals);
    inst->kernel->run(
        &(tow__kernel_call){.n_in = inst->n_in, .n_out = inst->n_out, .in = in, .out = out, .params = inst->params});
    return TOW_OK;
}

const tow__rule tow__rule_fold_constants = {.is_root = is_elementwise, .matches = matches, .replace = replace};
