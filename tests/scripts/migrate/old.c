/* A program in the names of Tow 0.1, which scripts/migrate.py carries over. migrate.sh compiles and runs the result. */
#include <stdio.h>
#include <tow/combinators.h>
#include <tow/copy.h>
#include <tow/lifting.h>
#include <tow/tow.h>

/* tow_loss makes a graph; the text "tow_mappings" is nobody's name. */
static void loss_of(tow_trace *trace, const tow_value *y, const tow_value *labels, tow_value *loss, tow_value *aux,
                    void *user)
{
    (void)trace, (void)aux, (void)user, (void)labels;
    tow_value positive = tow_gt(y[0], tow_zeros_like(y[0]));
    *loss = tow_mean(tow_select(positive, tow_gelu(y[0], true), tow_gelu(y[0], false)), 0, NULL);
}

static tow_value scaled(tow_scope *scope, tow_value x)
{
    tow_type type = tow_make_type(TOW_F32, 0, NULL);
    tow_value a = tow_param_of(scope, "a", type, tow_init_ones());
    tow_value b = tow_param_as(scope, TOW_PARAM_BIAS, "b", type, tow_init_zeros());
    return tow_add(tow_mul(tow_gelu_tanh(x), a), b);
}

int main(void)
{
    tow_context_options small = {.threads = 1};
    tow_context *context = NULL;
    tow_status status = tow_context_create(&small, &context);
    tow_dense dense = TOW_DENSE(.features = 3, .kernel_init = tow_init_normal(0.5), .param_dtype = TOW_AS_F32);
    tow_scan shared = TOW_SCAN(&dense, .length = 2, .shared_collections = TOW_NAMES("params"));
    const tow_function_layer function = TOW_FUNCTION(scaled);
    const tow_named named = {.module = {&tow_named_class}, .name = "scaled", .inner = TOW_MODULE(&function)};
    tow_sequential model = TOW_SEQUENTIAL(TOW_MODULE(&shared), TOW_MODULE(&named));
    tow_type type = tow_make_type(TOW_F32, 2, (int64_t[]){4, 3});
    tow_params *params = NULL;
    tow_graph *graph = NULL;
    tow_array *x = NULL, *again = NULL, *result = NULL;
    if (!status) status = tow_init_with_options(context, TOW_MODULE(&model), 0, 1, &type,
                                                 &(tow_model_options){0}, &params, NULL);
    if (!status) status = tow_loss(TOW_MODULE(&model), params, 1, &type, 0, NULL, loss_of, NULL, 0, NULL, &graph);
    if (!status) status = tow_array_create(context, type, &x);
    if (!status) status = tow_npy_write("x.npy", x, context);
    if (!status) status = tow_npy_map(context, "x.npy", &again);
    tow_residuals residuals = {0};
    if (!status) status = tow_saved_residuals(graph, 0, NULL, &residuals);
    tow_residuals_free(context, &residuals);
    const tow_compile_options plan = {.plan_only = true}, run = {.threads = 1, .no_fusion = true};
    const tow_compile_options *const both[] = {&plan, &run};
    tow_program *program = NULL;
    for (int i = 0; i < 2 && !status; i++) {
        tow_program_free(program);
        status = tow_compile(context, graph, both[i], &program);
    }
    if (!status) status = tow_array_create(context, tow_graph_output_type(graph, 0), &result);
    tow_array *inputs[5] = {0};
    for (size_t i = 0; !status && i < tow_params_count(params); i++) inputs[i] = tow_params_array(params, i);
    if (!status) inputs[tow_params_count(params)] = again;
    if (!status) status = tow_program_run(program, inputs, &result);
    if (status) fprintf(stderr, "%s\n", tow_context_error(context));
    else
        printf("%zu inputs, %lld elements, %s, tow_mappings\n", tow_graph_inputs(graph),
               (long long)tow_params_elements(params), tow_context_threads(context) == 1 ? "one thread" : "threads");
    const tow_train_options train = {.average = {.decay = 0.5}};
    if (train.seed) return 1;
    tow_program_free(program);
    tow_graph_release(graph);
    tow_params_free(params);
    tow_array_release(x);
    tow_array_release(again);
    tow_array_release(result);
    tow_context_destroy(context);
    return status != TOW_OK;
}
