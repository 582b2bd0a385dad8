/* Fits the rates of a predator and its prey to 21 years of measurements, through 10,000 steps of an integrator. It
 * prints the rates, and draws measurements and fit. `ode --help` lists the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"
#include "common/options.h"
#include "common/progress.h"
#include "model.h"

typedef struct fitting {
    common_options options;
    const char *regions_name;
    nesting regions;
    bool compare;
} fitting;

static const char *const nesting_names[] = {"none", "years", "nested", "slots"};

/* False, with a message, if there is no such nesting. */
static bool read_options(int argc, char **argv, fitting *f)
{
    *f = (fitting){.options = {.steps = 400, .learning_rate = 0.1, .out = "out/ode"}, .regions_name = "nested"};
    const example_option table[] = {COMMON_OPTIONS_BUT_SEED(&f->options),
                                    {"regions", "HOW", "What is made again: none, years, nested or slots", OPTION_TEXT,
                                     (void *)&f->regions_name, 0, 0},
                                    {"compare", NULL,
                                     "Print the bytes that each of these needs, and whether the gradients are equal",
                                     OPTION_FLAG, &f->compare, 0, 0},
                                    {0}};
    read_command_line(
        argc, argv, "ode",
        "Fits Lotka and Volterra's equations to 21 years of hares and lynxes, through 10,000 Runge-Kutta steps.",
        table);
    for (int i = 0; i < NESTINGS; i++)
        if (strcmp(f->regions_name, nesting_names[i]) == 0) {
            f->regions = (nesting)i;
            return true;
        }
    fprintf(stderr, "ode: --regions: expected none, years, nested or slots, found '%s'\n", f->regions_name);
    return false;
}

/* ---- the pieces -------------------------------------------------------------------------------------------------- */

/* An array of these numbers; NULL: not yet any. */
static tow_status make(tow_context *context, tow_type type, const double *numbers, tow_array **array)
{
    tow_status status = tow_array_create(context, type, array);
    if (!status && numbers) memcpy(tow_array_data(*array), numbers, tow_type_bytes(type));
    return status;
}

static tow_type theta_type(void) { return tow_make_type(TOW_F64, 1, (const int64_t[]){PARAMETERS}); }
static tow_type years_type(void) { return tow_make_type(TOW_F64, 2, (const int64_t[]){YEARS + 1, 2}); }

/* The loss and its gradient with respect to the parameters, compiled. */
static tow_status compile(tow_context *context, nesting regions, tow_program **program)
{
    tow_graph *loss = NULL, *gradient = NULL;
    static const char *const names[] = {"theta", "measured"};
    tow_status status =
        tow_trace_function(context, ode_loss, &regions, 2, (tow_type[]){theta_type(), years_type()}, names, 1, &loss);
    if (!status) status = tow_value_and_grad(loss, 1, (const size_t[]){0}, false, &gradient);
    if (!status) status = tow_compile(context, gradient, NULL, program);
    tow_graph_release(gradient);
    tow_graph_release(loss);
    return status;
}

/* The arrays of the program: parameters, measured logarithms, the loss and its gradient. */
typedef struct arrays {
    tow_array *theta, *measured, *loss, *gradient;
} arrays;

static tow_status make_arrays(tow_context *context, arrays *a)
{
    double logarithms[2 * (YEARS + 1)];
    for (int i = 0; i <= YEARS; i++) {
        logarithms[2 * i] = log(hares[i]);
        logarithms[2 * i + 1] = log(lynxes[i]);
    }
    const double guess[PARAMETERS] = {log(0.4), log(1.0), log(0.02), log(0.03), logarithms[0], logarithms[1]};
    tow_status status = make(context, theta_type(), guess, &a->theta);
    if (!status) status = make(context, years_type(), logarithms, &a->measured);
    if (!status) status = make(context, tow_make_type(TOW_F64, 0, NULL), NULL, &a->loss);
    return status ? status : make(context, theta_type(), NULL, &a->gradient);
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

/* ---- --compare --------------------------------------------------------------------------------------------------- */

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

/* ---- fitting ----------------------------------------------------------------------------------------------------- */

/* Updates the parameters; the loss that is shown is that of the parameters before each update. */
static tow_status descend(const fitting *f, const arrays *a, tow_program *program, tow_optimizer_state *state,
                          progress *p, bool *failed)
{
    const common_options *o = &f->options;
    tow_status status = TOW_OK;
    for (int64_t step = 1; step <= o->steps && !status && !*failed && !interrupted(); step++) {
        status = run(program, a);
        if (!status) status = tow_optimizer_update(state, &a->gradient);
        if (!status) *failed = !progress_step(p, step, *(const double *)tow_array_data(a->loss), NAN);
    }
    return status;
}

static tow_status fit(tow_context *context, const fitting *f, const arrays *a, bool *failed)
{
    const common_options *o = &f->options;
    tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
    tow_scale_by_learning_rate rate =
        TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_cosine(o->learning_rate, o->steps, 0, 1));
    tow_chain optimizer = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&adam), TOW_GRADIENT_TRANSFORM(&rate));
    const progress_options shown = {
        .program = "ode", .steps = o->steps, .unit = "fits", .units_per_step = 1, .log = o->log};
    progress p;
    tow_program *program = NULL;
    tow_params *params = NULL;
    tow_optimizer_state *state = NULL;
    tow_status status = compile(context, f->regions, &program);
    if (!status) status = tow_params_from_arrays(context, 1, (const char *const[]){"theta"}, &a->theta, &params);
    if (!status) status = tow_optimizer_create(context, TOW_GRADIENT_TRANSFORM(&optimizer), params, NULL, &state);
    if (!status && !progress_start(&p, &shown)) {
        *failed = true;
    } else if (!status) {
        status = descend(f, a, program, state, &p, failed);
        *failed |= !progress_end(&p);
        const int64_t done = tow_optimizer_step_count(state);
        if (!status && !*failed && interrupted()) printf("stopped after step %lld\n", (long long)done);
    }
    if (!status) status = run(program, a); /* the loss of what is left */
    tow_optimizer_free(state);
    tow_params_free(params);
    tow_program_free(program);
    return status;
}

