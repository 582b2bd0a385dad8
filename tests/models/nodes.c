/* Each kind of node: how it is built as a layer, and how it is printed as a declaration. The test
 * models/printed_programs runs printed programs, so that the two say the same. */
#include "tests/models/spec.h"

static const tow_activation op_functions[] = {
#define X(name, ...) op_##name,
    OPERATIONS(X) FAULTS(X)
#undef X
};

static const char *const op_texts[] = {
#define X(name, ...) "op_" #name,
    OPERATIONS(X) FAULTS(X)
#undef X
};

static const char *const loss_texts[] = {
#define X(name, ...) "loss_" #name,
    LOSSES(X)
#undef X
};

/* Lives until free_built. */
static void *keep(built *b, const void *object, size_t size)
{
    void *copy = malloc(size);
    if (copy == NULL || b->n == sizeof b->memory / sizeof *b->memory) abort();
    memcpy(copy, object, size);
    return b->memory[b->n++] = copy;
}

#define KEEP(b, type, ...) &((type *)keep(b, &(__VA_ARGS__), sizeof(type)))->module

void free_built(built *b)
{
    while (b->n > 0) free(b->memory[--b->n]);
}

static const char *truth(bool x) { return x ? "true" : "false"; }

/* The state that builds and prints share: children come first. */
typedef struct builder {
    built *b;
    side *s;
    const tow_module *children[MOST_CHILDREN];
} builder;

/* In a print: the number of the node, and pointers to its children. */
typedef struct printer {
    FILE *file;
    int number, next;
    char children[MOST_CHILDREN][16];
} printer;

static const wrapped *inner(const builder *b) { return (const wrapped *)b->children[0]; }

/* ---- layers without children ------------------------------------------------------------------------------------- */

static const tow_module *build_ops(builder *b, const node *n)
{
    tow_activation list[MOST_OPS];
    for (int i = 0; i < n->n_ops; i++) list[i] = op_functions[n->ops[i]];
    return KEEP(b->b, ops, (ops){{&ops_class}, (size_t)n->n_ops, keep(b->b, list, sizeof list)});
}

static void print_ops(printer *p, const node *n)
{
    fprintf(p->file, "ops n%d = OPS(", p->number);
    for (int i = 0; i < n->n_ops; i++) fprintf(p->file, "%s%s", i ? ", " : "", op_texts[n->ops[i]]);
    fprintf(p->file, ");\n");
}

static const tow_module *build_dense(builder *b, const node *n)
{
    return KEEP(b->b, tow_dense, TOW_DENSE(.features = n->a, .no_bias = n->flag));
}

static void print_dense(printer *p, const node *n)
{
    fprintf(p->file, "tow_dense n%d = TOW_DENSE(.features = %lld, .no_bias = %s);\n", p->number, (long long)n->a,
            truth(n->flag));
}

/* Into heads and back: [..., D] -> [..., b, a] -> [..., D]. */
static const tow_module *build_general(builder *b, const node *n)
{
    return KEEP(b->b, heads, HEADS(.heads = n->b, .features = n->a, .no_bias = n->flag));
}

static void print_general(printer *p, const node *n)
{
    fprintf(p->file, "heads n%d = HEADS(.heads = %lld, .features = %lld, .no_bias = %s);\n", p->number, (long long)n->b,
            (long long)n->a, truth(n->flag));
}

static const tow_module *build_mlp(builder *b, const node *n)
{
    return KEEP(b->b, tow_mlp,
                TOW_MLP(.features = {n->b + 2, n->a}, .activation = op_functions[n->ops[0]], .activate_last = n->other,
                        .no_bias = n->flag));
}

static void print_mlp(printer *p, const node *n)
{
    fprintf(p->file,
            "tow_mlp n%d = TOW_MLP(.features = {%lld, %lld}, .activation = %s, .activate_last = %s, .no_bias = %s);\n",
            p->number, (long long)n->b + 2, (long long)n->a, op_texts[n->ops[0]], truth(n->other), truth(n->flag));
}

static const tow_module *build_layer_norm(builder *b, const node *n)
{
    return KEEP(b->b, tow_layer_norm, TOW_LAYER_NORM(.epsilon = 0.01, .no_scale = n->other, .no_bias = n->flag));
}

static void print_layer_norm(printer *p, const node *n)
{
    fprintf(p->file, "tow_layer_norm n%d = TOW_LAYER_NORM(.epsilon = 0.01, .no_scale = %s, .no_bias = %s);\n",
            p->number, truth(n->other), truth(n->flag));
}

