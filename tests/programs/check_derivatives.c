/* Gradients against central differences, and reverse mode against forward mode, both in f64: a program of f32 is read
 * with every f32 as f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/programs/programs.h"
#include "tests/unit/support/differences.h"
#include "tests/unit/support/elements.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* <a, b> over floats, and the sum of the sizes of its terms. */
static double product(const tow_array *a, const tow_array *b, double *size)
{
    double sum = 0;
    for (int64_t i = 0; i < tow_type_element_count(tow_array_type(a)); i++) {
        const double term = array_element(a, i) * array_element(b, i);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double norm(const tow_array *a)
{
    double size = 0;
    product(a, a, &size);
    return sqrt(size);
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* Input j moved along a direction. */
typedef struct moved {
    tow_program *f;
    arrays *in;
    size_t j;
    tow_array *value, **out; /* [outputs] */
    const tow_array *direction;
} moved;

static double value_at(void *user, double h)
{
    moved *m = user;
    tow_array *x = m->in->list[m->j], *kept = m->value;
    double *data = tow_array_data(x);
    const int64_t count = tow_type_element_count(tow_array_type(x));
    double *before = malloc((size_t)count * sizeof *before + 1);
    if (before == NULL) abort();
    memcpy(before, data, (size_t)count * sizeof *before);
    for (int64_t k = 0; k < count; k++) data[k] += h * array_element(m->direction, k);
    const bool good = tow_program_run(m->f, m->in->list, m->out) == TOW_OK;
    memcpy(data, before, (size_t)count * sizeof *before);
    free(before);
    return good ? array_element(kept, 0) : NAN;
}

/* Functions whose derivative is not the one of their values. */
static bool has_no_differences(const tow_graph *g)
{
    return mentions(g, "stop_gradient") || mentions(g, "reduce_precision");
}

/* Wrong only if several directions and steps say so, and none agrees: a kink between the points is rarely twice there.
 * If the gradient is 1e6 and more (a chaotic loop), the least step takes values of moderate size from one end to the
 * other. */
static verdict compare_input(trial *t, moved *m, const tow_array *gradient)
{
    const double steps[] = {1e-4, 1e-5, 1e-6};
    int wrong = 0;
    double expected = 0, found = 0;
    choices c = choices_of(t, 5 + (uint32_t)m->j);
    tow_array *direction = NULL;
    if (tow_array_create(t->plain, tow_array_type(gradient), &direction) != TOW_OK) abort();
    m->direction = direction;
    verdict v = UNDECIDED;
    for (int try = 0; try < 3 && norm(gradient) < 1e6 && v == UNDECIDED; try++) {
        double size = 0;
        fill(direction, &c);
        found = product(gradient, direction, &size);
        for (size_t i = 0; i < sizeof steps / sizeof *steps && v == UNDECIDED; i++) {
            const finding f = compare_derivative(&(ray){value_at, m}, steps[i], found, norm(gradient), &expected);
            if (f == AGREES) v = PASSES;
            wrong += f == WRONG;
        }
    }
    tow_array_release(direction);
    if (v == UNDECIDED && wrong >= 3)
        v = fail(t, "derivative with respect to input %zu: %.12g, by differences %.12g", m->j, found, expected);
    return v;
}

/* in: of g; gradients: value, others, then those of float inputs */
static verdict compare_gradient(trial *t, const tow_graph *g, arrays *in, const arrays *gradients)
{
    tow_program *f = NULL;
    moved m = {.in = in, .out = calloc(tow_graph_output_count(g) + 1, sizeof *m.out)};
    size_t next = tow_graph_output_count(g);
    verdict v = UNDECIDED;
    if (m.out == NULL) abort();
    if (tow_compile(t->plain, g, &TOW_COMPILE_OPTIONS(.threads = 1), &f) != TOW_OK)
        v = fail(t, "value: %s", tow_context_error(t->plain));
    for (size_t i = 0; i < tow_graph_output_count(g); i++)
        if (tow_array_create(t->plain, tow_graph_output_type(g, i), &m.out[i]) != TOW_OK) abort();
    m.f = f;
    m.value = m.out[0];
    for (m.j = 0; m.j < in->n && v != FAILS; m.j++) {
        if (!tow_dtype_is_float(tow_array_type(in->list[m.j]).dtype)) continue;
        const tow_array *gradient = gradients->list[next++];
        if (tow_type_element_count(tow_array_type(gradient)) == 0) continue;
        const verdict one = compare_input(t, &m, gradient);
        if (one != UNDECIDED) v = one;
    }
    for (size_t i = 0; i < tow_graph_output_count(g); i++) tow_array_release(m.out[i]);
    free(m.out);
    tow_program_free(f);
    return v;
}

verdict check_differences(trial *t)
{
    tow_graph *g = has_no_differences(t->graph) ? NULL : read_as_doubles(t->plain, t->graph), *gradient = NULL;
    arrays in = {0}, out = {0};
    verdict v = UNDECIDED;
    if (!g) return v;
    in = inputs_of(g, t->seed);
    if (!(gradient = gradient_of(g)) || !run(gradient, &(how){.threads = 1}, &in, &out))
        v = fail(t, "gradient in f64: %s", tow_context_error(t->plain));
    else if (all_finite(&out))
        v = compare_gradient(t, g, &in, &out);
    release(&in);
    release(&out);
    tow_graph_release(gradient);
    tow_graph_release(g);
    return v;
}

/* ---- <ct, J v> = <J' ct, v> -------------------------------------------------------------------------------------- */

/* Both lists, one after the other. */
static arrays joined(const arrays *a, size_t from, const arrays *b)
{
    arrays all = {.n = a->n - from + b->n};
    if ((all.list = calloc(all.n + 1, sizeof *all.list)) == NULL) abort();
    for (size_t i = 0; i < all.n; i++)
        all.list[i] = tow_array_retain(i < a->n - from ? a->list[from + i] : b->list[i - (a->n - from)]);
    return all;
}

/* New numbers of the types of the floats among `like`. */
static arrays vectors_like(trial *t, const arrays *like, choices *c)
{
    arrays all = {.list = calloc(like->n + 1, sizeof *all.list)};
    if (all.list == NULL) abort();
    for (size_t i = 0; i < like->n; i++) {
        const tow_type type = tow_array_type(like->list[i]);
        if (!tow_dtype_is_float(type.dtype)) continue;
        if (tow_array_create(t->plain, type, &all.list[all.n]) != TOW_OK) abort();
        fill(all.list[all.n++], c);
    }
    return all;
}

/* Sums over floats of y[first..] with v; the others are skipped. */
static double inner(const arrays *y, size_t first, const arrays *v, double *size)
{
    double sum = 0;
    for (size_t i = 0; i < v->n; i++) sum += product(y->list[first + i], v->list[i], size);
    return sum;
}

static void stretch(arrays *x, double factor)
{
    for (size_t i = 0; i < x->n; i++)
        for (int64_t k = 0; k < tow_type_element_count(tow_array_type(x->list[i])); k++)
            if (tow_dtype_is_float(tow_array_type(x->list[i]).dtype))
                set_array_element(x->list[i], k, array_element(x->list[i], k) * factor);
}

/* A bound of what rounding does to <ct, J v>: the same, again and again with inputs that differ by a few units in their
 * last places. */
static double noise_of(const tow_graph *jvp, size_t n_y, arrays *both, const arrays *ct, double expected)
{
    double noise = 0, size = 0;
    for (int i = 0; i < 5; i++) {
        arrays y = {0};
        stretch(both, 1 + 0x1p-48);
        if (!run(jvp, &(how){.threads = 1}, both, &y)) return INFINITY;
        noise = fmax(noise, fabs(inner(&y, n_y, ct, &size) - expected));
        release(&y);
    }
    return noise;
}

/* Both sides in f64. Their terms are the same products of numbers in two orders, whose rounding, 2^-53 per operation,
 * 1e-8 of the sum of the sizes of the terms has ample room for. Cancellation inside of J can enlarge it without a bound
 * (a chaotic loop): then what rounding does is measured. */
static verdict compare_modes(trial *t, const tow_graph *g, const tow_graph *jvp, const tow_graph *forward,
                             const tow_graph *backward)
{
    choices c = choices_of(t, 6);
    const how h = {.threads = 1};
    const size_t n_y = tow_graph_output_count(g);
    arrays x = inputs_of(g, t->seed), dx = vectors_like(t, &x, &c), both = joined(&x, 0, &dx);
    arrays y = {0}, residuals = {0}, ct = {0}, given = {0}, dct = {0};
    double size = 0;
    verdict v = UNDECIDED;
    if (!run(jvp, &h, &both, &y) || !run(forward, &h, &x, &residuals))
        v = fail(t, "modes: %s", tow_context_error(t->plain));
    if (v == UNDECIDED) {
        arrays values = {n_y, y.list};
        ct = vectors_like(t, &values, &c);
        given = joined(&residuals, n_y, &ct);
        if (!run(backward, &h, &given, &dct)) v = fail(t, "backward: %s", tow_context_error(t->plain));
    }
    if (v == UNDECIDED && all_finite(&y) && all_finite(&dct)) {
        const double a = inner(&y, n_y, &ct, &size), b = inner(&dct, 0, &dx, &size), error = fabs(a - b);
        if (error <= 1e-8 * (size + 1e-3))
            v = PASSES;
        else if (!(error <= 1000 * noise_of(jvp, n_y, &both, &ct, a)))
            v = fail(t, "<ct, J v> = %.12g, <J' ct, v> = %.12g", a, b);
    }
    release(&x), release(&dx), release(&both), release(&y);
    release(&residuals), release(&ct), release(&given), release(&dct);
    return v;
}

/* Not of custom_vjp, which has no forward mode, and of reduce_precision, which rounds tangents. */
verdict check_transposes(trial *t)
{
    tow_graph *g = mentions(t->graph, "custom_vjp") || mentions(t->graph, "reduce_precision")
                       ? NULL
                       : read_as_doubles(t->plain, t->graph);
    tow_graph *jvp = NULL, *forward = NULL, *backward = NULL;
    verdict v = UNDECIDED;
    if (!g) return v;
    if (tow_jvp(g, 0, NULL, &jvp) != TOW_OK || tow_vjp(g, 0, NULL, &forward, &backward) != TOW_OK)
        v = fail(t, "modes: %s", tow_context_error(t->plain));
    else
        v = compare_modes(t, g, jvp, forward, backward);
    tow_graph_release(jvp);
    tow_graph_release(forward);
    tow_graph_release(backward);
    tow_graph_release(g);
    return v;
}
