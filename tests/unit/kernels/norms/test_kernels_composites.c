/* The fused kernels against their definitions in double precision: softmax and its relatives, norms, cross-entropy,
 * attention, forward and backward, in all layouts.
 * Tests norm.c, softmax.c. */
#include "tests/unit/support/kernels.h"
#include "tests/unit/support/tried.h"

#include <float.h>

static const tow_dtype floats[] = {TOW_F32, TOW_F64};

/* ---- along an axis ---------------------------------------------------------------------------------------------- */

static void softmax_family(void **state)
{
    (void)state;
    static const char *const names[] = {"softmax", "log_softmax", "logsumexp"};
    static const int64_t shapes[][3] = {{3, 5, 7},    {2, 1, 33}, {1, 17, 1}, {2, 40, 3},
                                        {4, 3, 2500}, {2, 0, 3},  {0, 4, 4},  {70, 33, 64}};
    for (size_t c = 0; c < 3 * sizeof shapes / sizeof shapes[0] * 3 * 2; c++) {
        const char *name = names[c % 3];
        const int64_t *dims = shapes[c / 3 % (sizeof shapes / sizeof shapes[0])];
        int axis = (int)(c / 3 / (sizeof shapes / sizeof shapes[0]) % 3);
        tow_dtype dtype = floats[c & 1];
        for (int how = 0; how < LAYOUTS; how++) {
            if ((c + (size_t)how) % SLOWDOWN > 0) continue;
            tow__buffer x = random_operand(dtype, 3, dims, (layout)how);
            int64_t n = dims[axis], inner = 1, count = count_of(&x), reduced[2];
            for (int i = axis + 1; i < 3; i++) inner *= dims[i];
            for (int i = 0, j = 0; i < 3; i++)
                if (i != axis) reduced[j++] = dims[i];
            bool scalar = c % 3 == 2;
            tow__buffer y = scalar ? make(dtype, 2, reduced, ROW_MAJOR) : make(dtype, 3, dims, ROW_MAJOR);
            run_kernel(tow__kernel_find(name, dtype), 1, &x, 1, &y, &(tow__axis_params){axis});
            for (int64_t r = 0; n > 0 && r < count / n; r++) {
                int64_t base = r / inner * n * inner + r % inner;
                double top = -INFINITY, sum = 0;
                for (int64_t i = 0; i < n; i++) top = fmax(top, get(&x, base + i * inner));
                for (int64_t i = 0; i < n; i++) sum += exp(get(&x, base + i * inner) - top);
                double lse = log(sum) + top, tolerance = epsilon_of(dtype) * 16 * (1 + fabs(lse));
                if (scalar) assert_close(get(&y, r), lse, tolerance, name, r);
                for (int64_t i = 0; i < n && !scalar; i++) {
                    double shifted = get(&x, base + i * inner) - lse;
                    assert_close(get(&y, base + i * inner), c % 3 == 0 ? exp(shifted) : shifted, tolerance, name,
                                 base + i * inner);
                }
            }
            release_all();
        }
    }
}

static void infinities_in_softmax(void **state)
{
    (void)state;
    tow__buffer x = make(TOW_F32, SHAPE(4, 3), ROW_MAJOR), y = make(TOW_F32, SHAPE(4), ROW_MAJOR),
                p = make(TOW_F32, SHAPE(4, 3), ROW_MAJOR);
    const double rows[12] = {-INFINITY, 0, 0, -INFINITY, -INFINITY, -INFINITY, INFINITY, 0, 0, NAN, 0, 0};
    for (int i = 0; i < 12; i++) set(&x, i, rows[i]);
    tow__axis_params axis = {1};
    run_kernel(tow__kernel_find("logsumexp", TOW_F32), 1, &x, 1, &y, &axis);
    const double want[4] = {0.69314718055994531, -INFINITY, INFINITY, NAN};
    for (int i = 0; i < 4; i++) assert_close(get(&y, i), want[i], 1e-7, "logsumexp", i);
    run_kernel(tow__kernel_find("softmax", TOW_F32), 1, &x, 1, &p, &axis);
    const double weights[3] = {0, 0.5, 0.5};
    for (int i = 0; i < 3; i++) assert_close(get(&p, i), weights[i], 0, "softmax", i);
    for (int i = 9; i < 12; i++) assert_true(isnan(get(&p, i)));
    release_all();
}

