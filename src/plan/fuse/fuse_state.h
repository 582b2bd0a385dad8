/* Fusion in three files: fuse/fuse.c chooses the instructions of groups, fuse/row_program.c writes the row program of a
 * group, fuse/fuse_reductions.c adds reductions of what a program makes. */
#ifndef TOW_SRC_PLAN_FUSE_STATE_H
#define TOW_SRC_PLAN_FUSE_STATE_H

#include "src/kernels/elementwise/fused.h"
#include "src/plan/fuse/fuse.h"
#include "src/plan/pass.h"

typedef struct tow__group {
    uint32_t *members; /* instructions, ascending */
    uint32_t n, position;
    tow_type shape; /* of the results; its dtype says nothing */
    int64_t count;
    uint32_t product; /* the member that is one, or TOW__NONE */
    bool fusible, backward;
    int shift;    /* of its instructions */
    bool updates; /* a member belongs to an update */
} tow__group;

typedef struct tow__fuse_state {
    tow__function_state *s; /* the function; the next fields are its program, body and memory */
    tow_program *p;
    tow__body *body;
    tow__arena *scratch;
    const tow__uses *uses;
    tow__tile *tiles;   /* [n_insts] NULL: not elementwise */
    tow__group *groups; /* [n_insts] */
    uint32_t *group_of; /* [n_insts] */
    uint32_t *order;    /* [n_insts] position -> group, or TOW__NONE where one has moved away */
    uint32_t n_order;
    uint32_t *reduced;   /* [n_storages] reads by reductions that fuse-reductions may join to the maker */
    const bool *updates; /* [n_insts] it belongs to an update (analysis/updates.c) */
    uint32_t *recent;    /* [n_storages] elementwise instruction that read it most recently, or TOW__NONE */
    bool retries;        /* the second walk: groups merge only if fewer bytes are alive then */
} tow__fuse_state;

/* A group as one instruction: operands, results and the row program. Values are numbered as in that. */
typedef struct tow__candidate {
    tow__fused_op ops[TOW__FUSED_OPS];
    tow__view in[TOW__FUSED_IN], out[TOW__FUSED_OUT];
    uint8_t sizes[TOW__FUSED_TEMPS];
    uint32_t n_ops, n_in, n_out, n_temps;
    uint32_t product;     /* instruction, or TOW__NONE */
    uint32_t accumulator; /* the result in whose memory the product is computed */
    bool keeps_product;   /* an instruction outside of the group reads the product */
} tow__candidate;

static inline bool tow__same_dims(tow_type a, tow_type b)
{
    b.dtype = a.dtype;
    return tow_type_equal(a, b);
}

/* Fills *f, but for the groups. */
tow_status tow__begin_fusion(tow__fuse_state *f, tow__function_state *s);
/* Call it before the function gets its new instructions. */
void tow__end_fusion(tow__fuse_state *f);
/* False if the members of both groups (b may be NULL) cannot run as one program on this shape. */
bool tow__write_program(const tow__fuse_state *f, const tow__group *a, const tow__group *b, tow_type shape,
                        tow__candidate *c);
/* The program of a candidate, which gets numbers without gaps; says for each result whether operands are read after it
 * is made. NULL: out of memory. */
tow__fused *tow__finish_program(const tow__fuse_state *f, tow__candidate *c);
/* True if the instruction is a reduction that may become a part of the row program that makes its operand. */
bool tow__is_fusible_reduction(const tow__fuse_state *f, const tow__instruction *inst);

#endif
