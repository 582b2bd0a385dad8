/* Parameters and gradients that are not finite, by the names of their layers, and the sentences that say so. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/arithmetic.h"
#include "src/group/agreement.h"
#include "src/train/not_finite.h"
#include "tow/program.h"

/* ---- layers of a list -------------------------------------------------------------------------------------------- */

/* Of which layer is computed first: below 0: that of path a; 0: the paths do not say. Both have numbers for their
 * layers, and in the components in front of the first difference. */
static int compare_layers(const char *a, const char *b)
{
    for (;;) {
        const size_t n = strcspn(a, "/"), m = strcspn(b, "/");
        if (n != m || memcmp(a, b, n) != 0) {
            if (n == 0 || m == 0 || strspn(a, "0123456789") != n || strspn(b, "0123456789") != m) return 0;
            const long long layer_a = strtoll(a, NULL, 10), layer_b = strtoll(b, NULL, 10);
            return layer_a < layer_b ? -1 : layer_a > layer_b;
        }
        if (!a[n] || !b[m]) return 0;
        a += n + 1;
        b += m + 1;
    }
}

/* Notes one layer of the array, in which axes of layers are in front: that with the first element that is not finite,
 * or with the last one. */
static tow_status note_front(tow_context *ctx, const char *name, tow_array *array, bool last, tow_not_finite *found)
{
    const tow__not_finite_counts c = tow__count_not_finite(array);
    const tow_type type = tow_array_type(array);
    const int levels = tow__path_levels(name) <= type.rank ? tow__path_levels(name) : 0;
    int64_t index[TOW_MAX_RANK] = {0}, row = last ? c.last : c.first;
    for (int i = type.rank - 1; i >= 0; i--) {
        index[i] = row % type.dims[i];
        row /= type.dims[i];
    }
    tow_array *layer = NULL;
    tow__string path;
    tow__string_init(&path, ctx);
    tow__params_add_layer_path(&path, name, index);
    tow_status status = path.failed ? TOW_OUT_OF_MEMORY : tow__array_layer(ctx, array, levels, index, &layer);
    if (status == TOW_OK) {
        tow__note_not_finite(found, layer);
        snprintf(found->path, sizeof found->path, "%s", path.text ? path.text : "");
    }
    tow_array_release(layer);
    tow__string_free(&path);
    return status;
}

static tow_status note_layer(tow_context *ctx, const char *name, tow_array *array, bool last, tow_not_finite *found)
{
    tow_array *front;
    tow_status status = tow__array_in_front(ctx, name ? name : "", array, &front);
    if (status == TOW_OK) status = note_front(ctx, name ? name : "", front, last, found);
    tow_array_release(front);
    return status;
}

/* The array that is not finite of the layer that comes first, or with `last`, last. names: entries may be NULL. */
static tow_status search_list(tow_context *ctx, size_t n, const char *const *names, tow_array *const *arrays, bool last,
                              tow_not_finite *found)
{
    tow_status status = TOW_OK;
    *found = (tow_not_finite){.input = -1};
    for (size_t i = 0; i < n && status == TOW_OK; i++) {
        const tow__not_finite_counts c = tow__count_not_finite(arrays[i]);
        if (c.nans + c.infinities == 0) continue;
        tow_not_finite one = {.input = (int64_t)i};
        status = note_layer(ctx, names[i], arrays[i], last, &one);
        const int order = found->found ? compare_layers(one.path, found->path) : -1;
        if (!found->found || (last ? order >= 0 : order < 0)) *found = one;
    }
    return status;
}

tow_status tow__find_not_finite_input(const tow_graph *g, tow_array *const *inputs, tow_not_finite *found)
{
    return search_list(g->ctx, g->n_inputs, g->input_names, inputs, false, found);
}