/* Rows from `first` on of a matrix, or elements of a vector. */
static tow__buffer rows_of(const tow__buffer *x, int64_t first, int64_t rows)
{
    tow__buffer part = *x;
    part.data = (char *)x->data + first * x->strides[0] * (int64_t)tow_dtype_size(x->dtype);
    part.dims[0] = rows;
    return part;
}

static void assert_same_bits(const tow__buffer *x, const tow__buffer *y, const char *what, int64_t n)
{
    for (int64_t i = 0; i < count_of(x); i++) {
        double a = get(x, i), b = get(y, i);
        if (memcmp(&a, &b, sizeof a) != 0 && !(isnan(a) && isnan(b)))
            fail_msg("%s of %lld elements: element %lld is %a, among fewer rows %a", what, (long long)n, (long long)i,
                     a, b);
    }
}

/* Short rows are worked on in groups of 16: among fewer, each comes out the same. */
static void rows_do_not_depend_on_others(void **state)
{
    (void)state;
    static const char *const names[] = {"softmax", "log_softmax", "logsumexp", "softmax_cross_entropy"};
    enum {
        ROWS = 37,
        FEW = 15
    };
    for (int64_t c = 0; c < 2 * 40; c += 1 + 2 * (SLOWDOWN / 3)) {
        tow_dtype dtype = floats[c % 2];
        int64_t n = 1 + c / 2;
        tow__buffer in[2] = {random_operand(dtype, 2, (int64_t[]){ROWS, n}, ROW_MAJOR),
                             make(TOW_I32, SHAPE(ROWS), ROW_MAJOR)};
        for (int64_t i = 0; i < ROWS * n; i++) set(&in[0], i, get(&in[0], i) * 20);
        for (int64_t i = 0; i < n; i++) set(&in[0], 3 * n + i, -INFINITY);
        set(&in[0], 5 * n + n / 2, INFINITY);
        set(&in[0], 7 * n + n - 1, NAN);
        set(&in[0], 9 * n, -INFINITY);
        for (int64_t i = 0; i < n; i++) set(&in[0], 20 * n + i, -0.0);
        for (int64_t r = 0; r < ROWS; r++) set(&in[1], r, (double)(random_bits() % (uint32_t)(n + 1)));
        for (int f = 0; f < 4; f++) {
            tow__buffer all[2], few[2];
            for (int k = 0; k < 2; k++) {
                all[k] = f < 2 ? make(dtype, SHAPE(ROWS, n), ROW_MAJOR) : make(dtype, SHAPE(ROWS), ROW_MAJOR);
                few[k] = f < 2 ? make(dtype, SHAPE(ROWS, n), ROW_MAJOR) : make(dtype, SHAPE(ROWS), ROW_MAJOR);
            }
            const tow__kernel *kernel = tow__kernel_find(names[f], dtype);
            size_t results = f == 3 ? 2 : 1;
            run_kernel(kernel, results, in, results, all, &(tow__axis_params){1});
            for (int64_t r = 0; r < ROWS; r += FEW) {
                int64_t rows = ROWS - r < FEW ? ROWS - r : FEW;
                tow__buffer x[2] = {rows_of(&in[0], r, rows), rows_of(&in[1], r, rows)},
                            y[2] = {rows_of(&few[0], r, rows), rows_of(&few[1], r, rows)};
                run_kernel(kernel, results, x, results, y, &(tow__axis_params){1});
            }
            for (size_t k = 0; k < results; k++) assert_same_bits(&all[k], &few[k], names[f], n);
        }
        release_all();
    }
}

