/* Partial evaluation: splits a graph into what can run now (the known graph) and what depends on unknown inputs (the
 * unknown graph), under a policy that says which known values may be kept for the unknown graph.
 *
 *   equation with an unknown operand            -> unknown graph
 *   known, kept by the policy                   -> known graph; a residual if the unknown graph reads it
 *   known, not kept                             -> known graph, and repeated in the unknown graph where that reads it
 *   known, with an effect                       -> as if it were kept: nothing happens twice
 *
 * Repeating happens on demand, directly before the first reader, so an unneeded repetition never arises and the order
 * of the unknown graph is already "as late as possible". Dead code elimination then drops what nested regions do not
 * need.
 *
 * Names: a name tags a value, so a name's output and its operand are one value here (the root), and the policy's
 * answers about its names count for the equation that makes it. */
#include "src/autodiff/partial.h"
#include "src/autodiff/policy_log.h"
#include "src/graph/region.h"
#include "src/ops/table.h"

/* ---- residuals and repeated equations ---------------------------------------------------------------------------- */

static bool is_save(tow_verdict v) { return v >= TOW_PREFER_SAVE; }

/* A value that the policy lets be kept under its name is kept as that. */
static bool is_kept_by_name(const tow__split *s, uint32_t var)
{
    const tow__pvar *v = &s->vars[var];
    return s->policy && v->named != TOW__INPUT && is_save(v->tags);
}

tow_value tow__split_residual(tow__split *s, tow_value known, uint32_t root, bool pinned)
{
    if (s->n_residuals == s->capacity) {
        uint32_t capacity = s->capacity ? 2 * s->capacity : 32;
        tow__residual_slot *grown = tow__grow(s->g->ctx, s->residuals, s->capacity, capacity, sizeof *grown);
        if (!grown) {
            tow__adopt_error(s->u);
            return (tow_value){0};
        }
        s->residuals = grown;
        s->capacity = capacity;
    }
    s->residuals[s->n_residuals++] = (tow__residual_slot){.known = known, .root = root, .pinned = pinned};
    return tow__input(s->u, tow_value_type(known), NULL);
}

tow_value tow__split_same_bits(tow_trace *t, const tow__equation *e, uint32_t i, tow_value again, tow_value kept)
{
    const tow__same_bits_params p = {.what = e->primitive->name, .result = i};
    const tow_value in[] = {again, kept};
    tow__set_source(t, &e->source);
    return tow__bind1(t, &tow__same_bits_p, &p, 2, in);
}

tow_value tow__split_compared(tow__split *s, const tow__equation *e, uint32_t i, tow_value again)
{
    const tow_value known = s->vars[e->out[i]].known;
    if (!s->verifies || e->n_in == 0 || s->vars[e->out[i]].constant || tow_is_null(known) || tow_is_null(again))
        return again;
    again = tow__split_same_bits(s->u, e, i, again, tow__split_residual(s, known, TOW__INPUT, true));
    tow__set_source(s->u, NULL);
    return again;
}

/* The policy as text, for reports. */
static const char *policy_text(tow__split *s)
{
    if (!s->policy || s->policy_text) return s->policy_text;
    if (tow__is_marked_policy(s->policy)) return s->policy_text = "the memory limit";
    const size_t length = tow_policy_text(s->policy, NULL, 0);
    char *text = tow__trace_alloc(s->k, length + 1, 1);
    if (text) tow_policy_text(s->policy, text, length + 1);
    return s->policy_text = text;
}

/* Repeats equation e in the unknown trace. */
static void repeat(tow__split *s, const tow__equation *e)
{
    tow__source source = e->source;
    if (s->policy && !source.why.verdict) { /* else a region around has decided */
        source.why.verdict = s->vars[e->out[0]].verdict;
        source.why.policy = policy_text(s);
    }
    tow_value *in = tow__trace_alloc(s->u, e->n_in, sizeof *in), *out = tow__trace_alloc(s->u, e->n_out, sizeof *out);
    if (!in || !out) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = tow__split_staged(s, e->in[i]);
    tow__set_source(s->u, &source);
    tow__rebind(s->u, e, in, out);
    tow__set_source(s->u, NULL);
    for (uint32_t i = 0; i < e->n_out; i++) s->vars[e->out[i]].staged = tow__split_compared(s, e, i, out[i]);
}

