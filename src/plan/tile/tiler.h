/* Tile groups while they are formed: shared by tile/tile_groups.c, which finds their instructions, and tile/tiles.c,
 * which builds them. */
#ifndef TOW_SRC_PLAN_TILER_H
#define TOW_SRC_PLAN_TILER_H

#include "src/plan/analysis/axis.h"
#include "src/plan/lower/lower.h"
#include "src/plan/pass.h"

/* The place where a storage is defined, as seen from the tile group at hand. */
typedef enum tow__defined {
    TOW__DEFINED_OUTSIDE,
    TOW__DEFINED_INSIDE,
    TOW__DEFINED_LATER /* by a deferred instruction, or by a sum, which is complete only when the tile group ends */
} tow__defined;

typedef struct tow__tiler {
    tow__function_state *s; /* the function; the next fields are its program, body and memory */
    tow_program *p;
    tow__body *body;
    tow__arena *scratch;
    const tow__instruction *insts; /* as lowered */
    uint32_t n_insts;
    int64_t units;         /* equal parts of the axis; a tile is a number of units */
    bool ordered;          /* tiles run one after the other, and sums may go over them */
    bool without_products; /* the function has no products: tiles only keep rows in L2 */
    const tow__uses *uses;
    const tow__cost *cost;
    const tow__tiling *tiling;
    bool named; /* the tiling is that of a propagated axis: of the instructions as they are now */
    tow__defined *defined;  /* [n_storages] */
    uint32_t *reads_inside; /* [n_storages] operands of instructions `inside` that name it, once those are chosen */
    bool *counted;          /* [n_storages] its bytes are in deferred_bytes */
    uint32_t *inside;       /* instructions of the tile group at hand */
    uint32_t *deferred;     /* instructions that wait until the group ends */
    uint32_t n_inside, n_deferred;
    uint32_t reach;        /* the instruction behind the last one that was looked at for the group at hand */
    size_t peak;           /* most bytes alive at one instruction without tile groups */
    size_t rows;           /* bytes of the rows of the surrounding loop that instructions read and write */
    size_t deferred_bytes; /* of operands of deferred instructions that live longer because of that */
    int *from;             /* [operands] of the instruction at hand: the axis that is cut, or TOW__WHOLE */
    tow__axis_role *roles; /* [n_insts] */
    uint32_t *lanes;       /* [n_insts] what a reduction has added of a segment so far, or TOW__NONE */
} tow__tiler;

/* The role of the instruction in a tile group. Contractions and reductions are for ordered tile groups only, along the
 * outermost axis of their operands. Fills f->from as well. */
tow__axis_role tow__axis_role_of(const tow__tiler *f, const tow__instruction *inst);
/* Does a tile group of the instructions `inside`, none of which is a product, save memory traffic? */
tow_status tow__is_profitable(const tow__tiler *f, bool *profitable);
/* The places where a sum over rows may be cut: between multiples of `depth` elements. */
typedef struct tow__grain {
    int64_t depth, per_unit; /* elements of the sum in a unit */
} tow__grain;

/* instruction: one that contracts or reduces the axis. */
tow__grain tow__sum_grain(const tow__tiler *f, const tow__instruction *inst);
/* The instructions `inside` as one loop over blocks of `size` units, from unit `first` on. continues: sums go on where
 * the loop before this one left them. */
tow_status tow__build_tile_group(tow__tiler *f, tow__lowering *l, int64_t first, int64_t blocks, int64_t size,
                                 bool continues);

#endif