static const tow_module *build_rms_norm(builder *b, const node *n)
{
    return KEEP(b->b, tow_rms_norm, TOW_RMS_NORM(.epsilon = 0.01, .no_scale = n->other));
}

static void print_rms_norm(printer *p, const node *n)
{
    fprintf(p->file, "tow_rms_norm n%d = TOW_RMS_NORM(.epsilon = 0.01, .no_scale = %s);\n", p->number, truth(n->other));
}

static const tow_module *build_dropout(builder *b, const node *n)
{
    return KEEP(b->b, tow_dropout,
                TOW_DROPOUT(.rate = n->flag ? 0.5 : 0.1, .n_broadcast_axes = n->a >= 0,
                            .broadcast_axes = {n->a >= 0 ? (int)n->a : 0}));
}

static void print_dropout(printer *p, const node *n)
{
    fprintf(p->file, "tow_dropout n%d = TOW_DROPOUT(.rate = %s, .n_broadcast_axes = %d, .broadcast_axes = {%d});\n",
            p->number, n->flag ? "0.5" : "0.1", n->a >= 0, n->a >= 0 ? (int)n->a : 0);
}

static const tow_module *build_gate(builder *b, const node *n)
{
    (void)n;
    return KEEP(b->b, plain, (plain){{&gate_class}});
}

static void print_gate(printer *p, const node *n)
{
    (void)n;
    fprintf(p->file, "plain n%d = {{&gate_class}};\n", p->number);
}

static const tow_module *build_running(builder *b, const node *n)
{
    (void)n;
    return KEEP(b->b, plain, (plain){{&running_class}});
}

static void print_running(printer *p, const node *n)
{
    (void)n;
    fprintf(p->file, "plain n%d = {{&running_class}};\n", p->number);
}

static const tow_module *build_attention(builder *b, const node *n)
{
    return KEEP(b->b, tow_multi_head_attention,
                TOW_MULTI_HEAD_ATTENTION(.heads = n->b, .kv_heads = n->n_ops == 1, .causal = n->other,
                                         .no_bias = n->flag, .dropout_rate = n->n_ops == 2 ? 0.25 : 0));
}

static void print_attention(printer *p, const node *n)
{
    fprintf(p->file,
            "tow_multi_head_attention n%d = TOW_MULTI_HEAD_ATTENTION(.heads = %lld, .kv_heads = %d, .causal = %s, "
            ".no_bias = %s, .dropout_rate = %s);\n",
            p->number, (long long)n->b, n->n_ops == 1, truth(n->other), truth(n->flag), n->n_ops == 2 ? "0.25" : "0");
}

static const tow_module *build_transformer(builder *b, const node *n)
{
    return KEEP(b->b, tow_transformer_block,
                TOW_TRANSFORMER_BLOCK(.heads = n->b, .mlp_features = n->a, .causal = n->other, .rms_norm = n->flag,
                                      .epsilon = 0.01, .dropout_rate = n->n_ops == 2 ? 0.25 : 0,
                                      .attn_dropout_rate = n->n_ops == 3 ? 0.25 : 0,
                                      .activation = op_functions[n->ops[0]]));
}

static void print_transformer(printer *p, const node *n)
{
    fprintf(p->file,
            "tow_transformer_block n%d = TOW_TRANSFORMER_BLOCK(.heads = %lld, .mlp_features = %lld, .causal = %s, "
            ".rms_norm = %s, .epsilon = 0.01, .dropout_rate = %s, .attn_dropout_rate = %s, .activation = %s);\n",
            p->number, (long long)n->b, (long long)n->a, truth(n->other), truth(n->flag), n->n_ops == 2 ? "0.25" : "0",
            n->n_ops == 3 ? "0.25" : "0", op_texts[n->ops[0]]);
}

/* ---- layers around others ---------------------------------------------------------------------------------------- */

static const tow_module *build_chain(builder *b, const node *n)
{
    return KEEP(b->b, chain,
                (chain){{&chain_class}, (size_t)n->n_children, keep(b->b, b->children, sizeof b->children)});
}

static void print_chain(printer *p, const node *n)
{
    fprintf(p->file, "chain n%d = CHAIN(", p->number);
    for (int i = 0; i < n->n_children; i++) fprintf(p->file, "%sTOW_MODULE(%s)", i ? ", " : "", p->children[i]);
    fprintf(p->file, ");\n");
}

