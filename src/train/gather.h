/* Gradients before an update: the sum of those of several calls, and whether they are finite. */
#ifndef TOW_SRC_TRAIN_GATHER_H
#define TOW_SRC_TRAIN_GATHER_H

#include "tow/ops.h"
#include "tow/params.h"

/* The gradients of `every` calls, added up. */
typedef struct tow__gathering tow__gathering;

/* For gradients of the parameters' types. sum: their sum is wanted instead of their mean. weighted: each call has a
 * weight, by which the mean or the sum is made. */
tow_status tow__gathering_create(tow_context *ctx, const tow_params *params, size_t every, bool sum, bool weighted,
                                 tow__gathering **gathering);
/* NULL is accepted. */
void tow__gathering_free(tow__gathering *gathering);
/* Adds gradients; *complete receives the mean (or sum) of all, which belongs to the gathering, or NULL if there are
 * more to come. weight: at least 0; gradients of weight 0 count for nothing, NaN included. Error: TOW_INVALID_ARGUMENT
 * for a mean of weights that are all 0. */
tow_status tow__gathering_add(tow__gathering *gathering, tow_array *const *gradients, double weight,
                              tow_array *const **complete);
/* Returns the number of calls that were added since the last complete sum, and forgets them. */
size_t tow__gathering_count(const tow__gathering *gathering);
void tow__gathering_forget(tow__gathering *gathering);

/* Equations that add gradients up, here and in the program of a training step: the type of a sum; a term with its
 * weight, f64[], which is 0 where the weight is 0, whatever x is; and the mean of a complete sum of `every` calls,
 * whose weights add up to `weights` (null: they have none), for gradients of `dtype`. */
tow_type tow__gradient_sum_type(tow_type type);
tow_value tow__gradient_term(tow_value x, tow_dtype sum_dtype, tow_value weight);
tow_value tow__gradient_mean(tow_value sum, size_t every, tow_value weights, tow_dtype dtype);
/* Of the gradients of these parameters: *norm, f64[], the root of the sum of the squares; *finite, bool[], no element
 * is NaN or infinite. by_lines: in the order of norms.h that does not depend on shares. */
void tow__record_norm(tow_trace *trace, const tow_params *params, bool by_lines, const tow_value *gradients,
                      tow_value *norm, tow_value *finite);

/* The graph of that by lines, gradients... -> norm, finite. */
tow_status tow__norm_graph(tow_context *ctx, const tow_params *params, tow_graph **graph);

/* The norm of all gradients. */
typedef struct tow__norm tow__norm;

tow_status tow__norm_create(tow_context *ctx, const tow_params *params, tow__norm **norm);
/* NULL is accepted. */
void tow__norm_free(tow__norm *norm);
/* *value (may be NULL): the root of the sum of the squares, in f64; *finite: no element is NaN or infinite. */
tow_status tow__norm_run(tow__norm *norm, tow_array *const *gradients, double *value, bool *finite);

#endif
