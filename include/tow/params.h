/* Parameters and variables: flat lists of named arrays, as tow_model_init (tow/model.h) makes them for a model. */
#ifndef TOW_PARAMS_H
#define TOW_PARAMS_H

#include "tow/io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a parameter. The layer that asks for the parameter says its kind (tow_param_with in tow/module.h); lists
 * keep it, whatever becomes of paths. Weight decay, LoRA, Muon, tables and summaries go by kinds, and patterns may name
 * them (tow_path_matches below).
 * If nobody says a kind, it follows from the name and the rank, which is that of one layer: the last component of the
 * path is "kernel", "embedding", "bias" or "scale"; any other name is TOW_PARAM_WEIGHT with two axes or more, else
 * TOW_PARAM_OTHER. */
typedef enum tow_param_kind {
    TOW_PARAM_DEFAULT,   /* in requests: what name and rank say */
    TOW_PARAM_KERNEL,    /* what inputs are multiplied with */
    TOW_PARAM_EMBEDDING, /* a table with a row for each token or position */
    TOW_PARAM_BIAS,      /* what is added, of any rank: [heads, head] of queries */
    TOW_PARAM_SCALE,     /* what elements are multiplied with: of norms, of residual branches, the slope of PReLU */
    TOW_PARAM_LOW_RANK,  /* a factor of an update, as LoRA's */
    TOW_PARAM_WEIGHT,    /* another one with two axes or more */
    TOW_PARAM_OTHER      /* another one */
} tow_param_kind;
/* "kernel", "embedding", "bias", "scale", "low_rank", "weight", "other", "default"; NULL for no kind. */
TOW_API const char *tow_param_kind_name(tow_param_kind kind);

/* A flat list of named arrays in order of first use: parameters, or the variables of all other collections, whose paths
 * begin with their collection ("batch_stats/norm/mean"). Layers of a scan are stacked on axis 0 (outermost scan first)
 * and called "blocks/{}/attn/kernel", or on another axis where a rule of the scan says so (tow/module.h):
 * "blocks/{@1}/attn/kernel". On disk they are "blocks/0/attn/kernel", "blocks/1/...", whatever the axis. */
typedef struct tow_params tow_params;
/* Frees the list and drops its arrays. NULL is accepted. */
TOW_API void tow_params_free(tow_params *params);
TOW_API size_t tow_params_count(const tow_params *params);
/* Of entry `index`; NULL behind the last one. */
TOW_API const char *tow_params_path(const tow_params *params, size_t index);
TOW_API tow_array *tow_params_array(const tow_params *params, size_t index); /* not retained */
/* All arrays in order, not retained: for functions that take them as a list. */
TOW_API tow_array *const *tow_params_arrays(const tow_params *params);
/* The array of exactly this path, not retained, or NULL. tow_params_get finds single layers as well. */
TOW_API tow_array *tow_params_find(const tow_params *params, const char *path);
/* The array of `path`, which may name one layer of a stack ("blocks/3/attn/kernel"): then a view that shares storage,
 * but a copy if the axes of layers are not the leading ones ("blocks/{@1}/attn/kernel"), since arrays are contiguous.
 * A new reference. Error: TOW_NOT_FOUND, with the paths that there are. */
TOW_API tow_status tow_params_get(const tow_params *params, const char *path, tow_array **array);
/* Of entry `index`, never TOW_PARAM_DEFAULT; TOW_PARAM_OTHER behind the last one. */
TOW_API tow_param_kind tow_params_kind(const tow_params *params, size_t index);
/* Says what the entries are that match; TOW_PARAM_DEFAULT: what their names and ranks say. patterns NULL: all. Lists
 * that share arrays have kinds of their own. Errors: TOW_NOT_FOUND for a pattern that matches nothing,
 * TOW_INVALID_ARGUMENT for no kind. */
