/* Stacks of a loop that is cut into runs (autodiff/limit/scan_runs.c): each run reads rows of the stacked parameters,
 * and their gradients are sums of padded pieces, one of each run. An update of the whole stack has to wait for all
 * runs, and so have the gradients of all rows.
 *
 *   u = scan[k] p[:k]     v = scan[n - k] p[k:]            u = scan[k] p0       v = scan[n - k] p1
 *   g = pad gu + pad gv                              =>    p0' = p0 - a gu      p1' = p1 - a gv
 *   p' = p - a g
 *
 * Both parts of p, in whose place p' is written, become inputs and outputs of their own, at their places in the
 * caller's array. All readers of p and g have to be slices of a part, or elementwise with readers of this kind. To the
 * passes behind they are different arrays, and updates sink into both runs (loop/sink.c). No bits change: an element is
 * computed by the same operations, and -0 adds nothing. */
#include "src/graph/builder.h"
#include "src/plan/loop/loop.h"
#include "src/plan/operations.h"
#include "tow/ops.h"

typedef struct splitting {
    tow_program *p;
    const tow_graph *g;
    int64_t *cut;     /* [n_vars] the first row of the second part; 0: the value is whole */
    uint32_t *output; /* [inputs] that takes its place, or TOW__NONE */
    bool changes, failed;
} splitting;

static const tow__equation *maker(const splitting *s, uint32_t var)
{
    const uint32_t made = s->g->vars[var].equation;
    return made == TOW__INPUT ? NULL : &s->g->equations[made];
}

/* ---- equations --------------------------------------------------------------------------------------------------- */

/* The first row behind the cut at which a slice of rows begins or ends; 0: it is something else. */
static int64_t cut_of_slice(const splitting *s, const tow__equation *e)
{
    const tow__slice_params *p = e->params;
    const tow_type type = s->g->vars[e->in[0]].type;
    if (!TOW__IS(e, slice) || !p->shares || type.rank == 0) return 0;
    for (int i = 0; i < type.rank; i++) {
        if (p->stride.v[i] != 1) return 0;
        if (i > 0 && (p->start.v[i] != 0 || p->limit.v[i] != type.dims[i])) return 0;
    }
    if (p->start.v[0] > 0) return p->limit.v[0] == type.dims[0] ? p->start.v[0] : 0;
    return p->limit.v[0] < type.dims[0] ? p->limit.v[0] : 0;
}

static bool is_second_part(const tow__equation *slice)
{
    return ((const tow__slice_params *)slice->params)->start.v[0] > 0;
}

static bool is_minus_zero(const tow__equation *e)
{
    if (!e || !TOW__IS(e, const)) return false;
    const tow_array *value = ((const tow__const_params *)e->params)->value;
    const size_t n = tow_type_bytes(tow_array_type(value));
    const uint8_t *bytes = tow_array_data((tow_array *)(uintptr_t)value);
    for (size_t i = 0; i + 1 < n; i++)
        if (bytes[i]) return false;
    return n > 0 && tow_array_type(value).rank == 0 && bytes[n - 1] == 0x80;
}

/* Rows that a pad with -0 puts before (low) or behind its operand; 0: it is something else. */
static int64_t padded_rows(const splitting *s, const tow__equation *e, bool low)
{
    if (!e || !TOW__IS(e, pad) || !is_minus_zero(maker(s, e->in[1]))) return 0;
    const tow__pad_params *p = e->params;
    for (int i = 0; i < p->low.n; i++)
        if (p->interior.v[i] != 0 || (i > 0 && (p->low.v[i] != 0 || p->high.v[i] != 0))) return 0;
    if (p->low.n == 0 || (low ? p->high.v[0] : p->low.v[0]) != 0) return 0;
    return low ? p->low.v[0] : p->high.v[0];
}

/* Is e the sum of two padded pieces that meet at a row? *first, *second: the pads. Returns the row; 0: it is not. */
static int64_t cut_of_sum(const splitting *s, const tow__equation *e, const tow__equation **first,
                          const tow__equation **second)
{
    if (!TOW__IS(e, add)) return 0;
    for (int i = 0; i < 2; i++) {
        *first = maker(s, e->in[i]);
        *second = maker(s, e->in[1 - i]);
        const int64_t row = padded_rows(s, *second, true), behind = padded_rows(s, *first, false);
        if (row > 0 && behind > 0 && row + behind == s->g->vars[e->out[0]].type.dims[0]) return row;
    }
    return 0;
}