/* Rows as [outer, n, columns], or as [outer, columns, n] if `last`. */
static tow__buffer laid_out(const tow__buffer *rows, int64_t outer, bool last, layout how)
{
    int64_t n = rows->dims[1], columns = rows->dims[0] / outer;
    const int64_t dims[3] = {outer, last ? columns : n, last ? n : columns};
    tow__buffer x = make(rows->dtype, 3, dims, how);
    for (int64_t r = 0; r < outer * columns; r++)
        for (int64_t i = 0; i < n; i++)
            set(&x, last ? r * n + i : r / columns * n * columns + i * columns + r % columns, get(rows, r * n + i));
    return x;
}

static void check_layout(const char *name, const tow__buffer *rows, const tow__buffer *want, int64_t outer, bool last,
                         layout how)
{
    tow__buffer some = rows_of(rows, 0, rows->dims[0] / 2 * outer), expected = rows_of(want, 0, some.dims[0]);
    tow__buffer x = laid_out(&some, outer, last, how), y = make(x.dtype, SHAPE(outer, some.dims[0] / outer), ROW_MAJOR);
    if (want->rank == 2) {
        expected = laid_out(&expected, outer, last, ROW_MAJOR);
        y = make(x.dtype, 3, x.dims, ROW_MAJOR);
    }
    run_kernel(tow__kernel_find(name, x.dtype), 1, &x, 1, &y, &(tow__axis_params){last ? 2 : 1});
    assert_same_bits(&y, &expected, name, rows->dims[1]);
}

/* Along any axis and in any layout, a row has the bits that it has when it lies contiguous among few. */
static void rows_do_not_depend_on_layout(void **state)
{
    (void)state;
    static const char *const names[] = {"softmax", "log_softmax", "logsumexp"};
    static const int64_t lengths[] = {1, 15, 16, 17, 33, 511, 512, 513, 1025, 4100}, widths[] = {1, 3, 16, 17, 130};
    static const double specials[] = {NAN, INFINITY, -INFINITY, -0.0, 0, 88, -104, 1e-40};
    enum {
        LENGTHS = sizeof lengths / sizeof lengths[0],
        WIDTHS = sizeof widths / sizeof widths[0],
        FEW = 15
    };
    for (int64_t c = 0; c < 6 * LENGTHS * WIDTHS; c += 1 + 4 * (SLOWDOWN / 4)) {
        tow_dtype dtype = floats[c % 2];
        const char *name = names[c % 3];
        int64_t n = lengths[c / 6 % LENGTHS], columns = widths[c / 6 / LENGTHS];
        const int64_t dims[2] = {2 * columns, n};
        tow__buffer rows = make(dtype, 2, dims, ROW_MAJOR), want = make(dtype, c % 3 == 2 ? 1 : 2, dims, ROW_MAJOR);
        fill(&rows, 40);
        for (int64_t i = 0; i < count_of(&rows); i += 1 + random_bits() % 80) set(&rows, i, specials[2 + i % 6]);
        for (int64_t r = 0; r < dims[0]; r += 5) {
            set(&rows, r * n + random_bits() % n, specials[r / 5 % 8]);
            if (r % 40 == 0) set(&rows, r * n + random_bits() % n, INFINITY); /* beside a NaN */
        }
        for (int64_t i = 0; i < n; i++) set(&rows, dims[0] / 2 * n + i, specials[2 + c / 6 % 2]);
        for (int64_t r = 0; r < dims[0]; r += FEW) {
            tow__buffer x = rows_of(&rows, r, dims[0] - r < FEW ? dims[0] - r : FEW), y = rows_of(&want, r, x.dims[0]);
            run_kernel(tow__kernel_find(name, dtype), 1, &x, 1, &y, &(tow__axis_params){1});
        }
        check_layout(name, &rows, &want, 2, false, ROW_MAJOR);
        check_layout(name, &rows, &want, 1, c / 6 % 2, COLUMN_MAJOR);
        check_layout(name, &rows, &want, 2, c / 12 % 2, c % 4 < 2 ? SPACED : REVERSED);
        release_all();
    }
}

