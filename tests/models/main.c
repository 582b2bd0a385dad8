/* random_models: random models, each computed in many ways that promise the same bits (docs and headers say which), and
 * their gradients in f64 against differences. A model that fails is shrunk and printed as a C program.
 *
 *     random_models [--first SEED] [--count N] [--most FAILURES] [--output PREFIX] [--progress] [--bits]
 *         models SEED, SEED + 1, ...; programs go to PREFIX_SEED.c, else to the standard output; --bits prints a hash
 *         of the results of each model, for comparing builds
 *     random_models --print FILE --first SEED     prints that model, whatever it does, with the hash of its first side
 *
 * For tests of these tests: --fault NAME puts a planted operation of layers.h into every model, --flip WHAT flips a bit
 * of the results whose names begin so, on the second side, in models with a scan. */
#include <time.h>

#include "tests/models/spec.h"
#include "tests/unit/support/flags.h"
#include "tests/unit/support/machines.h"
#include "tests/unit/support/pick.h"

/* The difference of the second side from the model. */
typedef struct change {
    int policy; /* of every remat; -1: as it is; -2: no remat */
    int wrap;   /* policy of a remat around the whole model; -1: none */
    int unroll; /* -1: as it is; 0: all stacks are loops; 1: all are unrolled */
} change;

typedef struct comparison {
    how a, b;
    change change;
    const char *flip;
    int undecided;
    bool error; /* the failure is an error, not other bits: shrinking keeps to that */
    char text[1500];
} comparison;

typedef struct options {
    uint32_t first, count, most;
    const char *output, *print, *fault, *flip;
    bool progress, bits;
} options;

static const change none = {-1, -1, -1};

enum {
    MOST_COMPARISONS = 40
};

/* ---- the second side's model ------------------------------------------------------------------------------------- */

/* Its option `other` says that it is unrolled. */
static bool is_loop(const node *n)
{
    static const bool loops[KIND_COUNT] = {
        [N_SCAN] = true,       [N_CELLS] = true,     [N_RULED] = true,     [N_STACK] = true,
        [N_AXIS_CELLS] = true, [N_RECURRENT] = true, [N_CONV_LSTM] = true, [N_BIDIRECTIONAL] = true};
    return loops[n->kind];
}

/* Iterations in one body of a loop. */
static int turns_of(const node *n)
{
    return n->kind == N_RECURRENT ? n->options[7] : n->kind == N_RULED || n->kind == N_AXIS_CELLS ? n->options[2] : 1;
}

/* A loop whose iterations share parameters or other outer values. */
static bool shares(const node *n)
{
    const kind k = n->kind;
    return k == N_RECURRENT || k == N_CONV_LSTM || k == N_BIDIRECTIONAL || k == N_AXIS_CELLS ||
           ((k == N_RULED || k == N_REMAT_SCAN) && n->options[0] != 0);
}

static void change_node(node *n, void *user)
{
    const change *c = user;
    if (c->policy >= 0) n->policy = c->policy;
    if (c->policy == -2 && n->kind == N_IN_REMAT) n->kind = N_IN_CALL;
    if (c->unroll >= 0 && is_loop(n)) n->other = c->unroll;
    for (int i = 0; i < n->n_children && c->policy == -2; i++)
        while (n->children[i]->kind == N_REMAT) {
            node *remat = n->children[i];
            n->children[i] = remat->children[0];
            free(remat);
        }
}

static model changed(const model *m, const change *c)
{
    model copy = copy_model(m);
    visit_nodes(copy.body, change_node, (void *)(uintptr_t)c);
    if (c->wrap >= 0) {
        node *top = calloc(1, sizeof *top);
        if (top == NULL) abort();
        *top = (node){.kind = N_REMAT, .policy = c->wrap, .n_children = 1, .children = {copy.body}};
        copy.body = top;
    }
    return copy;
}

