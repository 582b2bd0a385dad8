/* Convolutions, reductions over windows and cumulative operations, against loops over all pairs of elements.
 * Tests ops/reductions/cumulative.c, kernels/reference/conv.c, kernels/reference/cumulative.c,
 * kernels/reference/pooling.c, kernels/reference/windows.c. */
#include <math.h>

#include "src/base/window.h"
#include "tests/property/property.h"

static int64_t coordinate(const property_input *x, int64_t position, int64_t axis)
{
    const property_axis a = property_axis_of(x, axis);
    return position / a.after % a.size;
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* Adds x[i] w[j] to the one result that it belongs to, if there is one. */
static void conv(const property_case *c, double *const *in, double *const *out)
{
    const tow__conv_params *p = c->params;
    const property_input *x = &c->in[0], *w = &c->in[1];
    tow__conv_axes axes;
    tow__window_axis spatial[4];
    int64_t dims[TOW_MAX_RANK], at[TOW_MAX_RANK];
    tow__conv_axes_read(p->dimensions, &axes);
    dims[axes.out[0]] = x->dims[axes.lhs[0]] / p->batch_groups;
    dims[axes.out[1]] = w->dims[axes.rhs[0]];
    for (int s = 0; s < axes.spatial; s++) {
        spatial[s] = tow__conv_axis(p, &axes, s, x->dims, w->dims);
        tow__window_result(&spatial[s]);
        dims[axes.out[2 + s]] = spatial[s].result;
    }
    for (int64_t i = 0; i < property_count(x); i++)
        for (int64_t j = 0; j < property_count(w); j++) {
            int64_t n = coordinate(x, i, axes.lhs[0]), f = coordinate(x, i, axes.lhs[1]);
            int64_t o = coordinate(w, j, axes.rhs[0]), k = coordinate(w, j, axes.rhs[1]), index = 0;
            if (f % w->dims[axes.rhs[1]] != k) continue;
            int64_t group = o / (dims[axes.out[1]] / p->feature_groups),
                    part = o / (dims[axes.out[1]] / p->batch_groups);
            bool meets = f == group * w->dims[axes.rhs[1]] + k && n / dims[axes.out[0]] == part;
            at[axes.out[0]] = n % dims[axes.out[0]];
            at[axes.out[1]] = o;
            for (int s = 0; s < axes.spatial; s++) {
                const tow__window_axis *a = &spatial[s];
                int64_t padded = coordinate(x, i, axes.lhs[2 + s]) * a->base_dilation + a->low;
                int64_t first = padded - coordinate(w, j, axes.rhs[2 + s]) * a->window_dilation;
                meets = meets && first >= 0 && first % a->stride == 0 && first / a->stride < a->result;
                at[axes.out[2 + s]] = first / a->stride;
            }
            for (int d = 0; d < axes.spatial + 2; d++) index = index * dims[d] + at[d];
            if (meets) out[0][index] += in[0][i] * in[1][j];
        }
}

#define CONV(text, numbers, p, ...)                                                                                    \
    {                                                                                                                  \
        .primitive = "conv_general_dilated", .label = text, .n_in = 2, .value = conv, .loose = 4,                      \
        .params = &(const tow__conv_params){.dimensions = numbers, .feature_groups = 1, .batch_groups = 1, p}, .in = { \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define GROUPED(text, numbers, groups, parts, p, ...)                                                                  \
    {                                                                                                                  \
        .primitive = "conv_general_dilated", .label = text, .n_in = 2, .value = conv, .loose = 4,                      \
        .params =                                                                                                      \
            &(const tow__conv_params){.dimensions = numbers, .feature_groups = groups, .batch_groups = parts, p},      \
        .in = {                                                                                                        \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define F     .dtype = TOW_F64
#define NONE  .strides = {0}
#define LAST  "NHWC,HWIO->NHWC"
#define COMMA ,

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Folds x[i] into every window that meets it; elements in row-major order, so that the first extremum is found
 * first. */
static void windows(const property_case *c, const double *x, double *y, double start,
                    double (*fold)(double y, double x, int64_t i))
{
    tow__window_axis a[4];
    const property_input *in = &c->in[c->n_in - 1];
    int64_t results = 1;
    for (int d = 0; d < in->rank; d++) {
        a[d] = tow__window_axis_of(c->params, d, in->dims[d]);
        tow__window_result(&a[d]);
        results *= a[d].result;
    }
    for (int64_t p = 0; p < results; p++) {
        y[p] = start;
        for (int64_t i = 0; i < property_count(in); i++) {
            bool meets = true;
            int64_t rest = p;
            for (int d = in->rank - 1; d >= 0; d--) {
                int64_t offset =
                    coordinate(in, i, d) * a[d].base_dilation + a[d].low - rest % a[d].result * a[d].stride;
                meets = meets && offset >= 0 && offset % a[d].window_dilation == 0 &&
                        offset / a[d].window_dilation < a[d].window;
                rest /= a[d].result;
            }
            if (meets) y[p] = fold(y[p], x[i], i);
        }
    }
}

static double add(double y, double x, int64_t i) { return (void)i, y + x; }
static double larger(double y, double x, int64_t i) { return (void)i, fmax(y, x); }
static double smaller(double y, double x, int64_t i) { return (void)i, fmin(y, x); }

static void window_sum(const property_case *c, double *const *in, double *const *out)
{
    windows(c, in[0], out[0], 0, add);
}
static void window_max(const property_case *c, double *const *in, double *const *out)
{
    windows(c, in[0], out[0], -INFINITY, larger);
}
static void window_min(const property_case *c, double *const *in, double *const *out)
{
    windows(c, in[0], out[0], INFINITY, smaller);
}

/* Drawn numbers differ, so the extremum is one element: the one with its value. */
static int64_t selected(const property_case *c, const double *x, double extremum)
{
    for (int64_t i = 0; i < property_count(&c->in[1]); i++)
        if (x[i] == extremum) return i;
    return -1;
}

enum {
    MANY = 256
};

static int64_t extrema(const property_case *c, const double *x, double *y)
{
    const bool least = ((const tow__window_params *)c->params)->minimum;
    int64_t results = 1;
    for (int d = 0; d < c->in[1].rank; d++) {
        tow__window_axis a = tow__window_axis_of(c->params, d, c->in[1].dims[d]);
        tow__window_result(&a);
        results *= a.result;
    }
    windows(c, x, y, least ? INFINITY : -INFINITY, least ? smaller : larger);
    return results;
}

static void gathered(const property_case *c, double *const *in, double *const *out)
{
    double y[MANY];
    int64_t results = extrema(c, in[1], y);
    for (int64_t p = 0; p < results; p++) out[0][p] = isinf(y[p]) ? 0 : in[0][selected(c, in[1], y[p])];
}

static void scattered(const property_case *c, double *const *in, double *const *out)
{
    double y[MANY];
    int64_t results = extrema(c, in[1], y);
    for (int64_t p = 0; p < results; p++)
        if (!isinf(y[p])) out[0][selected(c, in[1], y[p])] += in[0][p];
}

/* ---- cumulative operations --------------------------------------------------------------------------------------- */

static void cumulate(const property_case *c, double *const *in, double *const *out, double (*step)(double, double))
{
    const tow__cumsum_params *p = c->params;
    const property_axis a = property_axis_of(&c->in[0], p->axis);
    for (int64_t i = 0; i < a.before; i++)
        for (int64_t k = 0; k < a.after; k++)
            for (int64_t t = 0; t < a.size; t++) {
                const int64_t j = p->reverse ? a.size - 1 - t : t, back = p->reverse ? 1 : -1;
                const int64_t at = (i * a.size + j) * a.after + k;
                out[0][at] = t == 0 ? in[0][at] : step(out[0][at + back * a.after], in[0][at]);
            }
}

static double plus(double a, double b) { return a + b; }
static double times(double a, double b) { return a * b; }
static double log_add(double a, double b) { return fmax(a, b) + log1p(exp(-fabs(a - b))); }

static void sums(const property_case *c, double *const *in, double *const *out) { cumulate(c, in, out, plus); }
static void products(const property_case *c, double *const *in, double *const *out) { cumulate(c, in, out, times); }
static void maxima(const property_case *c, double *const *in, double *const *out) { cumulate(c, in, out, fmax); }
static void minima(const property_case *c, double *const *in, double *const *out) { cumulate(c, in, out, fmin); }
static void log_sums(const property_case *c, double *const *in, double *const *out) { cumulate(c, in, out, log_add); }

static const tow__cumsum_params forwards = {.axis = 1}, backwards = {.axis = 1, .reverse = true},
                                first_axis = {.axis = 0}, last_axis = {.axis = 2};

#define CUMULATIVE(name, function)                                                                                     \
    {.primitive = name, .params = &forwards, .n_in = 1, .value = function, .in = {{F, S3(2, 3, 4)}}, .loose = 4},      \
        {.primitive = name,                                                                                            \
         .label = "reverse",                                                                                           \
         .params = &backwards,                                                                                         \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S3(2, 4, 3)}},                                                                                     \
         .loose = 4},                                                                                                  \
        {.primitive = name,                                                                                            \
         .label = "last axis",                                                                                         \
         .params = &last_axis,                                                                                         \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S3(2, 2, 5)}},                                                                                     \
         .loose = 4},                                                                                                  \
        {.primitive = name,                                                                                            \
         .label = "axis 0",                                                                                            \
         .params = &first_axis,                                                                                        \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S1(13)}},                                                                                          \
         .loose = 8},                                                                                                  \
    {                                                                                                                  \
        .primitive = name, .label = "one element", .params = &forwards, .n_in = 1, .value = function, .in = {          \
            {F, S2(3, 1)}                                                                                              \
        }                                                                                                              \
    }

