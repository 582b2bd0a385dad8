/* The list behind tow_params, of parameters or of variables: what tow_init fills and what the files of layers/
 * share. */
#ifndef TOW_LAYERS_PARAMS_H
#define TOW_LAYERS_PARAMS_H

#include "layers/names.h"
#include "tow/module.h"

/* Parameter i: names.names[i], types[i], arrays[i]. "{}" in a path stands for the iteration of a scan; the leading
 * axes of the array are these, outermost first. */
struct tow_params {
    tow_context *ctx;
    tow__names names;
    tow_type *types;
    tow_array **arrays; /* NULL until filled */
    uint32_t capacity;  /* of types and arrays */
};

tow_status tow__params_create(tow_context *ctx, tow_params **params);
/* Appends a parameter without an array; the path must be new. */
tow_status tow__params_add(tow_params *params, const char *path, tow_type type);
/* How many "{}" components a path has: stacked axes of its array. */
int tow__path_levels(const char *path);

#endif
