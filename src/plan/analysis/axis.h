/* Axis propagation: which axis of every value follows a named axis of some inputs.
 *
 *   input   x [batch, seq, model]         the named axis: batch, axis 0 of x
 *           t = transpose x               [seq, batch, model]: axis 1 follows
 *           y = dot t w                   axis 1, by the tiling rule of dot_general; w does not depend on the axis
 *           g = dot x y, over batch, seq  a sum over the axis: each block of it gives a part, and the parts add up
 *           s = sort y along batch        mixes: no axis of s follows
 *
 * Compilers propagate shardings in this way. Here tile groups ask which instructions a block of the axis passes
 * through, and a step that several processes share may ask which results are sums over their blocks.
 *
 * Views carry axes through whatever only rearranges. An axis of a value is described by its span, the elements of the
 * storage from the beginning of the axis until it begins again: in a storage [outer, length, inner] these are length *
 * inner. So axis j of a view follows if dims[j] * strides[j] is the span, and if the axes inside of it stay within one
 * of its elements: transposed, split with its major part first, merged with axes behind it, cut along other axes. */
#ifndef TOW_SRC_PLAN_AXIS_H
#define TOW_SRC_PLAN_AXIS_H

#include "src/plan/ir.h"

/* The effect of an instruction on the axis. */
typedef enum tow__axis_role {
    TOW__NOT_TILEABLE,   /* it mixes elements of the axis */
    TOW__PARALLEL_AXIS,  /* an axis of its results follows: it computes each element of that by itself */
    TOW__CONTRACTS_AXIS, /* it is a product that sums over the axis: parts of it, from blocks of the axis, add up */
    TOW__REDUCES_AXIS,   /* it is a reduction over the axis, whose parts join as its elements do */
    TOW__WITHOUT_AXIS    /* no operand depends on the axis */
} tow__axis_role;

/* The span of a storage along the axis. */
enum {
    TOW__NO_SPAN = 0,    /* the storage does not depend on the axis, or a sum over it is complete */
    TOW__MIXED_SPAN = -1 /* it depends on the axis, and no axis of it follows */
};

/* An instruction as seen from the axis. */
typedef struct tow__axis_step {
    tow__axis_role role;
    int axis;                      /* of the results, TOW__WHOLE: none follows */
    int *from;                     /* [n_in] the axis of each operand that is cut into blocks; TOW__WHOLE: none */
    struct tow__axis_flow *inside; /* of a loop: its body */
} tow__axis_step;

typedef struct tow__axis_flow {
    const tow__body *body;
    tow__axis_step *steps; /* [n_insts] */
    int64_t *span;         /* [n_storages] of the program; the flows of all bodies share it */
    int64_t blocks;        /* the most blocks of equal size into which the axis can be cut wherever it passes; 0: any */
} tow__axis_flow;

/* An axis where it begins: axis `axis` of a view that is whole. */
typedef struct tow__axis_seed {
    uint32_t storage;
    tow_type type;
    int axis;
} tow__axis_seed;

/* Propagates the axis, which begins in each of the seeds, through the function and the bodies of its loops, in the
 * order in which instructions stand. For functions on views. NULL: out of memory. */
tow__axis_flow *tow__propagate_axis(tow_program *p, const tow__body *body, const tow__axis_seed *seeds, uint32_t n,
                                    tow__arena *scratch);
/* Gives back what all flows of the program share. */
void tow__free_axis_flow(tow_program *p, const tow__axis_flow *flow, const tow__axis_seed *seeds, uint32_t n);

/* The axis of x that follows; TOW__WHOLE: x does not depend on the axis, or no axis of it follows. */
int tow__following_axis(const tow__axis_flow *flow, const tow__view *x);
/* Does it depend on the axis without following it? */
bool tow__mixes_axis(const tow__axis_flow *flow, uint32_t storage);
/* Is instruction i a sum, or another reduction, over the axis, so that its results are complete only when those of all
 * blocks are joined? What is added to an operand (tow__addition) is added to it once. */
bool tow__sums_axis(const tow__axis_flow *flow, uint32_t i);

/* The axis of x whose elements lie `span` apart in all, as the head of this file says; TOW__WHOLE: there is none. */
int tow__axis_of_span(const tow__view *x, int64_t span);
/* The span of `axis` of an array of this type that is whole. */
int64_t tow__span_of(tow_type type, int axis);

#endif
