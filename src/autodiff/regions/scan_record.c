/* scan as an operation that a C function records. */
#include "src/autodiff/regions/record.h"
#include "src/ops/rules.h"

/* The length from options and xs, or -1 after an error. */
static int64_t scan_length(tow_trace *t, const tow_scan_options *options, size_t n_xs, const tow_value *xs)
{
    int64_t length = -1;
    const bool given = options && (options->has_length || (options->length != 0 && options->length != -1));
    if (given) {
        length = options->length;
        if (length < 0) {
            tow_trace_fail(t, TOW_INVALID_ARGUMENT, "scan: length is %lld, expected 0 or more", (long long)length);
            return -1;
        }
    }
    for (size_t i = 0; i < n_xs; i++) {
        tow_type type = tow_value_type(xs[i]);
        if (type.rank == 0) {
            tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                           "scan: xs[%zu] is the scalar %s, expected an array with a leading axis to loop over", i,
                           tow__type_name(type).text);
            return -1;
        }
        if (length >= 0 && type.dims[0] != length) {
            tow_trace_fail(t, TOW_SHAPE_MISMATCH,
                           "scan: xs[%zu] is %s, so its leading axis has %lld elements, but %s %lld; make them equal",
                           i, tow__type_name(type).text, (long long)type.dims[0],
                           i == 0 || given ? "the length is" : "xs[0] has", (long long)length);
            return -1;
        }
        length = type.dims[0];
    }
    if (length < 0)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "scan: there are no xs to loop over, so options must give a length");
    return length;
}

/* True if the body forwards the carry: returns it as it is. Such a carry never changes. */
static bool is_forwarded(const tow__traced_body *b, size_t carry)
{
    return b->graph->outputs[carry] == b->graph->inputs[b->n_captures + carry];
}

/* The body with the carries that it forwards as further constants: (captures, forwarded, carry, xs) -> (carry, ys), so
 * that residuals among them are kept once, not for every iteration. order: the new order of its inputs. */
static tow_status without_forwarded(const tow__traced_body *b, size_t n_carry, size_t *order, tow_graph **result)
{
    const tow_graph *g = b->graph;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    size_t n = 0, n_out = 0, end = b->n_captures + n_carry;
    for (size_t i = 0; i < b->n_captures; i++) order[n++] = i;
    for (size_t i = b->n_captures; i < end; i++)
        if (is_forwarded(b, i - b->n_captures)) order[n++] = i;
    for (size_t i = b->n_captures; i < g->n_inputs; i++)
        if (i >= end || !is_forwarded(b, i - b->n_captures)) order[n++] = i;
    for (size_t i = 0; i < n; i++)
        in[order[i]] = tow__input(t, g->vars[g->inputs[order[i]]].type, g->input_names[order[i]]);
    tow__inline(t, g, in, out);
    for (size_t i = 0; i < g->n_outputs; i++)
        if (i >= n_carry || !is_forwarded(b, i)) out[n_out++] = out[i];
    return tow__trace_end(t, n_out, out, false, result);
}

/* States in the file: none where those in memory are all, else not more than there are besides the last one. */
static int64_t file_slots_of(const tow_scan_schedule *s, int64_t length)
{
    const int64_t most = length - 1 - s->slots;
    return most <= 0 ? 0 : s->file_slots < most ? s->file_slots : most;
}