/* Of gradients of the parameters `params`, the one in whose layer the backward pass comes first. */
static tow_status find_gradient(const tow_params *params, tow_array *const *gradients, tow_not_finite *found)
{
    tow_status status =
        search_list(params->ctx, params->names.count, (const char *const *)params->names.names, gradients, true, found);
    found->gradient = found->found;
    return status;
}

tow_status tow_find_not_finite_gradient(const tow_params *gradients, tow_not_finite *found)
{
    if (!gradients || !found)
        return tow__missing(gradients ? gradients->ctx : NULL, __func__, "gradients and a place for the result");
    TOW__ARITHMETIC(true);
    return find_gradient(gradients, gradients->arrays, found);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

size_t tow_not_finite_text(const tow_not_finite *x, char *text, size_t size)
{
    const char *what = x->nans > 0 ? "NaN" : "infinity";
    char element[400], outside[100];
    tow__outside_text(x, outside, sizeof outside);
    if (!x->found) return (size_t)snprintf(text, size, "every value is finite");
    snprintf(element, sizeof element, "%s%s, %" PRId64 " of %" PRId64 " elements, the first at %" PRId64, outside,
             tow__type_name(x->type).text, x->nans > 0 ? x->nans : x->infinities, tow_type_element_count(x->type),
             x->first);
    if (x->gradient)
        return (size_t)snprintf(text, size,
                                "the first parameter of the backward pass whose gradient is not finite is '%s': it "
                                "holds %s (%s)",
                                x->path, what, element);
    if (x->input >= 0)
        return (size_t)snprintf(text, size, "input %" PRId64 "%s%s%s holds %s already (%s)", x->input,
                                x->path[0] ? " (" : "", x->path, x->path[0] ? ")" : "", what, element);
    return (size_t)snprintf(text, size, "the first %s is made by %s%s%s%s%s%s%s%s%s in the %s pass (%s)", what,
                            x->primitive, x->path[0] ? " of layer '" : "", x->path, x->path[0] ? "'" : "",
                            x->name[0] ? ", named '" : "", x->name, x->name[0] ? "'" : "",
                            x->source[0] ? ", recorded at " : "", x->source, x->backward ? "backward" : "forward",
                            element);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Runs the gradient of one micro-batch after the other up to `last`, each with the variables that the one before has
 * written. outputs: of the last one. */
static tow_status repeat(tow_train_state *s, const tow__train_program *p, const tow_graph *gradient,
                         tow_array *const *batch, size_t last, tow_array **outputs, tow_array **variables)
{
    tow_program *program = NULL;
    const size_t n_outputs = tow_graph_output_count(gradient);
    tow_status status = tow_compile(s->ctx, gradient, &TOW_COMPILE_OPTIONS(.flush_subnormals = true), &program);
    for (size_t i = 0; i < n_outputs && status == TOW_OK; i++)
        status = tow_array_create(s->ctx, tow_graph_output_type(gradient, i), &outputs[i]);
    for (size_t j = 0; j <= last && status == TOW_OK; j++) {
        for (size_t i = 0; i < s->n_variables && j > 0; i++) {
            tow_array **new = &outputs[1 + s->n_aux + i], *old = variables[i];
            if (!old) status = tow_array_create(s->ctx, tow_array_type(*new), &old);
            if (status != TOW_OK) break;
            variables[i] = s->micro_inputs[s->n_params + i] = *new;
            *new = old;
        }
        tow__train_set_micro_inputs(s, p, batch, j);
        if (status == TOW_OK) status = tow_program_run(program, s->micro_inputs, outputs);
    }
    tow_program_free(program);
    return status;
}

static void release(tow_context *ctx, tow_array **arrays, size_t n)
{
    for (size_t i = 0; arrays && i < n; i++) tow_array_release(arrays[i]);
    if (arrays) tow__free(ctx, arrays, n, sizeof *arrays);
}

/* Searches in the rows of this process alone. Nothing is found where layers need sums over all rows in between. */
static tow_status find_in_own_rows(tow_train_state *s, const tow__train_program *p, tow_not_finite *found)
{
    const size_t n = tow_graph_input_count(p->gradient_graph);
    tow__row_part part;
    tow_array **inputs = tow__alloc(s->ctx, n + 1, sizeof *inputs);
    tow_status status = inputs ? tow__train_own_part(s, p->loss_graph, &part) : TOW_OUT_OF_MEMORY;
    *found = (tow_not_finite){.input = -1};
    if (!inputs) return status;
    if (status == TOW_OK) status = tow_array_create(s->ctx, tow_make_type(TOW_I32, 0, NULL), &inputs[n]);
    if (status == TOW_OK) {
        memcpy(inputs, s->micro_inputs, n * sizeof *inputs);
        *(int32_t *)tow_array_data(inputs[n]) = (int32_t)s->share.first;
        status = tow_find_not_finite(part.part, inputs, found);
    }
    tow_array_release(inputs[n]);
    tow__row_part_free(&part);
    tow__free(s->ctx, inputs, n + 1, sizeof *inputs);
    return status == TOW_UNSUPPORTED ? TOW_OK : status;
}

/* The sentences about a micro-batch of which s->micro_inputs has the parameters and the first variables. */
static tow_status find_in_step(tow_train_state *s, const tow__train_program *p, const tow_graph *graph,
                               tow_array *const *batch, size_t micro, bool finite, tow_not_finite *found,
                               tow_not_finite *gradient)
{
    const size_t n_outputs = tow_graph_output_count(graph), n_variables = s->n_variables + 1;
    tow_array **outputs = tow__alloc(s->ctx, n_outputs, sizeof *outputs),
              **variables = tow__alloc(s->ctx, n_variables, sizeof *variables);
    tow_status status =
        outputs && variables ? repeat(s, p, graph, batch, micro, outputs, variables) : TOW_OUT_OF_MEMORY;
    if (status == TOW_OK)
        status = tow__train_has_others(s) ? find_in_own_rows(s, p, found)
                                          : tow_find_not_finite(graph, s->micro_inputs, found);
    if (status == TOW_OK && !finite) status = find_gradient(s->params, outputs + n_outputs - s->n_params, gradient);
    release(s->ctx, outputs, n_outputs);
    release(s->ctx, variables, n_variables);
    return status;
}

tow_status tow__fail_not_finite(tow_train_state *s, const tow__train_program *p, tow_array *const *batch, size_t micro,
                                double loss, bool finite)
{
    tow_not_finite found, gradient = {0};
    char text[900], parameter[700] = "";
    tow_params *params = NULL; /* whole ones, which all processes gather, as all have found the same */
    tow_graph *graph = NULL;
    tow_status status = tow_params_gather(s->kept, &params);
    for (size_t i = 0; i < s->n_params && params; i++) s->micro_inputs[i] = tow_params_array(params, i);
    for (size_t i = 0; i < s->n_variables; i++) s->micro_inputs[s->n_params + i] = tow_params_array(s->variables, i);
    if (status == TOW_OK) status = tow__train_whole_gradient(s, p->loss_graph, &graph);
    status = tow__group_agree(s->ctx, s->options.group, status);
    if (status == TOW_OK) status = find_in_step(s, p, graph, batch, micro, finite, &found, &gradient);
    tow_graph_release(graph);
    tow_params_free(params);
    if (status != TOW_OK) return status;
    tow_not_finite_text(&found, text, sizeof text);
    if (tow__train_has_others(s) && !found.found)
        snprintf(text, sizeof text, "nothing in the rows of rank %d by themselves is to blame",
                 tow_group_rank(s->options.group));
    if (gradient.found) tow_not_finite_text(&gradient, parameter, sizeof parameter);
    return tow__fail(s->ctx, TOW_CHECK_FAILED,
                     "step %" PRId64 ": the loss is %g, and gradients are %s: %s%s%s; nothing has changed", s->step + 1,
                     loss, finite ? "finite" : "not finite", text, gradient.found ? "; " : "", parameter);
}