static void cross_entropy(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{5, 7}, {300, 65}, {3, 3000}, {1, 1}, {0, 4}};
    for (size_t c = 0; c < sizeof shapes / sizeof shapes[0] * 2 * LAYOUTS; c++) {
        const int64_t *dims = shapes[c / 2 / LAYOUTS], rows = dims[0], n = dims[1];
        tow_dtype dtype = floats[c % 2];
        layout how = (layout)(c / 2 % LAYOUTS);
        tow__buffer in[4] = {random_operand(dtype, 2, dims, how),
                             random_operand(TOW_I32, 1, dims, how == REPEATED ? ROW_MAJOR : how),
                             make(dtype, 1, dims, ROW_MAJOR), random_operand(dtype, 1, dims, how)};
        for (int64_t r = 0; r < rows; r++)
            set(&in[1], r, r == 1 ? (double)n : r == 2 ? -1 : (double)(random_bits() % n));
        tow__buffer out[2] = {make(dtype, 1, dims, ROW_MAJOR), make(dtype, 1, dims, ROW_MAJOR)},
                    dx = make(dtype, 2, dims, ROW_MAJOR);
        run_kernel(tow__kernel_find("softmax_cross_entropy", dtype), 2, in, 2, out, NULL);
        in[2] = out[1];
        run_kernel(tow__kernel_find("softmax_cross_entropy_vjp", dtype), 4, in, 1, &dx, NULL);
        for (int64_t r = 0; r < rows; r++) {
            double top = -INFINITY, sum = 0, label = get(&in[1], r);
            for (int64_t i = 0; i < n; i++) top = fmax(top, get(&in[0], r * n + i));
            for (int64_t i = 0; i < n; i++) sum += exp(get(&in[0], r * n + i) - top);
            double lse = top + log(sum), tolerance = epsilon_of(dtype) * 16 * (1 + fabs(lse));
            bool inside = label >= 0 && label < (double)n;
            assert_close(get(&out[1], r), lse, tolerance, "lse", r);
            assert_close(get(&out[0], r), inside ? lse - get(&in[0], r * n + (int64_t)label) : NAN, tolerance, "loss",
                         r);
            for (int64_t i = 0; i < n; i++) {
                double want = (exp(get(&in[0], r * n + i) - lse) - ((double)i == label)) * get(&in[3], r);
                assert_close(get(&dx, r * n + i), want, tolerance * 4, "dlogits", r * n + i);
            }
        }
        release_all();
    }
}

/* ---- norms ------------------------------------------------------------------------------------------------------ */