/* Binds the loop over body b. operands: of all its inputs; out: of all its outputs. */
static void bind_scan(tow_trace *t, const tow__traced_body *b, int64_t length, bool reverse, tow_scan_schedule kept,
                      size_t n_carry, const tow_value *operands, size_t n_out, tow_value *out)
{
    size_t n_in = b->graph->n_inputs, n_forwarded = 0;
    size_t *order = tow__trace_alloc(t, n_in, sizeof *order);
    tow_value *in = tow__trace_alloc(t, n_in, sizeof *in), *results = tow__trace_alloc(t, n_out, sizeof *results);
    if (!order || !in || !results) return;
    for (size_t i = 0; i < n_carry; i++) n_forwarded += is_forwarded(b, i);
    tow_graph *graph = b->graph;
    if (n_forwarded > 0 && without_forwarded(b, n_carry, order, &graph) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    for (size_t i = 0; i < n_in; i++) in[i] = operands[n_forwarded > 0 ? order[i] : i];
    tow__scan_params params = {.body = graph,
                               .length = length,
                               .reverse = reverse,
                               .consts = (int64_t)(b->n_captures + n_forwarded),
                               .carry = (int64_t)(n_carry - n_forwarded),
                               .slots = kept.slots,
                               .file_slots = file_slots_of(&kept, length)};
    if (n_out > n_forwarded) tow__bind(t, &tow__scan_p, &params, n_in, in, n_out - n_forwarded, results);
    for (size_t i = 0, next = 0; i < n_out; i++)
        out[i] = i < n_carry && is_forwarded(b, i) ? operands[b->n_captures + i] : results[next++];
    if (graph != b->graph) tow_graph_release(graph);
}

/* ---- several iterations in one body ------------------------------------------------------------------------------ */

/* A body of k iterations over the body b: in: carry, xs [k, ...]; out: carry, ys [k, ...]. */
typedef struct unrolled {
    const tow__traced_body *b;
    int64_t k, first;     /* its iterations begin with iteration `first` of the loop that was asked for */
    bool reverse, looped; /* looped: and are one turn of a loop, whose turn i begins with first + k i */
    bool region;          /* they are a loop in a remat region, in place of k copies of the body */
    int64_t levels;       /* of a region: those that are left for this loop */
    size_t n_carry, n_xs, n_ys;
} unrolled;

static void bind_unrolled(tow_trace *t, unrolled u, int64_t length, const tow_value *in, tow_value *out);

static tow_value row_of(tow_value x, int64_t i)
{
    tow_type type = tow_value_type(x);
    return tow_reshape(tow_slice_axis(x, 0, i, i + 1), type.rank - 1, type.dims + 1);
}

/* The least k for which k^levels >= n, which gives that many nested loops of about k turns: k^(levels - 1) iterations
 * in one turn of the outermost. */
static int64_t block_of_levels(int64_t n, int64_t levels)
{
    int64_t k = 1, block = 1;
    for (bool enough = false; !enough; k++) {
        int64_t product = 1;
        block = 1;
        for (int64_t l = 0; l < levels && product < n; l++) block = product, product *= k;
        enough = product >= n;
    }
    return block;
}

/* The iterations as a loop, which may have regions in turn. */
static void loop_of_iterations(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const unrolled *u = user;
    const size_t n_captures = u->b->n_captures, n = u->n_carry + u->n_xs;
    unrolled inner = *u;
    inner.region = u->levels > 1;
    inner.levels = u->levels - 1;
    inner.k = inner.region ? block_of_levels(u->k, u->levels) : 1;
    tow_value *operands = tow__join(t, n_captures, u->b->captures, n, in);
    if (!operands) return;
    for (size_t i = 0; i < n_captures; i++) operands[i] = tow__import(t, operands[i]);
    if (inner.k > 1)
        bind_unrolled(t, inner, u->k, in, out);
    else
        bind_scan(t, u->b, u->k, u->reverse, (tow_scan_schedule){0}, u->n_carry, operands, u->n_carry + u->n_ys, out);
}

static void several_iterations(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const unrolled *u = user;
    if (u->region) {
        tow_remat_function(t, loop_of_iterations, user, NULL, u->n_carry + u->n_xs, in, u->n_carry + u->n_ys, out);
        return;
    }
    const size_t n_captures = u->b->n_captures, n = n_captures + u->n_carry + u->n_xs, k = (size_t)u->k;
    tow_value *x = tow__trace_alloc(t, n + 1, sizeof *x), *y = tow__trace_alloc(t, u->n_carry + u->n_ys + 1, sizeof *y);
    tow_value *rows = tow__trace_alloc(t, k * (u->n_ys + 1), sizeof *rows);
    if (!x || !y || !rows) return;
    for (size_t i = 0; i < n_captures; i++) x[i] = tow__import(t, u->b->captures[i]);
    for (size_t i = 0; i < u->n_carry; i++) y[i] = in[i];
    for (size_t step = 0; step < k && !tow__failed(t); step++) {
        const size_t row = u->reverse ? k - 1 - step : step;
        for (size_t i = 0; i < u->n_carry; i++) x[n_captures + i] = y[i];
        for (size_t i = 0; i < u->n_xs; i++) x[n_captures + u->n_carry + i] = row_of(in[u->n_carry + i], (int64_t)row);
        tow__inline_iteration(t, u->b->graph, u->first + (int64_t)row, u->looped ? u->k : 0, x, y);
        for (size_t i = 0; i < u->n_ys; i++) rows[i * k + row] = tow_expand_dims(y[u->n_carry + i], 0);
    }
    if (tow__failed(t)) return;
    for (size_t i = 0; i < u->n_carry; i++) out[i] = y[i];
    for (size_t i = 0; i < u->n_ys; i++) out[u->n_carry + i] = tow_concatenate(k, rows + i * k, 0);
}

/* x [a b, ...] -> [a, b, ...]; the other way about with join. */
static tow_value split_axis(tow_value x, int64_t a, int64_t b)
{
    tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1] = {a, b};
    if (type.rank == 0) return x; /* after an error */
    memcpy(dims + 2, type.dims + 1, (size_t)(type.rank - 1) * sizeof *dims);
    return tow_reshape(x, type.rank + 1, dims);
}

