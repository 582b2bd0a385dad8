/* Products that are made in parts: their contracted axes are cut into blocks, which are added to the result in
 * order. */
#ifndef TOW_SRC_KERNELS_DOT_H
#define TOW_SRC_KERNELS_DOT_H

#include "src/base/params.h"
#include "src/kernels/kernel.h"

/* Elements of k that are summed before they are added to the result, where the product can be made in parts; else 0.
 * Data pointers are not read. Parts (tow__sum_part) are called on one block of k of both operands after the other, with
 * this depth of the whole product. The bits are those of the whole if every part but the last is a multiple of it. */
int64_t tow__dot_kc(const tow__kernel_call *call);

/* True if the product p of operands of types x and y, of which some have 16 bits, has the bits of the product of f32 of
 * the same numbers: if no unit runs two operands of bf16, as what they are or as f32. */
bool tow__dot_has_bits_of_f32(const tow__team *team, const tow__dot_params *p, tow_type x, tow_type y);

/* Parameters of pack_operand, which makes of operand 1 of products what their engine wants. Products with any number of
 * rows in operand 0 then have it as operand 2, behind operand 1, and the same bits as without it. */
typedef struct tow__dot_pack_params {
    tow__dot_params dot;
    tow_dtype with; /* the type of operand 0 */
    const struct tow__gemm_engine *engine;
} tow__dot_pack_params;

/* Bytes of operand 1 of a product, packed, and how to pack it. 0: its engine gains nothing by that. Data pointers are
 * not read. */
size_t tow__dot_packed(const tow__kernel_call *call, tow__dot_pack_params *params);
/* Writes rows and columns of p: those of a product of arrays of these types. Engines are chosen by them (gemm.h), so
 * that what cuts or joins rows later changes no bits. */
void tow__dot_sizes(tow__dot_params *p, tow_type x, tow_type y);

#endif