TOW_API tow_status tow_params_set_kind(tow_params *params, const char *const *patterns, tow_param_kind kind);
/* A list of n arrays, which it shares with the caller, under the given paths. Errors: TOW_INVALID_ARGUMENT for a path
 * that is no UTF-8, empty, or there twice, for one whose "{}" and "{@k}" name axes that the array does not have, and
 * for a missing array. */
TOW_API tow_status tow_params_from_arrays(tow_context *context, size_t n, const char *const *paths,
                                          tow_array *const *arrays, tow_params **params);
/* The same list for another context: arrays of `context` that share the storage of those of `params` and keep it alive.
 * For weights that many threads read, each with a context of its own; docs/server.md shows it whole. While nobody
 * writes to the arrays or changes `params`, threads may call this at the same time, and compute with what they get.
 * Lists and contexts may be freed in any order. All entries are frozen (tow_params_freeze), so that nobody trains them
 * unawares: whoever wants gradients with respect to them takes the marks away, and sees to it that nobody reads while
 * the weights are updated.
 * Error: TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_params_share(tow_context *context, const tow_params *params, tow_params **shared);
/* The list with whole arrays, of one in which this process has its share of some (.shard of tow_train_options): of
 * these new arrays, whose elements all processes of the group send to one another, of the others the arrays themselves.
 * All processes call it together. Errors: TOW_OUT_OF_MEMORY; TOW_IO_ERROR if processes cannot be reached. */
TOW_API tow_status tow_params_gather(const tow_params *params, tow_params **whole);
/* Same paths and types, zeros. */
TOW_API tow_status tow_params_zeros_like(const tow_params *params, tow_params **zeros);
typedef struct tow_table_options {
    size_t size TOW__SIZE(tow_table_options); /* set by TOW_TABLE_OPTIONS */
    const tow_params *state; /* variables of the same model, with a total for each collection; NULL: none */
    /* A line for each subtree with at most so many components below its collection, with its entries, elements and
     * bytes; 0: one for each entry, with path, type, kind, count and bytes. */
    int depth;
} tow_table_options;
#define TOW_TABLE_OPTIONS(...) TOW__OPTIONS(tow_table_options, __VA_ARGS__)
/* Table of parameters with a total, in the manner of Flax's tabulate; like snprintf. options may be NULL. 0 and the
 * error of the context for options without their size. */
TOW_API size_t tow_params_table(const tow_params *params, const tow_table_options *options, char *text, size_t size);
/* Adds copies of all arrays, layer by layer, to a set of tensors, names prefixed ("params/", "adam/mu/"). Later changes
 * of the parameters do not change the copies. Errors: TOW_OUT_OF_MEMORY, TOW_INVALID_ARGUMENT for a name that is there
 * already. */
TOW_API tow_status tow_params_to_tensors(const tow_params *params, const char *prefix, tow_tensors *tensors);
/* Copies such entries into the arrays of `params`, whoever shares them. First checks that every parameter is there with
 * its type and that there are no other names with that prefix; if not, nothing is copied. */
TOW_API tow_status tow_params_from_tensors(tow_params *params, const char *prefix, const tow_tensors *tensors);

/* The reasons for which a parameter or a tensor does not fit when parameters are loaded. */
typedef enum tow_load_problem {
    TOW_LOAD_MISSING,  /* the file does not have the parameter */
    TOW_LOAD_MISMATCH, /* it has another shape or type there */
    TOW_LOAD_UNUSED    /* no parameter has the name of the tensor */
} tow_load_problem;
typedef struct tow_load_item {
    tow_load_problem problem;
    const char *name; /* in the file */
    tow_type expected, found;
} tow_load_item;
typedef struct tow_load_report {
    size_t loaded; /* tensors that were copied; every layer of a stack is one */
    size_t missing, mismatched, unused;
    size_t count; /* of items: parameters in their order, then unused tensors in the order of the file */
    tow_load_item *items;
    void *memory;
} tow_load_report;
/* A line for each item and the numbers of all; like snprintf. */
TOW_API size_t tow_load_report_text(const tow_load_report *report, char *text, size_t size);
/* Frees what the report points to, and empties it. */
TOW_API void tow_load_report_free(tow_load_report *report);