static tow_value join_axes(tow_value x)
{
    tow_type type = tow_value_type(x);
    type.dims[1] *= type.dims[0];
    return tow_reshape(x, type.rank - 1, type.dims + 1);
}

/* Reports unless so many equations may be written out. The count includes the equations of an iteration besides its
 * body. */
static bool may_unroll(tow_trace *t, const unrolled *u)
{
    if (u->region) return true;
    const int64_t each = (int64_t)u->b->graph->n_equations + 2 * (int64_t)u->n_xs + (int64_t)u->n_ys,
                  most = TOW__MOST_UNROLLED / (each > 0 ? each : 1);
    if (u->k <= most || u->k == 1) return true;
    tow_trace_fail(
        t, TOW_INVALID_ARGUMENT,
        "scan: unroll writes out %lld iterations of %lld equations, more than %d equations in all; expected at "
        "most %lld iterations, or 0: a loop without it gives the same bits",
        (long long)u->k, (long long)each, (int)TOW__MOST_UNROLLED, (long long)(most > 0 ? most : 1));
    return false;
}

/* The loop over bodies of u.k iterations, and behind it those that are left over. in: carry, xs; out: carry, ys. */
static void bind_unrolled(tow_trace *t, unrolled u, int64_t length, const tow_value *in, tow_value *out)
{
    const int64_t turns = length / u.k, rest = length % u.k, from = u.reverse ? rest : 0, looped = turns * u.k;
    const size_t n_in = u.n_carry + u.n_xs;
    tow_value *xs = tow__trace_alloc(t, n_in + 1, sizeof *xs),
              *ys = tow__trace_alloc(t, u.n_carry + u.n_ys + 1, sizeof *ys);
    if (!xs || !ys) return;
    for (size_t i = 0; i < u.n_xs; i++)
        xs[i] = split_axis(tow_slice_axis(in[u.n_carry + i], 0, from, from + looped), turns, u.k);
    const tow_scan_options options = TOW_SCAN_OPTIONS(.length = turns, .has_length = true, .reverse = u.reverse);
    u.first = from;
    u.looped = true;
    if (tow__failed(t)) return;
    tow_scan_function(t, several_iterations, &u, &options, u.n_carry, in, u.n_xs, xs, u.n_ys, out, out + u.n_carry);
    for (size_t i = 0; i < u.n_ys && !tow__failed(t); i++) out[u.n_carry + i] = join_axes(out[u.n_carry + i]);
    if (rest == 0 || tow__failed(t)) return;
    u.k = rest;
    u.first = u.reverse ? 0 : looped;
    u.looped = false;
    for (size_t i = 0; i < u.n_carry; i++) xs[i] = out[i];
    for (size_t i = 0; i < u.n_xs; i++)
        xs[u.n_carry + i] = tow_slice_axis(in[u.n_carry + i], 0, u.reverse ? 0 : looped, u.reverse ? rest : length);
    several_iterations(t, xs, ys, &u);
    for (size_t i = 0; i < u.n_carry; i++) out[i] = ys[i];
    for (size_t i = u.n_carry; i < u.n_carry + u.n_ys && !tow__failed(t); i++) {
        const tow_value parts[] = {u.reverse ? ys[i] : out[i], u.reverse ? out[i] : ys[i]};
        out[i] = tow_concatenate(2, parts, 0);
    }
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* False: the schedule contradicts itself or .unroll, which is reported. */
static bool schedule_is_fine(tow_trace *t, const tow_scan_options *options, int64_t length)
{
    const tow_scan_schedule *s = &options->schedule;
    const int kinds = (s->every != 0) + (s->levels != 0) + (s->slots != 0);
    const char *why = NULL;
    if (s->every < 0 || s->levels < 0 || s->slots < 0 || s->file_slots < 0)
        why = "expected numbers from 0 on";
    else if (s->file_slots > 0 && s->slots == 0)
        why = "expected .slots beside .file_slots";
    else if (kinds > 1)
        why = "expected one of them";
    else if (kinds && options->unroll > 1)
        why = "expected no .unroll beside it";
    else if (kinds && length > INT32_MAX)
        why = "expected at most 2^31 - 1 iterations";
    if (why)
        tow_trace_fail(t, TOW_INVALID_ARGUMENT, "scan: the schedule has .every %lld, .levels %lld and .slots %lld: %s",
                       (long long)s->every, (long long)s->levels, (long long)s->slots, why);
    return !why;
}

/* Iterations in one body of the loop, and whether they are a region. */
static void set_block(const tow_scan_options *options, int64_t length, unrolled *u)
{
    const tow_scan_schedule none = {0}, *s = options ? &options->schedule : &none;
    u->k = options ? options->unroll : 0;
    u->region = s->every > 0 || s->levels > 1;
    if (s->every > 0) u->k = s->every;
    if (s->levels > 1) u->k = block_of_levels(length, s->levels), u->levels = s->levels - 1;
    if (u->k > length) u->k = length;
}

/* ---- bits of gradients in blocks --------------------------------------------------------------------------------- */

/* In the plain loop, the sum of a value's cotangents goes on from one reader to the next, also where these are in
 * different iterations. Blocks are regions, which give a sum as a whole. So
 *
 *   a new carry that is a result, too   is taken from the rows of the carry that enters, one iteration later: these are
 *                                       results of the iteration that reads it
 *   carries that change places or coincide, constants that are new carries or results, an array that is more than one
 *   of constant, carry and xs           stay in one loop, with as many slots as the blocks would keep states */

static bool stands_among(uint32_t var, const uint32_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == var) return true;
    return false;
}

