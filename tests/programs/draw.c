/* The values of a drawing, and whole programs. */
#include "tests/programs/draw.h"

#include "tests/programs/fault.h"

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* splitmix64. Seeds are multiplied by another number than it counts in, or streams would be one stream, shifted. */
int draw(drawing *d, int n)
{
    uint64_t z = d->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

int draw_axis(drawing *d, tow_value x) { return draw(d, tow_value_type(x).rank); }

/* Of a number of tries, one half is among the latest values, so that programs become deep. */
static tow_value draw_any(drawing *d)
{
    const int late = d->n < 4 ? d->n : 4;
    return draw(d, 2) ? d->values[d->n - 1 - draw(d, late)] : d->values[draw(d, d->n)];
}

tow_value draw_float(drawing *d) { return draw_ranked(d, 0); }

tow_value draw_ranked(drawing *d, int least)
{
    for (int i = 0; i < 16; i++) {
        tow_value x = draw_any(d);
        const tow_type type = tow_value_type(x);
        if (type.dtype == d->floats && type.rank >= least) return x;
    }
    return d->values[0];
}

tow_value draw_of(drawing *d, tow_dtype dtype)
{
    for (int i = 0; i < 12; i++) {
        tow_value x = draw_any(d);
        if (tow_value_type(x).dtype == dtype) return x;
    }
    tow_value x = draw_float(d);
    if (dtype == TOW_BOOL) return tow_gt_scalar(x, 0.1);
    return tow_convert(tow_mul_scalar(tow_add_scalar(tow_sin(x), 1), 2), dtype);
}

tow_value draw_index(drawing *d)
{
    tow_value x = draw_of(d, TOW_I32);
    if (tow_value_type(x).rank == 0) return x;
    return count_of(x) ? tow_reduce_max(x, 0, NULL) : tow_reduce_sum(x, 0, NULL);
}

tow_value draw_indices(drawing *d, int64_t n)
{
    tow_value x = draw_of(d, TOW_I32);
    return tow_clamp(tow_full_like(x, 0), x, tow_full_like(x, (double)(n - 1)));
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

int64_t count_of(tow_value x) { return tow_type_element_count(tow_value_type(x)); }
int64_t size_of(tow_value x, int axis) { return tow_value_type(x).dims[axis]; }

static bool stretches(tow_type from, tow_type to)
{
    const int more = to.rank - from.rank;
    bool fits = more >= 0;
    for (int i = 0; i < from.rank && fits; i++) fits = from.dims[i] == to.dims[i + more] || from.dims[i] == 1;
    return fits;
}

tow_value fitted(tow_value x, tow_type type)
{
    if (!stretches(tow_value_type(x), type)) x = tow_mul_scalar(tow_reduce_sum(x, 0, NULL), 0.25);
    return tow_broadcast_to(x, type.rank, type.dims);
}

tow_value tamed(drawing *d, tow_value x)
{
    if (tow_value_type(x).dtype != d->floats) return x;
    const int how = draw(d, 4);
    return how == 0 ? tow_tanh(x) : how == 1 ? tow_mul_scalar(x, 0.3125) : how == 2 ? tow_sin(x) : x;
}

void add_value(drawing *d, tow_value x)
{
    if (tow_is_null(x) || d->n == MOST_VALUES) return;
    if (count_of(x) <= d->most && tow_value_type(x).rank <= MOST_AXES) d->values[d->n++] = x;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* Each as often as its weight says. */
static const struct {
    int weight;
    tow_value (*draw)(drawing *d);
} operations[] = {
    {12, draw_unary},    {12, draw_binary},     {3, draw_integers}, {3, draw_truth},     {8, draw_move},
    {4, draw_broadcast}, {7, draw_indexed},     {3, draw_sorted},   {9, draw_reduction}, {3, draw_window},
    {10, draw_product},  {3, draw_convolution}, {4, draw_layer},    {2, draw_random},    {11, draw_region},
    {6, draw_control},   {4, draw_custom},
};

static tow_value draw_operation(drawing *d)
{
    int sum = 0, which = 0;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) sum += operations[i].weight;
    for (sum = draw(d, sum); sum >= operations[which].weight; which++) sum -= operations[which].weight;
    return operations[which].draw(d);
}

void draw_operations(drawing *d, int n)
{
    for (int i = 0; i < n; i++) {
        if (d->fault && draw(d, 6) == 0) {
            tow_value x = draw_ranked(d, 1);
            add_value(d, record_fault(d->t, d->fault, x));
            d->fault = NULL;
        }
        add_value(d, tamed(d, draw_operation(d)));
    }
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Inputs and sizes are drawn before the trace begins. */
typedef struct program {
    drawing d;
    tow_type inputs[N_INPUTS];
    size_t n_outputs;
    bool large;
} program;

static void draw_inputs(program *p)
{
    static const int64_t common[] = {1, 2, 3, 4, 5, 6, 7, 9}, large[] = {16, 31, 64, 130};
    drawing *d = &p->d;
    for (int i = 0; i < 3; i++) d->sizes[i] = common[1 + draw(d, 7)];
    if (draw(d, 12) == 0) d->sizes[draw(d, 3)] = 0;
    if (draw(d, 6) == 0) d->sizes[draw(d, 3)] = large[draw(d, 4)];
    if (p->large) {
        d->sizes[0] = 500 + draw(d, 1000);
        d->sizes[1] = d->sizes[2] = 64;
    }
    for (int i = 0; i < N_FLOATS; i++) {
        int64_t dims[3];
        const int rank = i == 0 ? 2 : draw(d, p->large ? 3 : 4);
        for (int k = 0; k < rank; k++) dims[k] = draw(d, 10) ? d->sizes[draw(d, 3)] : 1;
        p->inputs[i] = tow_make_type(d->floats, rank, dims);
    }
    const int64_t length = d->sizes[draw(d, 3)], two = 2;
    p->inputs[N_FLOATS] = tow_make_type(TOW_I32, 1, &length);
    p->inputs[N_FLOATS + 1] = tow_make_type(TOW_I32, 0, NULL);
    p->inputs[N_FLOATS + 2] = tow_make_type(TOW_U32, 1, &length);
    p->inputs[N_FLOATS + 3] = tow_make_type(TOW_BOOL, 0, NULL);
    p->inputs[N_FLOATS + 4] = tow_make_type(TOW_U32, 1, &two);
}

/* Sum of the squares of all floats that were made, divided by how many there are. */
static tow_value make_loss(const drawing *d)
{
    tow_value loss = tow_reduce_sum(d->values[0], 0, NULL);
    for (int i = N_INPUTS; i < d->n; i++) {
        tow_value x = d->values[i];
        if (tow_value_type(x).dtype != d->floats) continue;
        tow_value sum = tow_reduce_sum(tow_mul(x, i % 3 ? x : tow_cos(x)), 0, NULL);
        loss = tow_add(loss, tow_mul_scalar(sum, 1 / (double)(count_of(x) + 1)));
    }
    return loss;
}

static void record(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    program *p = user;
    drawing *d = &p->d;
    d->t = t;
    d->n = N_INPUTS;
    d->key = in[N_INPUTS - 1];
    memcpy(d->values, in, N_INPUTS * sizeof *in);
    draw_operations(d, (p->large ? 3 : 6) + draw(d, p->large ? 5 : 9));
    if (d->fault) add_value(d, record_fault(t, d->fault, draw_ranked(d, 1)));
    out[0] = make_loss(d);
    for (size_t i = 1; i < p->n_outputs; i++) out[i] = d->values[d->n - (int)i];
}

tow_graph *draw_program(tow_context *context, uint32_t seed, const char *fault, bool large)
{
    program p = {
        .large = large,
        .d = {.most = large ? 1 << 17 : 3000, .random = seed * 0xd6e8feb86659fd93u + 1, .fault = fault, .depth = 3}};
    tow_graph *graph = NULL;
    p.d.floats = draw(&p.d, 5) < 2 ? TOW_F64 : TOW_F32;
    p.n_outputs = 1 + (size_t)draw(&p.d, MOST_OUTPUTS);
    draw_inputs(&p);
    tow_trace_function(context, record, &p, N_INPUTS, p.inputs, NULL, p.n_outputs, &graph);
    return graph;
}
