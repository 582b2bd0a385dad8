/* The list behind tow_params, of parameters or of variables: what tow_model_init fills. */
#ifndef TOW_SRC_PARAMS_PARAMS_H
#define TOW_SRC_PARAMS_PARAMS_H

#include "src/params/names.h"
#include "tow/graph.h"
#include "tow/group.h"
#include "tow/params.h"

/* Parameter i: names.names[i], types[i], arrays[i]. "{}" in a path stands for the iteration of a scan, of which the
 * array has an axis: the leading ones, outermost first, unless the path says others (src/params/names.h). */
struct tow_params {
    tow_context *ctx;
    tow__names names;
    tow_type *types;
    tow_array **arrays; /* NULL until filled */
    bool *frozen;       /* no gradient is taken with respect to it */
    tow_param_kind *kinds;
    tow_type *wholes;  /* of entries of which the array is a process's share of each layer, [layers..., elements]: the
                         type of all; rank -1: no share. NULL: there are no shares */
    tow_group *shards; /* these processes */
    uint32_t capacity; /* of all columns */
};

tow_status tow__params_create(tow_context *ctx, tow_params **params);
/* Appends a parameter without an array, of the kind that its name says; the path must be new. */
tow_status tow__params_add(tow_params *params, const char *path, tow_type type);
/* The same with the kind and the mark of entry i of another list. */
tow_status tow__params_add_like(tow_params *params, const char *path, tow_type type, const tow_params *like,
                                uint32_t i);
/* Entry i, which has no array yet, is a share, of the type `kept`, of what has the type so far. The axes of layers are
 * in front. */
tow_status tow__params_set_share(tow_params *params, uint32_t i, tow_group *shards, tow_type kept);
/* Makes entry i such a share, [layers..., elements], if it may be one: if its axes of layers are in front, and it is of
 * a float type. *first, *count: the elements of each layer that this process keeps. shards NULL: all. */
tow_status tow__params_keep_share(tow_params *params, uint32_t i, tow_group *shards, int64_t *first, int64_t *count);
/* The type of one layer of entry i, of which the array is a share; rank -1: it is none. */
tow_type tow__params_whole_layer(const tow_params *params, uint32_t i);
/* The same with an array, of which it takes a reference. like NULL: by its name, not frozen; else the array may be NULL
 * as that of entry i is. */
tow_status tow__params_append(tow_params *params, const char *path, tow_array *array, const tow_params *like,
                              uint32_t i);
/* A list of `ctx` with the same arrays under the same paths; with arrays of `ctx` over them, if they are of a list of
 * another context, in whose memory nothing is made then. */
tow_status tow__params_shared(tow_context *ctx, const tow_params *params, tow_params **shared);
/* TOW_NOT_FOUND, with the paths that there are, if one of the patterns (NULL: none) matches no path. caller and what:
 * for the message. */
tow_status tow__params_check_patterns(const tow_params *params, const char *caller, const char *what,
                                      const char *const *patterns);
/* One of the patterns matches entry i, or there are none (NULL). */
bool tow__entry_wanted(const char *const *patterns, const tow_params *params, uint32_t i);
/* `path` is below `at`; NULL or "": every path is. */
bool tow__path_below(const char *path, const char *at);
/* Components joined by '/', none of them empty, in UTF-8. */
bool tow__is_path(const char *path);
/* Hands the text out as tow__string_export does, and frees it; after a failed allocation nothing of it, since a part
 * would mislead. */
size_t tow__string_hand_out(tow__string *s, char *text, size_t size);
/* Index of `path`, which is probably that of `guess`; TOW__NO_NAME if there is none. */
uint32_t tow__params_index(const tow_params *params, const char *path, uint32_t guess);

/* ---- kinds (param_kind.c) ---------------------------------------------------------------------------------------- */

/* The kind that the name of a parameter (or its path) and the rank of one layer say. */
tow_param_kind tow__param_kind_of(const char *path, int rank);
bool tow__is_param_kind(tow_param_kind kind);
/* Weight decay acts on it. */
bool tow__param_kind_decays(tow_param_kind kind);

/* ---- layers of stacks (params_axes.c) ---------------------------------------------------------------------------- */

/* The axes of layers are the leading ones, outermost first; and an array's type with them there. */
bool tow__path_in_front(const char *path, int rank);
tow_type tow__type_in_front(const char *path, tow_type type);
tow_type tow__type_from_front(const char *path, tow_type front);
/* A value with these n axes brought to the front, in this order, and back. */
tow_value tow__axes_to_front(tow_value x, int n, const int *axes);
tow_value tow__axes_from_front(tow_value x, int n, const int *axes);
/* The array with these axes in front, a new reference: itself, if they are there or if it does not have all of them,
 * else a copy. */