static bool is_one_of(tow_value x, const tow_value *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x.trace == list[i].trace && x.id == list[i].id) return true;
    return false;
}

/* Can iterations lie in blocks without a sum that leads from one into another? in: carry, xs of the call. */
static bool may_lie_in_blocks(const unrolled *u, const tow_value *in)
{
    const tow_graph *g = u->b->graph;
    const size_t consts = u->b->n_captures;
    for (size_t k = 0; k < u->n_carry; k++)
        if (g->outputs[k] != g->inputs[consts + k] &&
            (stands_among(g->outputs[k], g->inputs + consts, u->n_carry) || stands_among(g->outputs[k], g->outputs, k)))
            return false;
    for (size_t i = 0; i < u->n_carry + u->n_ys; i++)
        if (stands_among(g->outputs[i], g->inputs, consts)) return false;
    for (size_t i = 0; i < u->n_carry + u->n_xs; i++)
        if (is_one_of(in[i], u->b->captures, consts) || (i >= u->n_carry && is_one_of(in[i], in, u->n_carry)))
            return false;
    return true;
}

/* The carry whose new value result y is; n_carry: none. */
static size_t carry_of_result(const unrolled *u, size_t y)
{
    const tow_graph *g = u->b->graph;
    size_t k = 0;
    while (k < u->n_carry && (g->outputs[k] != g->outputs[u->n_carry + y] || is_forwarded(u->b, k))) k++;
    return k;
}

/* The body with the carries that enter in place of results that are new carries. */
static tow_status with_entering_carries(const unrolled *u, tow_graph **result)
{
    const tow_graph *g = u->b->graph;
    tow_value *in, *out;
    tow_trace *t = tow__trace_begin_over(g, &in, &out);
    if (!t) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->n_inputs; i++) in[i] = tow__input(t, g->vars[g->inputs[i]].type, g->input_names[i]);
    tow__inline(t, g, in, out);
    for (size_t y = 0; y < u->n_ys; y++) {
        const size_t k = carry_of_result(u, y);
        if (k < u->n_carry) out[u->n_carry + y] = in[u->b->n_captures + k];
    }
    return tow__trace_end(t, g->n_outputs, out, false, result);
}

/* Rows of carries that enter, and the last one that leaves, as rows of those that leave. */
static tow_value rows_that_leave(tow_value rows, tow_value last, bool reverse)
{
    const int64_t n = tow_value_type(rows).dims[0];
    const tow_value end = tow_expand_dims(last, 0);
    const tow_value others = tow_slice_axis(rows, 0, reverse ? 0 : 1, reverse ? n - 1 : n);
    const tow_value parts[] = {reverse ? end : others, reverse ? others : end};
    return tow_concatenate(2, parts, 0);
}