/* Its parameters are read through a view. */
static bool is_view(const node *n)
{
    return n->kind == N_LORA || n->kind == N_WEIGHT_NORM || n->kind == N_SPECTRAL_NORM;
}

/* It reads a parameter of its own, or one below it, more than once. */
static bool reads_twice(const node *n)
{
    return is_view(n) || n->kind == N_GATE || n->kind == N_SEQUENTIAL ||
           (n->kind == N_SCALED_RESIDUAL && n->options[1] != 0);
}

/* The nodes at which the bits of loops and of their iterations written out may differ. */
typedef struct around_node {
    bool repeated, stacked, viewed; /* what is around the node: repetition, a loop, a view */
} around_node;

/* TOW_SCAN excepts parameters that an iteration reads twice, in a stack that is applied more than once: as what one
 * iteration reads of shared parameters is. */
static bool excepted(const node *n, around_node at)
{
    const bool many = n->kind == N_SHARED || n->kind == N_LOOP || n->kind == N_UNTIL || n->kind == N_WHILE || shares(n);
    if (at.repeated && at.stacked && (many || reads_twice(n))) return true;
    if (shares(n) && at.repeated) return true;
    if (is_loop(n) && at.repeated && at.viewed) return true;
    if (turns_of(n) > 1) return true; /* sums in another order */
    at.repeated = at.repeated || many;
    at.stacked = at.stacked || is_loop(n);
    at.viewed = at.viewed || is_view(n);
    for (int i = 0; i < n->n_children; i++)
        if (excepted(n->children[i], at)) return true;
    return false;
}

static void find_custom(node *n, void *user)
{
    const bool cells = (n->kind == N_RECURRENT || n->kind == N_BIDIRECTIONAL) && n->options[5] == 1;
    if (n->kind == N_REMAT || n->kind == N_IN_REMAT || n->kind == N_REMAT_SCAN || cells)
        *(bool *)user = *(bool *)user || strcmp(model_policies[n->policy].text, "custom") == 0;
}

static bool uses_custom(const model *m, const comparison *c)
{
    bool found = false;
    model other = changed(m, &c->change);
    visit_nodes(other.body, find_custom, &found);
    free_model(&other);
    return found;
}

/* Numbers of 16 bits have no differences, a cache is written, which an evaluation does not, and the vectors of a
 * spectral norm count as constants. */
static void find_not_smooth(node *n, void *user)
{
    bool *found = user;
    *found = *found || (n->kind == N_PRECISE && n->options[0] < 3) || (n->kind == N_ATTEND && n->options[7] == 1) ||
             block_decodes(n) || n->kind == N_SPECTRAL_NORM;
}

static bool is_smooth(const model *m)
{
    bool found = false;
    visit_nodes(m->body, find_not_smooth, &found);
    return !found;
}

