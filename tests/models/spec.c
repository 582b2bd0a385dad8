/* Drawing a model: a chain of layers, some of which contain chains, that fit each other. A layer that does not fit is
 * drawn again, so node_width is the only place that knows what fits. */
#include "tests/models/spec.h"

#include "tests/unit/support/pick.h"

static const struct {
    int most_children;
    bool rank3;
} kinds[] = {
#define X(symbol, children, rank3) {children, rank3},
    KINDS(X)
#undef X
};

const struct policy_entry model_policies[] = {
    {"nothing", false},
    {"everything", false},
    {"dots", false},
    {"dots_with_no_batch_dims", false},
    {"custom", false},
    {"not(dots)", false},
    {"names:h", true},
    {"any_names_but:h", true},
    {"anything_except:h", true},
    {"either(dots;names:h)", true},
    {"both(dots;anything_except:h)", true},
    {"except(everything;h)", true},
};
const int model_policy_count = sizeof model_policies / sizeof *model_policies;

static const char *const op_names[] = {
#define X(name, ...) #name,
    OPERATIONS(X) FAULTS(X)
#undef X
};

int model_op_count(void)
{
#define X(name, ...) +1
    return 0 OPERATIONS(X);
#undef X
}

int model_op(const char *name)
{
    for (size_t i = 0; i < sizeof op_names / sizeof *op_names; i++)
        if (strcmp(op_names[i], name) == 0) return (int)i;
    return -1;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

void free_node(node *n)
{
    if (n == NULL) return;
    for (int i = 0; i < n->n_children; i++) free_node(n->children[i]);
    free(n);
}

node *copy_node(const node *n)
{
    node *copy = malloc(sizeof *copy);
    if (copy == NULL) abort();
    *copy = *n;
    for (int i = 0; i < n->n_children; i++) copy->children[i] = copy_node(n->children[i]);
    return copy;
}

void visit_nodes(node *n, void (*visit)(node *n, void *user), void *user)
{
    visit(n, user);
    for (int i = 0; i < n->n_children; i++) visit_nodes(n->children[i], visit, user);
}

bool has_kind(const node *n, kind wanted)
{
    bool found = n->kind == wanted;
    for (int i = 0; i < n->n_children; i++) found = found || has_kind(n->children[i], wanted);
    return found;
}

bool is_owner(const node *n)
{
    const kind k = n->kind;
    return k == N_METHOD || k == N_RULED || k == N_REMAT_SCAN || k == N_MEMBERS || k == N_MAPPED || k == N_AXIS_CELLS ||
           k == N_STACK;
}

bool block_decodes(const node *n) { return n->kind == N_BLOCK && n->options[6] > 1 && n->options[0] < 2; }

/* Writes variables or sows, or contains what does. */
static bool writes_variables(const node *n)
{
    const int *o = n->options;
    bool writes = n->kind == N_RUNNING || n->kind == N_SPECTRAL_NORM || (n->kind == N_FEATURE && o[0] == 0) ||
                  (n->kind == N_ATTEND && (o[7] == 1 || o[7] == 2)) || block_decodes(n) ||
                  (is_owner(n) && (o[4] == 1 || o[4] == 2));
    for (int i = 0; i < n->n_children; i++) writes = writes || writes_variables(n->children[i]);
    return writes;
}

/* Every parameter below n is read where a variable may be written beside it. */
static bool may_write_in(const node *n)
{
    const kind k = n->kind;
    bool may = k != N_IN_REMAT && k != N_IN_CALL && k != N_LOOP && k != N_CHOICE && k != N_UNTIL && k != N_WHILE;
    for (int i = 0; i < n->n_children && may; i++) may = may_write_in(n->children[i]);
    return may;
}

/* Chains of width to the same width, as what contains them needs. */
static bool keeps_width(const node *n, int rank, int64_t width)
{
    bool keeps = n->n_children == kinds[n->kind].most_children;
    for (int i = 0; i < n->n_children && keeps; i++) keeps = node_width(n->children[i], rank, width) == width;
    return keeps;
}

int64_t node_width(const node *n, int rank, int64_t width)
{
    const int *o = n->options;
    const bool function =
        n->kind == N_IN_REMAT || n->kind == N_IN_CALL || n->kind == N_LOOP || n->kind == N_CHOICE || n->kind == N_UNTIL;
    if (kinds[n->kind].rank3 && rank != 3) return -1;
    if (n->kind == N_LORA || n->kind == N_WEIGHT_NORM || n->kind == N_SPECTRAL_NORM) { /* two have one name */
        for (int i = 0; i < n->n_children; i++)
            if (has_kind(n->children[i], n->kind)) return -1;
    }
    if (n->kind == N_SPECTRAL_NORM && !may_write_in(n)) return -1;
    if (function && writes_variables(n)) return -1; /* functions may not write variables */
    switch (n->kind) {
    case N_DENSE:
    case N_MLP:
    case N_RECURRENT:
    case N_TIME_CONV:
        return n->a;
    case N_BIDIRECTIONAL:
        return o[3] ? n->a : 2 * n->a;
    case N_GATED:
        return n->flag ? width : n->a;
    case N_FEATURE:
        return o[0] == 2 && rank < 3 ? -1 : width;
    case N_PARALLEL:
        return !keeps_width(n, rank, width) ? -1 : o[0] == 3 ? 2 * width : width;
    case N_ATTENTION:
    case N_TRANSFORMER:
    case N_ATTEND:
    case N_BLOCK:
        return width % n->b == 0 ? width : -1;
    case N_CHAIN:
        for (int i = 0; i < n->n_children && width >= 0; i++) width = node_width(n->children[i], rank, width);
        return n->n_children > 0 ? width : -1;
    case N_LOOP:
    case N_CELLS:
    case N_MAPPED:
    case N_AXIS_CELLS:
        return keeps_width(n, 2, width) ? width : -1;
    default:
        return kinds[n->kind].most_children == 0 || keeps_width(n, rank, width) ? width : -1;
    }
}

static int64_t pick_width(void)
{
    const int64_t widths[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 33};
    return widths[pick(sizeof widths / sizeof *widths)];
}

static node *draw_chain(int rank, int64_t width, int64_t to, int depth);

static node *draw_node(int rank, int64_t width, int depth)
{
    node *n = calloc(1, sizeof *n);
    if (n == NULL) abort();
    n->kind = (kind)pick(depth > 0 && pick(2) ? KIND_COUNT : N_CHAIN);
    n->flag = pick(2);
    n->other = pick(2);
    n->policy = pick(model_policy_count);
    n->a = kinds[n->kind].most_children ? 1 + pick(4) : pick_width();
    n->b = 1 + pick(3);
    n->n_ops = 1 + pick(3);
    for (int i = 0; i < n->n_ops; i++) n->ops[i] = pick(model_op_count());
    if (n->kind == N_DROPOUT) n->a = pick(rank + 1) - 1;
    if (n->kind == N_SHARED) n->a = 2 + pick(2);
    for (int i = 0; i < MOST_OPTIONS; i++) n->options[i] = pick(2) ? 0 : pick(4);
    if (kinds[n->kind].most_children == 0) return n;
    n->n_children = n->kind == N_CHAIN ? 1 : kinds[n->kind].most_children;
    for (int i = 0; i < n->n_children; i++)
        n->children[i] = draw_chain(kinds[n->kind].rank3 ? 2 : rank, width, width, depth - 1);
    return n;
}

/* Fitting nodes; the last one is a Dense if the width is not `to` (-1: any). */
static node *draw_chain(int rank, int64_t width, int64_t to, int depth)
{
    node *n = calloc(1, sizeof *n);
    if (n == NULL) abort();
    n->kind = N_CHAIN;
    int count = 1 + pick(MOST_CHILDREN - 1);
    while (n->n_children < count) {
        node *child = draw_node(rank, width, depth);
        int64_t next = node_width(child, rank, width);
        if (next < 0) {
            free_node(child);
            continue;
        }
        n->children[n->n_children++] = child;
        width = next;
    }
    if (to < 0 || width == to) return n;
    node *last = n->children[n->n_children++] = calloc(1, sizeof *last);
    if (last == NULL) abort();
    *last = (node){.kind = N_DENSE, .a = to, .flag = pick(2)};
    return n;
}

/* Leaves that are recorded if every stack is unrolled. */
static int64_t applications(const node *n, int64_t time)
{
    int64_t sum = n->n_children == 0;
    for (int i = 0; i < n->n_children; i++) sum += applications(n->children[i], time);
    switch (n->kind) {
    case N_SCAN:
    case N_SHARED:
    case N_UNTIL:
    case N_WHILE:
    case N_RULED:
        return sum * n->a;
    case N_REMAT_SCAN:
        return sum * 2 * n->b * 2;
    case N_STACK:
        return sum * (n->a / 2 + 2);
    case N_CELLS:
    case N_AXIS_CELLS:
        return sum * time;
    case N_RECURRENT:
    case N_BIDIRECTIONAL:
    case N_CONV_LSTM:
        return 1 + time / 4;
    default:
        return sum;
    }
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static tow_standard_optimizer draw_optimizer(void)
{
    tow_standard_optimizer o = {.kind = pick(2) ? TOW_ADAMW : TOW_SGD, .learning_rate = tow_schedule_constant(0.01)};
    if (pick(3) == 0) o.learning_rate = tow_schedule_warmup_cosine(0.001, 0.02, 2, 5, 0);
    if (o.kind == TOW_SGD && pick(2)) o.momentum = 0.75, o.nesterov = pick(2);
    if (pick(2)) o.weight_decay = 0.1, o.decay_all = pick(2);
    if (pick(3) == 0) o.clip_norm = 0.5;
    return o;
}

model draw_model(uint32_t number, const char *fault)
{
    const int64_t few[] = {1, 2, 3, 4, 5, 7}, many[] = {16, 31, 64, 130};
    seed = number * 2654435761u + 1;
    model m = {.seed = number, .rank = 2 + (pick(3) > 0), .optimizer = draw_optimizer()};
    for (int i = 0; i < m.rank; i++) m.dims[i] = few[pick(6)];
    if (pick(8) == 0) m.dims[m.rank - 2] = many[pick(4)];
    m.dims[m.rank - 1] = pick_width();
    if (pick(3) == 0) m.tokens = 2 + pick(20);
    m.tied = m.tokens > 0 && pick(3) == 0;
    m.loss = pick(4);
    int64_t width = m.dims[m.rank - 1];
    do {
        free_node(m.body);
        m.body = draw_chain(m.rank, width, m.tied ? width : -1, 3);
    } while (applications(m.body, m.dims[1]) > MOST_APPLICATIONS);
    if (fault) {
        node *first = m.body->children[0];
        while (first->n_children > 0) first = first->children[0];
        *first = (node){.kind = N_OPS, .ops = {model_op(fault)}, .n_ops = 1};
    }
    return m;
}

model copy_model(const model *m)
{
    model copy = *m;
    copy.body = copy_node(m->body);
    return copy;
}

void free_model(model *m) { free_node(m->body); }

bool model_is_valid(const model *m)
{
    int64_t width = m->dims[m->rank - 1], to = node_width(m->body, m->rank, width);
    return to > 0 && (!m->tied || (m->tokens > 0 && to == width));
}

/* Types of inputs and of what the loss sees beside the model's result. */
problem model_problem(const model *m)
{
#define X(name, ...) loss_##name,
    static const tow_loss_function losses[] = { LOSSES(X) };
#undef X
    problem p = {.seed = m->seed, .n_inputs = m->tied ? 2 : 1, .loss = losses[m->loss], .optimizer = m->optimizer};
    int64_t width = node_width(m->body, m->rank, m->dims[m->rank - 1]), out[3] = {m->dims[0], m->dims[1], m->dims[2]};
    out[m->rank - 1] = width;
    int rank = m->tied ? m->rank - 1 : m->rank;
    p.classes = m->tied ? m->tokens : width;
    if (m->tied) p.classes = out[rank - 1] < m->tokens ? out[rank - 1] : m->tokens;
    if (!m->tied && m->tokens > 0 && m->tokens < width) p.classes = m->tokens;
    p.inputs[0] = tow_make_type(m->tokens ? TOW_I32 : TOW_F32, m->tokens ? m->rank - 1 : m->rank, m->dims);
    p.inputs[1] = tow_make_type(TOW_I32, m->rank - 1, m->dims);
    p.extra[0] = tow_make_type(TOW_F32, rank, out);
    p.extra[1] = tow_make_type(TOW_I32, rank - 1, out);
    return p;
}