/* The loop in blocks that are regions. */
static void bind_blocks(tow_trace *t, unrolled u, int64_t length, const tow_value *in, tow_value *out)
{
    tow__traced_body entering = *u.b;
    const unrolled given = u;
    bool any = false;
    for (size_t y = 0; y < u.n_ys; y++) any |= carry_of_result(&given, y) < u.n_carry;
    if (any && with_entering_carries(&given, &entering.graph) != TOW_OK) {
        tow__adopt_error(t);
        return;
    }
    u.b = &entering;
    bind_unrolled(t, u, length, in, out);
    for (size_t y = 0; any && y < u.n_ys && !tow__failed(t); y++) {
        const size_t k = carry_of_result(&given, y);
        if (k < u.n_carry) out[u.n_carry + y] = rows_that_leave(out[u.n_carry + y], out[k], u.reverse);
    }
    if (any) tow_graph_release(entering.graph);
}

/* As many slots as states that blocks keep. */
static tow_scan_schedule slots_of_blocks(const tow_scan_schedule *s, int64_t length, int64_t k)
{
    int64_t states = (length + k - 1) / k + k - 1;
    if (s->levels > 1) states = s->levels * ((length + k - 1) / k); /* each level has about as many turns */
    return (tow_scan_schedule){.slots = states < length ? states : length};
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

void tow_scan_function(tow_trace *trace, tow_function function, void *user, const tow_scan_options *options,
                       size_t n_carry, const tow_value *carry, size_t n_xs, const tow_value *xs, size_t n_ys,
                       tow_value *carry_out, tow_value *ys)
{
    tow_value *explicit_in =
        tow__operands_of(trace, "scan", function != NULL, (tow__listed){n_carry, carry}, (tow__listed){n_xs, xs},
                         (tow__listed){n_carry, carry_out}, (tow__listed){n_ys, ys});
    tow__clear(n_carry, carry_out);
    tow__clear(n_ys, ys);
    if (!explicit_in) return;
    tow_scan_options own;
    if (!TOW__TRACE_OPTIONS(trace, tow_scan_options, options, &own)) return;
    int64_t length = scan_length(trace, options, n_xs, explicit_in + n_carry);
    tow_type *types = tow__types_of(trace, n_carry + n_xs, explicit_in);
    if (length < 0 || !types) return;
    const int64_t unroll = options ? options->unroll : 0;
    if (unroll < 0) {
        tow_trace_fail(trace, TOW_INVALID_ARGUMENT, "scan: unroll is %lld, expected a positive number, or 0 for one",
                       (long long)unroll);
        return;
    }
    if (options && !schedule_is_fine(trace, options, length)) return;
    for (size_t i = n_carry; i < n_carry + n_xs; i++) {
        types[i].rank--;
        memmove(types[i].dims, types[i].dims + 1, (size_t)types[i].rank * sizeof types[i].dims[0]);
        types[i].dims[types[i].rank] = 0;
    }
    tow__traced_body b = {0};
    if (!tow__trace_body(trace, function, user, n_carry + n_xs, types, n_carry + n_ys, &b)) return;
    tow_value *operands = tow__join(trace, b.n_captures, b.captures, n_carry + n_xs, explicit_in);
    tow_value *results = tow__trace_alloc(trace, n_carry + n_ys, sizeof *results);
    if (operands && results && tow__carries_agree(trace, "scan", b.graph, n_carry, explicit_in)) {
        const bool reverse = options && options->reverse;
        unrolled u = {.b = &b, .reverse = reverse, .n_carry = n_carry, .n_xs = n_xs, .n_ys = n_ys};
        set_block(options, length, &u);
        if (!may_unroll(trace, &u)) {
            tow_graph_release(b.graph);
            return;
        }
        tow_scan_schedule kept = options ? options->schedule : (tow_scan_schedule){0};
        const bool in_one = u.k > 1 && u.region && !may_lie_in_blocks(&u, explicit_in);
        if (in_one) kept = slots_of_blocks(&kept, length, u.k);
        if (u.k > 1 && u.region && !in_one)
            bind_blocks(trace, u, length, explicit_in, results);
        else if (u.k > 1 && !in_one)
            bind_unrolled(trace, u, length, explicit_in, results);
        else
            bind_scan(trace, &b, length, reverse, kept, n_carry, operands, n_carry + n_ys, results);
        if (n_carry) memcpy(carry_out, results, n_carry * sizeof *results);
        if (n_ys) memcpy(ys, results + n_carry, n_ys * sizeof *results);
    }
    tow_graph_release(b.graph);
}