static const tow__window_params pool = {.window = INTS(1, 2, 3), .strides = INTS(1, 2, 1)},
                                padded = {.window = INTS(1, 3, 2),
                                          .strides = INTS(1, 1, 2),
                                          .low = INTS(0, 1, 1),
                                          .high = INTS(0, 2, -1)},
                                dilated = {.window = INTS(2, 3),
                                           .strides = INTS(2, 1),
                                           .low = INTS(1, 0),
                                           .high = INTS(0, 1),
                                           .base_dilation = INTS(2, 3),
                                           .window_dilation = INTS(3, 2)},
                                channels = {.window = INTS(1, 2, 2, 1), .strides = INTS(1, 2, 2, 1)},
                                nothing = {.window = INTS(5)};
static const tow__window_params pool_min = {.window = INTS(1, 2, 3), .strides = INTS(1, 2, 1), .minimum = true};

#define WINDOW(name, function)                                                                                         \
    {.primitive = name, .params = &pool, .n_in = 1, .value = function, .in = {{F, S3(2, 5, 4)}}},                      \
        {.primitive = name,                                                                                            \
         .label = "padded",                                                                                            \
         .params = &padded,                                                                                            \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S3(2, 4, 5)}},                                                                                     \
         .loose = 2},                                                                                                  \
        {.primitive = name,                                                                                            \
         .label = "channels last",                                                                                     \
         .params = &channels,                                                                                          \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S4(2, 4, 5, 3)}}},                                                                                 \
        {.primitive = name,                                                                                            \
         .label = "longer than the operand",                                                                           \
         .params = &nothing,                                                                                           \
         .n_in = 1,                                                                                                    \
         .value = function,                                                                                            \
         .in = {{F, S1(3)}}},                                                                                          \
    {                                                                                                                  \
        .primitive = name, .label = "i32", .params = &pool, .n_in = 1, .value = function, .in = {                      \
            {.dtype = TOW_I32, S3(2, 5, 4), .low = -9, .high = 9}                                                      \
        }                                                                                                              \
    }

