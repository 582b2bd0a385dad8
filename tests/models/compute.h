/* Computes a side. Printed programs contain a copy of this file.
 *
 * Besides bits, a side can be gradients in f64 against central differences.
 *
 * The graph of the loss is that of the f32 model with every f32 read as f64; differences.h says how a difference is
 * judged. */
#ifndef TOW_TESTS_MODELS_COMPUTE_H
#define TOW_TESTS_MODELS_COMPUTE_H

#include "tests/models/side.h"
#include "tests/unit/support/differences.h"

/* A program in f64 and its inputs. */
typedef struct doubles {
    side *s;
    tow_graph *loss, *gradient;
    tow_program *f, *df;
    tow_array *in[MOST], *out[MOST], *value[MOST];
    size_t n_in, n_wrt, wrt[MOST];
} doubles;

/* Every `from` by `to`, which is as long. */
static void replace_all(char *text, const char *from, const char *to)
{
    for (char *at = text; (at = strstr(at, from)) != NULL; at += strlen(to)) memcpy(at, to, strlen(to));
}

/* A policy that is a function has no textual form; what a policy says changes no derivative. */
static bool as_doubles(side *s, const tow_graph *graph, tow_graph **f64)
{
    size_t length = tow_graph_text(graph, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL) abort();
    tow_graph_text(graph, text, length + 1);
    replace_all(text, "f32", "f64");
    replace_all(text, "\"custom\"", "\"dots\"  ");
    tow_status status = tow_graph_parse(s->ctx, text, f64);
    free(text);
    return status == TOW_OK;
}

static bool double_inputs(doubles *d)
{
    d->n_in = tow_graph_input_count(d->loss);
    for (size_t i = 0; i < d->n_in; i++) {
        tow_type type = tow_graph_input_type(d->loss, i);
        if (type.dtype != TOW_F64) {
            d->in[i] = tow_array_retain(d->s->in[i]);
            continue;
        }
        TRY(tow_array_create(d->s->ctx, type, &d->in[i]));
        const tow_dtype from = tow_array_type(d->s->in[i]).dtype;
        for (int64_t k = 0; k < tow_type_element_count(type); k++)
            ((double *)tow_array_data(d->in[i]))[k] = get_element(from, tow_array_data(d->s->in[i]), k);
        if (tow_type_element_count(type) > 0) d->wrt[d->n_wrt++] = i;
    }
    return true;
}

static bool begin_doubles(doubles *d, const tow_module *model, const problem *p)
{
    if (!trace_loss(d->s, model, p, true) || !as_doubles(d->s, d->s->loss, &d->loss) || !double_inputs(d)) return false;
    TRY(tow_grad(d->loss, d->n_wrt, d->wrt, false, &d->gradient));
    TRY(tow_compile(d->s->ctx, d->loss, NULL, &d->f));
    TRY(tow_compile(d->s->ctx, d->gradient, NULL, &d->df));
    TRY(tow_array_create(d->s->ctx, tow_graph_output_type(d->loss, 0), &d->value[0]));
    for (size_t i = 0; i < d->n_wrt; i++)
        TRY(tow_array_create(d->s->ctx, tow_graph_output_type(d->gradient, i), &d->out[i]));
    TRY(tow_program_run(d->df, d->in, d->out));
    return true;
}

static void end_doubles(doubles *d)
{
    for (size_t i = 0; i < MOST; i++) {
        tow_array_release(d->in[i]), tow_array_release(d->out[i]), tow_array_release(d->value[i]);
    }
    tow_program_free(d->f);
    tow_program_free(d->df);
    tow_graph_release(d->loss);
    tow_graph_release(d->gradient);
}

/* f at x + h v, v = noise of `try` in input wrt[j]. x is put back. */
static double at_distance(doubles *d, size_t j, uint32_t try, double h)
{
    tow_array *a = d->in[d->wrt[j]];
    int64_t count = tow_type_element_count(tow_array_type(a));
    double *x = tow_array_data(a), *kept = malloc((size_t)count * sizeof *kept);
    if (kept == NULL) abort();
    memcpy(kept, x, (size_t)count * sizeof *kept);
    for (int64_t k = 0; k < count; k++) x[k] += h * noise(try, "direction", k);
    double f = tow_program_run(d->f, d->in, d->value) == TOW_OK ? *(double *)tow_array_data(d->value[0]) : NAN;
    memcpy(x, kept, (size_t)count * sizeof *kept);
    free(kept);
    return f;
}

/* Input j of d moved along the direction that `try` says. */
typedef struct moved {
    doubles *d;
    size_t j;
    uint32_t try;
} moved;

static double value_at(void *user, double h)
{
    const moved *m = user;
    return at_distance(m->d, m->j, m->try, h);
}

static finding compare_direction(doubles *d, size_t j, uint32_t try, double h, double *found, double *expected)
{
    const double *g = tow_array_data(d->out[j]);
    moved m = {d, j, try};
    double size = 0;
    *found = 0;
    for (int64_t k = 0; k < tow_type_element_count(tow_array_type(d->out[j])); k++) {
        *found += g[k] * noise(try, "direction", k);
        size += g[k] * g[k];
    }
    return compare_derivative(&(ray){value_at, &m}, h, *found, sqrt(size), expected);
}

/* Wrong only if several directions and steps say so, and none agrees: a kink between the points is rarely twice
 * there. */
static finding compare_input(doubles *d, size_t j, char *text, size_t size)
{
    const double steps[] = {1e-4, 1e-5, 1e-6};
    int wrong = 0;
    double found, expected;
    for (uint32_t try = 1; try <= 3; try++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            finding f = compare_direction(d, j, try, steps[i], &found, &expected);
            if (f == AGREES) return AGREES;
            if (f == UNDECIDED_BY_DIFFERENCES) continue;
            const char *name = tow_graph_input_name(d->loss, d->wrt[j]);
            snprintf(text, size, "derivative with respect to input %zu (%s) in f64: %.10g, by differences %.10g",
                     d->wrt[j], name ? name : "", found, expected);
            wrong++;
        }
    return wrong >= 3 ? WRONG : UNDECIDED_BY_DIFFERENCES;
}

/* The error of r says which derivative is wrong. */
static bool check_differences(side *s, const tow_module *model, const problem *p, results *r)
{
    doubles d = {.s = s};
    bool good = begin_doubles(&d, model, p);
    for (size_t j = 0; j < d.n_wrt && good; j++) {
        finding f = compare_input(&d, j, r->error, sizeof r->error);
        good = f != WRONG;
        r->undecided += f == UNDECIDED_BY_DIFFERENCES;
    }
    if (good) r->error[0] = '\0';
    end_doubles(&d);
    return good;
}

/* Computes and ends a side. */
static inline results compute(side *s, const tow_module *model, const problem *p)
{
    results r = {0};
    bool good = s->how.differences ? check_differences(s, model, p, &r)
                : s->how.train     ? training(s, model, p, &r)
                : s->how.function  ? by_function(s, model, p, &r)
                                   : gradients(s, model, p, &r);
    if (!good && !r.error[0]) {
        free_results(&r);
        snprintf(r.error, sizeof r.error, "%s", tow_context_error(s->ctx));
        if (!r.error[0]) snprintf(r.error, sizeof r.error, "failed without a message");
    }
    end_side(s);
    return r;
}

#endif
