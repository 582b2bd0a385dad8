/* A graph over all rows of a batch of which parts run one after the other: see part.h. The tree over the sums of n
 * parts is log2 n scans of two iterations, one in the other:
 *
 *     sums of 2 m parts = scan (s = -0...) over two halves: s += sums of the m parts of a half
 *
 * -0 is what every number is added to without a change, 0 included. */
#include "src/autodiff/rows/part.h"
#include "src/autodiff/rows/rows.h"
#include "src/autodiff/sharding/sharding.h"
#include "src/ops/rules.h"
#include "tow/autodiff.h"
#include "tow/numpy.h"

typedef struct level {
    const tow__row_part *p;
    const tow_value *shared;     /* [inputs] those without rows, values of the outermost graph */
    const tow__sharding *shards; /* of the part's inputs; NULL: none */
    int64_t parts;               /* of this level */
} level;

static uint32_t n_inputs(const level *l) { return (uint32_t)tow_graph_input_count(l->p->part) - 1; }

/* ---- rows in front and back ------------------------------------------------------------------------------------- */

/* x [..., n m, ...] with 2 halves along an axis as [2, ..., n m / 2, ...]; inside a half the axis stays. */
static tow_value halves(tow_value x, int axis)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1];
    int permutation[TOW_MAX_RANK + 1] = {0};
    for (int a = 0, n = 0; a < type.rank; a++) {
        if (a == axis) dims[n++] = 2;
        dims[n++] = a == axis ? type.dims[a] / 2 : type.dims[a];
    }
    x = tow_reshape(x, type.rank + 1, dims);
    permutation[0] = axis;
    for (int a = 0, n = 1; a <= type.rank; a++)
        if (a != axis) permutation[n++] = a;
    return axis == 0 ? x : tow_transpose(x, type.rank + 1, permutation);
}

