/* Tile groups while they are formed: shared by tile/tile_groups.c, which finds their instructions, and tile/tiles.c,
 * which builds them. */
#ifndef TOW_SRC_PLAN_TILER_H
#define TOW_SRC_PLAN_TILER_H

#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

/* Where a storage is made, as far as the tile group at hand is concerned. */
typedef enum tow__defined {
    TOW__DEFINED_OUTSIDE,
    TOW__DEFINED_INSIDE,
    TOW__DEFINED_LATER /* by an instruction that was put off, or complete only when the tile group ends */
} tow__defined;

/* What an instruction may be in a tile group. */
typedef enum tow__axis_role {
    TOW__NOT_TILEABLE,   /* nothing */
    TOW__PARALLEL_AXIS,  /* it works row by row */
    TOW__CONTRACTS_AXIS, /* with `ordered`: it is a product that sums over rows, */
    TOW__REDUCES_AXIS    /* or a reduction over them */
} tow__axis_role;

typedef struct tow__tiler {
    tow__function_state *s; /* the function; what follows is its program, body and memory */
    tow_program *p;
    tow__body *body;
    tow__arena *scratch;
    const tow__instruction *insts; /* as lowered */
    uint32_t n_insts;
    int64_t units; /* equal parts of axis 0, of which blocks are made */
    bool ordered;  /* blocks run one after the other, and sums may go over them */
    bool near;     /* no products: blocks only keep rows near */
    const tow__uses *uses;
    const tow__cost *cost;
    const tow__tiling *tiling;
    tow__defined *made; /* [n_storages] */
    uint32_t *reads_inside; /* [n_storages] operands of instructions `inside` that name it, once those are chosen */
    bool *counted;      /* [n_storages] its bytes count as deferred */
    uint32_t *inside;   /* instructions of the tile group at hand */
    uint32_t *deferred; /* instructions put off */
    uint32_t n_inside, n_deferred;
    uint32_t reach; /* instruction at which the collection ended */
    size_t peak;    /* most bytes alive at one instruction if the instructions ran as they stand */
    size_t rows;    /* bytes of the rows of the surrounding loop that they read and write */
    size_t deferred_bytes;
    int *from;             /* [operands] of the instruction at hand: 0 or TOW__WHOLE */
    tow__axis_role *parts; /* [n_insts] */
    uint32_t *lanes;       /* [n_insts] what a reduction has added of a segment so far, or TOW__NONE */
} tow__tiler;

/* What the instruction may be in a tile group, going by itself alone; fills f->from. */
tow__axis_role tow__axis_role_of(const tow__tiler *f, const tow__instruction *inst);
/* Is a tile group of the instructions `inside` worth it, if there are no products in it? */
tow_status tow__is_profitable(const tow__tiler *f, bool *spares);
/* Where a sum over rows may be cut: between multiples of `depth` elements. */
typedef struct tow__grain {
    int64_t depth, per_unit; /* elements of the sum in a unit */
} tow__grain;

/* Of an instruction that sums or reduces. */
tow__grain tow__sum_grain(const tow__tiler *f, const tow__instruction *inst);
/* The instructions `inside` as one loop over blocks of `size` units, from unit `first` on. continues: sums go on where
 * the loop before this one left them. */
tow_status tow__build_tile_group(tow__tiler *f, tow__lowering *l, int64_t first, int64_t blocks, int64_t size,
                                 bool continues);

#endif
