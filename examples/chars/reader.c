/* The forward program and its carries. */
#include "reader.h"

#include <stdlib.h>
#include <string.h>

static const char *const carry[] = {"carry", NULL};

/* state: the variables of a model of this batch size, from which come the types of carries. */
static tow_status make_arrays(reader *r, const tow_params *params, const tow_params *state, tow_type result)
{
    r->n_params = tow_params_count(params);
    r->n_carries = tow_params_count(state);
    r->inputs = calloc(r->n_params + r->n_carries + 2, sizeof(tow_array *));
    if (!r->inputs) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < r->n_params; i++) r->inputs[i] = tow_params_array(params, i);
    tow_status status = tow_array_create(r->context, result, &r->outputs[0]);
    for (size_t i = 0; i < r->n_carries; i++)
        for (int k = 0; k < 2 && !status; k++)
            status = tow_array_create(r->context, tow_array_type(tow_params_array(state, i)), &r->carries[k][i]);
    return status;
}

tow_status reader_create(tow_context *context, const chars *model, const tow_params *params, int64_t batch,
                         int64_t time, bool labels, reader *r)
{
    const tow_type types[] = {tow_make_type(TOW_I32, 2, (int64_t[]){batch, time}),
                              tow_make_type(TOW_I32, 2, (int64_t[]){batch, time})};
    const size_t n = labels ? 2 : 1;
    tow_params *drawn = NULL, *state = NULL;
    tow_graph *graph = NULL;
    *r = (reader){.context = context};
    tow_status status = tow_model_init_with(context, TOW_MODULE(model), 0, n, types, NULL, &drawn, &state);
    const tow_model_options options =
        TOW_MODEL_OPTIONS(.deterministic = true, .state = state, .mutable_collections = carry);
    if (!status) status = tow_model_forward_graph(TOW_MODULE(model), params, n, types, &options, &graph);
    if (!status) status = tow_compile(context, graph, NULL, &r->program);
    if (!status) status = make_arrays(r, params, state, tow_graph_output_type(graph, 0));
    if (!status) status = tow_array_create(context, types[0], &r->tokens);
    if (!status && labels) status = tow_array_create(context, types[1], &r->labels);
    tow_graph_release(graph);
    tow_params_free(drawn);
    tow_params_free(state);
    return status;
}

void reader_free(reader *r)
{
    for (size_t i = 0; i < MOST_LAYERS; i++)
        for (int k = 0; k < 2; k++) tow_array_release(r->carries[k][i]);
    tow_array_release(r->outputs[0]);
    tow_array_release(r->tokens);
    tow_array_release(r->labels);
    tow_program_free(r->program);
    free(r->inputs);
}

void reader_reset(reader *r)
{
    for (size_t i = 0; i < r->n_carries; i++)
        memset(tow_array_data(r->carries[0][i]), 0, tow_type_bytes(tow_array_type(r->carries[0][i])));
}

tow_status reader_read(reader *r)
{
    const size_t n = r->n_params + r->n_carries;
    for (size_t i = 0; i < r->n_carries; i++) {
        r->inputs[r->n_params + i] = r->carries[0][i];
        r->outputs[1 + i] = r->carries[1][i];
    }
    r->inputs[n] = r->tokens;
    r->inputs[n + 1] = r->labels;
    tow_status status = tow_program_run(r->program, r->inputs, r->outputs);
    for (size_t i = 0; i < r->n_carries && !status; i++) {
        r->carries[0][i] = r->outputs[1 + i];
        r->carries[1][i] = r->inputs[r->n_params + i];
    }
    return status;
}
