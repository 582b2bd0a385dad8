/* Two primitives that Tow does not have. Both functions return NULL with the message in the context. */
#ifndef OWN_H
#define OWN_H

#include <tow/tow.h>

/* x [T, D] f32, angles [T, D/2] f32 -> [T, D]: each pair (x[2k], x[2k+1]) turned by its angle; differentiated by x. */
const tow_primitive *define_rotary(tow_context *context);
tow_value rotary(tow_value x, tow_value angles);

/* A sparse matrix in rows, times a dense one: values [N] f32, columns [N] i32, starts [M+1] i32, dense [K, C] f32 ->
 * [M, C]. Columns and starts must be those of a matrix with K columns. Differentiated by values and dense. */
const tow_primitive *define_csr(tow_context *context);
tow_value csr_matmul(tow_value values, tow_value columns, tow_value starts, tow_value dense);

#endif