typedef struct tow_load_options {
    size_t size TOW__SIZE(tow_load_options); /* set by TOW_LOAD_OPTIONS */
    /* Tensors of other element types become the parameters': everything converts to floats, rounded once, and integers
     * to integers, in which each must fit (tow/io.h). So weights that were saved as bf16 load into f32 parameters. */
    bool convert;
    /* Parameters and tensors that do not fit are left alone: parameters that the file does not have, tensors with the
     * prefix that no parameter has, and parameters of another shape or type. The default allows none of it. */
    bool allow_missing, allow_unused, allow_mismatch;
    tow_load_report
        *report; /* receives all that does not fit, also after the errors that it leads to; NULL: not wanted */
    /* tow_params_load: parameters whose type is the tensor's get an array in the mapped file in place of their own,
     * which takes no memory; those of a stack, and all others, are copied. Arrays of the list are replaced: functions
     * and lists that were made of it before keep the old ones. The rules of tow/io.h for mapped files hold for the file
     * as long as one of these arrays lives; writing to one changes memory alone. */
    bool in_place;
} tow_load_options;
#define TOW_LOAD_OPTIONS(...) TOW__OPTIONS(tow_load_options, __VA_ARGS__)
/* The same with options, which may be NULL. Error: TOW_TYPE_MISMATCH without .convert, or for an integer that does not
 * fit; then nothing is copied.
 * Parameters under other names in the file: a part of the list under another prefix (tow_params_subtree(params,
 * "encoder", &part), then "bert/encoder/" as prefix), or a list with the names of the file (tow_params_rename), which
 * shares the arrays of `params`. */
TOW_API tow_status tow_params_from_tensors_with(tow_params *params, const char *prefix, const tow_tensors *tensors,
                                                const tow_load_options *options);
/* The same from a safetensors file, or the files of an index, whose other tensors are not read; no second copy of the
 * data is in memory. Checksums and integers are compared before the first byte is copied. Errors: also those of
 * tow_safetensors_read. */
TOW_API tow_status tow_params_load(tow_params *params, const char *prefix, const char *path,
                                   const tow_load_options *options);

/* ---- patterns of paths ------------------------------------------------------------------------------------------- */

/* True if the pattern stands for the whole path. In a pattern one star is any text without '/', two stars are any text,
 * and every other character is itself: as "mlp_*" is for "mlp_3" and not for "mlp_3/kernel", which "mlp_**" is for.
 * False if one of the two is NULL.
 * Patterns for parameters may begin with "//" and a kind, which the parameter must have as well: "//bias" is for all
 * biases, "//kernel/head/mlp_*" for kernels whose path matches "head/mlp_*". A path alone has no kind: none is matched
 * here. Lists of patterns end with NULL: TOW_NAMES("head", "blocks/{}/norm/scale") of tow/autodiff.h makes one. */
TOW_API bool tow_path_matches(const char *pattern, const char *path);

/* The element type of parameters that a pattern matches: floats, or blocks of few bits (tow_precision in
 * tow/transforms.h). */
typedef struct tow_dtype_rule {
    const char *pattern; /* NULL: the end of the rules */
    tow_dtype dtype;
} tow_dtype_rule;
/* TOW_DTYPES({"**mlp/down/kernel", TOW_Q8_0}, {"//kernel", TOW_Q4_0}): rules in their order. In C they live as long as
 * the block in which they stand; in C++ as long as the program, and they are made of constants. */
#ifdef __cplusplus
#define TOW_DTYPES(...)                                                                                                \
    ([]() -> const tow_dtype_rule * {                                                                                  \
        static const tow_dtype_rule tow__rules[] = {__VA_ARGS__, {nullptr, TOW_F32}};                                  \
        return tow__rules;                                                                                             \
    }())
