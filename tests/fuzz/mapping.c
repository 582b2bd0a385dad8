/* Fuzz target: bytes as the text of a mapping, by which tensors are loaded into parameters of any shapes. A failure
 * leaves parameters as they were. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "tow/weights.h"

static const char *const theirs[] = {"p.w", "w", "a.0", "b.1", "c", "t", "x.y"};
static const char *const ours[] = {"k", "q/0/x", "q/0/y", "u", "v"};
enum {
    N_THEIRS = sizeof theirs / sizeof *theirs,
    N_OURS = sizeof ours / sizeof *ours
};

static tow_array *numbers(tow_context *ctx, int rank)
{
    tow_array *array = NULL;
    fuzz_expect(ctx, tow_array_create(ctx, tow_make_type(TOW_F32, rank, (int64_t[]){2, 6, 1}), &array), "an array");
    for (int i = 0; i < (rank == 1 ? 2 : 12); i++) ((float *)tow_array_data(array))[i] = (float)i;
    return array;
}

static void load(tow_context *ctx, const tow_weight_mapping *m)
{
    tow_tensors *set = NULL;
    tow_params *params = NULL;
    tow_weight_mapping_report *report = NULL;
    tow_array *arrays[N_OURS];
    const tow_weight_mapping_options options =
        TOW_WEIGHT_MAPPING_OPTIONS(.partial = true, .n_axes = 1, .axes = &(tow_weight_mapping_axis){"h", 2});
    fuzz_expect(ctx, tow_tensors_create(ctx, &set), "a set");
    for (int i = 0; i < N_THEIRS; i++) {
        tow_array *array = numbers(ctx, 1 + i % 3);
        fuzz_expect(ctx, tow_tensors_add(set, theirs[i], array), "a tensor");
        tow_array_release(array);
    }
    for (int i = 0; i < N_OURS; i++) arrays[i] = numbers(ctx, 1 + i % 3);
    fuzz_expect(ctx, tow_params_from_arrays(ctx, N_OURS, ours, arrays, &params), "parameters");
    fuzz_succeeds(ctx, tow_weight_mapping_load(m, params, set, &options, &report));
    tow_weight_mapping_report_free(report);
    for (int i = 0; i < N_OURS; i++) tow_array_release(arrays[i]);
    tow_params_free(params);
    tow_tensors_free(set);
}

int fuzz_target(const uint8_t *data, size_t size)
{
    tow_context *ctx = fuzz_context();
    tow_weight_mapping *m = NULL;
    char *text = fuzz_text(data, size);
    if (fuzz_succeeds(ctx, tow_weight_mapping_parse(ctx, "input", text, &m))) load(ctx, m);
    tow_weight_mapping_free(m);
    free(text);
    fuzz_end(ctx);
    return 0;
}