/* Tags the repeated value with its names, which the policies of regions inside of this one ask about. */
static void repeat_names(tow__split *s, uint32_t root)
{
    for (uint32_t n = s->vars[root].named; s->policy && n != TOW__INPUT; n = s->vars[n].next_name) {
        const tow__equation *e = &s->g->equations[s->g->vars[n].equation];
        tow__set_source(s->u, &e->source);
        tow__rebind(s->u, e, &s->vars[root].staged, &s->vars[root].staged);
        tow__set_source(s->u, NULL);
    }
}

tow_value tow__split_staged(tow__split *s, uint32_t var)
{
    uint32_t root = s->vars[var].root;
    tow__pvar *v = &s->vars[root];
    if (!tow_is_null(v->staged) || tow__failed(s->u) || tow__failed(s->k)) return v->staged;
    uint32_t producer = s->g->vars[root].equation;
    if (v->available && producer != TOW__INPUT) {
        const tow__equation *e = &s->g->equations[producer];
        repeat(s, e);
        for (uint32_t i = 0; i < e->n_out; i++) repeat_names(s, e->out[i]);
    } else {
        v->staged = tow__split_residual(s, v->known, root, v->pinned || is_kept_by_name(s, root));
    }
    return v->staged;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* Finds the roots of names, and what the policy says about the tags. */
static void find_roots(tow__split *s)
{
    const tow_graph *g = s->g;
    for (uint32_t v = 0; v < g->n_vars; v++) s->vars[v].root = v, s->vars[v].named = s->vars[v].next_name = TOW__INPUT;
    for (uint32_t i = 0; i < g->n_equations; i++) {
        const tow__equation *e = &g->equations[i];
        if (e->primitive != &tow__name_p) continue;
        uint32_t root = s->vars[e->in[0]].root;
        tow__pvar *v = &s->vars[root];
        s->vars[e->out[0]].root = root;
        const bool asked = s->policy || tow__is_overridden(e->source.mark);
        tow_verdict verdict = asked ? tow__policy_ask(s->policy, g, e) : TOW_PREFER_SAVE;
        if (s->tally && is_save(verdict)) s->tally->saved++, s->tally->inputs += g->vars[root].equation == TOW__INPUT;
        v->tags = v->named == TOW__INPUT ? verdict : tow__verdict_meet(v->tags, verdict);
        if (v->named == TOW__INPUT) {
            v->named = e->out[0];
        } else {
            s->vars[e->out[0]].next_name = s->vars[v->named].next_name;
            s->vars[v->named].next_name = e->out[0];
        }
    }
}

/* The verdict of the policy on the outputs of equation e. */
static tow_verdict verdict_on(const tow__split *s, const tow__equation *e)
{
    if (e->primitive->varies || tow__has_effect(e)) return TOW_MUST_SAVE; /* computed again they might differ */
    if (tow__is_overridden(e->source.mark)) return tow__policy_ask(s->policy, s->g, e);
    tow_verdict verdict = s->policy ? tow__policy_ask(s->policy, s->g, e) : TOW_PREFER_SAVE;
    if (s->tally && e->primitive != &tow__name_p) s->tally->saved += is_save(verdict);
    for (uint32_t i = 0; i < e->n_out; i++) {
        const tow__pvar *v = &s->vars[e->out[i]];
        if (v->named != TOW__INPUT) verdict = tow__verdict_meet(verdict, v->tags);
    }
    return verdict;
}

bool tow__is_never_smaller(const tow_graph *g, const tow__equation *e)
{
    if (e->n_in != 1 || e->n_out != 1 || !(e->primitive->view || e->primitive == &tow__convert_p)) return false;
    return tow_type_bytes(g->vars[e->out[0]].type) >= tow_type_bytes(g->vars[e->in[0]].type);
}

/* Scalar constants, counters, and moves of them: cheaper to repeat than to keep, policy or not. */
static bool is_constant(const tow__split *s, const tow__equation *e)
{
    if (e->primitive->kind == TOW__SOURCE)
        return s->policy || s->g->vars[e->out[0]].type.rank == 0 || strcmp(e->primitive->name, "iota") == 0;
    return e->primitive->kind == TOW__MOVE && e->n_in == 1 && s->vars[s->vars[e->in[0]].root].constant;
}

/* True for broadcasts, reshapes, transposes and conversions of operands of the graph, of values that are kept, and of
 * values that are made again in turn. The operand is never larger, so keeping it instead costs no byte, and saves its
 * copy if another equation reads it. */
static bool is_made_again(const tow__split *s, const tow__equation *e)
{
    if (!tow__is_never_smaller(s->g, e) || is_kept_by_name(s, e->out[0])) return false;
    const uint32_t root = s->vars[e->in[0]].root;
    return s->g->vars[root].equation == TOW__INPUT || !s->vars[root].available || s->vars[root].again;
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

static bool any_unknown(const tow__split *s, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (s->vars[e->in[i]].unknown) return true;
    return false;
}

/* A region has repeated its results when their names come. */
static void name_region_result(tow__split *s, uint32_t root, const tow__equation *name)
{
    const uint32_t producer = s->g->vars[root].equation;
    tow_value *staged = &s->vars[root].staged;
    const bool region = producer != TOW__INPUT && s->g->equations[producer].primitive->kind == TOW__REGION;
    if (!region || !s->policy || !s->vars[root].available || tow_is_null(*staged)) return;
    tow__set_source(s->u, &name->source);
    tow__rebind(s->u, name, staged, staged);
}

/* Records e in the known trace. */
static void record_known(tow__split *s, const tow__equation *e)
{
    tow_value *in = tow__trace_alloc(s->k, e->n_in, sizeof *in), *out = tow__trace_alloc(s->k, e->n_out, sizeof *out);
    if (!in || !out) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = s->vars[e->in[i]].known;
    tow__rebind(s->k, e, in, out);
    for (uint32_t i = 0; i < e->n_out; i++) s->vars[e->out[i]].known = out[i];
}

void tow__split_record_unknown(tow__split *s, const tow__equation *e)
{
    tow_value *in = tow__trace_alloc(s->u, e->n_in, sizeof *in), *out = tow__trace_alloc(s->u, e->n_out, sizeof *out);
    if (!in || !out) return;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = tow__split_staged(s, e->in[i]);
    tow__set_source(s->u, &e->source);
    tow__rebind(s->u, e, in, out);
    for (uint32_t i = 0; i < e->n_out; i++) {
        s->vars[e->out[i]].unknown = true;
        s->vars[e->out[i]].staged = out[i];
    }
}

/* Records e in the known trace, with what is decided about its results. */
static void split_known(tow__split *s, const tow__equation *e)
{
    const tow_primitive *p = e->primitive;
    const tow__region *region = p->region && p->region->split ? p->region : NULL;
    const bool constant = is_constant(s, e), again = constant || is_made_again(s, e);
    const bool asked = tow__has_effect(e) || (!again && !region && e->n_in > 0);
    const tow_verdict verdict = asked ? verdict_on(s, e) : s->policy || again ? TOW_PREFER_RECOMPUTE : TOW_PREFER_SAVE;
    tow__source source = e->source;
    if (asked && (s->policy || verdict == TOW_MUST_SAVE) && !source.why.verdict) {
        source.why.verdict = (uint8_t)(verdict + 1);
        source.why.policy = policy_text(s);
    }
    tow__set_source(s->k, &source);
    record_known(s, e);
    if (s->log) tow__log_policy(s->log, e, NULL, false);
    if (p == &tow__name_p) name_region_result(s, s->vars[e->out[0]].root, e);
    for (uint32_t i = 0; i < e->n_out; i++) {
        tow__pvar *v = &s->vars[e->out[i]];
        v->available = !is_save(verdict), v->pinned = verdict == TOW_MUST_SAVE;
        v->constant = constant, v->again = again, v->verdict = source.why.verdict;
    }
}

static void split_equation(tow__split *s, const tow__equation *e)
{
    const tow_primitive *p = e->primitive;
    const tow__region *region = p->region && p->region->split ? p->region : NULL;
    bool unknown = any_unknown(s, e);
    tow__set_source(s->k, &e->source);
    if (region && (unknown || s->policy)) {
        region->split(s, e);
    } else if (unknown) {
        tow__split_record_unknown(s, e);
    } else {
        split_known(s, e);
    }
    tow__set_source(s->k, NULL);
    tow__set_source(s->u, NULL);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Decides which outputs the unknown graph has, and lists them as values of its trace; returns how many. */
static size_t list_staged(tow__split *s, bool stage_known, const bool *force_staged, tow__partial *p,
                          tow_value *outputs)
{
    const tow_graph *g = s->g;
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const tow__pvar *v = &s->vars[s->vars[g->outputs[i]].root];
        p->out_unknown[i] = v->unknown;
        p->out_staged[i] = v->unknown || (stage_known && v->available) || (force_staged && force_staged[i]);
        if (p->out_staged[i]) outputs[n++] = tow__split_staged(s, g->outputs[i]);
    }
    return n;
}

/* Closes the unknown trace and drops the equations and inputs that no output needs: p->unknown. kept: [inputs of the
 * trace] the input remains. */
static tow_status close_unknown(tow__split *s, size_t n_outputs, const tow_value *outputs, bool *kept, tow__partial *p)
{
    tow_graph *whole = NULL;
    tow_trace *u = s->u;
    s->u = NULL;
    if (tow__failed(s->k)) {
        tow__trace_abandon(u);
        return tow__report(s->k);
    }
    tow_status status = tow__trace_end(u, n_outputs, outputs, false, &whole);
    if (status == TOW_OK) status = tow__dce(whole, NULL, true, kept, &p->unknown);
    tow_graph_release(whole);
    return status;
}

/* Lists the outputs of the known graph: known outputs, then the residuals that the unknown graph still reads. A named
 * value is a residual under its name. Returns how many there are. */
static size_t list_known(const tow__split *s, const bool *residual_kept, tow__partial *p, tow_value *outputs)
{
    const tow_graph *g = s->g;
    size_t n = 0;
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (!p->out_unknown[i]) outputs[n++] = s->vars[g->outputs[i]].known;
    for (uint32_t i = 0; i < s->n_residuals; i++) {
        const tow__residual_slot *r = &s->residuals[i];
        bool named = r->root != TOW__INPUT && s->vars[r->root].named != TOW__INPUT;
        if (!residual_kept[i]) continue;
        outputs[n++] = named ? s->vars[s->vars[r->root].named].known : r->known;
        p->pinned[p->n_residuals++] = r->pinned;
    }
    return n;
}

/* Makes graphs of the two traces: the unknown one first, because the known graph returns the residuals that the unknown
 * graph reads after clean-up. created: [n_created] the inputs of g that the unknown trace began with. */
static tow_status close_traces(tow__split *s, bool stage_known, const bool *force_staged, uint32_t n_created,
                               const uint32_t *created, tow__partial *p)
{
    const tow_graph *g = s->g;
    bool *kept = NULL;
    uint32_t n_inputs = 0;
    tow_status status = TOW_OK;
    tow_value *staged = tow__trace_alloc(s->k, g->n_outputs, sizeof *staged);
    TRY(staged ? TOW_OK : TOW_OUT_OF_MEMORY);
    size_t n = list_staged(s, stage_known, force_staged, p, staged);
    n_inputs = n_created + s->n_residuals; /* staging may have made more residuals */
    kept = tow__alloc(g->ctx, n_inputs, sizeof *kept);
    TRY(kept ? TOW_OK : TOW_OUT_OF_MEMORY);
    TRY(close_unknown(s, n, staged, kept, p));
    for (uint32_t i = 0; i < n_created; i++) p->input_used[created[i]] = kept[i];

    tow_value *known = tow__trace_alloc(s->k, (size_t)g->n_outputs + s->n_residuals, sizeof *known);
    TRY(known ? TOW_OK : TOW_OUT_OF_MEMORY);
    p->pinned = tow__arena_alloc(&p->arena, s->n_residuals, sizeof *p->pinned);
    TRY(p->pinned ? TOW_OK : TOW_OUT_OF_MEMORY);
    n = list_known(s, kept + n_created, p, known);
    tow_trace *k = s->k;
    s->k = NULL;
    TRY(tow__trace_end(k, n, known, true, &p->known));
    TRY(tow__verify(p->known, "partial evaluation (known)"));
    TRY(tow__verify(p->unknown, "partial evaluation (unknown)"));
done:
    tow__free(g->ctx, kept, n_inputs, sizeof *kept);
    tow__trace_abandon(s->u);
    tow__trace_abandon(s->k);
    return status;
}

static tow_status begin_memo(tow__split_memo *memo, const tow_graph *g)
{
    tow__arena_init(&memo->arena, g->ctx);
    memo->n_regions = g->n_equations;
    memo->regions = tow__arena_alloc(&memo->arena, g->n_equations, sizeof *memo->regions);
    return memo->regions ? TOW_OK : TOW_OUT_OF_MEMORY;
}

void tow__split_memo_free(tow__split_memo *memo)
{
    for (uint32_t i = 0; memo->regions && i < memo->n_regions; i++) {
        tow__split_region *region = &memo->regions[i];
        tow__partial_free(&region->part);
        for (uint32_t k = 0; k < region->n_branches; k++) tow__partial_free(&region->branches[k]);
    }
    if (memo->arena.ctx) tow__arena_free(&memo->arena);
    *memo = (tow__split_memo){0};
}

tow_status tow__partial_eval(const tow_graph *original, const bool *in_unknown, const bool *in_available,
                             tow__manner manner, const bool *force_staged, tow__split_memo *memo, tow__partial *p)
{
    *p = (tow__partial){0};
    tow_context *ctx = original->ctx;
    tow__arena_init(&p->arena, ctx);
    tow_graph *g = NULL;
    tow_status status = TOW_OK;
    TRY(tow__flatten(original, in_unknown, &g));
    p->out_unknown = tow__arena_alloc(&p->arena, g->n_outputs, sizeof(bool));
    p->out_staged = tow__arena_alloc(&p->arena, g->n_outputs, sizeof(bool));
    p->input_used = tow__arena_alloc(&p->arena, g->n_inputs, sizeof(bool));
    tow__split s = {.g = g, .policy = manner.policy, .runs_once = manner.runs_once, .memo = memo};
    s.tally = manner.tally, s.log = manner.log, s.verifies = ctx->verifies;
    s.vars = tow__arena_alloc(&p->arena, g->n_vars, sizeof *s.vars);
    if (memo && !memo->regions) TRY(begin_memo(memo, g));
    uint32_t *created = tow__arena_alloc(&p->arena, g->n_inputs, sizeof *created), n_created = 0;
    TRY(p->out_unknown && p->out_staged && p->input_used && s.vars && created ? TOW_OK : TOW_OUT_OF_MEMORY);
    s.k = tow__trace_begin(ctx);
    s.u = s.k ? tow__trace_begin(ctx) : NULL;
    if (!s.u) {
        tow__trace_abandon(s.k);
        TRY(TOW_OUT_OF_MEMORY);
    }
    find_roots(&s);
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        tow__pvar *v = &s.vars[g->inputs[i]];
        tow_type type = g->vars[g->inputs[i]].type;
        v->unknown = in_unknown[i];
        v->available = !v->unknown && in_available[i];
        if (!v->unknown) v->known = tow__input(s.k, type, g->input_names[i]);
        if (v->unknown || v->available) {
            v->staged = tow__input(s.u, type, g->input_names[i]);
            created[n_created++] = i;
        }
    }
    for (uint32_t i = 0; i < g->n_equations && !tow__failed(s.k) && !tow__failed(s.u); i++)
        split_equation(&s, &g->equations[i]);
    status = close_traces(&s, manner.stage_known, force_staged, n_created, created, p);
    tow__free(ctx, s.residuals, s.capacity, sizeof *s.residuals);
done:
    tow_graph_release(g);
    if (status != TOW_OK) tow__partial_free(p);
    return status;
}

void tow__partial_free(tow__partial *p)
{
    tow_graph_release(p->known);
    tow_graph_release(p->unknown);
    tow__arena_free(&p->arena);
    *p = (tow__partial){0};
}