static const tow_module *build_remat(builder *b, const node *n)
{
    return KEEP(b->b, tow_remat, TOW_REMAT(inner(b), .policy = policy_of(b->s, model_policies[n->policy].text)));
}

static void print_remat(printer *p, const node *n)
{
    fprintf(p->file, "tow_remat n%d = TOW_REMAT(%s, .policy = policy_of(s, \"%s\"));\n", p->number, p->children[0],
            model_policies[n->policy].text);
}

/* The states that reverse mode keeps: options[0]. */
static tow_scan_schedule schedule_of(const node *n)
{
    const int64_t k = 1 + n->options[1];
    switch (n->options[0]) {
    case 1:
        return (tow_scan_schedule){.every = k};
    case 2:
        return (tow_scan_schedule){.levels = k};
    case 3:
        return (tow_scan_schedule){.slots = k};
    default:
        return (tow_scan_schedule){0};
    }
}

static const tow_module *build_scan(builder *b, const node *n)
{
    return KEEP(b->b, tow_scan,
                TOW_SCAN(inner(b), .length = n->a, .reverse = n->b == 2, .unrolled = n->other,
                         .keys = n->flag ? TOW_KEYS_FLAX : TOW_KEYS_PATH, .schedule = schedule_of(n)));
}

static void print_scan(printer *p, const node *n)
{
    const tow_scan_schedule s = schedule_of(n);
    fprintf(p->file,
            "tow_scan n%d = TOW_SCAN(%s, .length = %lld, .reverse = %s, .unrolled = %s, .keys = %s, "
            ".schedule = {.every = %lld, .levels = %lld, .slots = %lld});\n",
            p->number, p->children[0], (long long)n->a, truth(n->b == 2), truth(n->other),
            n->flag ? "TOW_KEYS_FLAX" : "TOW_KEYS_PATH", (long long)s.every, (long long)s.levels, (long long)s.slots);
}

/* Those of side.h, whose options are all in `around`. */
static const struct {
    const tow_module_class *class;
    const char *name;
} around_classes[KIND_COUNT] = {
    [N_RESIDUAL] = {&residual_class, "residual"},
    [N_SHARED] = {&shared_class, "shared"},
    [N_IN_REMAT] = {&in_remat_class, "in_remat"},
    [N_IN_CALL] = {&in_call_class, "in_call"},
    [N_CHOICE] = {&choice_class, "choice"},
    [N_UNTIL] = {&until_class, "until"},
    [N_LOOP] = {&loop_class, "loop"},
    [N_CELLS] = {&cells_class, "cells"},
};

static const tow_module *build_around(builder *b, const node *n)
{
    around a = {{around_classes[n->kind].class},
                b->children[0],
                .count = (int)n->a,
                .reverse = n->flag,
                .unrolled = n->other,
                .policy = policy_of(b->s, model_policies[n->policy].text)};
    return KEEP(b->b, around, a);
}

static void print_around(printer *p, const node *n)
{
    fprintf(
        p->file,
        "around n%d = AROUND(%s, %s, .count = %d, .reverse = %s, .unrolled = %s, .policy = policy_of(s, \"%s\"));\n",
        p->number, around_classes[n->kind].name, p->children[0], (int)n->a, truth(n->flag), truth(n->other),
        model_policies[n->policy].text);
}

/* The layers that made.h makes. */
#define MADE(name)                                                                                                     \
    {                                                                                                                  \
        .make = make_##name, .made = "make_" #name                                                                     \
    }