#else
#define TOW_DTYPES(...) ((const tow_dtype_rule[]){__VA_ARGS__, {NULL, TOW_F32}})
#endif

/* ---- parts and wholes -------------------------------------------------------------------------------------------- */

/* Functions here make new lists, which share the arrays of those that they are made of: what an optimizer does to one
 * is seen in all. Entries keep their order, kinds and marks (tow_params_freeze). Errors of all: TOW_OUT_OF_MEMORY;
 * TOW_NOT_FOUND for a pattern that matches nothing, with the paths that there are. */

/* The entries that match one of the patterns. */
TOW_API tow_status tow_params_select(const tow_params *params, const char *const *patterns, tow_params **selected);
/* Those, and all others. (Equinox: partition) */
TOW_API tow_status tow_params_split(const tow_params *params, const char *const *patterns, tow_params **selected,
                                    tow_params **rest);
/* The treatment of a path that both lists have. */
typedef enum tow_merge {
    TOW_MERGE_DISTINCT, /* TOW_INVALID_ARGUMENT, with the path */
    TOW_MERGE_FIRST,    /* the array of the first list counts */
    TOW_MERGE_SECOND    /* that of the second one, in the place of the first */
} tow_merge;
/* The entries of a, then those of b. (Equinox: combine) */
TOW_API tow_status tow_params_merge(const tow_params *a, const tow_params *b, tow_merge conflicts, tow_params **merged);
/* The entries below `path`, which is left out of their own: of "encoder" the list has "norm/scale" for
 * "encoder/norm/scale". `path` may name a layer of a stack, as "blocks/3" does where the entries are
 * "blocks/{}/norm/scale":
 * then the arrays are views of its rows (copies, where the layers' axis is not in front). A layer called with such a
 * list is a part of the model with the whole's parameters (tow_model_function_create, tow_model_forward_graph). "":
 * everything. Error: TOW_NOT_FOUND. */
TOW_API tow_status tow_params_subtree(const tow_params *params, const char *path, tow_params **part);
/* The same entries below `path`: the opposite of tow_params_subtree. */
TOW_API tow_status tow_params_under(const tow_params *params, const char *path, tow_params **whole);
/* Other paths for entries that match: "$1" in a replacement is the text that the first star of the pattern stands for,
 * up to "$9", "$0" is the whole path and "$$" is '$'. The first rule that matches counts; entries that none matches
 * keep their paths. {"h_**", "blocks_$1"}, for instance.
 * Errors: also TOW_INVALID_ARGUMENT for a replacement with more captures than its pattern has stars, for what is no
 * path, and for two entries of one path. */
typedef struct tow_path_rule {
    const char *pattern, *replacement;
} tow_path_rule;
TOW_API tow_status tow_params_rename(const tow_params *params, size_t n, const tow_path_rule *rules,
                                     tow_params **renamed);
/* A list with an entry for each layer of each stack: "blocks/0/attn/kernel", "blocks/1/attn/kernel", views of the rows
 * of "blocks/{}/attn/kernel", and copies of those of "blocks/{@1}/attn/kernel". They are the parameters of the model
 * without its scans. */
TOW_API tow_status tow_params_unstack(const tow_params *params, tow_params **layers);
/* The opposite for one scan, with copies: entries "blocks/0/attn/kernel" to "blocks/11/attn/kernel" become
 * "blocks/{}/attn/kernel" with an axis of 12 more, if `scan` is "blocks". A scan within it is "blocks/{}/inner"
 * afterwards. axis: where the stacks have the new axis, as .axis of a rule puts it (tow/module.h); of another one than
 * 0 the path tells, "blocks/{@1}/attn/kernel".
 * Errors: TOW_NOT_FOUND for no such layers, and for one that is missing; TOW_TYPE_MISMATCH for layers that differ;
 * TOW_INVALID_ARGUMENT for an axis that one of the stacks does not have. */