/* Repeats something along the axis of rows. */
static bool is_repetition(const splitting *s, uint32_t var)
{
    const tow__equation *e = maker(s, var);
    if (!e || !TOW__IS(e, broadcast_in_dim) || s->cut[e->in[0]]) return false;
    const tow__broadcast_params *p = e->params;
    for (int i = 0; i < p->axes.n; i++)
        if (p->axes.v[i] == 0) return false;
    return true;
}

static bool is_elementwise(const splitting *s, const tow__equation *e)
{
    const tow__equation *first, *second;
    return e->primitive->kind == TOW__ELEMENTWISE && e->n_in > 0 && !tow__has_effect(e) &&
           !cut_of_sum(s, e, &first, &second);
}

/* ---- what is split ----------------------------------------------------------------------------------------------- */

static void split(splitting *s, uint32_t var, int64_t cut)
{
    const tow_type type = s->g->vars[var].type;
    if (s->cut[var] == cut) return;
    s->failed |= s->cut[var] != 0 || type.rank == 0 || type.dims[0] <= cut;
    s->cut[var] = cut;
    s->changes = true;
}

/* The stacks of which slices are read. */
static void begin(splitting *s)
{
    const tow_graph *g = s->g;
    for (uint32_t k = 0; k < g->n_equations; k++) {
        const tow__equation *e = &g->equations[k];
        const int64_t cut = e->n_in > 0 ? cut_of_slice(s, e) : 0;
        if (cut == 0 || g->vars[e->in[0]].equation != TOW__INPUT) continue;
        if (s->output[g->vars[e->in[0]].index] != TOW__NONE) split(s, e->in[0], cut);
    }
}

static int64_t cut_of_any(const splitting *s, const tow__equation *e)
{
    for (uint32_t i = 0; i < e->n_in; i++)
        if (s->cut[e->in[i]]) return s->cut[e->in[i]];
    for (uint32_t i = 0; i < e->n_out; i++)
        if (s->cut[e->out[i]]) return s->cut[e->out[i]];
    return 0;
}

/* Operands and results of elementwise equations are split alike, and so are outputs and the inputs in whose place they
 * are written. */
static void spread(splitting *s)
{
    const tow_graph *g = s->g;
    for (s->changes = true; s->changes && !s->failed;) {
        s->changes = false;
        for (uint32_t k = 0; k < g->n_equations; k++) {
            const tow__equation *e = &g->equations[k];
            const int64_t cut = is_elementwise(s, e) ? cut_of_any(s, e) : 0;
            if (cut == 0) continue;
            for (uint32_t i = 0; i < e->n_in; i++)
                if (!is_repetition(s, e->in[i])) split(s, e->in[i], cut);
            for (uint32_t i = 0; i < e->n_out; i++) split(s, e->out[i], cut);
        }
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            const uint32_t o = s->output[i];
            if (o == TOW__NONE) continue;
            const int64_t cut = s->cut[g->inputs[i]] ? s->cut[g->inputs[i]] : s->cut[g->outputs[o]];
            if (cut) split(s, g->inputs[i], cut), split(s, g->outputs[o], cut);
        }
    }
}

/* Can equation e read and write what is split of its operands and results? */
static bool obeys(const splitting *s, const tow__equation *e)
{
    const tow__equation *first, *second;
    const int64_t cut = cut_of_any(s, e);
    if (cut == 0) return true;
    if (is_elementwise(s, e)) return true; /* spread */
    if (cut_of_sum(s, e, &first, &second) == cut) return !s->cut[e->in[0]] && !s->cut[e->in[1]];
    return e->n_in > 0 && cut_of_slice(s, e) == cut && !s->cut[e->out[0]];
}