static const property_case cases[] = {
    CONV("2-D", LAST, NONE, {F, S4(2, 5, 4, 3)}, {F, S4(3, 2, 3, 2)}),
    CONV("2-D, padded", LAST, .low = INTS(1, 1) COMMA.high = INTS(1, 0), {F, S4(2, 4, 3, 2)}, {F, S4(3, 3, 2, 2)}),
    CONV("strides", LAST, .strides = INTS(2, 3) COMMA.low = INTS(1, 2) COMMA.high = INTS(1, 1), {F, S4(1, 5, 7, 2)},
         {F, S4(3, 3, 2, 3)}),
    CONV("negative padding", LAST, .low = INTS(-1, 2) COMMA.high = INTS(2, -2), {F, S4(1, 5, 4, 2)},
         {F, S4(2, 2, 2, 3)}),
    CONV("dilated", LAST,
         .strides = INTS(2, 1) COMMA.low = INTS(2, 1) COMMA.high = INTS(1, 3) COMMA.lhs_dilation =
             INTS(3, 2) COMMA.rhs_dilation = INTS(2, 3),
         {F, S4(1, 3, 4, 2)}, {F, S4(2, 3, 2, 2)}),
    CONV("features first", "NCHW,OIHW->NCHW", .low = INTS(1, 0) COMMA.strides = INTS(2, 1), {F, S4(2, 3, 4, 4)},
         {F, S4(2, 3, 3, 2)}),
    CONV("unusual order", "CWNH,HIOW->HCWN", .high = INTS(0, 1), {F, S4(2, 4, 2, 5)}, {F, S4(3, 2, 3, 2)}),
    CONV("1-D", "NWC,WIO->NWC", .low = INTS(2), {F, S3(2, 5, 3)}, {F, S3(3, 3, 2)}),
    CONV("no spatial axis", "NC,IO->NC", NONE, {F, S2(3, 4)}, {F, S2(4, 2)}),
    CONV("1x1", LAST, NONE, {F, S4(2, 3, 2, 3)}, {F, S4(1, 1, 3, 4)}),
    CONV("kernel longer than the operand", LAST, NONE, {F, S4(1, 2, 2, 1)}, {F, S4(3, 3, 1, 2)}),
    CONV("nothing to sum", LAST, NONE, {F, S4(1, 3, 3, 0)}, {F, S4(2, 2, 0, 2)}),
    GROUPED("feature groups", LAST, 2, 1, .low = INTS(1, 1), {F, S4(2, 3, 3, 4)}, {F, S4(2, 2, 2, 6)}),
    GROUPED("depthwise", LAST, 3, 1, .low = INTS(1, 1) COMMA.high = INTS(1, 1), {F, S4(2, 4, 3, 3)},
            {F, S4(3, 3, 1, 3)}),
    GROUPED("depthwise, strides", LAST, 3, 1, .strides = INTS(2, 2) COMMA.low = INTS(0, 1), {F, S4(1, 5, 4, 3)},
            {F, S4(3, 2, 1, 3)}),
    GROUPED("two kernels each", LAST, 2, 1, .high = INTS(1, 0), {F, S4(1, 3, 3, 2)}, {F, S4(2, 2, 1, 4)}),
    GROUPED("causal", "NWC,WIO->NWC", 4, 1, .low = INTS(3), {F, S3(2, 6, 4)}, {F, S3(4, 1, 4)}),
    GROUPED("batch groups", LAST, 1, 2, .low = INTS(1, 0), {F, S4(4, 3, 3, 2)}, {F, S4(2, 2, 2, 4)}),
    GROUPED("batch groups, features first", "CNW,OIW->NCW", 1, 3, .strides = INTS(2), {F, S3(2, 3, 5)},
            {F, S3(3, 2, 2)}),
    {.primitive = "conv_general_dilated",
     .label = "i32",
     .n_in = 2,
     .value = conv,
     .params = &(const tow__conv_params){.dimensions = LAST, .feature_groups = 1, .batch_groups = 1},
     .in = {{.dtype = TOW_I32, S4(1, 3, 3, 2), .low = -9, .high = 9},
            {.dtype = TOW_I32, S4(2, 2, 2, 2), .low = -9, .high = 9}}},
    {.primitive = "conv_general_dilated",
     .label = "beyond one panel",
     .n_in = 2,
     .value = conv,
     .params =
         &(const tow__conv_params){
             .dimensions = LAST, .low = INTS(1, 1), .high = INTS(1, 1), .feature_groups = 1, .batch_groups = 1},
     .no_derivative = true,
     .loose = 16,
     .in = {{F, S4(1, 2, 17, 20)}, {F, S4(2, 3, 20, 35)}}},
    WINDOW("reduce_window_sum", window_sum),
    WINDOW("reduce_window_max", window_max),
    WINDOW("reduce_window_min", window_min),
    {.primitive = "reduce_window_sum",
     .label = "dilated",
     .params = &dilated,
     .n_in = 1,
     .value = window_sum,
     .in = {{F, S2(4, 3)}}},
    {.primitive = "reduce_window_max",
     .label = "dilated",
     .params = &dilated,
     .n_in = 1,
     .no_derivative = true, /* windows that meet nothing are infinite */
     .value = window_max,
     .in = {{F, S2(4, 3)}}},
    {.primitive = "select_and_gather_add",
     .params = &pool,
     .n_in = 2,
     .value = gathered,
     .in = {{F, S3(2, 5, 4)}, {F, S3(2, 5, 4), .constant = true}}},
    {.primitive = "select_and_gather_add",
     .label = "minimum",
     .params = &pool_min,
     .n_in = 2,
     .value = gathered,
     .in = {{F, S3(2, 5, 4)}, {F, S3(2, 5, 4), .constant = true}}},
    {.primitive = "select_and_scatter_add",
     .params = &pool,
     .n_in = 2,
     .value = scattered,
     .in = {{F, S3(2, 2, 2)}, {F, S3(2, 5, 4), .constant = true}}},
    {.primitive = "select_and_scatter_add",
     .label = "channels last",
     .params = &channels,
     .n_in = 2,
     .value = scattered,
     .in = {{F, S4(2, 2, 2, 3)}, {F, S4(2, 4, 5, 3), .constant = true}}},
    CUMULATIVE("cumsum", sums),
    CUMULATIVE("cumprod", products),
    CUMULATIVE("cummax", maxima),
    CUMULATIVE("cummin", minima),
    CUMULATIVE("cumlogsumexp", log_sums),
};

const property_table window_cases = TABLE(cases);