TOW_API tow_status tow_params_stack(const tow_params *params, const char *scan, int axis, tow_params **stacked);

/* ---- frozen parameters ------------------------------------------------------------------------------------------- */

/* Marks the entries that match, or takes the mark away: tow_model_function_create_value_and_grad takes no gradients
 * with respect to marked ones, and tow_optimizer_create leaves them alone, so that the gradients of the one are those
 * that the other expects. patterns NULL: all. Layers of a stack are frozen together. */
TOW_API tow_status tow_params_freeze(tow_params *params, const char *const *patterns, bool frozen);
TOW_API bool tow_params_is_frozen(const tow_params *params, size_t index);
/* The entries that are not frozen. */
TOW_API tow_status tow_params_trainable(const tow_params *params, tow_params **trainable);

/* ---- values of whole lists --------------------------------------------------------------------------------------- */

/* The same paths with copies of the arrays. */
TOW_API tow_status tow_params_copy(const tow_params *params, tow_params **copy);
/* Copies the values of `from` into the arrays of `to` that have the same paths; `to` may have others. Errors:
 * TOW_NOT_FOUND, TOW_TYPE_MISMATCH with the path; then nothing is copied. */
TOW_API tow_status tow_params_assign(tow_params *to, const tow_params *from);
/* The same with values converted to the types of `to`: floats to floats (tow_array_convert), and to and from blocks of
 * few bits. So weights that a model has in f32 become those of the same model under TOW_PRECISION(&model,
 * .param_dtype = TOW_Q8_0), whose kernels are turned (tow/module.h):
 *     tow_params_convert(quantized, params)
 * Every path of `to` is in `from`, which may have others. The axes of layers of both are in front. Errors:
 * TOW_NOT_FOUND, TOW_TYPE_MISMATCH and TOW_SHAPE_MISMATCH with the path; then nothing is copied. */
TOW_API tow_status tow_params_convert(tow_params *to, const tow_params *from);
/* Called for each path: arrays[n] of the lists, of any types, -> result, zeros at first, of the first array's type.
 * NULL where the caller wants no list of results. Any status but TOW_OK ends the walk. */
typedef tow_status (*tow_params_function)(const char *path, size_t n, tow_array *const *arrays, tow_array *result,
                                          void *user);
/* The list of what `function` makes of the arrays of one list, or of n lists with the same paths (in any order). result
 * NULL: the function is only called. Errors: what the function returns, with the path; TOW_NOT_FOUND for a path that is
 * not in all lists. */
TOW_API tow_status tow_params_map(const tow_params *params, tow_params_function function, void *user,
                                  tow_params **result);
TOW_API tow_status tow_params_zip(size_t n, const tow_params *const *lists, tow_params_function function, void *user,
                                  tow_params **result);
/* Elements of the entries that match one of the patterns; NULL: of all. */
TOW_API int64_t tow_params_element_count(const tow_params *params, const char *const *patterns);

/* The difference of two lists. */
typedef struct tow_params_difference {
    size_t only_a, only_b; /* paths that the other list does not have */
    size_t types;          /* paths with other types */
    size_t arrays;         /* arrays of the same type with other bits */
    int64_t elements;      /* in them, elements with other bits */
    double largest;        /* largest |a - b| among these; infinite where one is NaN and the other is not */
    const char *where; /* path of the first difference, in the order of a and then of b; NULL: the lists are equal */
} tow_params_difference;
/* Paths may be in any order. `where` belongs to the lists. */
TOW_API tow_params_difference tow_params_compare(const tow_params *a, const tow_params *b);
/* The same paths, types and bits. */
TOW_API bool tow_params_equal(const tow_params *a, const tow_params *b);
/* A line for each difference, and the totals; like snprintf. "": the lists are equal. */
TOW_API size_t tow_params_compare_text(const tow_params *a, const tow_params *b, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