tow_status tow__array_in_front(tow_context *ctx, const char *path, tow_array *array, tow_array **front);
/* The view of an array at index[0..levels) of its leading axes, a new reference, made in `ctx`. */
tow_status tow__array_layer(tow_context *ctx, tow_array *array, int levels, const int64_t *index, tow_array **view);
/* Copies data in which these axes are in front to the array. */
void tow__put_from_front(const char *path, tow_array *array, const void *front);
/* The part of entry i at index[0..levels) of its outermost axes of layers, a new reference: a view if these axes are
 * the leading ones, else a copy. Errors: TOW_INVALID_ARGUMENT for an index out of range, TOW_OUT_OF_MEMORY. */
tow_status tow__params_layer(const tow_params *params, uint32_t i, int levels, const int64_t *index, tow_array **layer);
/* Copies the data of one layer to its place in entry i. */
void tow__params_put_layer(const tow_params *params, uint32_t i, const int64_t *index, const void *layer);
/* The number of layers that entry i stacks, and the indices of layer `row`, outermost scan first. */
int64_t tow__params_rows(const tow_params *params, uint32_t i);
void tow__params_row_index(const tow_params *params, uint32_t i, int64_t row, int64_t *index);
/* Calls `visit` for every layer of every parameter. */
typedef struct tow__layer {
    const char *name; /* on disk, after the prefix */
    tow_array *array;
    const tow_params *params; /* it is row `row` of this entry */
    uint32_t entry;
    int64_t row;
    bool copied; /* what is written into the array does not change the entry */
} tow__layer;
typedef tow_status (*tow__layer_visitor)(void *user, const tow__layer *layer);
tow_status tow__params_visit(const tow_params *params, const char *prefix, tow__layer_visitor visit, void *user);
/* As tow_params_to_tensors, but the set shares the arrays, except for layers that are copies: for a set that is written
 * before anything changes them. */
tow_status tow__params_share(const tow_params *params, const char *prefix, tow_tensors *tensors);
/* The data of these copies, which were changed, back to the entries: for a set that tow__params_share has begun. */
void tow__params_put_copies(const tow_params *params, const tow_tensors *tensors);
/* Adds `path` with its "{}" replaced by index[0], index[1], ... */
void tow__params_add_layer_path(tow__string *text, const char *path, const int64_t *index);

/* The places to which the tensors of a set go: made and checked as a whole before the first byte is copied. */
typedef struct tow__loading {
    tow_context *ctx; /* for memory and messages */
    const tow_tensors *tensors;
    struct tow__copy {
        size_t tensor;
        tow_dtype dtype;         /* of the parameter */
        const tow_group *shards; /* of whose elements `to` gets this process's share; NULL: all */
        void *to;                /* NULL: through `staging` to row `row` of this entry */
        const tow_params *params;
        uint32_t entry;
        int64_t row;
    } * copies;
    size_t n_copies, capacity;
    void *staging; /* of as many bytes as the largest layer that has no place of its own */
    size_t staging_bytes;
    const tow_load_options *options; /* NULL: the strictest */
    tow_params *in_place;            /* the list whose arrays may be those of the mapped file; NULL: none */
    bool may_be_partial;             /* the caller could give options, so that errors name them */
    bool *wanted;                    /* [count of tensors] */
    tow_load_report report;          /* what did not fit so far */
    size_t report_capacity;
} tow__loading;

tow_status tow__loading_create(tow_context *ctx, const tow_tensors *tensors, tow__loading *loading);
/* Accepts a struct of zeros, too. */
void tow__loading_free(tow__loading *loading);
/* Finds the tensors of `params`, and reports what does not fit. path: of their file, for messages, which know only
 * names of tensors; NULL: none. Errors: TOW_NOT_FOUND, TOW_TYPE_MISMATCH for the first of what the options do not
 * allow; also for names with that prefix that are of no parameter. */
tow_status tow__loading_add(tow__loading *loading, const tow_params *params, const char *prefix, const char *path);
/* Reads what was found once, without a place for it: compares checksums, and finds integers that do not fit. */
tow_status tow__loading_check(const tow__loading *loading);
/* Copies it. Allocates nothing. Errors: those of reading the file that the tensors are in. */
tow_status tow__loading_run(const tow__loading *loading);

/* Every layer of a stack has a name of its own in files: TOW_INVALID_ARGUMENT with both paths if two entries have one
 * in common (a scan "f" and a child "0" of the scope "f"). kind: what stands before paths in the message. */
tow_status tow__params_check_names(const tow_params *params, const char *kind);
#endif
