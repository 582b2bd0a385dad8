/* The list behind tow_params, of parameters or of variables: what tow_init fills and what the files of layers/
 * share. */
#ifndef TOW_LAYERS_PARAMS_H
#define TOW_LAYERS_PARAMS_H

#include "layers/names.h"
#include "tow/params.h"

/* Parameter i: names.names[i], types[i], arrays[i]. "{}" in a path stands for the iteration of a scan; the leading
 * axes of the array are these, outermost first. */
struct tow_params {
    tow_context *ctx;
    tow__names names;
    tow_type *types;
    tow_array **arrays; /* NULL until filled */
    bool *frozen;       /* no gradient is taken with respect to it */
    uint32_t capacity;  /* of types, arrays and frozen */
};

tow_status tow__params_create(tow_context *ctx, tow_params **params);
/* Appends a parameter without an array; the path must be new. */
tow_status tow__params_add(tow_params *params, const char *path, tow_type type);
/* Appends a parameter with its array, of which it takes a reference; the path must be new. */
tow_status tow__params_append(tow_params *params, const char *path, tow_array *array, bool frozen);
/* A list of the same arrays under the same paths. */
tow_status tow__params_shared(const tow_params *params, tow_params **shared);
/* TOW_NOT_FOUND, with the paths that there are, if one of the patterns (NULL: none) matches no path. caller and what: for the
 * message. */
tow_status tow__params_check_patterns(const tow_params *params, const char *caller, const char *what,
                                      const char *const *patterns);
/* One of the patterns matches, or there are none (NULL). */
bool tow__path_wanted(const char *const *patterns, const char *path);
/* `path` is below `at`; NULL or "": every path is. */
bool tow__path_below(const char *path, const char *at);
/* Components joined by '/', none of them empty, in UTF-8. */
bool tow__is_path(const char *path);
/* Hands the text out as tow__string_export does, and frees it; after a failed allocation nothing of it, since a part would
 * mislead. */
size_t tow__string_hand_out(tow__string *s, char *text, size_t size);
/* The view of `array` at index[0..levels), a new reference. */
tow_status tow__params_layer(tow_array *array, int levels, const int64_t *index, tow_array **view);
/* Index of `path`, which is probably that of `guess`; TOW__NO_NAME if there is none. */
uint32_t tow__params_index(const tow_params *params, const char *path, uint32_t guess);
/* Calls `visit` for every layer of every parameter: name on disk (after prefix) and a view of its array. */
typedef tow_status (*tow__layer_visitor)(void *user, const char *name, tow_array *view);
tow_status tow__params_visit(const tow_params *params, const char *prefix, tow__layer_visitor visit, void *user);
/* As tow_params_to_tensors, but the set shares the arrays: for a set that is written before anything changes them. */
tow_status tow__params_share(const tow_params *params, const char *prefix, tow_tensors *tensors);

/* Which tensors of a set go where: made and checked as a whole before the first byte is copied. */
typedef struct tow__loading {
    tow_context *ctx; /* for memory and messages */
    const tow_tensors *tensors;
    struct tow__copy {
        size_t tensor;
        tow_dtype dtype; /* of the parameter */
        void *to;
    } * copies;
    size_t n_copies, capacity;
    const tow_load_options *options; /* NULL: the strictest */
    bool may_be_partial;             /* the caller could give options, so that errors name them */
    bool *wanted;                    /* [count of tensors] */
    tow_load_report report;          /* what did not fit so far */
    size_t report_capacity;
} tow__loading;

tow_status tow__loading_create(tow_context *ctx, const tow_tensors *tensors, tow__loading *loading);
/* Accepts a struct of zeros, too. */
void tow__loading_free(tow__loading *loading);
/* Finds the tensors of `params`, and reports what does not fit. path: of their file, for messages, which know only names of
 * tensors; NULL: none. Errors: TOW_NOT_FOUND, TOW_TYPE_MISMATCH for the first of what the options do not allow; also for
 * names with that prefix that are of no parameter. */
tow_status tow__loading_add(tow__loading *loading, const tow_params *params, const char *prefix, const char *path);
/* Reads what was found once, without a place for it: compares checksums, and finds integers that do not fit. */
tow_status tow__loading_check(const tow__loading *loading);
/* Copies it. Allocates nothing. Errors: those of reading the file that the tensors are in. */
tow_status tow__loading_run(const tow__loading *loading);

/* How many layers entry i stacks, and the indices of layer `row`, outermost scan first. */
int64_t tow__params_rows(const tow_params *params, uint32_t i);
void tow__params_row_index(const tow_params *params, uint32_t i, int64_t row, int64_t *index);
/* Adds `path` with its "{}" replaced by index[0], index[1], ... */
void tow__params_add_layer_path(tow__string *text, const char *path, const int64_t *index);
/* Every layer of a stack has a name of its own in files: TOW_INVALID_ARGUMENT with both paths if two entries have one in
 * common (a scan "f" and a child "0" of the scope "f"). kind: what stands before paths in the message. */
tow_status tow__params_check_names(const tow_params *params, const char *kind);
/* How many "{}" components a path has: stacked axes of its array. */
int tow__path_levels(const char *path);

#endif