static bool all_obey(const splitting *s)
{
    const tow_graph *g = s->g;
    bool any = false;
    for (uint32_t k = 0; k < g->n_equations; k++)
        if (!obeys(s, &g->equations[k])) return false;
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        any |= s->cut[g->inputs[i]] != 0;
        if (s->cut[g->inputs[i]] && s->output[i] == TOW__NONE) return false;
    }
    for (uint32_t o = 0; o < g->n_outputs; o++)
        if (s->cut[g->outputs[o]] && s->p->donors[o] == TOW__NONE) return false;
    return any;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct recorder {
    const splitting *s;
    tow_trace *t;
    tow_value *whole;      /* [n_vars] */
    tow_value (*parts)[2]; /* [n_vars] */
} recorder;

static tow_type part_type(const splitting *s, uint32_t var, int64_t cut, int part)
{
    tow_type type = s->g->vars[var].type;
    type.dims[0] = part ? type.dims[0] - cut : cut;
    return type;
}

/* The rows of an operand that belong to a part. */
static tow_value part_of(const recorder *r, uint32_t var, int64_t cut, int part)
{
    if (r->s->cut[var]) return r->parts[var][part];
    const tow__equation *e = maker(r->s, var); /* a repetition */
    const tow__broadcast_params *p = e->params;
    const tow_type type = part_type(r->s, var, cut, part);
    int axes[TOW_MAX_RANK];
    for (int i = 0; i < p->axes.n; i++) axes[i] = (int)p->axes.v[i];
    return tow_broadcast_in_dim(r->whole[e->in[0]], type.rank, type.dims, axes);
}

static void record_parts(const recorder *r, const tow__equation *e, int64_t cut)
{
    tow_value *x = tow__trace_alloc(r->t, (size_t)e->n_in + 1, sizeof *x),
              *y = tow__trace_alloc(r->t, (size_t)e->n_out + 1, sizeof *y);
    for (int part = 0; part < 2 && x && y; part++) {
        for (uint32_t i = 0; i < e->n_in; i++) x[i] = part_of(r, e->in[i], cut, part);
        tow__rebind(r->t, e, x, y);
        for (uint32_t i = 0; i < e->n_out; i++) r->parts[e->out[i]][part] = y[i];
    }
}

static void record_equation(const recorder *r, const tow__equation *e)
{
    const splitting *s = r->s;
    const tow__equation *first, *second;
    const int64_t cut = cut_of_any(s, e);
    tow__set_source(r->t, &e->source);
    if (cut == 0) {
        tow__rebind_among(r->t, e, r->whole);
    } else if (is_elementwise(s, e)) {
        record_parts(r, e, cut);
    } else if (s->cut[e->in[0]]) {
        r->whole[e->out[0]] = r->parts[e->in[0]][is_second_part(e)];
    } else {
        cut_of_sum(s, e, &first, &second);
        r->parts[e->out[0]][0] = r->whole[first->in[0]];
        r->parts[e->out[0]][1] = r->whole[second->in[0]];
    }
}

static void record_input(const recorder *r, uint32_t i)
{
    const splitting *s = r->s;
    const uint32_t var = s->g->inputs[i];
    const char *name = s->g->input_names[i];
    if (!s->cut[var]) {
        r->whole[var] = tow__input(r->t, s->g->vars[var].type, name);
        return;
    }
    const size_t size = name ? strlen(name) + 48 : 1;
    for (int part = 0; part < 2; part++) {
        char *rows = tow__trace_alloc(r->t, size, 1);
        if (!rows) return;
        if (name) snprintf(rows, size, part ? "%s[%lld:]" : "%s[:%lld]", name, (long long)s->cut[var]);
        r->parts[var][part] = tow__input(r->t, part_type(s, var, s->cut[var], part), name ? rows : NULL);
    }
}

