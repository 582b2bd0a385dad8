/* The engine of rewrite rules. A rule is a pattern with a requirement (`matches`) and a replacement; each has a file
 * of its own in this folder and a row in the list of passes (src/plan/pipeline.c), which names it and says why it is
 * there. A rule works on one of two forms:
 *
 *   on values   before lowering: the engine keeps the counts of uses right, so that rules can ask for values that only
 *               the pattern reads;
 *   on views    after lowering: the engine builds the new list of instructions.
 *
 * Either way it walks a function once and offers the rule each place whose operation is a root of the pattern. To add a
 * rule: a file here, an X below, and what a pass needs (the head of src/plan/pipeline.c lists it): a row in the list of
 * passes, a unit test that names the file, two programs in tests/graphs/plan. */
#ifndef TOW_SRC_PLAN_REWRITE_H
#define TOW_SRC_PLAN_REWRITE_H

#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

/* X(name) for each rule. */
#define TOW__RULE_LIST(X)                                                                                              \
    X(pads_to_concatenate)                                                                                             \
    X(group_products)                                                                                                  \
    X(read_as_stored)                                                                                                  \
    X(fuse_loss_and_gradient)                                                                                          \
    X(iota_to_broadcast)                                                                                               \
    X(fold_constants)                                                                                                  \
    X(divide_to_multiply)                                                                                              \
    X(outer_product_to_multiply)                                                                                       \
    X(pretranspose)                                                                                                    \
    X(scan_to_reduction)                                                                                               \
    X(accumulate_products)                                                                                             \
    X(split_norm_gradient)

/* A function while a rule is applied to it. */
typedef struct tow__rewrite {
    tow_program *p;
    tow__arena *scratch;
    tow__function_state *s;
    tow_status status; /* set where memory runs out while a pattern is looked for */
    /* on values */
    tow__body *f;
    uint32_t
        *uses; /* [f->n_values] operands and outputs that name the value; operands of instructions that a rewrite has
                       made dead do not count */
    uint32_t uses_capacity;
    /* on views */
    const tow__instruction *insts; /* as the rule finds them */
    tow__lowering l;               /* adds to the new list */
    tow__instruction *appended;    /* follow all others */
    uint32_t n_appended, appended_capacity;
} tow__rewrite;

struct tow__rule {
    bool on_values;                           /* else on views */
    bool (*is_root)(const tow_primitive *op); /* may the pattern end in this operation? */
    bool last_first;                          /* on values: the walk begins at the last one, so patterns are maximal */
    /* A condition on the function, checked before the walk if a root is there; NULL: none. */
    bool (*applies)(tow__rewrite *r);
    size_t match_bytes; /* of what `matches` tells `replace` */
    /* Does the pattern end in instruction `at`, and does the requirement hold? Fills *match. */
    bool (*matches)(tow__rewrite *r, uint32_t at, void *match);
    /* On values: changes instruction `at` with tow__change_instruction. On views: adds what takes its place. */
    tow_status (*replace)(tow__rewrite *r, uint32_t at, const void *match);
};

#define X(name) extern const tow__rule tow__rule_##name;
TOW__RULE_LIST(X)
#undef X

/* Applies the rule to the function. */
tow_status tow__apply_rule(tow__function_state *s, const tow__rule *rule);

/* ---- on values --------------------------------------------------------------------------------------------------- */

/* The instruction that makes the value; NULL: it is an input. */
const tow__instruction *tow__maker_of(const tow__rewrite *r, uint32_t value);
/* The computation that an instruction is to do. */
typedef struct tow__computation {
    const tow_primitive *op;
    const void *params;
    size_t params_bytes; /* to be copied; 0: the parameters live as long as the program */
    uint32_t n_in;
    const uint32_t *operands;
} tow__computation;

/* Adds an instruction with one result that runs where `like` does; returns its value, or TOW__NONE: out of memory. */
uint32_t tow__new_instruction(tow__rewrite *r, const tow__instruction *like, const tow__computation *c, tow_type type);
/* Makes instruction `at` compute something else. results: n_out values that exist; NULL: its results stay. */
tow_status tow__change_instruction(tow__rewrite *r, uint32_t at, const tow__computation *c, uint32_t n_out,
                                   const uint32_t *results);

/* ---- on views ---------------------------------------------------------------------------------------------------- */

/* A copy of instruction `at` at the end of the new list, to be changed; its scratch is that of no kernel yet. NULL:
 * out of memory. */
tow__instruction *tow__copy_instruction(tow__rewrite *r, uint32_t at);
/* Copies view x, which has elements, into a storage, behind all other instructions of the function. */
tow_status tow__copy_late(tow__rewrite *r, const tow__view *x, uint32_t storage, bool backward);

#endif
