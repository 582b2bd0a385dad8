/* Partial evaluation of scan: one loop becomes two, and what crosses between them.
 *
 *   known scan    (known consts, known carries, known xs) -> (known carries, known ys, residuals stacked by iteration)
 *   unknown scan  (consts, carries, xs, residual rows)    -> (carries, ys)
 *
 *  1. A carry is unknown if its initial value or what the body makes of it is.
 *  2. Values that depend on known constants of the loop alone have left it before (flatten.c): they are kept once.
 *  3. The body is split. Elements of xs and constants are read in place by the unknown scan. A known carry is repeated
 *     there if the policy lets the body repeat its update; if the update is kept, or outside a remat, the carry's value
 *     at the start of each iteration is a residual instead, so no loop runs only to copy what is stored.
 *  4. Residuals are stacked as additional ys, unless they are ys already. Those of the highest rank, to which stacking
 *     would add an axis, are made flat for it, so loops nest as deep as graphs do. */
#include "src/autodiff/reach.h"
#include "src/autodiff/regions/loop_split.h"
#include "src/autodiff/regions/scan_schedule.h"
#include "src/autodiff/regions/scan_transpose.h"

/* ---- 1: unknown carries ------------------------------------------------------------------------------------------ */

static bool find_unknown_carries(tow__loop_split *l)
{
    const tow__equation *e = l->e;
    const tow_graph *g = l->form.body;
    bool *in = tow__trace_alloc(l->s->k, (size_t)e->n_in + 1, sizeof *in);
    bool *out = tow__trace_alloc(l->s->k, e->n_out, sizeof *out);
    if (!in || !out) return false;
    for (uint32_t i = 0; i < e->n_in; i++) in[i] = l->s->vars[e->in[i]].unknown;
    tow__arena arena;
    tow__arena_init(&arena, g->ctx);
    const tow__reach_walk walk = {.ctx = g->ctx, .arena = &arena};
    tow__reach *states = NULL;
    bool fine = tow__reach_region(&walk, e, &states, in, out) == TOW_OK;
    if (!fine) tow__adopt_error(l->s->k);
    for (uint32_t i = 0; i < l->carry; i++) l->carry_unknown[i] = out[i];
    tow__arena_free(&arena);
    return fine;
}

bool tow__loop_split_begin(tow__loop_split *l, tow__split *s, const tow__equation *e)
{
    *l = (tow__loop_split){.s = s, .e = e};
    tow__loop_of(e, &l->form);
    l->consts = l->form.consts;
    l->carry = l->form.carry;
    l->carry_unknown = tow__trace_alloc(s->k, l->carry, sizeof(bool));
    return l->carry_unknown && find_unknown_carries(l);
}

/* ---- 3: the split of the body ------------------------------------------------------------------------------------ */

/* The body is split in this manner. An iteration of a scan with slots, or of a while that keeps states, keeps nothing:
 * it runs again beside its derivative. */
static tow__manner manner_of(const tow__loop_split *l)
{
    static const tow_policy nothing = {.kind = TOW_POLICY_NOTHING};
    tow__manner manner = tow__manner_of(l->s);
    if (l->form.slots > 0 && (l->form.length != TOW__DATA_DECIDE || tow__is_scheduled(l))) manner.policy = &nothing;
    return manner;
}

/* A carry that the body cannot repeat is a residual: the body is split again, until no more are found. The loops and
 * regions in it are split once. */
static bool split_until_stable(tow__loop_split *l)
{
    tow__split *s = l->s;
    tow__split_region *known = tow__split_remembered(s, l->e);
    tow__split_memo memo = {0};
    bool fine = true, again = true;
    if (known && known->done) {
        l->part = known->part;
        memcpy(l->available, known->available, l->n_in * sizeof *l->available);
        return true;
    }
    while (fine && again) {
        again = false;
        tow__partial_free(&l->part);
        fine = tow__partial_eval(l->form.body, l->unknown, l->available, manner_of(l), l->force, &memo, &l->part) ==
               TOW_OK;
        for (uint32_t i = 0; fine && i < l->carry; i++) {
            uint32_t in = l->consts + i;
            if (l->unknown[in] || !l->available[in] || l->part.out_staged[i]) continue;
            l->available[in] = false;
            again = true;
        }
    }
    if (fine) fine = tow__thin(&l->part, l->n_in, l->unknown, s->runs_once) == TOW_OK;
    if (fine && known) {
        known->available = tow__arena_copy(&s->memo->arena, l->available, l->n_in, sizeof *l->available);
        fine = known->done = known->available != NULL;
        if (fine) known->part = l->part;
    }
    if (!fine) tow__adopt_error(s->k);
    tow__split_memo_free(&memo);
    return fine;
}

