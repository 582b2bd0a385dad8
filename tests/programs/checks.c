/* The list of checks, and those that compare the bits of two ways to compute one program. */
#include <stdlib.h>
#include <string.h>

#include "src/graph/graph_params.h"
#include "src/graph/primitive.h"
#include "tests/programs/programs.h"
#include "tests/unit/support/machines.h"

const check checks[] = {
    {"text", "print, parse and print again; the graph's check; bits after dead code and equal code are removed",
     check_text},
    {"passes", "bits with passes left out, threads, budgets; the plan's check", check_passes},
    {"machines", "bits of value and gradient planned for given machines; the plan's check", check_machines},
    {"policies", "bits of value and gradient under any policies", check_policies},
    {"schedules", "bits of value and gradient with loops that keep some states and make the others again",
     check_schedules},
    {"interpreter", "bits of value and gradient, equation by equation", check_interpreter},
    {"rows", "bits of rows under vmap, with portable bits", check_rows},
    {"differences", "gradients in f64 against central differences", check_differences},
    {"transposes", "reverse mode against forward mode: <ct, J v> = <J' ct, v>", check_transposes},
    {"counts", "how often remat computes what again, against the analytic bound", check_counts},
    {"residuals", "bytes kept under policies", check_residuals},
    {"bytes", "memory that plans predict against memory that is taken; memory is written before it is read",
     check_bytes},
    {"damage", "the plan's check sees a plan that is damaged", check_damage},
};
const size_t n_checks = sizeof checks / sizeof *checks;

/* The results of two graphs of one function on one input. */
static verdict compare(trial *t, const char *what, const tow_graph *a, const how *h, const tow_graph *b, const how *k)
{
    char text[MESSAGE];
    arrays in = inputs_of(a, t->seed), x = {0}, y = {0};
    verdict v = PASSES;
    if (!run(a, h, &in, &x))
        v = fail(t, "%s: %s", what, tow_context_error(tow_graph_context(a)));
    else if (!run(b, k, &in, &y))
        v = fail(t, "%s: %s", what, tow_context_error(tow_graph_context(b)));
    else if (!same_bits(&x, &y, text))
        v = fail(t, "%s: %s", what, text);
    release(&in);
    release(&x);
    release(&y);
    return v;
}

static const how plainly = {.threads = 1};

/* ---- text -------------------------------------------------------------------------------------------------------- */

static verdict compare_text(trial *t, tow_graph *again, const char *text)
{
    char *second = text_of(again);
    const size_t broken = is_broken(t, "text", "scan") ? 1 : 0;
    verdict v = PASSES;
    if (strcmp(text + broken, second) != 0) v = fail(t, "text: what is printed reads as\n%s", second);
    if (v == PASSES) v = compare(t, "text", t->graph, &plainly, again, &plainly);
    free(second);
    return v;
}