static const struct {
    const tow_module *(*build)(builder *b, const node *n);
    void (*print)(printer *p, const node *n);
    const wrapped *(*make)(side *s, const drawn *d);
    const char *made;
} nodes[KIND_COUNT] = {
    [N_OPS] = {build_ops, print_ops},
    [N_DENSE] = {build_dense, print_dense},
    [N_GENERAL] = {build_general, print_general},
    [N_MLP] = {build_mlp, print_mlp},
    [N_LAYER_NORM] = {build_layer_norm, print_layer_norm},
    [N_RMS_NORM] = {build_rms_norm, print_rms_norm},
    [N_DROPOUT] = {build_dropout, print_dropout},
    [N_GATE] = {build_gate, print_gate},
    [N_RUNNING] = {build_running, print_running},
    [N_ATTENTION] = {build_attention, print_attention},
    [N_TRANSFORMER] = {build_transformer, print_transformer},
    [N_CHAIN] = {build_chain, print_chain},
    [N_REMAT] = {build_remat, print_remat},
    [N_SCAN] = {build_scan, print_scan},
    [N_RESIDUAL] = {build_around, print_around},
    [N_SHARED] = {build_around, print_around},
    [N_IN_REMAT] = {build_around, print_around},
    [N_IN_CALL] = {build_around, print_around},
    [N_CHOICE] = {build_around, print_around},
    [N_UNTIL] = {build_around, print_around},
    [N_LOOP] = {build_around, print_around},
    [N_CELLS] = {build_around, print_around},
    [N_RECURRENT] = MADE(recurrent),
    [N_BIDIRECTIONAL] = MADE(bidirectional),
    [N_CONV_LSTM] = MADE(conv_lstm),
    [N_ATTEND] = MADE(attend),
    [N_BLOCK] = MADE(block),
    [N_GATED] = MADE(gated),
    [N_FEATURE] = MADE(feature),
    [N_TIME_CONV] = MADE(time_conv),
    [N_SEQUENTIAL] = MADE(sequential),
    [N_PARALLEL] = MADE(parallel),
    [N_SCALED_RESIDUAL] = MADE(scaled_residual),
    [N_METHOD] = MADE(method),
    [N_PRECISE] = MADE(precise),
    [N_LORA] = MADE(lora),
    [N_WEIGHT_NORM] = MADE(weight_norm),
    [N_SPECTRAL_NORM] = MADE(spectral_norm),
    [N_RULED] = MADE(ruled),
    [N_REMAT_SCAN] = MADE(remat_scan),
    [N_STACK] = MADE(stack),
    [N_MEMBERS] = MADE(members),
    [N_MAPPED] = MADE(mapped),
    [N_AXIS_CELLS] = MADE(axis_cells),
    [N_COND] = MADE(chosen),
    [N_WHILE] = MADE(repeated),
};

/* Nothing in a cell has a checkpoint name. */
static const char *policy_text(const node *n)
{
    const bool recurrent = n->kind == N_RECURRENT || n->kind == N_BIDIRECTIONAL;
    return recurrent && model_policies[n->policy].names ? "dots" : model_policies[n->policy].text;
}

static drawn numbers_of(builder *b, const node *n)
{
    drawn d = {.a = n->a,
               .b = n->b,
               .flag = n->flag,
               .other = n->other,
               .op = op_functions[n->ops[0]],
               .policy = policy_of(b->s, policy_text(n))};
    memcpy(d.o, n->options, sizeof d.o);
    memcpy(d.inner, b->children, sizeof d.inner);
    return d;
}

static void print_made(printer *p, const node *n)
{
    fprintf(p->file, "const wrapped *n%d = %s(s, &(drawn){.a = %lld, .b = %lld, .flag = %s, .other = %s, .o = {",
            p->number, nodes[n->kind].made, (long long)n->a, (long long)n->b, truth(n->flag), truth(n->other));
    for (int i = 0; i < MOST_OPTIONS; i++) fprintf(p->file, "%s%d", i ? ", " : "", n->options[i]);
    fprintf(p->file, "},\n        .op = %s, .policy = policy_of(s, \"%s\")", op_texts[n->ops[0]], policy_text(n));
    for (int i = 0; i < n->n_children; i++) fprintf(p->file, ", .inner[%d] = TOW_MODULE(%s)", i, p->children[i]);
    fprintf(p->file, "});\n");
}

/* ---- whole models ------------------------------------------------------------------------------------------------ */

static const tow_module *build_node(built *memory, side *s, const node *n)
{
    builder b = {memory, s, {NULL}};
    for (int i = 0; i < n->n_children; i++) b.children[i] = build_node(memory, s, n->children[i]);
    if (nodes[n->kind].build) return nodes[n->kind].build(&b, n);
    const drawn d = numbers_of(&b, n);
    return &nodes[n->kind].make(s, &d)->module;
}

const tow_module *build_model(built *b, side *s, const model *m)
{
    whole w = {{&whole_class}, TOW_EMBED(0), build_node(b, s, m->body), m->tied};
    if (m->tokens) w.embed = TOW_EMBED(.num_embeddings = m->tokens, .features = m->dims[m->rank - 1]);
    return KEEP(b, whole, w);
}

static int print_node(printer *outer, const node *n)
{
    printer p = *outer;
    for (int i = 0; i < n->n_children; i++) {
        const int child = print_node(&p, n->children[i]);
        snprintf(p.children[i], sizeof p.children[i], "%sn%d", nodes[n->children[i]->kind].make ? "" : "&", child);
    }
    p.number = p.next++;
    fprintf(p.file, "    ");
    (nodes[n->kind].make ? print_made : nodes[n->kind].print)(&p, n);
    outer->next = p.next;
    return p.number;
}

