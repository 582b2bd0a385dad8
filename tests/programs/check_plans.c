/* Checks of what plans and partial evaluation promise about work and memory. */
#include <stdlib.h>
#include <string.h>

#include "src/graph/primitive.h"
#include "src/plan/ir.h"
#include "tests/programs/fault.h"
#include "tests/programs/programs.h"

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static const char *const counted[] = {"dot_general", "conv_general_dilated", "tanh", "exp", "logistic", "sort", "erf"};
enum {
    N_COUNTED = sizeof counted / sizeof *counted
};

typedef struct counts {
    double of[N_COUNTED];
    int depth; /* of remat regions in one another */
} counts;

/* The largest number of times that an equation runs its nested graph i. */
static double repetitions(const tow__equation *e, uint32_t i)
{
    if (strcmp(e->primitive->name, "scan") == 0) return (double)((const tow__scan_params *)e->params)->length;
    if (strcmp(e->primitive->name, "fori") == 0) return (double)((const tow__fori_params *)e->params)->max_iterations;
    if (strcmp(e->primitive->name, "while") != 0) return 1;
    return (double)((const tow__while_params *)e->params)->max_iterations + (i == 0); /* the condition, once more */
}

static counts count_graph(const tow_graph *g)
{
    counts c = {{0}, 0};
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        const bool remat = strcmp(e->primitive->name, "remat") == 0;
        for (int k = 0; k < N_COUNTED; k++) c.of[k] += strcmp(e->primitive->name, counted[k]) == 0;
        for (uint32_t n = 0; n < tow__nested_count(e->primitive, e->params); n++) {
            const counts inner = count_graph(tow__nested(e->primitive, e->params, n));
            const double times = repetitions(e, n);
            for (int k = 0; k < N_COUNTED; k++) c.of[k] += times * inner.of[k];
            if (inner.depth + remat > c.depth) c.depth = inner.depth + remat;
        }
    }
    return c;
}

static tow_graph *in_region(tow_context *context, const tow_graph *g, const char *text)
{
    tow_policy *policy = NULL;
    tow_graph *region = NULL;
    if (tow_policy_parse(context, text, &policy) != TOW_OK || tow_remat_whole(g, policy, &region) != TOW_OK)
        region = NULL;
    tow_policy_free(policy);
    return region;
}

/* The work of a gradient without recomputation, and of its forward pass alone, which has all that can be computed
 * again. */
typedef struct bound {
    counts gradient, forward;
} bound;

/* Everything in one region under `everything`. False: an error. */
static bool find_bound(const tow_graph *g, bound *b)
{
    tow_graph *kept = in_region(tow_graph_context(g), g, "everything"), *gradient = kept ? gradient_of(kept) : NULL;
    tow_graph *forward = NULL, *backward = NULL;
    const bool good = gradient && tow_vjp(kept, 0, NULL, &forward, &backward) == TOW_OK;
    if (good) *b = (bound){count_graph(gradient), count_graph(forward)};
    tow_graph_release(kept);
    tow_graph_release(gradient);
    tow_graph_release(forward);
    tow_graph_release(backward);
    return good;
}

/* The forward work of a region is computed again at most once for the region itself and for each one around it: so of
 * everything, a gradient has at most what it has without recomputation, and d times the forward pass, d regions
 * deep. */
static verdict compare_counts(trial *t, const char *what, const tow_graph *g, const bound *b)
{
    tow_graph *gradient = gradient_of(g);
    if (!gradient) return fail(t, "%s: %s", what, tow_context_error(t->plain));
    const counts found = count_graph(gradient);
    const int depth = is_broken(t, "counts", "remat") ? 0 : count_graph(g).depth;
    verdict v = PASSES;
    for (int k = 0; k < N_COUNTED && v == PASSES; k++)
        if (found.of[k] > b->gradient.of[k] + depth * b->forward.of[k])
            v = fail(t, "%s: %g times %s; without recomputation %g, of which forward %g, %d regions deep", what,
                     found.of[k], counted[k], b->gradient.of[k], b->forward.of[k], depth);
    tow_graph_release(gradient);
    return v;
}