static void check_norm(bool centered, tow_dtype dtype, const int64_t *dims, layout how, int wrt)
{
    int64_t rows = dims[0] * dims[1], n = dims[2];
    double epsilon = 1e-3;
    size_t bias = centered ? 1 : 0;
    tow__buffer x = random_operand(dtype, 3, dims, how), ct = random_operand(dtype, 3, dims, how);
    tow__buffer scale = random_operand(dtype, 1, &n, how), shift = random_operand(dtype, 1, &n, how);
    tow__buffer in[3] = {x, scale, shift}, out[3];
    out[0] = make(dtype, 3, dims, ROW_MAJOR);
    for (size_t i = 0; i <= bias; i++) out[1 + i] = make(dtype, 2, dims, ROW_MAJOR);
    run_kernel(tow__kernel_find(centered ? "layer_norm" : "rms_norm", dtype), 2 + bias, in, 2 + bias, out,
               &(tow__norm_params){epsilon});
    tow__buffer residuals[5] = {x, scale, out[1], out[2], ct}, grads[3];
    if (!centered) residuals[3] = ct;
    size_t n_out = 0;
    if (wrt & 1) grads[n_out++] = make(dtype, 3, dims, ROW_MAJOR);
    for (int bit = 2; bit <= 4; bit *= 2)
        if (wrt & bit) grads[n_out++] = make(dtype, 1, &n, ROW_MAJOR);
    run_kernel(tow__kernel_find(centered ? "layer_norm_vjp" : "rms_norm_vjp", dtype), 4 + bias, residuals, n_out, grads,
               &(tow__norm_ad_params){epsilon, wrt});

    double *dscale = take((size_t)n * 8 + 8), *dbias = take((size_t)n * 8 + 8), eps = epsilon_of(dtype);
    for (int64_t i = 0; i < n; i++) dscale[i] = dbias[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, square = 0, g_mean = 0, gn_mean = 0;
        for (int64_t i = 0; i < n && centered; i++) mean += get(&x, r * n + i) / (double)n;
        for (int64_t i = 0; i < n; i++) square += pow(get(&x, r * n + i) - mean, 2) / (double)n;
        double rstd = 1 / sqrt(square + epsilon);
        if (centered) assert_close(get(&out[1], r), mean, eps * 16, "mean", r);
        assert_close(get(&out[1 + bias], r), rstd, eps * 16 * rstd * (1 + rstd), "rstd", r);
        for (int64_t i = 0; i < n; i++) {
            double xn = (get(&x, r * n + i) - mean) * rstd, g = get(&ct, r * n + i) * get(&scale, i);
            double want = xn * get(&scale, i) + (centered ? get(&shift, i) : 0);
            assert_close(get(&out[0], r * n + i), want, eps * 32 * (1 + rstd * rstd) * (1 + fabs(want)), "norm",
                         r * n + i);
            if (centered) g_mean += g / (double)n;
            gn_mean += g * xn / (double)n;
            dscale[i] += get(&ct, r * n + i) * xn;
            dbias[i] += get(&ct, r * n + i);
        }
        for (int64_t i = 0; i < n && (wrt & 1); i++) {
            double xn = (get(&x, r * n + i) - mean) * rstd, g = get(&ct, r * n + i) * get(&scale, i);
            double want = (g - g_mean - xn * gn_mean) * rstd;
            assert_close(get(&grads[0], r * n + i), want, eps * 64 * (1 + rstd * rstd * rstd), "dx", r * n + i);
        }
    }
    double tolerance = eps * 16 * (double)(rows + 1);
    size_t next = wrt & 1 ? 1 : 0;
    for (int64_t i = 0; i < n && (wrt & 2); i++)
        assert_close(get(&grads[next], i), dscale[i], tolerance * 2, "dscale", i);
    if (wrt & 2) next++;
    for (int64_t i = 0; i < n && (wrt & 4); i++) assert_close(get(&grads[next], i), dbias[i], tolerance, "dbias", i);
    release_all();
}

static void norms(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{2, 3, 5}, {3, 50, 33}, {1, 7, 1500}, {1, 1, 1},
                                        {0, 3, 4}, {8, 40, 64}, {2, 2100, 3}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int wrt = 1; wrt < 8; wrt++) {
                if (s >= 5 && wrt != 7 && wrt != 3) continue;
                check_norm(true, floats[(how + wrt) % 2], shapes[s], (layout)how, wrt);
                if (wrt < 4) check_norm(false, floats[(how + wrt) % 2], shapes[s], (layout)how, wrt);
            }
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

typedef struct attention_case {
    int64_t b, t, s, h, g, d, e;
    bool causal;
    int mask; /* 0 none, 1 full, 2 [1,1,T,S], 3 [B,1,1,S], 4 one row without any key */
} attention_case;