/* Prints the members that are set, and nothing else. */
static void print_how(FILE *file, const how *h)
{
    static const char *const passes[] = {"NO_PASS", "DEAD_CODE", "COMMON_CODE", "TEXT"};
    const struct {
        bool set;
        const char *name;
    } switches[] = {{h->no_regions, "no_regions"},           {h->no_fusion, "no_fusion"},
                    {h->portable_bits, "portable_bits"},     {h->train, "train"},
                    {h->early_update, "early_update"},       {h->resume, "resume"},
                    {h->differences, "differences"},         {h->function, "function"},
                    {h->parameters_only, "parameters_only"}, {h->verify, "verify"}};
    fprintf(file, "(how){.threads = %d", h->threads);
    if (h->limit) fprintf(file, ", .limit = %d", h->limit);
    if (h->machine) fprintf(file, ", .machine = \"%s\"", h->machine);
    if (h->without) fprintf(file, ", .without = \"%s\"", h->without);
    if (h->rows) fprintf(file, ", .rows = %d", h->rows);
    if (h->pass != NO_PASS) fprintf(file, ", .pass = %s", passes[h->pass]);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        if (switches[i].set) fprintf(file, ", .%s = true", switches[i].name);
    fprintf(file, "}");
}

void print_side(FILE *file, const char *name, const model *m, const how *h)
{
    printer p = {.file = file};
    fprintf(file, "\nstatic results %s(const problem *p)\n{\n    side *s = begin_side(", name);
    print_how(file, h);
    fprintf(file, ");\n");
    int body = print_node(&p, m->body);
    fprintf(
        file,
        "    whole w = {{&whole_class}, TOW_EMBED(.num_embeddings = %lld, .features = %lld), TOW_MODULE(%sn%d), %s};\n",
        (long long)m->tokens, (long long)(m->tokens ? m->dims[m->rank - 1] : 0), nodes[m->body->kind].make ? "" : "&",
        body, truth(m->tied));
    fprintf(file, "    return compute(s, TOW_MODULE(&w), p);\n}\n");
}

static void print_type(FILE *file, tow_type t)
{
    static const char *const names[] = {[TOW_F32] = "TOW_F32",
                                        [TOW_F64] = "TOW_F64",
                                        [TOW_I32] = "TOW_I32",
                                        [TOW_U32] = "TOW_U32",
                                        [TOW_BOOL] = "TOW_BOOL"};
    fprintf(file, "{%s, %d, {%lld, %lld, %lld}}", names[t.dtype], t.rank, (long long)t.dims[0], (long long)t.dims[1],
            (long long)t.dims[2]);
}

static void print_optimizer(FILE *file, const tow_standard_optimizer *o)
{
    const tow_schedule *r = &o->learning_rate;
    fprintf(file,
            "{.kind = %s, .learning_rate = {.kind = %s, .init_value = %g, .peak_value = %g, .warmup_steps = %lld,\n",
            o->kind == TOW_SGD ? "TOW_SGD" : "TOW_ADAMW",
            r->kind == TOW_SCHEDULE_CONSTANT ? "TOW_SCHEDULE_CONSTANT" : "TOW_SCHEDULE_WARMUP_COSINE", r->init_value,
            r->peak_value, (long long)r->warmup_steps);
    fprintf(file, "        .decay_steps = %lld, .exponent = %g}, .momentum = %g, .nesterov = %s, .weight_decay = %g,\n",
            (long long)r->decay_steps, r->exponent, o->momentum, truth(o->nesterov), o->weight_decay);
    fprintf(file, "        .decay_all = %s, .clip_norm = %g}", truth(o->decay_all), o->clip_norm);
}

void print_problem(FILE *file, const model *m)
{
    problem p = model_problem(m);
    fprintf(
        file,
        "\nstatic const problem given = {.seed = %u, .n_inputs = %zu, .classes = %lld, .loss = %s,\n    .inputs = {",
        p.seed, p.n_inputs, (long long)p.classes, loss_texts[m->loss]);
    print_type(file, p.inputs[0]);
    fprintf(file, ", ");
    print_type(file, p.inputs[1]);
    fprintf(file, "}, .extra = {");
    print_type(file, p.extra[0]);
    fprintf(file, ", ");
    print_type(file, p.extra[1]);
    fprintf(file, "},\n    .optimizer = ");
    print_optimizer(file, &p.optimizer);
    fprintf(file, "};\n");
}
