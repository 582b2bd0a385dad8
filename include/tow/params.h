/* Parameters and variables: flat lists of named arrays, as tow_init (tow/model.h) makes them for a model. */
#ifndef TOW_PARAMS_H
#define TOW_PARAMS_H

#include "tow/io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A flat list of named arrays in order of first use: parameters, or the variables of all other collections, whose paths
 * begin with their collection ("batch_stats/norm/mean"). Layers of a scan are stacked on axis 0 (outermost scan first)
 * and called "blocks/{}/attn/kernel"; on disk they are "blocks/0/attn/kernel", "blocks/1/...". */
typedef struct tow_params tow_params;
/* Frees the list and drops its arrays. NULL is accepted. */
TOW_API void tow_params_free(tow_params *params);
TOW_API size_t tow_params_count(const tow_params *params);
/* Of entry `index`; NULL behind the last one. */
TOW_API const char *tow_params_path(const tow_params *params, size_t index);
TOW_API tow_array *tow_params_array(const tow_params *params, size_t index); /* not retained */
/* The array of exactly this path, not retained, or NULL. tow_params_get finds single layers as well. */
TOW_API tow_array *tow_params_find(const tow_params *params, const char *path);
/* The array of `path`, which may name one layer of a stack ("blocks/3/attn/kernel"): then a view that shares storage.
 * A new reference. Error: TOW_NOT_FOUND, with the paths that there are. */
TOW_API tow_status tow_params_get(const tow_params *params, const char *path, tow_array **array);
/* Of all arrays together. */
TOW_API int64_t tow_params_elements(const tow_params *params);
/* A list of n arrays, which it shares with the caller, under the given paths. Errors: TOW_INVALID_ARGUMENT for a path that is
 * no UTF-8, empty, or there twice, and for a missing array. */
TOW_API tow_status tow_params_from_arrays(tow_context *context, size_t n, const char *const *paths,
                                          tow_array *const *arrays, tow_params **params);
/* Same paths and types, zeros. */
TOW_API tow_status tow_params_zeros_like(const tow_params *params, tow_params **zeros);
/* Table of path, shape, count and bytes with a total, in the manner of Flax's tabulate; like snprintf. */
TOW_API size_t tow_params_table(const tow_params *params, char *text, size_t size);
/* The same for a whole model, with a total for each collection. state may be NULL. */
TOW_API size_t tow_variables_table(const tow_params *params, const tow_params *state, char *text, size_t size);
/* Adds copies of all arrays, layer by layer, to a set of tensors, names prefixed ("params/", "adam/mu/"). What happens to
 * the parameters later does not change them. Errors: TOW_OUT_OF_MEMORY, TOW_INVALID_ARGUMENT for a name that is there
 * already. */
TOW_API tow_status tow_params_to_tensors(const tow_params *params, const char *prefix, tow_tensors *tensors);
/* Copies such entries into the arrays of `params`, whoever shares them. First checks that every parameter is there with
 * its type and that there are no other names with that prefix; if not, nothing is copied. */
TOW_API tow_status tow_params_from_tensors(tow_params *params, const char *prefix, const tow_tensors *tensors);

typedef struct tow_load_options {
    /* Tensors of other element types become the parameters': everything converts to floats, rounded once, and integers to
     * integers, in which each must fit (tow/io.h). So weights that were saved as bf16 load into f32 parameters. */
    bool convert;
} tow_load_options;
/* The same with options, which may be NULL. Error: TOW_TYPE_MISMATCH without .convert, or for an integer that does not
 * fit; then nothing is copied. */
TOW_API tow_status tow_params_from_tensors_with_options(tow_params *params, const char *prefix,
                                                        const tow_tensors *tensors, const tow_load_options *options);
/* The same from a safetensors file, or the files of an index, whose other tensors are not read; no second copy of the data
 * is in memory. Checksums and integers are compared before the first byte is copied. Errors: also those of
 * tow_safetensors_read. */
TOW_API tow_status tow_params_load(tow_params *params, const char *prefix, const char *path,
                                   const tow_load_options *options);

/* ---- paths ------------------------------------------------------------------------------------------------------- */

/* True if the pattern stands for the whole path. In a pattern one star is any text without '/', two stars are any text,
 * and every other character is itself: as "mlp_*" is for "mlp_3" and not for "mlp_3/kernel", which "mlp_**" is for.
 * False if one of the two is NULL. */
TOW_API bool tow_path_matches(const char *pattern, const char *path);

#ifdef __cplusplus
}
#endif
#endif
