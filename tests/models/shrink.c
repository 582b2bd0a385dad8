/* Smaller models, as long as they fail: every edit of every node and of the model in turn, until none helps. */
#include "tests/models/spec.h"

/* ---- edits of a node: false if there is nothing to do ------------------------------------------------------------ */

static bool drop_child(node *n, int which)
{
    if (n->kind != N_CHAIN || n->n_children < 2 || which >= n->n_children) return false;
    free_node(n->children[which]);
    n->n_children--;
    memmove(&n->children[which], &n->children[which + 1], (size_t)(n->n_children - which) * sizeof *n->children);
    return true;
}

static bool drop_first(node *n) { return drop_child(n, 0); }
static bool drop_second(node *n) { return drop_child(n, 1); }
static bool drop_third(node *n) { return drop_child(n, 2); }
static bool drop_fourth(node *n) { return drop_child(n, 3); }

/* The first child, which is the only one or one of branches, in place of the node. */
static bool unwrap(node *n)
{
    if (n->n_children == 0 || (n->kind == N_CHAIN && n->n_children > 1)) return false;
    node *child = n->children[0];
    for (int i = 1; i < n->n_children; i++) free_node(n->children[i]);
    *n = *child;
    free(child);
    return true;
}

static bool drop_op(node *n)
{
    if (n->kind != N_OPS || n->n_ops < 2) return false;
    n->n_ops--;
    return true;
}

static bool drop_first_op(node *n)
{
    if (n->kind != N_OPS || n->n_ops < 2) return false;
    n->n_ops--;
    memmove(n->ops, n->ops + 1, (size_t)n->n_ops * sizeof *n->ops);
    return true;
}

static bool set(int64_t *x, int64_t value)
{
    if (*x <= value) return false;
    *x = value;
    return true;
}

static bool a_to_1(node *n) { return n->kind != N_DROPOUT && set(&n->a, 1); }
static bool a_to_2(node *n) { return n->kind != N_DROPOUT && set(&n->a, 2); }
static bool halve_a(node *n) { return n->kind != N_DROPOUT && n->a > 1 && set(&n->a, n->a / 2); }
static bool b_to_1(node *n) { return set(&n->b, 1); }

static bool clear(bool *x)
{
    bool was = *x;
    *x = false;
    return was;
}

static bool clear_flag(node *n) { return clear(&n->flag); }
static bool clear_other(node *n) { return clear(&n->other); }

static bool first_policy(node *n)
{
    bool other = n->policy != 0;
    n->policy = 0;
    return other;
}

static bool clear_option(node *n, int i)
{
    bool was = n->options[i] != 0;
    n->options[i] = 0;
    return was;
}

#define OPTIONS(X)                                                                                                     \
    X(0)                                                                                                               \
    X(1)                                                                                                               \
    X(2)                                                                                                               \
    X(3)                                                                                                               \
    X(4)                                                                                                               \
    X(5)                                                                                                               \
    X(6)                                                                                                               \
    X(7)
#define X(i)                                                                                                           \
    static bool clear_option_##i(node *n) { return clear_option(n, i); }
OPTIONS(X)
#undef X

static bool (*const node_edits[])(node *n) = {drop_first, drop_second,   drop_third,  drop_fourth,  unwrap,
                                              drop_op,    drop_first_op, a_to_1,      a_to_2,       halve_a,
                                              b_to_1,     clear_flag,    clear_other, first_policy,
#define X(i) clear_option_##i,
                                              OPTIONS(X)
#undef X
};

/* ---- edits of a model -------------------------------------------------------------------------------------------- */