/* The other way round. */
static tow_value joined(tow_value x, int axis)
{
    const tow_type type = tow_value_type(x);
    int64_t dims[TOW_MAX_RANK + 1];
    int permutation[TOW_MAX_RANK + 1] = {0};
    for (int a = 0; a < type.rank; a++) permutation[a] = a < axis ? a + 1 : a == axis ? 0 : a;
    if (axis > 0) x = tow_transpose(x, type.rank, permutation);
    for (int a = 0; a + 1 < type.rank; a++) dims[a] = a == axis ? 2 * type.dims[1 + a] : type.dims[1 + a];
    return tow_reshape(x, type.rank - 1, dims);
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

static void record_level(tow_trace *t, const level *l, const tow_value *rows, tow_value first, tow_value *out);

/* The axis of row output k of the part. */
static int axis_of(const tow__row_part *p, uint32_t k)
{
    const int *axis = p->axes;
    while (*axis == TOW__WHOLE || k-- > 0) axis++;
    return *axis;
}

/* carry: sums; xs: number of the first group, rows of a half; ys: outputs with rows. */
static void record_half(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const level *l = user;
    const tow__row_part *p = l->p;
    const level half = {.p = p, .shared = l->shared, .shards = l->shards, .parts = l->parts / 2};
    const tow_value *xs = in + p->n_sums + 1;
    tow_value *rows = tow__trace_alloc(t, (size_t)n_inputs(l) + 1, sizeof *rows);
    tow_value *inner = tow__trace_alloc(t, (size_t)p->n_rows + p->n_sums + 1, sizeof *inner);
    if (!rows || !inner) return;
    for (uint32_t i = 0; i < n_inputs(l); i++)
        if (p->in_axes[i] != TOW__WHOLE) rows[i] = *xs++;
    record_level(t, &half, rows, in[p->n_sums], inner);
    for (uint32_t k = 0; k < p->n_sums; k++)
        out[k] = tow__op(p->joins[k], NULL, 2, (tow_value[]){in[k], inner[p->n_rows + k]});
    memcpy(out + p->n_sums, inner, p->n_rows * sizeof *inner);
}

/* first: i32 [parts], or i32[] for one; out: outputs with rows, sums. */
static void record_level(tow_trace *t, const level *l, const tow_value *rows, tow_value first, tow_value *out)
{
    const tow__row_part *p = l->p;
    const uint32_t n = n_inputs(l);
    tow_value *in = tow__trace_alloc(t, (size_t)n + 1, sizeof *in);
    tow_value *carry = tow__trace_alloc(t, (size_t)p->n_sums + 1, sizeof *carry);
    tow_value *made = tow__trace_alloc(t, (size_t)p->n_sums + p->n_rows + 1, sizeof *made);
    uint32_t m = 0;
    if (!in || !carry || !made) return;
    if (l->parts == 1) {
        for (uint32_t i = 0; i < n; i++) in[i] = p->in_axes[i] == TOW__WHOLE ? l->shared[i] : rows[i];
        in[n] = first;
        if (l->shards)
            tow__sharding_inline(t, p->part, l->shards, in, out);
        else
            tow_inline(t, p->part, in, out);
        return;
    }
    in[m++] = l->parts == 2 ? first : halves(first, 0);
    for (uint32_t i = 0; i < n; i++)
        if (p->in_axes[i] != TOW__WHOLE) in[m++] = halves(rows[i], p->in_axes[i]);
    for (uint32_t k = 0; k < p->n_sums; k++)
        carry[k] = tow__rows_identity(t, p->joins[k], tow_graph_output_type(p->part, p->n_rows + k));
    tow_scan_function(t, record_half, (void *)(uintptr_t)l, &TOW_SCAN_OPTIONS(.length = 2), p->n_sums, carry, m, in,
                      p->n_rows, made, made + p->n_sums);
    memcpy(out + p->n_rows, made, p->n_sums * sizeof *out);
    for (uint32_t k = 0; k < p->n_rows; k++) out[k] = joined(made[p->n_sums + k], axis_of(p, k));
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* The graph of all parts, and what is shared of it. */
typedef struct whole {
    const tow_graph *g;
    const tow__row_part *p;
    const tow__row_share *share;
    const tow__sharding *shards; /* NULL: nothing */
    int64_t parts;
} whole;

/* inputs without rows, sums over the rows of this process -> outputs without rows */
static void record_rest(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const whole *w = user;
    const tow__row_part *p = w->p;
    const size_t n = tow_graph_input_count(p->rest);
    tow_value *x = tow__trace_alloc(t, n + 1, sizeof *x);
    if (!x) return;
    memcpy(x, in, n * sizeof *x);
    for (uint32_t k = 0; k < p->n_sums && w->share->group; k++) {
        tow_value *sum = &x[n - p->n_sums + k];
        *sum = tow__rows_of_all(t, w->share->group, w->share->groups, p->joins[k], *sum);
    }
    tow_inline(t, p->rest, x, out);
}

/* The same on shares. */
static void record_rest_on_shares(tow_trace *t, const whole *w, const tow_value *in, tow_value *out)
{
    const tow_graph *g = w->g, *rest = w->p->rest;
    const size_t n = tow_graph_input_count(rest), n_out = tow_graph_output_count(rest);
    int64_t *layers_in = tow__trace_alloc(t, n + 1, sizeof *layers_in), *to = layers_in,
            *layers_out = tow__trace_alloc(t, n_out + 1, sizeof *layers_out), *from = layers_out;
    tow_type *types = tow__trace_alloc(t, n + 1, sizeof *types);
    tow_graph *graph = NULL;
    if (!layers_in || !layers_out || !types) return;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (w->p->in_axes[i] == TOW__WHOLE) *to++ = w->shards->in[i];
    for (uint32_t i = 0; i < g->n_outputs; i++)
        if (w->p->axes[i] == TOW__WHOLE) *from++ = w->shards->out[i];
    for (size_t i = 0; i < n; i++) types[i] = tow_graph_input_type(rest, i);
    if (tow_trace_function(g->ctx, record_rest, (void *)(uintptr_t)w, n, types, NULL, n_out, &graph) != TOW_OK)
        tow__adopt_error(t);
    else
        tow__sharding_inline(t, graph, &(tow__sharding){w->shards->group, layers_in, layers_out, false}, in, out);
    tow_graph_release(graph);
}

/* The shares of the inputs of the part; its outputs are sums of its own. */
static bool shards_of_part(tow_trace *t, const whole *w, tow__sharding *shards)
{
    const size_t n_out = tow_graph_output_count(w->p->part);
    int64_t *in = tow__trace_alloc(t, (size_t)w->g->n_inputs + 1, sizeof *in);
    *shards = (tow__sharding){w->shards->group, in, tow__trace_alloc(t, n_out + 1, sizeof *in), false};
    if (!in || !shards->out) return false;
    memcpy(in, w->shards->in, w->g->n_inputs * sizeof *in);
    return true;
}

static void record_all(tow_trace *t, const whole *w, const tow_value *in, tow_value *out)
{
    const tow_graph *g = w->g;
    const tow__row_part *p = w->p;
    const tow__row_share *share = w->share;
    tow__sharding shards;
    const level top = {.p = p, .shared = in, .shards = w->shards ? &shards : NULL, .parts = w->parts};
    tow_value *made = tow__trace_alloc(t, (size_t)p->n_rows + p->n_sums + 1, sizeof *made), *rows = made;
    tow_value *rest = tow__trace_alloc(t, (size_t)g->n_inputs + p->n_sums + 1, sizeof *rest);
    tow_value *others = tow__trace_alloc(t, (size_t)g->n_outputs + 1, sizeof *others);
    size_t n = 0;
    if (!made || !rest || !others || (w->shards && !shards_of_part(t, w, &shards))) return;
    tow_value first = tow_scalar(t, TOW_I32, (double)share->first);
    if (w->parts > 1) {
        const tow_value numbers = tow_iota(t, tow_make_type(TOW_I32, 1, &w->parts), 0);
        first = tow_add_scalar(tow_mul_scalar(numbers, (double)(share->count / w->parts)), (double)share->first);
    }
    record_level(t, &top, in, first, made);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (p->in_axes[i] == TOW__WHOLE) rest[n++] = in[i];
    memcpy(rest + n, made + p->n_rows, p->n_sums * sizeof *made);
    if (tow__failed(t)) return;
    if (w->shards)
        record_rest_on_shares(t, w, rest, others);
    else
        record_rest(t, rest, others, (void *)(uintptr_t)w);
    for (uint32_t i = 0; i < g->n_outputs; i++) out[i] = p->axes[i] == TOW__WHOLE ? *others++ : *rows++;
}

/* The number of parts in which this process runs its groups, of which a part of the batch has `of_batch`. With shares,
 * which every part gathers, all run equally many. */
static int64_t parts_of(const tow__row_share *share, int64_t of_batch, const tow__sharding *shards)
{
    int64_t parts = share->count > of_batch ? share->count / of_batch : 1, fewest = share->count;
    const int count = shards ? tow_group_count(share->group) : 0;
    for (int r = 0, begin, end; r < count; r++) {
        if (tow_group_rows(r, count, (int)share->groups, &begin, &end) != TOW_OK) continue;
        if ((end - begin) / of_batch > parts) parts = (end - begin) / of_batch;
        if (end - begin < fewest) fewest = end - begin;
    }
    return parts < fewest ? parts : fewest;
}

tow_status tow__row_groups_in_parts(const tow_graph *g, const tow__row_share *share, int64_t n, const int *in_axes,
                                    const tow__sharding *shards, tow_graph **result)
{
    tow__row_part p = {0};
    tow_value *in, *out;
    if (n < 1 || (n & (n - 1)) != 0 || share->groups % n != 0)
        return tow__fail(g->ctx, TOW_INVALID_ARGUMENT,
                         "row groups: expected a number of micro-batches that is a power of two and divides the %lld "
                         "groups, found %lld; each micro-batch owns a subtree of groups",
                         (long long)share->groups, (long long)n);
    const whole w = {g, &p, share, shards, parts_of(share, share->groups / n, shards)};
    tow_status status = tow__row_part_create(g, share->groups, share->count / w.parts, in_axes, &p);
    tow_trace *t = status == TOW_OK ? tow__trace_begin_over(g, &in, &out) : NULL;
    if (t) {
        const tow__row_blocks own = {.groups = share->groups, .count = share->count};
        for (uint32_t i = 0; i < g->n_inputs; i++) {
            const tow_type type = tow__rows_type(&own, g->vars[g->inputs[i]].type, p.in_axes[i]);
            const int64_t layers = shards ? shards->in[i] : 0;
            in[i] =
                tow__input(t, layers > 0 ? tow__sharding_type(shards->group, type, layers) : type, g->input_names[i]);
        }
        if (!tow__failed(t)) record_all(t, &w, in, out);
        status = tow__trace_end(t, g->n_outputs, out, true, result);
    } else if (status == TOW_OK) {
        status = TOW_OUT_OF_MEMORY;
    }
    tow__row_part_free(&p);
    return status;
}