/* Not the number of an iteration of a fori. */
static bool has_operand(const tow__loop_split *l, uint32_t i) { return tow__operand_behind(l, i) < l->e->n_in; }

bool tow__loop_split_body(tow__loop_split *l)
{
    tow__split *s = l->s;
    l->n_in = l->form.body->n_inputs;
    l->n_out = l->form.body->n_outputs;
    l->unknown = tow__trace_alloc(s->k, l->n_in, sizeof(bool));
    l->available = tow__trace_alloc(s->k, l->n_in, sizeof(bool));
    l->force = tow__trace_alloc(s->k, l->n_out, sizeof(bool));
    if (!l->unknown || !l->available || !l->force) return false;
    for (uint32_t i = 0; i < l->n_in; i++) {
        bool carry = i >= l->consts && i < tow__first_rest(l);
        l->unknown[i] = carry ? l->carry_unknown[i - l->consts]
                              : has_operand(l, i) && s->vars[l->e->in[tow__operand_behind(l, i)]].unknown;
        l->available[i] = !carry || s->policy;
    }
    for (uint32_t i = 0; i < l->carry; i++) l->force[i] = l->carry_unknown[i];
    return split_until_stable(l);
}

/* ---- 4: the two loops -------------------------------------------------------------------------------------------- */

/* The value behind names. */
static uint32_t root_in(const tow_graph *g, uint32_t v)
{
    while (g->vars[v].equation != TOW__INPUT && g->equations[g->vars[v].equation].primitive == &tow__name_p)
        v = g->equations[g->vars[v].equation].in[0];
    return v;
}

tow_type tow__stack_row(tow_type type)
{
    if (type.rank < TOW_MAX_RANK) return type;
    return (tow_type){.dtype = type.dtype, .rank = 1, .dims = {tow_type_element_count(type)}};
}

tow_value tow__in_shape(tow_value x, tow_type type)
{
    return tow_value_type(x).rank == type.rank ? x : tow_reshape(x, type.rank, type.dims);
}

/* Makes the outputs of *body from `first` on flat where they have no room for an axis. */
static tow_status flatten_rows(tow_graph **body, uint32_t first)
{
    tow_graph *g = *body;
    bool any = false;
    for (uint32_t i = first; i < g->n_outputs; i++) any |= g->vars[g->outputs[i]].type.rank == TOW_MAX_RANK;
    if (!any) return TOW_OK;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, g->vars[g->inputs[i]].type, NULL);
    tow__inline(t, g, in, out);
    for (uint32_t i = first; i < g->n_outputs; i++)
        out[i] = tow__in_shape(out[i], tow__stack_row(g->vars[g->outputs[i]].type));
    tow_status status = tow__trace_end(t, g->n_outputs, out, false, body);
    tow_graph_release(g);
    return status;
}

/* The results of the known scan: which outputs of the split's known graph it has, and at which of its results each
 * residual is found. */
typedef struct known_results {
    bool *kept;                        /* [outputs of the known graph]: known outputs of the body, then residuals */
    uint32_t *place;                   /* [n_residuals] the result */
    uint32_t n_kept, n_carry, n_known; /* results, the carries among them; known outputs of the body */
} known_results;

/* A carry whose result is the unknown scan's alone. */
static bool is_unknown_carry(const tow__loop_split *l, uint32_t output)
{
    return output < l->carry && l->carry_unknown[output];
}

/* Keeps the known outputs, but for carries that the unknown scan has alone. */
static void keep_known_outputs(const tow__loop_split *l, known_results *k)
{
    for (uint32_t i = 0; i < l->n_out; i++) {
        if (l->part.out_unknown[i]) continue;
        const bool kept = !is_unknown_carry(l, i);
        k->kept[k->n_known++] = kept;
        k->n_carry += kept && i < l->carry;
        k->n_kept += kept;
    }
}

