/* Fits the rates of a predator and its prey to 21 years of measurements, through 10,000 steps of an integrator. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

typedef struct options {
    int64_t steps;
    double rate;
    nesting regions;
    bool compare;
    const char *picture;
} options;

static const char *const nesting_names[] = {"none", "years", "nested"};

/* ---- options ------------------------------------------------------------------------------------------------------ */

const char *argp_program_version = "ode (Tow) " TOW_VERSION;

static const struct argp_option described[] = {
    {"steps", 's', "N", 0, "Updates of the parameters (400)", 0},
    {"learning-rate", 'l', "RATE", 0, "Of Adam, at first; it falls to 0 by half a cosine (0.1)", 0},
    {"regions", 'r', "HOW", 0, "Regions of recomputation: none, years or nested (nested)", 0},
    {"compare", 'c', NULL, 0, "Print the bytes that each of these needs, and whether the gradients are equal, and end", 0},
    {"picture", 'p', "FILE", 0, "Draw measurements and trajectories as SVG", 0},
    {0}};

static error_t parse(int key, char *text, struct argp_state *state)
{
    options *o = state->input;
    char *end = NULL;
    switch (key) {
    case 's':
        o->steps = strtoll(text, &end, 10);
        if (*text == 0 || *end != 0 || o->steps < 0 || o->steps > 1000000) argp_error(state, "--steps %s: expected a number from 0 to 1000000", text);
        return 0;
    case 'l':
        o->rate = strtod(text, &end);
        if (*text == 0 || *end != 0 || !(o->rate > 0 && o->rate <= 10)) argp_error(state, "--learning-rate %s: expected a number above 0, at most 10", text);
        return 0;
    case 'r':
        for (int i = 0; i < NESTINGS; i++)
            if (strcmp(text, nesting_names[i]) == 0) {
                o->regions = (nesting)i;
                return 0;
            }
        argp_error(state, "--regions %s: expected none, years or nested", text);
        return 0;
    case 'c': o->compare = true; return 0;
    case 'p': o->picture = text; return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected argument '%s'", text); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the pieces --------------------------------------------------------------------------------------------------- */

static tow_array *make(tow_context *context, tow_type type, const double *numbers)
{
    tow_array *array = NULL;
    if (tow_array_create(context, type, &array) != TOW_OK) return NULL;
    if (numbers) memcpy(tow_array_data(array), numbers, tow_type_bytes(type));
    return array;
}

static tow_type theta_type(void) { return tow_make_type(TOW_F64, 1, (const int64_t[]){PARAMETERS}); }
static tow_type years_type(void) { return tow_make_type(TOW_F64, 2, (const int64_t[]){YEARS + 1, 2}); }

/* The loss and its gradient with respect to the parameters, compiled. */
static tow_status compile(tow_context *context, nesting regions, tow_program **program)
{
    tow_graph *loss = NULL, *gradient = NULL;
    static const char *const names[] = {"theta", "measured"};
    tow_status status = tow_trace_function(context, ode_loss, &regions, 2, (tow_type[]){theta_type(), years_type()},
                                           names, 1, &loss);
    if (!status) status = tow_value_and_grad(loss, 1, (const size_t[]){0}, false, &gradient);
    if (!status) status = tow_compile(context, gradient, NULL, program);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return status;
}

/* What all of it works on: parameters, measured logarithms, the loss and its gradient. */
typedef struct arrays {
    tow_array *theta, *measured, *loss, *gradient;
} arrays;

static bool make_arrays(tow_context *context, arrays *a)
{
    double logarithms[2 * (YEARS + 1)];
    for (int i = 0; i <= YEARS; i++) {
        logarithms[2 * i] = log(hares[i]);
        logarithms[2 * i + 1] = log(lynxes[i]);
    }
    const double guess[PARAMETERS] = {log(0.4), log(1.0), log(0.02), log(0.03), logarithms[0], logarithms[1]};
    a->theta = make(context, theta_type(), guess);
    a->measured = make(context, years_type(), logarithms);
    a->loss = make(context, tow_make_type(TOW_F64, 0, NULL), NULL);
    a->gradient = make(context, theta_type(), NULL);
    return a->theta && a->measured && a->loss && a->gradient;
}

static void release_arrays(arrays *a)
{
    tow_array_release(a->theta);
    tow_array_release(a->measured);
    tow_array_release(a->loss);
    tow_array_release(a->gradient);
}

static tow_status run(tow_program *program, const arrays *a)
{
    return tow_program_run(program, (tow_array *[]){a->theta, a->measured}, (tow_array *[]){a->loss, a->gradient});
}

/* ---- --compare ---------------------------------------------------------------------------------------------------- */

static tow_status compare(tow_context *context, const arrays *a)
{
    double first[PARAMETERS];
    tow_status status = TOW_OK;
    printf("%-8s %10s  %s\n", "regions", "arena", "gradient");
    for (int i = 0; i < NESTINGS && !status; i++) {
        tow_program *program = NULL;
        status = compile(context, (nesting)i, &program);
        if (!status) status = run(program, a);
        if (!status) {
            const double *gradient = tow_array_data(a->gradient);
            if (i == 0) memcpy(first, gradient, sizeof first);
            printf("%-8s %10zu  %s\n", nesting_names[i], tow_program_get_bytes(program).arena,
                   memcmp(first, gradient, sizeof first) == 0 ? "the same bits" : "OTHER BITS");
        }
        tow_program_free(program);
    }
    return status;
}

/* ---- fitting ------------------------------------------------------------------------------------------------------ */

static void show(const options *o, int64_t step, double loss)
{
    static const char *const format = "step %4lld/%lld  loss %.6f";
    bool terminal = isatty(STDERR_FILENO), last = step == o->steps;
    if (!terminal && !last && step % 50 != 0) return;
    fprintf(stderr, terminal ? "\r" : "");
    fprintf(stderr, format, (long long)step, (long long)o->steps, loss);
    fprintf(stderr, terminal && !last ? "\033[K" : "\n");
}

static tow_status fit(tow_context *context, const options *o, const arrays *a)
{
    tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
    tow_scale_by_learning_rate rate =
        TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_cosine(o->rate, o->steps, 0, 1));
    tow_chain optimizer = TOW_CHAIN(TOW_TRANSFORM(&adam), TOW_TRANSFORM(&rate));
    tow_program *program = NULL;
    tow_params *params = NULL;
    tow_optimizer_state *state = NULL;
    tow_status status = compile(context, o->regions, &program);
    if (!status) status = tow_params_from_arrays(context, 1, (const char *const[]){"theta"}, &a->theta, &params);
    if (!status) status = tow_optimizer_create(context, TOW_TRANSFORM(&optimizer), params, NULL, &state);
    for (int64_t step = 0; step <= o->steps && !status; step++) {
        status = run(program, a);
        if (!status) show(o, step, *(const double *)tow_array_data(a->loss));
        if (!status && step < o->steps) status = tow_optimizer_update(state, &a->gradient);
    }
    tow_optimizer_free(state);
    tow_params_free(params);
    tow_program_free(program);
    return status;
}

static void print_rates(const double *theta)
{
    static const char *const names[PARAMETERS] = {"hares born a year", "lynxes that die", "hares eaten, for each lynx",
                                                  "lynxes born, for each hare", "hares in 1900", "lynxes in 1900"};
    for (int i = 0; i < PARAMETERS; i++) printf("%-26s %8.4f\n", names[i], exp(theta[i]));
}

int main(int argc, char **argv)
{
    options o = {.steps = 400, .rate = 0.1, .regions = NESTED};
    const struct argp parser = {described, parse, NULL, "Fits Lotka and Volterra's equations to 21 years of hares and lynxes, "
                                "through 10,000 Runge-Kutta steps.", NULL, NULL, NULL};
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    tow_context *context = NULL;
    arrays a = {0};
    tow_status status = tow_context_create(NULL, &context);
    if (!status && !make_arrays(context, &a)) status = TOW_OUT_OF_MEMORY;
    if (!status) status = o.compare ? compare(context, &a) : fit(context, &o, &a);
    if (!status && !o.compare) print_rates(tow_array_data(a.theta));
    if (status) fprintf(stderr, "ode: %s\n", tow_context_error(context));
    release_arrays(&a);
    tow_context_destroy(context);
    return status ? 1 : 0;
}