verdict check_text(trial *t)
{
    char *text = text_of(t->graph);
    tow_graph *again = NULL, *live = NULL, *merged = NULL;
    verdict v = PASSES;
    if (tow_graph_check(t->graph) || tow_graph_parse(t->plain, text, &again) || tow_graph_check(again) ||
        tow_graph_dce(t->graph, &live) || tow_graph_check(live) || tow_graph_cse(t->graph, &merged) ||
        tow_graph_check(merged))
        v = fail(t, "text: %s", tow_context_error(t->plain));
    if (v == PASSES) v = compare_text(t, again, text);
    if (v == PASSES) v = compare(t, "dead code removed", t->graph, &plainly, live, &plainly);
    if (v == PASSES) v = compare(t, "equal code merged", t->graph, &plainly, merged, &plainly);
    free(text);
    tow_graph_release(again);
    tow_graph_release(live);
    tow_graph_release(merged);
    return v;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static const char *some_pass(choices *c)
{
    size_t n = 0, at;
    while (tow_pass_name(n)) n++;
    do at = (size_t)choose(c, (int)n);
    while (tow_pass_required(at));
    return tow_pass_name(at);
}

static how some_way(choices *c)
{
    how h = {.threads = 1 + choose(c, 3), .no_regions = choose(c, 4) == 0, .no_fusion = choose(c, 4) == 0};
    if (choose(c, 2)) h.without = some_pass(c);
    if (choose(c, 6) == 0) h.limit = 1 + choose(c, 1000);
    return h;
}

static verdict compare_way(trial *t, const tow_graph *g, const how *h)
{
    char what[200];
    snprintf(what, sizeof what, "%s, %d threads%s%s%s, limit %d, without %s", g == t->graph ? "value" : "gradient",
             h->threads, h->no_regions ? ", no regions" : "", h->no_fusion ? ", no fusion" : "",
             h->verify ? ", verified" : "", h->limit, h->without ? h->without : "nothing");
    return compare(t, what, g, &plainly, g, h);
}

verdict check_passes(trial *t)
{
    choices c = choices_of(t, 1);
    const how ways[] = {{.threads = 1, .no_regions = true, .no_fusion = true},
                        some_way(&c),
                        some_way(&c),
                        some_way(&c),
                        {.threads = 2, .verify = true},
                        {.threads = 1, .verify = true, .limit = 1 + choose(&c, 500)}};
    tow_graph *gradient = gradient_of(t->graph);
    if (!gradient) return fail(t, "gradient: %s", tow_context_error(t->plain));
    verdict v = compare_way(t, t->graph, &ways[1]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways && v == PASSES; i++) v = compare_way(t, gradient, &ways[i]);
    tow_graph_release(gradient);
    return v;
}

/* ---- machines ---------------------------------------------------------------------------------------------------- */

/* The decisions of a plan depend on the machine that it is for; the bits do not. */
verdict check_machines(trial *t)
{
    choices c = choices_of(t, 13);
    tow_graph *gradient = gradient_of(t->graph);
    verdict v = gradient ? PASSES : fail(t, "gradient: %s", tow_context_error(t->plain));
    for (size_t i = 0; i < N_GIVEN_MACHINES && v == PASSES; i++) {
        const tow_graph *g = choose(&c, 3) ? gradient : t->graph;
        const how h = {.threads = 1 + choose(&c, 3), .no_fusion = choose(&c, 8) == 0, .machine = given_machines[i]};
        v = compare(t, given_machines[i], g, &plainly, g, &h);
    }
    tow_graph_release(gradient);
    return v;
}

/* ---- policies ---------------------------------------------------------------------------------------------------- */

static const char *const policies[] = {"nothing", "everything",          "dots",      "dots_with_no_batch_dims",
                                       "names:a", "any_names_but:b",     "not(dots)", "anything_except:a",
                                       "names:h", "either(dots;names:a)"};
enum {
    N_POLICIES = sizeof policies / sizeof *policies
};

/* Every region of g under another policy; NULL if it names what a region has not. */
static tow_graph *with_policies(tow_context *context, const tow_graph *g, choices *c)
{
    char *text = text_of(g), *result = malloc(2 * strlen(text) + 1), *to = result;
    tow_graph *changed = NULL;
    if (result == NULL) abort();
    const char *from = text, *at;
    while ((at = strstr(from, "policy=\"")) != NULL) {
        at += strlen("policy=\"");
        memcpy(to, from, (size_t)(at - from));
        to += at - from;
        to += sprintf(to, "%s", policies[choose(c, 4)]);
        for (from = at; *from != '"'; from++) from += *from == '\\';
    }
    strcpy(to, from);
    if (tow_graph_parse(context, result, &changed) != TOW_OK) changed = NULL;
    free(text);
    free(result);
    return changed;
}

/* The whole of g in a region under a policy; NULL if it has no such name. */
static tow_graph *in_region(tow_context *context, const tow_graph *g, const char *policy)
{
    tow_policy *p = NULL;
    tow_graph *region = NULL;
    if (tow_policy_parse(context, policy, &p) != TOW_OK) abort();
    if (tow_remat_whole(g, p, &region) != TOW_OK) region = NULL;
    tow_policy_free(p);
    return region;
}

static verdict compare_gradients(trial *t, const char *what, const tow_graph *gradient, const tow_graph *other)
{
    tow_graph *second = gradient_of(other);
    if (!second) return fail(t, "%s: %s", what, tow_context_error(t->plain));
    verdict v = compare(t, what, gradient, &plainly, second, &plainly);
    tow_graph_release(second);
    return v;
}

verdict check_policies(trial *t)
{
    choices c = choices_of(t, 2);
    char what[100];
    tow_graph *gradient = gradient_of(t->graph);
    if (!gradient) return fail(t, "gradient: %s", tow_context_error(t->plain));
    tow_graph *changed = with_policies(t->plain, t->graph, &c);
    verdict v = changed ? compare_gradients(t, "gradient under other policies", gradient, changed)
                        : fail(t, "other policies: %s", tow_context_error(t->plain));
    for (int i = 0; i < 2 && v == PASSES; i++) {
        const char *policy = policies[choose(&c, N_POLICIES)];
        tow_graph *region = in_region(t->plain, i && changed ? changed : t->graph, policy);
        snprintf(what, sizeof what, "gradient in a region under %s", policy);
        if (region) v = compare_gradients(t, what, gradient, region);
        tow_graph_release(region);
    }
    tow_graph_release(changed);
    tow_graph_release(gradient);
    return v;
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* Scans and whiles of g with so many slots as the choices say; NULL if there are none. */
static tow_graph *with_slots(tow_context *context, const tow_graph *g, choices *c)
{
    static const char *const loops[] = {"scan[", "while["}, *const last[] = {" carry=", " consts="};
    char *text = text_of(g), *result = malloc(2 * strlen(text) + 1), *to = result;
    tow_graph *changed = NULL;
    int n = 0;
    if (result == NULL) abort();
    for (const char *from = text; *from;) {
        const int kind = strncmp(from, loops[1], strlen(loops[1])) == 0;
        if (!kind && strncmp(from, loops[0], strlen(loops[0])) != 0) {
            *to++ = *from++;
            continue;
        }
        const char *end = strstr(from, last[kind]);
        if (!end) abort();
        end += strlen(last[kind]);
        end += strspn(end, "0123456789");
        memcpy(to, from, (size_t)(end - from));
        to += end - from;
        const int slots = choose(c, 5);
        if (slots > 0) n++, to += sprintf(to, " slots=%d", slots);
        if (slots > 0 && kind && choose(c, 3) == 0) to += sprintf(to, " file_slots=%d", 1 + choose(c, 4));
        from = end;
    }
    *to = '\0';
    if (n > 0 && tow_graph_parse(context, result, &changed) != TOW_OK) abort();
    free(text);
    free(result);
    return changed;
}

enum {
    MOST_VALUES = 64 /* operands of a scan */
};

/* An iteration of a scan: its body on the constants, which the loop around it knows. */
typedef struct iteration {
    const tow__scan_params *p;
    const tow_value *consts;
    const void *choices;
} iteration;

static void record_in_blocks(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                             const void *user);

static void run_iteration(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const iteration *it = user;
    tow_value x[MOST_VALUES];
    const uint32_t n = it->p->body->n_inputs, n_consts = (uint32_t)it->p->consts;
    for (uint32_t i = 0; i < n; i++) x[i] = i < n_consts ? tow__import(t, it->consts[i]) : in[i - n_consts];
    tow__inline_by(t, it->p->body, record_in_blocks, it->choices, x, out);
}

/* A scan with .every or .levels, which are regions around some iterations: no graph has them as parameters. */
static void record_in_blocks(tow_trace *t, const tow_graph *g, const tow__equation *e, tow_value *x, tow_value *y,
                             const void *user)
{
    const tow__scan_params *p = e->params;
    choices *c = *(choices *const *)user;
    (void)g;
    if (strcmp(e->primitive->name, "scan") != 0 || e->n_in > MOST_VALUES || p->body->n_outputs > MOST_VALUES) {
        tow__rebind(t, e, x, y);
        return;
    }
    const size_t consts = (size_t)p->consts, carry = (size_t)p->carry;
    tow_scan_options options =
        TOW_SCAN_OPTIONS(.length = p->length, .has_length = p->length == 0, .reverse = p->reverse);
    if (choose(c, 2))
        options.schedule.every = 1 + choose(c, 4);
    else
        options.schedule.levels = 1 + choose(c, 3);
    iteration it = {p, x, user};
    tow_scan_function(t, run_iteration, &it, &options, carry, x + consts, e->n_in - consts - carry, x + consts + carry,
                      e->n_out - carry, y, y + carry);
}

/* Scans of g, those in other scans too, in blocks of iterations; NULL if it is no graph with scans. */
static tow_graph *with_blocks(trial *t, choices *c)
{
    const choices *const at = c;
    tow_graph *changed = NULL;
    for (uint32_t k = 0; k < t->graph->n_equations; k++) {
        if (strcmp(t->graph->equations[k].primitive->name, "scan") != 0) continue;
        if (tow__copy_by(t->graph, record_in_blocks, &at, &changed) != TOW_OK) abort();
        break;
    }
    return changed;
}

verdict check_schedules(trial *t)
{
    choices c = choices_of(t, 14);
    tow_graph *gradient = gradient_of(t->graph);
    tow_graph *changed = with_slots(t->plain, t->graph, &c);
    verdict v = gradient ? UNDECIDED : fail(t, "gradient: %s", tow_context_error(t->plain));
    if (gradient && changed) v = compare_gradients(t, "gradient with slots", gradient, changed);
    tow_graph *blocks = with_blocks(t, &c);
    if (gradient && blocks && v != FAILS)
        v = compare_gradients(t, "gradient with blocks of iterations", gradient, blocks);
    tow_graph_release(gradient);
    tow_graph_release(changed);
    tow_graph_release(blocks);
    return v;
}

/* ---- the interpreter --------------------------------------------------------------------------------------------- */

static verdict compare_interpreted(trial *t, const char *what, const tow_graph *g)
{
    char text[MESSAGE];
    arrays in = inputs_of(g, t->seed), planned = {0}, interpreted = {0};
    verdict v = PASSES;
    if (!run(g, &plainly, &in, &planned) || !interpret(g, &in, &interpreted))
        v = fail(t, "%s: %s", what, tow_context_error(t->plain));
    else if (!same_bits(&planned, &interpreted, text))
        v = fail(t, "%s, planned and interpreted: %s", what, text);
    release(&in);
    release(&planned);
    release(&interpreted);
    return v;
}

verdict check_interpreter(trial *t)
{
    verdict v = compare_interpreted(t, "value", t->graph);
    tow_graph *gradient = v == PASSES ? gradient_of(t->graph) : NULL;
    if (v == PASSES && !gradient) v = fail(t, "gradient: %s", tow_context_error(t->plain));
    if (v == PASSES) v = compare_interpreted(t, "gradient", gradient);
    tow_graph_release(gradient);
    return v;
}