/* The stacked result that already holds residual r, or UINT32_MAX. Final carries are no stacks. */
static uint32_t find_stack(const tow_graph *g, const known_results *k, uint32_t r)
{
    const uint32_t root = root_in(g, g->outputs[k->n_known + r]);
    uint32_t result = 0;
    for (uint32_t i = 0; i < k->n_known + r; i++) {
        if (!k->kept[i]) continue;
        if (result >= k->n_carry && root_in(g, g->outputs[i]) == root) return result;
        result++;
    }
    return UINT32_MAX;
}

/* Gives each residual that is no ys yet a result of its own. */
static void place_residuals(const tow_graph *g, uint32_t n_residuals, known_results *k)
{
    for (uint32_t r = 0; r < n_residuals; r++) {
        k->place[r] = find_stack(g, k, r);
        k->kept[k->n_known + r] = k->place[r] == UINT32_MAX;
        if (k->kept[k->n_known + r]) k->place[r] = k->n_kept++;
    }
}

/* Binds the known scan. stacks[r] becomes the value in the known trace that holds residual r. */
static bool bind_known(tow__loop_split *l, tow_value *stacks)
{
    tow__split *s = l->s;
    const tow_graph *g = l->part.known;
    const uint32_t n_res = l->part.n_residuals;
    known_results k = {.kept = tow__trace_alloc(s->k, g->n_outputs, sizeof *k.kept),
                       .place = tow__trace_alloc(s->k, n_res, sizeof *k.place)};
    tow_value *in = tow__trace_alloc(s->k, l->n_in, sizeof *in),
              *out = tow__trace_alloc(s->k, g->n_outputs, sizeof *out);
    if (!k.kept || !k.place || !in || !out) return false;
    keep_known_outputs(l, &k);
    const uint32_t first_row = k.n_kept;
    place_residuals(g, n_res, &k);
    tow__scan_params params = *(const tow__scan_params *)l->e->params;
    params.body = NULL, params.consts = 0, params.carry = k.n_carry;
    if (tow__dce(g, k.kept, false, NULL, &params.body) != TOW_OK || flatten_rows(&params.body, first_row) != TOW_OK) {
        tow__adopt_error(s->k);
        tow_graph_release(params.body);
        return false;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        if (l->unknown[i]) continue;
        in[n++] = s->vars[l->e->in[tow__operand_behind(l, i)]].known;
        params.consts += i < l->consts;
    }
    if (k.n_kept || params.body->has_effects) tow__bind(s->k, &tow__scan_p, &params, n, in, k.n_kept, out);
    tow_graph_release(params.body);
    n = 0;
    for (uint32_t i = 0; i < l->n_out; i++)
        if (!l->part.out_unknown[i] && !is_unknown_carry(l, i)) s->vars[l->e->out[i]].known = out[n++];
    for (uint32_t r = 0; r < n_res; r++) stacks[r] = out[k.place[r]];
    return !tow__failed(s->k);
}

/* The body of the unknown scan in scan's order: used constants, carries, used xs, residual rows. */
static tow_status unknown_body(const tow__loop_split *l, tow_graph **result)
{
    const tow_graph *g = l->part.unknown;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        bool is_carry = i >= l->consts && i < tow__first_rest(l);
        if (!l->part.input_used[i] && !(is_carry && tow__is_carried(l, i - l->consts))) continue;
        tow_value v = tow__input(t, l->form.body->vars[l->form.body->inputs[i]].type, NULL);
        if (l->part.input_used[i]) in[n++] = v;
    }
    for (; n < g->n_inputs; n++) {
        const tow_type type = g->vars[g->inputs[n]].type;
        in[n] = tow__in_shape(tow__input(t, tow__stack_row(type), NULL), type);
    }
    tow__inline(t, g, in, out);
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