static bool is_promised(const model *m, const comparison *c)
{
    const bool clips = m->optimizer.clip_norm > 0;
    if (c->change.unroll >= 0 && excepted(m->body, (around_node){false})) return false;
    if (c->change.unroll >= 0 && c->b.train && clips) return false; /* the norm is summed array by array */
    if (c->b.differences && !is_smooth(m)) return false;
    if (c->b.pass == TEXT && uses_custom(m, c)) return false; /* has no textual form */
    return !(c->b.early_update && clips);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static results compute_model(const model *m, const how *h, const problem *p)
{
    built b = {.n = 0};
    side *s = begin_side(*h);
    results r = compute(s, build_model(&b, s, m), p);
    free_built(&b);
    return r;
}

static void flip_bit(const model *m, const char *flip, results *r)
{
    for (size_t i = 0; i < r->n && flip && has_kind(m->body, N_SCAN); i++)
        if (strncmp(r->list[i].name, flip, strlen(flip)) == 0) {
            ((unsigned char *)r->list[i].data)[tow_type_bytes(r->list[i].type) - 4] ^= 1;
            return;
        }
}

/* reference: results of c->a, or NULL. True if the bits differ. */
static bool differs(const model *m, comparison *c, const results *reference)
{
    problem p = model_problem(m);
    model other = changed(m, &c->change);
    results a = reference ? (results){0} : compute_model(m, &c->a, &p);
    results b = c->b.differences ? (results){0} : compute_model(&other, &c->b, &p);
    flip_bit(m, c->flip, &b);
    bool same = same_bits(reference ? reference : &a, &b, c->text, sizeof c->text);
    if (c->b.differences) same = !a.error[0];
    if (c->b.differences && a.error[0]) snprintf(c->text, sizeof c->text, "%s", a.error);
    c->undecided = a.undecided;
    c->error = (reference ? reference : &a)->error[0] || b.error[0];
    free_results(&a);
    free_results(&b);
    free_model(&other);
    return !same;
}

static bool still_fails(const model *m, void *user)
{
    comparison *c = user, now = *c;
    if (!is_promised(m, c)) return false;
    if (!c->error || c->b.differences) {
        problem p = model_problem(m);
        results a = compute_model(m, &(how){.threads = 1}, &p);
        bool usable = !a.error[0] && is_finite(&a);
        free_results(&a);
        if (!usable) return false;
    }
    if (!differs(m, &now, NULL) || now.error != c->error) return false;
    *c = now;
    return true;
}

/* ---- what is compared -------------------------------------------------------------------------------------------- */

/* The name of a pass that may be left out. */
static const char *some_pass(void)
{
    size_t n = 0, at;
    while (tow_pass_name(n)) n++;
    do at = (size_t)pick((int)n);
    while (tow_pass_required(at));
    return tow_pass_name(at);
}

static how random_how(bool train)
{
    how h = {.threads = 1 + pick(3), .train = train};
    if (pick(4) == 0) h.limit = 1 + pick(1000);
    if (pick(2)) h.machine = given_machines[pick(N_GIVEN_MACHINES)];
    if (train) return h;
    h.no_regions = pick(3) == 0;
    h.no_fusion = pick(3) == 0;
    h.pass = (pass)pick(4);
    if (pick(2)) h.without = some_pass();
    return h;
}

static int list_comparisons(const model *m, const options *o, comparison *list)
{
    int n = 0;
    const how base = {.threads = 1}, train = {.threads = 1, .train = true};
    seed = m->seed * 69069u + 5;
#define ADD(first, second, ...)                                                                                        \
    list[n++] = (comparison) { .a = first, .b = second, .change = __VA_ARGS__, .flip = o->flip }
    const how alone[] = {{.threads = 2},
                         {.threads = 3, .limit = 1 + pick(200)},
                         {.threads = 1, .no_regions = true},
                         {.threads = 1, .no_fusion = true},
                         {.threads = 2, .no_regions = true, .no_fusion = true},
                         {.threads = 1, .limit = 1 + pick(1000)},
                         {.threads = 1, .pass = DEAD_CODE},
                         {.threads = 1, .pass = COMMON_CODE},
                         {.threads = 1, .pass = TEXT}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) ADD(base, alone[i], none);
    ADD(base, ((how){.threads = 1, .without = some_pass()}), none);
    ADD(base, ((how){.threads = 2, .without = some_pass()}), none);
    ADD(base, ((how){.threads = 2, .without = some_pass(), .limit = 1000}), none);
    for (size_t i = 0; i < N_GIVEN_MACHINES; i++)
        ADD(base, ((how){.threads = 1 + (int)i % 3, .machine = given_machines[i]}), none);
    ADD(base, base, {-2, -1, -1});
    ADD(base, base, {pick(model_policy_count), -1, -1});
    ADD(base, random_how(false), {pick(model_policy_count), -1, -1});
    ADD(base, base, {-1, pick(model_policy_count), -1});
    ADD(base, random_how(false), {pick(model_policy_count), pick(model_policy_count), -1});
    ADD(base, base, {-1, -1, 0});
    ADD(base, base, {-1, -1, 1});
    ADD(base, random_how(false), {pick(model_policy_count), pick(model_policy_count), pick(2)});
    how portable = base, other = random_how(false);
    portable.portable_bits = other.portable_bits = true;
    ADD(portable, other, none);
    how rows = portable, others = other;
    rows.rows = 1;
    others.rows = 2 + pick(3);
    ADD(portable, rows, none);
    ADD(portable, others, {pick(model_policy_count), pick(model_policy_count), -1});
    how early = random_how(true);
    early.early_update = true;
    ADD(train, ((how){.threads = 1, .train = true, .early_update = true}), none);
    ADD(train, early, {pick(model_policy_count), pick(model_policy_count) - 1, -1});
    ADD(train, random_how(true), {-2, -1, -1});
    ADD(train, random_how(true), {-1, pick(model_policy_count) - 1, pick(2)});
    how resumed = random_how(true);
    resumed.resume = true;
    if (m->seed % 8 == 0) ADD(train, resumed, none);
    const how by_hand = {.threads = 1, .parameters_only = true};
    how function = {.threads = 1 + pick(3), .parameters_only = true, .function = true};
    if (pick(2)) function.limit = 1000;
    ADD(by_hand, function, none);
    const how differences = {.threads = 1, .differences = true};
    ADD(differences, differences, none);
    ADD(base, ((how){.threads = 2, .verify = true}), {pick(model_policy_count), pick(model_policy_count), -1});
    ADD(train, ((how){.threads = 1, .train = true, .verify = true}), {-1, pick(model_policy_count), -1});
    ADD(base, ((how){.threads = 1, .verify = true, .limit = 1 + pick(500)}), none);
#undef ADD
    return n;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* A file without its includes of these tests. */
static void copy_source(FILE *to, const char *name)
{
    char path[512], line[512];
    snprintf(path, sizeof path, TOW_TEST_DATA "/%s", name);
    FILE *from = fopen(path, "r");
    while (from && fgets(line, sizeof line, from))
        if (strncmp(line, "#include \"tests/", 16) != 0) fputs(line, to);
    if (from) fclose(from);
    fputc('\n', to);
}

static void print_program(FILE *file, const model *m, const comparison *c)
{
    model other = changed(m, &c->change);
    fprintf(file, "/* Random model %u. %s\n * cc -std=gnu11 model.c -ltow -lm */\n", m->seed, c->text);
    copy_source(file, "models/layers.h");
    copy_source(file, "models/side.h");
    copy_source(file, "models/made.h");
    copy_source(file, "unit/support/differences.h");
    copy_source(file, "models/compute.h");
    fprintf(file, "/* ---- the model --------------------------------------------------------- */\n");
    print_problem(file, m);
    print_side(file, "first", m, &c->a);
    print_side(file, "second", &other, &c->b);
    fprintf(
        file,
        "\nint main(void)\n{\n"
        "    char text[1500];\n"
        "    results a = first(&given), b = second(&given);\n"
        "    bool same = same_bits(&a, &b, text, sizeof text);\n"
        "    printf(\"%%016llx\\n%%s\\n\", (unsigned long long)hash_results(&a), same ? \"the same bits\" : text);\n"
        "    free_results(&a);\n    free_results(&b);\n    return !same;\n}\n");
    free_model(&other);
}

static bool print_to(const char *path, const model *m, const comparison *c)
{
    FILE *file = path ? fopen(path, "w") : stdout;
    if (file == NULL) {
        perror(path);
        return false;
    }
    print_program(file, m, c);
    return file == stdout ? fflush(file) == 0 : fclose(file) == 0;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct totals {
    uint32_t models, failures, not_finite, comparisons;
    int undecided;
} totals;

static void report(const options *o, const model *m, comparison *c)
{
    char path[512];
    model small = copy_model(m);
    fprintf(stderr, "model %u: %s\n", m->seed, c->text);
    shrink_model(&small, still_fails, c);
    fprintf(stderr, "model %u, smaller: %s\n", m->seed, c->text);
    snprintf(path, sizeof path, "%s_%u.c", o->output ? o->output : "", m->seed);
    print_to(o->output ? path : NULL, &small, c);
    free_model(&small);
}

static bool fails(const model *m, comparison *c, const results *base, const results *trained, totals *t)
{
    const results *reference = c->a.portable_bits || c->a.differences || c->a.parameters_only ? NULL
                               : c->a.train                                                   ? trained
                                                                                              : base;
    if (!is_promised(m, c)) return false;
    t->comparisons++;
    bool different = differs(m, c, reference);
    t->undecided += c->undecided;
    return different;
}

/* Every comparison of a model; the first failure is reported. */
static void check_model(const options *o, uint32_t number, totals *t)
{
    model m = draw_model(number, o->fault);
    comparison list[MOST_COMPARISONS];
    int n = list_comparisons(&m, o, list);
    problem p = model_problem(&m);
    results base = compute_model(&m, &(how){.threads = 1}, &p);
    results trained = compute_model(&m, &(how){.threads = 1, .train = true}, &p);
    const bool usable = is_finite(&base) && is_finite(&trained);
    t->models++;
    t->not_finite += !usable;
    if (o->bits)
        printf("%u %016llx %016llx\n", number, (unsigned long long)hash_results(&base),
               (unsigned long long)hash_results(&trained));
    for (int i = 0; i < n && usable && !o->bits; i++) {
        if (!fails(&m, &list[i], &base, &trained, t)) continue;
        t->failures++;
        report(o, &m, &list[i]);
        break;
    }
    free_results(&base);
    free_results(&trained);
    free_model(&m);
}

static int print_model(const options *o)
{
    model m = draw_model(o->first, o->fault);
    comparison c = {.a = {.threads = 1}, .b = {.threads = 2, .no_fusion = true}, .change = {0, 0, -1}};
    problem p = model_problem(&m);
    results base = compute_model(&m, &c.a, &p);
    bool good = print_to(o->print, &m, &c);
    printf("%016llx\n", (unsigned long long)hash_results(&base));
    free_results(&base);
    free_model(&m);
    return good ? 0 : 2;
}

static bool read_options(int argc, char **argv, options *o)
{
    const flag known[] = {{"--first", &o->first, NULL, NULL}, {"--count", &o->count, NULL, NULL},
                          {"--most", &o->most, NULL, NULL},   {"--output", NULL, &o->output, NULL},
                          {"--print", NULL, &o->print, NULL}, {"--fault", NULL, &o->fault, NULL},
                          {"--flip", NULL, &o->flip, NULL},   {"--progress", NULL, NULL, &o->progress},
                          {"--bits", NULL, NULL, &o->bits}};
    if (!read_flags(argc, argv, sizeof known / sizeof *known, known)) return false;
    return !o->fault || model_op(o->fault) >= 0;
}

int main(int argc, char **argv)
{
    options o = {.count = 100, .most = 1};
    totals t = {0};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr, "random_models: the head of tests/models/main.c says what the arguments are\n");
        return 2;
    }
    if (o.print) return print_model(&o);
    for (uint32_t i = 0; i < o.count && t.failures < o.most; i++) {
        check_model(&o, o.first + i, &t);
        if (o.progress && (i + 1) % 100 == 0) fprintf(stderr, "%u models, %u failures\n", i + 1, t.failures);
    }
    if (!o.bits)
        printf("%u models from %u on, %u comparisons: %u failures; %u models not finite, %d derivatives undecided\n",
               t.models, o.first, t.comparisons, t.failures, t.not_finite, t.undecided);
    return t.failures > 0;
}