static const attention_case cases[] = {
    {1, 1, 1, 1, 1, 1, 1, false, 0},    {2, 5, 7, 4, 2, 3, 6, false, 0},    {1, 7, 7, 2, 2, 4, 4, true, 0},
    {2, 3, 9, 2, 1, 5, 2, true, 0},     {1, 9, 3, 2, 2, 4, 4, true, 0},     {1, 70, 70, 2, 1, 8, 8, true, 0},
    {1, 130, 67, 1, 1, 8, 4, false, 0}, {2, 6, 8, 4, 4, 4, 4, false, 1},    {2, 6, 6, 2, 1, 4, 4, true, 2},
    {2, 6, 8, 2, 2, 4, 4, false, 3},    {1, 66, 66, 2, 2, 4, 4, true, 4},   {2, 65, 130, 2, 1, 16, 16, true, 1},
    {0, 3, 3, 1, 1, 2, 2, false, 0},    {2, 0, 3, 1, 1, 2, 2, false, 0},    {1, 100, 150, 2, 1, 20, 40, true, 2},
    {1, 3, 4500, 1, 1, 17, 3, true, 3}, {1, 80, 80, 2, 2, 64, 48, true, 0}, {1, 20, 2100, 2, 1, 16, 16, false, 4},
};

static tow__buffer make_mask(const attention_case *c)
{
    int64_t dims[4] = {c->b, c->h, c->t, c->s};
    if (c->mask == 2) dims[0] = dims[1] = 1;
    if (c->mask == 3) dims[1] = dims[2] = 1;
    tow__buffer mask = make(TOW_BOOL, 4, dims, ROW_MAJOR);
    int64_t count = count_of(&mask);
    for (int64_t i = 0; i < count; i++) {
        int64_t j = i % c->s, row = i / c->s % dims[2];
        set(&mask, i, c->mask == 4 ? row != c->t / 2 : j == 0 || random_bits() % 3 != 0);
    }
    return mask;
}

/* Everything in double precision, for one (batch, head). */
typedef struct expected {
    double *p, *out, *dq, *dk, *dv, *lse;
} expected;

static int64_t at4(const tow__buffer *x, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return ((a * x->dims[1] + b) * x->dims[2] + c) * x->dims[3] + d;
}

static bool sees(const attention_case *c, const tow__buffer *mask, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (c->causal && j > i + c->s - c->t) return false;
    if (c->mask == 0) return true;
    return get(mask, at4(mask, mask->dims[0] > 1 ? b : 0, mask->dims[1] > 1 ? h : 0, mask->dims[2] > 1 ? i : 0, j)) !=
           0;
}

static double *zeros(int64_t n)
{
    double *x = take((size_t)n * sizeof *x + 8);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    return x;
}

/* in: q, k, v; ct [B, T, H, E] */
static expected expect(const attention_case *c, const tow__buffer *in, const tow__buffer *mask, const tow__buffer *ct,
                       double scale)
{
    const tow__buffer *q = &in[0], *k = &in[1], *v = &in[2];
    expected x = {zeros(c->s),        zeros(count_of(ct)), zeros(count_of(q)),
                  zeros(count_of(k)), zeros(count_of(v)),  zeros(c->b * c->h * c->t)};
    double *dp = zeros(c->s);
    for (int64_t row = 0; row < c->b * c->h * c->t; row++) {
        int64_t b = row / c->t / c->h, h = row / c->t % c->h, i = row % c->t, g = h / (c->h / c->g);
        double top = -DBL_MAX, sum = 0, delta = 0;
        bool any = false;
        for (int64_t j = 0; j < c->s; j++) {
            double logit = 0;
            for (int64_t d = 0; d < c->d; d++) logit += scale * get(q, at4(q, b, i, h, d)) * get(k, at4(k, b, j, g, d));
            x.p[j] = sees(c, mask, b, h, i, j) ? logit : -INFINITY;
            any |= sees(c, mask, b, h, i, j);
            top = fmax(top, x.p[j]);
        }
        for (int64_t j = 0; j < c->s; j++) sum += exp(x.p[j] - top);
        x.lse[row] = any ? top + log(sum) : NAN;
        for (int64_t j = 0; j < c->s; j++) {
            x.p[j] = any ? exp(x.p[j] - top) / sum : 1 / (double)c->s;
            dp[j] = 0;
            for (int64_t e = 0; e < c->e; e++) {
                double value = get(v, at4(v, b, j, g, e)), cotangent = get(ct, at4(ct, b, i, h, e));
                x.out[at4(ct, b, i, h, e)] += x.p[j] * value;
                x.dv[at4(v, b, j, g, e)] += x.p[j] * cotangent;
                dp[j] += cotangent * value;
            }
            delta += dp[j] * x.p[j];
        }
        for (int64_t j = 0; j < c->s && any; j++) {
            double dl = x.p[j] * (dp[j] - delta) * scale;
            for (int64_t d = 0; d < c->d; d++) {
                x.dq[at4(q, b, i, h, d)] += dl * get(k, at4(k, b, j, g, d));
                x.dk[at4(k, b, j, g, d)] += dl * get(q, at4(q, b, i, h, d));
            }
        }
    }
    return x;
}