/* rows: [n_residuals] stacks of residuals in the unknown trace. */
static bool bind_unknown(tow__loop_split *l, const tow_value *rows)
{
    tow__split *s = l->s;
    uint32_t n_res = l->part.n_residuals, n_out = l->part.unknown->n_outputs, n = 0;
    tow_value *in = tow__trace_alloc(s->u, (size_t)l->n_in + n_res, sizeof *in),
              *out = tow__trace_alloc(s->u, n_out, sizeof *out);
    tow_graph *body = NULL;
    if (!in || !out) return false;
    if (n_out == 0) return true;
    if (unknown_body(l, &body) != TOW_OK) {
        tow__adopt_error(s->u);
        return false;
    }
    tow__scan_params params = *(const tow__scan_params *)l->e->params;
    params.body = body, params.consts = params.carry = 0;
    for (uint32_t i = 0; i < l->n_in; i++) {
        bool is_carry = i >= l->consts && i < tow__first_rest(l);
        if (!l->part.input_used[i] && !(is_carry && tow__is_carried(l, i - l->consts))) continue;
        in[n++] = tow__split_staged(s, l->e->in[tow__operand_behind(l, i)]);
        params.consts += i < l->consts;
        params.carry += is_carry;
    }
    for (uint32_t r = 0; r < n_res; r++) in[n++] = rows[r];
    tow__set_source(s->u, &l->e->source);
    tow__bind(s->u, &tow__scan_p, &params, n, in, n_out, out);
    tow_graph_release(body);
    n = 0;
    for (uint32_t i = 0; i < l->n_out; i++)
        if (l->part.out_staged[i]) s->vars[l->e->out[i]].staged = out[n++];
    return true;
}

void tow__loop_split_results(const tow__loop_split *l)
{
    for (uint32_t i = 0; i < l->e->n_out; i++) {
        tow__pvar *v = &l->s->vars[l->e->out[i]];
        v->unknown = i < l->carry ? l->carry_unknown[i] : l->part.out_unknown[i];
        bool kept = !v->unknown && v->named != TOW__INPUT && v->tags >= TOW_PREFER_SAVE;
        if (kept || (!v->unknown && !l->s->policy)) v->staged = (tow_value){0};
        v->available = !v->unknown && !tow_is_null(v->staged);
    }
}

void tow__loop_split_end(tow__loop_split *l)
{
    const tow__split_region *known = tow__split_remembered(l->s, l->e);
    if (!known || !known->done) tow__partial_free(&l->part);
}

/* Hands stacks of residuals over, except for those that have rows already. */
static void hand_over(tow__loop_split *l, const tow_value *stacks, tow_value *rows)
{
    for (uint32_t r = 0; r < l->part.n_residuals; r++)
        if (tow_is_null(rows[r])) rows[r] = tow__split_residual(l->s, stacks[r], TOW__INPUT, l->part.pinned[r]);
}

bool tow__loop_split_stacks(const tow__loop_split *l)
{
    const tow_graph *g = l->part.known;
    for (uint32_t r = 0; r < l->part.n_residuals; r++) {
        const uint32_t made = g->vars[g->outputs[g->n_outputs - l->part.n_residuals + r]].equation;
        if (made == TOW__INPUT || g->equations[made].primitive != &tow__spill_p) continue;
        const char *scope = g->equations[made].source.scope;
        tow_trace_fail(l->s->k, TOW_UNSUPPORTED,
                       "%s%sa loop within a %s keeps states in a file, which holds those of one iteration of the %s; "
                       "put a remat region around the inner loop, or keep its states in memory: .file_slots = 0",
                       scope ? scope : "", scope ? ": " : "", l->e->primitive->name, l->e->primitive->name);
        return false;
    }
    return true;
}

/* Binds both loops. */
static bool bind_loops(tow__loop_split *l, tow_value *stacks, tow_value *rows)
{
    tow__scan_sweep w = {0};
    if (!tow__loop_split_stacks(l)) return false;
    if (tow__is_scheduled(l) && !tow__scan_sweep_begin(&w, l)) return false;
    if (!w.replays) {
        if (!bind_known(l, stacks)) return false;
    } else if (!tow__scan_sweep_bind(&w, stacks) || !tow__scan_sweep_replay(&w, stacks, rows)) {
        return false;
    }
    hand_over(l, stacks, rows);
    return bind_unknown(l, rows);
}

void tow__scan_split(tow__split *s, const tow__equation *e)
{
    tow__loop_split l;
    if (tow__loop_split_begin(&l, s, e) && tow__loop_split_body(&l)) {
        tow_value *stacks = tow__trace_alloc(s->k, l.part.n_residuals, sizeof *stacks),
                  *rows = tow__trace_alloc(s->u, l.part.n_residuals, sizeof *rows);
        if (stacks && rows && bind_loops(&l, stacks, rows)) tow__loop_split_results(&l);
    }
    tow__loop_split_end(&l);
}
