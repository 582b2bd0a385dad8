/* Logits against those of another implementation. */
#include "golden.h"

#include <math.h>
#include <stdio.h>

#include "common.h"

static int compare(const char *program, const tow_array *found, const tow_array *want)
{
    const tow_type type = tow_array_type(want);
    double largest = 0, size = 0;
    if (!tow_type_equal(tow_array_type(found), type)) {
        fprintf(stderr, "%s: the golden file has logits of another shape\n", program);
        return FAILURE;
    }
    const float *x = tow_array_data(found), *y = tow_array_data(want);
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        largest = fmax(largest, fabs((double)x[i] - y[i]));
        size = fmax(size, fabs(y[i]));
    }
    printf("logits: %lld numbers up to %.1f, the largest difference from the golden file is %.1e\n",
           (long long)tow_type_element_count(type), size, largest);
    if (largest <= 1e-5 * size) return SUCCESS;
    fprintf(stderr, "%s: expected at most %.1e\n", program, 1e-5 * size);
    return FAILURE;
}

int check_logits(const char *program, tow_context *context, const tow_module *model, const tow_params *params,
                 const char *path)
{
    tow_tensors *golden = NULL;
    tow_model_function *function = NULL;
    tow_model_results results;
    const tow_model_function_options options = TOW_MODEL_FUNCTION_OPTIONS(.n_inputs = 1);
    int status = FAILURE;
    tow_array *ids = NULL, *logits = NULL;
    if (tow_safetensors_read(context, path, &golden) == TOW_OK &&
        tow_tensors_get(golden, "input_ids", &ids) == TOW_OK && tow_tensors_get(golden, "logits", &logits) == TOW_OK &&
        tow_model_function_create(model, params, &options, &function) == TOW_OK &&
        tow_model_function_call(function, &TOW_MODEL_ARGUMENTS(.inputs = &ids), &results) == TOW_OK)
        status = compare(program, results.outputs[0], logits);
    else
        report_error(program, context);
    tow_model_function_free(function);
    tow_array_release(ids);
    tow_array_release(logits);
    tow_tensors_free(golden);
    return status;
}
