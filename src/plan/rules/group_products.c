/* A sum over groups of rows, a binary tree of the products of neighboring blocks, becomes one product that keeps the
 * tree:
 *
 *   add (add (dot x[0:2] y[0:2], dot x[2:4] y[2:4]), add (dot x[4:6] y[4:6], dot x[6:8] y[6:8]))
 *     =>   dot x y, groups 4        the blocks are those of the first contracted axes
 *
 * Its kernel goes through the tree tile by tile of the result (tow__gemm_run_groups). So the partial sums, a whole
 * result for each product, stay in a cache. Results that stay there as a whole gain nothing and are left alone. */
#include "src/graph/builder.h"
#include "src/plan/rules/rewrite.h"

enum {
    MOST_GROUPS = 256,
    LEAST_BYTES = 1 << 16 /* of a result, whatever the cache: smaller products run on engines for small ones */
};

typedef struct tree {
    const tow__instruction *first; /* product */
    uint32_t operands[2];          /* whole */
    int64_t groups, most;
} tree;

static bool is_add(const tow_primitive *op) { return op == &tow__add_p; }

/* Is the value block `index` of so many elements along the axis, and the whole of all other axes? *whole: of what. */
static bool is_block(const tow__rewrite *r, uint32_t value, int axis, int64_t index, uint32_t *whole)
{
    const tow__instruction *slice = tow__maker_of(r, value);
    if (!slice || !TOW__COMPUTES(slice, slice)) return false;
    const tow__slice_params *p = slice->params;
    const tow_type x = r->f->types[slice->operands[0]];
    const int64_t size = r->f->types[value].dims[axis];
    *whole = slice->operands[0];
    for (int a = 0; a < x.rank; a++) {
        const int64_t first = a == axis ? index * size : 0, end = a == axis ? first + size : x.dims[a];
        if (p->start.v[a] != first || p->limit.v[a] != end || p->stride.v[a] != 1) return false;
    }
    return true;
}

/* The next product of the tree, in order. */
static bool take_product(const tow__rewrite *r, tree *t, const tow__instruction *dot)
{
    const tow__dot_params *p = dot->params;
    const int axes[] = {(int)p->lhs_contract.v[0], (int)p->rhs_contract.v[0]};
    if (t->groups == t->most || p->lhs_batch.n > 0 || p->lhs_contract.n == 0 || p->groups > 1) return false;
    if (t->first && !tow__params_equal(&tow__dot_general_p, p, t->first->params)) return false;
    for (int i = 0; i < 2; i++) {
        uint32_t whole;
        if (!is_block(r, dot->operands[i], axes[i], t->groups, &whole)) return false;
        if (t->first && t->operands[i] != whole) return false;
        t->operands[i] = whole;
    }
    if (!t->first) t->first = dot;
    t->groups++;
    return true;
}

/* The height of the binary tree of additions that makes the value, whose products are appended; -1: it is none. */
static int take_tree(const tow__rewrite *r, tree *t, uint32_t value, bool is_root)
{
    const tow__instruction *inst = tow__maker_of(r, value);
    if (!inst || (!is_root && r->uses[value] != 1)) return -1;
    if (TOW__COMPUTES(inst, dot_general)) return take_product(r, t, inst) ? 0 : -1;
    if (!TOW__COMPUTES(inst, add)) return -1;
    const int left = take_tree(r, t, inst->operands[0], false);
    if (left < 0 || take_tree(r, t, inst->operands[1], false) != left) return -1;
    return left + 1;
}

/* Do the blocks make the whole of both operands? A product that sums over one element is none of engines
 * (outer_product_to_multiply.c). */
static bool is_complete(const tow__rewrite *r, const tree *t)
{
    const tow__dot_params *p = t->first->params;
    const tow__ints *contract[] = {&p->lhs_contract, &p->rhs_contract};
    int64_t k = 1;
    for (int i = 0; i < p->lhs_contract.n; i++) k *= r->f->types[t->first->operands[0]].dims[p->lhs_contract.v[i]];
    if (k < 2) return false;
    for (int i = 0; i < 2; i++) {
        const int axis = (int)contract[i]->v[0];
        const int64_t block = r->f->types[t->first->operands[i]].dims[axis];
        if (block * t->groups != r->f->types[t->operands[i]].dims[axis]) return false;
    }
    return true;
}

/* Partial sums of a result of this type do not stay in the second cache. */
static bool is_worth_it(const tow__rewrite *r, tow_type type)
{
    const int64_t bytes = (int64_t)tow_type_bytes(type);
    return type.dtype == TOW_F32 && bytes >= LEAST_BYTES && bytes >= r->p->machine.l2.bytes / 4;
}

static bool matches(tow__rewrite *r, uint32_t at, void *match)
{
    const uint32_t value = r->f->insts[at].results[0];
    tree *t = match;
    *t = (tree){.most = MOST_GROUPS};
    return is_worth_it(r, r->f->types[value]) && take_tree(r, t, value, true) > 0 && is_complete(r, t);
}

static tow_status replace(tow__rewrite *r, uint32_t at, const void *match)
{
    const tree *t = match;
    tow__dot_params p = *(const tow__dot_params *)t->first->params;
    p.groups = t->groups;
    return tow__change_instruction(r, at, &(tow__computation){&tow__dot_general_p, &p, sizeof p, 2, t->operands}, 1,
                                   NULL);
}

const tow__rule tow__rule_group_products = {.on_values = true,
                                            .is_root = is_add,
                                            .last_first = true,
                                            .match_bytes = sizeof(tree),
                                            .matches = matches,
                                            .replace = replace};