static bool smaller_dim(model *m, int axis, int64_t to) { return axis < m->rank && set(&m->dims[axis], to); }
static bool dim0_to_1(model *m) { return smaller_dim(m, 0, 1); }
static bool dim1_to_1(model *m) { return smaller_dim(m, 1, 1); }
static bool dim2_to_1(model *m) { return smaller_dim(m, 2, 1); }
static bool halve_dim0(model *m) { return smaller_dim(m, 0, (m->dims[0] + 1) / 2); }
static bool halve_dim1(model *m) { return smaller_dim(m, 1, (m->dims[1] + 1) / 2); }
static bool halve_dim2(model *m) { return smaller_dim(m, 2, (m->dims[2] + 1) / 2); }

/* Every width at once: one of them alone does not fit its neighbors. */
static void set_width(node *n, void *user)
{
    const kind k = n->kind;
    if (k == N_DENSE || k == N_MLP || k == N_RECURRENT || k == N_BIDIRECTIONAL || k == N_GATED || k == N_TIME_CONV)
        set(&n->a, *(const int64_t *)user);
}

static bool all_widths(model *m, int64_t to)
{
    bool wider = m->dims[m->rank - 1] > to;
    visit_nodes(m->body, set_width, &to);
    set(&m->dims[m->rank - 1], to);
    return wider;
}

static bool widths_to_1(model *m) { return all_widths(m, 1); }
static bool widths_to_2(model *m) { return all_widths(m, 2); }
static bool widths_to_3(model *m) { return all_widths(m, 3); }

static bool without_tokens(model *m)
{
    bool had = m->tokens > 0;
    m->tokens = 0, m->tied = false;
    return had;
}

static bool untied(model *m) { return clear(&m->tied); }
static bool few_tokens(model *m) { return set(&m->tokens, 2); }

static bool first_loss(model *m)
{
    bool other = m->loss != 0;
    m->loss = 0;
    return other;
}

static bool plain_descent(model *m)
{
    bool other = m->optimizer.kind != TOW_SGD || m->optimizer.momentum > 0 || m->optimizer.weight_decay > 0;
    m->optimizer = (tow_standard_optimizer){.kind = TOW_SGD, .learning_rate = tow_schedule_constant(0.01)};
    return other;
}

static bool (*const model_edits[])(model *m) = {
    widths_to_1, widths_to_2, widths_to_3,    dim0_to_1, dim1_to_1,  dim2_to_1,  halve_dim0,
    halve_dim1,  halve_dim2,  without_tokens, untied,    few_tokens, first_loss, plain_descent,
};

/* ---- search ------------------------------------------------------------------------------------------------------ */

enum {
    N_NODE_EDITS = sizeof node_edits / sizeof *node_edits,
    N_MODEL_EDITS = sizeof model_edits / sizeof *model_edits
};

typedef struct target {
    int index;
    node *found;
} target;

static void find_index(node *n, void *user)
{
    target *t = user;
    if (t->index-- == 0) t->found = n;
}

/* Edit number `edit` of m: those of the model, then those of node 0, 1, ... False if there is nothing to do there;
 * *done if there is no such edit. */
static bool apply_edit(model *m, int edit, bool *done)
{
    if (edit < N_MODEL_EDITS) return model_edits[edit](m);
    target t = {(edit - N_MODEL_EDITS) / N_NODE_EDITS, NULL};
    visit_nodes(m->body, find_index, &t);
    *done = t.found == NULL;
    return t.found && node_edits[(edit - N_MODEL_EDITS) % N_NODE_EDITS](t.found);
}

/* One round over all edits; true if something was taken. */
static bool shrink_once(model *m, bool (*fails)(const model *m, void *user), void *user)
{
    bool any = false, done = false;
    for (int edit = 0; !done;) {
        model smaller = copy_model(m);
        if (apply_edit(&smaller, edit, &done) && model_is_valid(&smaller) && fails(&smaller, user)) {
            free_model(m);
            *m = smaller;
            any = true; /* the same edit may apply once more */
        } else {
            free_model(&smaller);
            edit++;
        }
    }
    return any;
}

void shrink_model(model *m, bool (*fails)(const model *m, void *user), void *user)
{
    for (int round = 0; round < 8 && shrink_once(m, fails, user); round++) continue;
}