static void compare(const tow__buffer *got, const double *want, double tolerance, const char *what)
{
    int64_t count = count_of(got);
    for (int64_t i = 0; i < count; i++) assert_close(get(got, i), want[i], tolerance, what, i);
}

static void check_attention(const attention_case *c, tow_dtype dtype, layout how, int wrt)
{
    double scale = 0.4, eps = epsilon_of(dtype), tolerance = eps * 64 * (double)(1 + c->t + c->s);
    tow__buffer in[4] = {random_operand(dtype, SHAPE(c->b, c->t, c->h, c->d), how),
                         random_operand(dtype, SHAPE(c->b, c->s, c->g, c->d), how),
                         random_operand(dtype, SHAPE(c->b, c->s, c->g, c->e), how)};
    tow__buffer ct = random_operand(dtype, SHAPE(c->b, c->t, c->h, c->e), how), out[2];
    out[0] = make(dtype, SHAPE(c->b, c->t, c->h, c->e), ROW_MAJOR);
    out[1] = make(dtype, SHAPE(c->b, c->h, c->t), ROW_MAJOR);
    if (c->mask) in[3] = make_mask(c);
    run_kernel(tow__kernel_find("attention", dtype), c->mask ? 4 : 3, in, 2, out,
               &(tow__attention_params){c->causal, scale});
    expected x = expect(c, in, &in[3], &ct, scale);
    compare(&out[0], x.out, tolerance, "out");
    for (int64_t i = 0; i < count_of(&out[1]); i++) {
        if (isnan(x.lse[i]))
            assert_true(get(&out[1], i) <= (dtype == TOW_F32 ? -(double)FLT_MAX : -DBL_MAX));
        else
            assert_close(get(&out[1], i), x.lse[i], tolerance, "lse", i);
    }
    tow__buffer back[7] = {in[0], in[1], in[2], out[0], out[1], ct, ct}, grads[3];
    if (c->mask) back[5] = in[3];
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (wrt >> i & 1) grads[n++] = make(dtype, 4, in[i].dims, ROW_MAJOR);
    run_kernel(tow__kernel_find("attention_vjp", dtype), c->mask ? 7 : 6, back, n, grads,
               &(tow__attention_ad_params){.causal = c->causal, .masked = c->mask != 0, .scale = scale, .wrt = wrt});
    n = 0;
    if (wrt & 1) compare(&grads[n++], x.dq, tolerance, "dq");
    if (wrt & 2) compare(&grads[n++], x.dk, tolerance, "dk");
    if (wrt & 4) compare(&grads[n++], x.dv, tolerance, "dv");
    release_all();
}

static void attention(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int wrt = 1; wrt < 8; wrt++)
                if (wrt == 7 || i < 5) check_attention(&cases[i], floats[(how + wrt) % 2], (layout)how, wrt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_family),
        cmocka_unit_test(infinities_in_softmax),
        cmocka_unit_test(rows_do_not_depend_on_others),
        cmocka_unit_test(rows_do_not_depend_on_layout),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(norms),
        cmocka_unit_test(attention),
    };
    return cmocka_run_group_tests_name("fused kernels", tests, NULL, NULL);
}