verdict check_counts(trial *t)
{
    tow_graph *nothing = in_region(t->plain, t->graph, "nothing"), *dots = in_region(t->plain, t->graph, "dots");
    verdict v = PASSES;
    bound b;
    if (!nothing || !dots || !find_bound(t->graph, &b)) {
        v = fail(t, "counts: %s", tow_context_error(t->plain));
    } else {
        v = compare_counts(t, "gradient", t->graph, &b);
        if (v == PASSES) v = compare_counts(t, "gradient in a region under nothing", nothing, &b);
        if (v == PASSES) v = compare_counts(t, "gradient in a region under dots", dots, &b);
    }
    tow_graph_release(nothing);
    tow_graph_release(dots);
    return v;
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */

/* Bytes that are no arguments; -1 for an error. */
static double kept_bytes(const tow_graph *g)
{
    tow_residuals r;
    if (tow_saved_residuals(g, 0, NULL, &r) != TOW_OK) return -1;
    const double bytes = (double)(r.bytes - r.argument_bytes);
    tow_residuals_free(&r);
    return bytes;
}

/* True if there are products, which a policy of dots may keep. */
static bool has_dots(const tow_graph *g)
{
    return mentions(g, "dot_general") || mentions(g, "conv_general_dilated") || mentions(g, "attention") ||
           mentions(g, "linear_cross_entropy");
}

/* Work that leaves a loop of no iterations is work that is not done where it is. */
static bool has_empty_loops(const tow_graph *g)
{
    char *text = text_of(g);
    const bool found = strstr(text, "length=0 ") != NULL;
    free(text);
    return found;
}

/* Around the whole, `nothing` keeps arguments alone, `dots` nothing else where there are no products, and `everything`
 * no more than what is kept without a region. */
verdict check_residuals(trial *t)
{
    tow_graph *nothing = in_region(t->plain, t->graph, "nothing"), *dots = in_region(t->plain, t->graph, "dots");
    tow_graph *everything = in_region(t->plain, t->graph, "everything");
    const double none = nothing ? kept_bytes(nothing) : -1, products = dots ? kept_bytes(dots) : -1;
    const double all = everything ? kept_bytes(everything) : -1, plain = kept_bytes(t->graph);
    verdict v = PASSES;
    if (none < 0 || products < 0 || all < 0 || plain < 0)
        v = fail(t, "residuals: %s", tow_context_error(t->plain));
    else if (none + is_broken(t, "residuals", "sin") > 0)
        v = fail(t, "a region under nothing keeps %g bytes besides arguments", none);
    else if (products > 0 && !has_dots(t->graph))
        v = fail(t, "a region under dots without a product keeps %g bytes besides arguments", products);
    else if (all > plain && !mentions(t->graph, "remat") && !has_empty_loops(t->graph))
        v = fail(t, "no region keeps %g bytes, a region under everything %g", plain, all);
    tow_graph_release(nothing);
    tow_graph_release(dots);
    tow_graph_release(everything);
    return v;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* An allocator that counts what is alive and how often it is asked. */
typedef struct counter {
    size_t bytes, calls;
} counter;

static void *count_memory(void *pointer, size_t old_size, size_t size, void *user)
{
    counter *c = user;
    void *new = size ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
    if (size && new == NULL) abort();
    if (pointer && new) memcpy(new, pointer, old_size < size ? old_size : size);
    c->bytes += size - old_size;
    c->calls++;
    free(pointer);
    return new;
}

/* A run over an arena and results full of `byte`. */
static bool run_over(tow_program *p, int byte, const arrays *in, arrays *out)
{
    *out = (arrays){.n = tow_graph_output_count(p->graph)};
    if ((out->list = calloc(out->n + 1, sizeof *out->list)) == NULL) abort();
    if (p->executable.arena_size) memset(p->executable.arena, byte, p->executable.arena_size);
    for (size_t i = 0; i < out->n; i++) {
        if (tow_array_create(p->ctx, tow_graph_output_type(p->graph, i), &out->list[i]) != TOW_OK) return false;
        memset(tow_array_data(out->list[i]), byte, tow_type_bytes(tow_array_type(out->list[i])));
    }
    return tow_program_run(p, in->list, out->list) == TOW_OK;
}

/* The arena is what the plan says (a line of 64 bytes, which no run uses, if that is nothing), and a run asks for
 * nothing more; it reads nothing that it has not written: memory full of zeros and full of NaNs give one result. */
static verdict compare_memory(trial *t, tow_program *p, const counter *c)
{
    const tow_program_bytes bytes = tow_program_get_bytes(p);
    const size_t taken = p->executable.arena_size + (is_broken(t, "bytes", "scan") ? 64 : 0);
    arrays in = inputs_of(p->graph, t->seed), x = {0}, y = {0};
    char text[MESSAGE];
    verdict v = PASSES;
    const size_t expected = bytes.arena ? bytes.arena : 64;
    if (expected != taken || bytes.arena < bytes.lower_bound)
        v = fail(t, "the plan has %zu bytes, %zu at once, and takes %zu", bytes.arena, bytes.lower_bound, taken);
    else if (!run_over(p, 0, &in, &x) || !run_over(p, 0xff, &in, &y))
        v = fail(t, "bytes: %s", tow_context_error(p->ctx));
    else if (!same_bits(&x, &y, text))
        v = fail(t, "memory is read before it is written: %s", text);
    const size_t calls = c->calls;
    if (v == PASSES && tow_program_run(p, in.list, y.list) == TOW_OK && c->calls != calls)
        v = fail(t, "a run asks for memory %zu times", c->calls - calls);
    release(&in);
    release(&x);
    release(&y);
    return v;
}

verdict check_bytes(trial *t)
{
    counter c = {0};
    const tow_context_options options =
        TOW_CONTEXT_OPTIONS(.allocator = {.resize = count_memory, .user = &c}, .threads = 1);
    tow_context *own = NULL;
    tow_program *p = NULL;
    verdict v = PASSES;
    if (tow_context_create(&options, &own) != TOW_OK || !define_faults(own)) abort();
    tow_graph *g = read_with(own, t->graph, "\n", "\n"), *gradient = g ? gradient_of(g) : NULL;
    if (!gradient || tow_compile(own, gradient, NULL, &p) != TOW_OK)
        v = fail(t, "gradient: %s", tow_context_error(own));
    else
        v = compare_memory(t, p, &c);
    tow_program_free(p);
    tow_graph_release(gradient);
    tow_graph_release(g);
    tow_context_free(own);
    if (v == PASSES && c.bytes > 0) v = fail(t, "%zu bytes are left", c.bytes);
    return v;
}

/* ---- the plan's check -------------------------------------------------------------------------------------------- */

/* Half of the storage beyond the end of its function's arena. */
static bool sees_damage(tow_program *p, uint32_t storage, bool broken)
{
    const size_t offset = p->storages[storage].offset;
    if (!broken) p->storages[storage].offset = p->top->bytes - p->storages[storage].bytes / 2;
    const bool sees = tow_program_check(p) != TOW_OK;
    p->storages[storage].offset = offset;
    return sees;
}

verdict check_damage(trial *t)
{
    tow_graph *gradient = gradient_of(t->graph);
    tow_program *p = NULL;
    verdict v = UNDECIDED;
    if (!gradient || tow_compile(t->plain, gradient, &TOW_COMPILE_OPTIONS(.plan_only = true), &p) != TOW_OK)
        v = fail(t, "gradient: %s", tow_context_error(t->plain));
    for (uint32_t s = p ? tow__first_storage(p->top) : TOW__NONE; s != TOW__NONE && v != FAILS;
         s = p->storages[s].next) {
        if (!tow__in_arena(p, s) || p->storages[s].bytes < 2) continue;
        v = sees_damage(p, s, is_broken(t, "damage", "sin")) ? PASSES
                                                             : fail(t, "storage %u beyond the arena is accepted", s);
    }
    if (v == PASSES && tow_program_check(p) != TOW_OK) v = fail(t, "damage: %s", tow_context_error(t->plain));
    tow_program_free(p);
    tow_graph_release(gradient);
    return v;
}