static void print_rates(const double *theta)
{
    static const char *const names[PARAMETERS] = {
        "hares born a year",          "lynxes that die", "hares eaten, for each lynx",
        "lynxes born, for each hare", "hares in 1900",   "lynxes in 1900"};
    for (int i = 0; i < PARAMETERS; i++) printf("%-26s %8.4f\n", names[i], exp(theta[i]));
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

/* Points of the fitted trajectories of hares (species 0) and lynxes, and of what was measured. */
static void take_points(const tow_array *trajectory, int species, double years[], double fitted[])
{
    const double *logarithms = tow_array_data(trajectory);
    for (int i = 0; i < POINTS; i++) {
        years[i] = FIRST_YEAR + (double)i * YEARS / POINTS;
        fitted[i] = exp(logarithms[2 * i + species]);
    }
}

static tow_status draw(tow_context *context, const arrays *a, const char *path)
{
    static double years[POINTS], fitted[2][POINTS], measured_years[YEARS + 1];
    const tow_type type = theta_type();
    tow_graph *graph = NULL;
    tow_array *trajectory = NULL;
    tow_status status = tow_trace_function(context, ode_trajectory, NULL, 1, &type, NULL, 1, &graph);
    if (!status) status = tow_evaluate(graph, (tow_array *[]){a->theta}, &trajectory);
    if (!status) {
        for (int species = 0; species < 2; species++) take_points(trajectory, species, years, fitted[species]);
        for (int i = 0; i <= YEARS; i++) measured_years[i] = FIRST_YEAR + i;
        const tow_series series[] = {{"hares, fitted", POINTS, years, fitted[0]},
                                     {"lynxes, fitted", POINTS, years, fitted[1]},
                                     {"hares, measured", YEARS + 1, measured_years, hares},
                                     {"lynxes, measured", YEARS + 1, measured_years, lynxes}};
        status = tow_chart_write(context, path,
                                 &TOW_CHART(.title = "Hares and lynxes", .x_label = "year",
                                            .y_label = "thousands of pelts", .n_series = 4, .series = series));
    }
    tow_array_release(trajectory);
    tow_graph_release(graph);
    return status;
}

/* ---- main -------------------------------------------------------------------------------------------------------- */

/* The fit, what it found, and the picture. *failed: an error that was printed already. */
static tow_status fit_and_show(tow_context *context, const fitting *f, const arrays *a, bool *failed)
{
    char *path = path_in("ode", f->options.out, "fit.svg");
    *failed = !path || !make_directory("ode", f->options.out);
    tow_status status = *failed ? TOW_OK : fit(context, f, a, failed);
    if (!*failed && !status) {
        printf("%-26s %9.6f\n", "loss", *(const double *)tow_array_data(a->loss));
        print_rates(tow_array_data(a->theta));
        status = draw(context, a, path);
    }
    free(path);
    return status;
}

int main(int argc, char **argv)
{
    fitting f;
    if (!read_options(argc, argv, &f)) return BAD_OPTION;
    tow_context *context = NULL;
    arrays a = {0};
    bool failed = false;
    catch_interrupts();
    tow_status status = tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = (int)f.options.threads), &context);
    if (!status) status = make_arrays(context, &a);
    if (!status) status = f.compare ? compare(context, &a) : fit_and_show(context, &f, &a, &failed);
    if (status) report_error("ode", context);
    const int result = finish_output("ode", status || failed ? FAILURE : SUCCESS);
    release_arrays(&a);
    tow_context_free(context);
    return result == SUCCESS && interrupted() ? INTERRUPTED : result;
}