static tow_status record(const splitting *s, tow_graph **result)
{
    const tow_graph *g = s->g;
    tow_graph *all = NULL;
    tow_trace *t = tow__trace_begin(g->ctx);
    *result = NULL;
    if (!t) return TOW_OUT_OF_MEMORY;
    recorder r = {.s = s,
                  .t = t,
                  .whole = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *r.whole),
                  .parts = tow__trace_alloc(t, (size_t)g->n_vars + 1, sizeof *r.parts)};
    tow_value *outputs = tow__trace_alloc(t, 2 * (size_t)g->n_outputs + 1, sizeof *outputs);
    const bool fine = r.whole && r.parts && outputs;
    size_t n = 0;
    for (uint32_t i = 0; fine && i < g->n_inputs; i++) record_input(&r, i);
    for (uint32_t k = 0; fine && k < g->n_equations && !tow__failed(t); k++) record_equation(&r, &g->equations[k]);
    tow__set_source(t, NULL);
    for (uint32_t o = 0; fine && o < g->n_outputs; o++) {
        const uint32_t var = g->outputs[o];
        outputs[n++] = s->cut[var] ? r.parts[var][0] : r.whole[var];
        if (s->cut[var]) outputs[n++] = r.parts[var][1];
    }
    tow_status status = tow__trace_end(t, n, outputs, false, &all);
    if (status == TOW_OK) status = tow__dce(all, NULL, false, NULL, result); /* pads */
    tow_graph_release(all);
    return status == TOW_OK ? tow__verify(*result, "splitting stacks") : status;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

/* The places of parts in the caller's arrays. ports: of vars[n]. first (may be NULL): the first port of each. */
static void list_ports(const splitting *s, uint32_t n, const uint32_t *vars, tow__port *ports, uint32_t *first)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const tow_type type = s->g->vars[vars[i]].type;
        const int64_t cut = s->cut[vars[i]];
        if (first) first[i] = at;
        ports[at++] = (tow__port){.array = i};
        if (cut) ports[at++] = (tow__port){i, tow_type_bytes(type) / (size_t)type.dims[0] * (size_t)cut};
    }
}

static tow_status adopt(splitting *s, tow_graph *graph)
{
    tow_program *p = s->p;
    const tow_graph *g = s->g;
    uint32_t *first = tow__arena_alloc(&p->memory, (size_t)g->n_inputs + 1, sizeof *first),
             *donors = tow__arena_alloc(&p->memory, (size_t)graph->n_outputs + 1, sizeof *donors);
    p->split.inputs = tow__arena_alloc(&p->memory, (size_t)graph->n_inputs + 1, sizeof *p->split.inputs);
    p->split.outputs = tow__arena_alloc(&p->memory, (size_t)graph->n_outputs + 1, sizeof *p->split.outputs);
    if (!first || !donors || !p->split.inputs || !p->split.outputs) return TOW_OUT_OF_MEMORY;
    list_ports(s, g->n_inputs, g->inputs, p->split.inputs, first);
    list_ports(s, g->n_outputs, g->outputs, p->split.outputs, NULL);
    for (uint32_t o = 0; o < graph->n_outputs; o++) {
        const tow__port *port = &p->split.outputs[o];
        const uint32_t donor = p->donors[port->array];
        donors[o] = donor == TOW__NONE ? TOW__NONE : first[donor] + (port->offset > 0);
    }
    p->split.whole = p->graph;
    p->split.donors = p->donors;
    p->graph = tow__graph_share(graph);
    p->donors = donors;
    return TOW_OK;
}

tow_status tow__split_donated_stacks(tow_program *p)
{
    const tow_graph *g = p->graph;
    tow__arena scratch;
    splitting s = {.p = p, .g = g};
    tow_graph *graph = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    bool any = false;
    for (uint32_t o = 0; o < g->n_outputs; o++) any |= p->donors[o] != TOW__NONE;
    if (!any || p->calls_host) return TOW_OK;
    tow__arena_init(&scratch, p->ctx);
    s.cut = tow__arena_alloc(&scratch, (size_t)g->n_vars + 1, sizeof *s.cut);
    s.output = tow__arena_alloc(&scratch, (size_t)g->n_inputs + 1, sizeof *s.output);
    TRY(s.cut && s.output ? TOW_OK : TOW_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < g->n_inputs; i++) s.output[i] = TOW__NONE;
    for (uint32_t o = 0; o < g->n_outputs; o++)
        if (p->donors[o] != TOW__NONE) s.output[p->donors[o]] = o;
    begin(&s);
    if (s.changes) spread(&s);
    if (s.failed || !all_obey(&s)) goto done;
    TRY(record(&s, &graph));
    TRY(adopt(&s, graph));
done:
    tow_graph_release(graph);
    tow__arena_free(&scratch);
    return status;
}
