/* Convolutions: what the ways to compute one share. conv.c picks a way by sizes alone, which cuts of the batch and of
 * features leave as they are:
 *   conv_rows.c       sums over few taps: for each tap, products of rows of positions with the kernel
 *   conv_gathered.c   the same for results that are narrow along w, or a kernel whose rows are short: for blocks of
 *                     positions of all axes and entries, products of what some taps meet, gathered in a tile
 *   conv_sums.c       sums over many positions, which is what the gradients of kernels are
 *   conv_channels.c   groups of one feature: vectors of channels, without products
 * Their bits are those of the own kernel of products, whatever the instruction set and the threads. Each makes rows of
 * features that lie together. Operands of other layouts are brought to this form piece by piece; results in which
 * positions along w lie together are transposed block by block, other results as a whole. No array of patches is ever
 * made. An epilogue runs on blocks of the result that are complete and still in cache.
 *
 * Operands of 16 bits are widened where these pieces are made: the left operand in rows, tiles, strips and vectors, the
 * kernel in panels. If both operands are bf16 and a unit for bf16 takes their products (products/gemm_bf16.h), pieces
 * stay bf16 and are multiplied there, with the bits of the unit: one chain for all taps of a tile, or for all positions
 * of a block; tiles and blocks are added in order. */
#ifndef TOW_SRC_KERNELS_CONV_H
#define TOW_SRC_KERNELS_CONV_H

#include "src/base/window.h"
#include "src/kernels/products/gemm.h"

/* A convolution as loops: spatial axes, the last two of which (h and w) are always there; axes of 1x1 kernels are
 * joined where they lie so. Strides are in bytes. */
typedef struct tow__conv {
    tow_dtype dtype;            /* of sums and of the result */
    int64_t size;               /* bytes of an element */
    tow_dtype x_dtype, w_dtype; /* of the operands as they are stored */
    int64_t x_size, w_size;
    const tow__gemm_engine *unit; /* that multiplies stored bf16; NULL: none */
    int spatial;
    tow__window_axis axes[TOW_MAX_RANK];
    int64_t x[TOW_MAX_RANK], w[TOW_MAX_RANK], y[TOW_MAX_RANK];
    int64_t groups, batch, inputs,
        features; /* of each group: entries of the result, summed features, result features */
    int64_t x_entry, x_input, x_group;
    int64_t w_input, w_feature, w_group;
    int64_t y_entry, y_group, y_feature; /* y_feature is `size`, but for ways that make the result in blocks */
    int64_t positions, taps;
    bool gathers; /* without groups of one feature, the taps of a position would be gathered and be one product */
} tow__conv;

typedef struct tow__conv_run {
    const tow__conv *c;
    const char *x, *w;
    char *y;
    char *scratch;
    const tow__team *team;         /* NULL: the work is too small for threads */
    int threads;                   /* for which scratch memory was asked */
    const tow__epilogue *epilogue; /* NULL: none, or it runs when all of the result is complete */
    tow__gemm_choice choice;
} tow__conv_run;

typedef struct tow__conv_way {
    const char *engine;
    const char *reason; /* for plans */
    bool transposes;    /* writes results in which positions along w lie together, and features do not */
    bool batch_last;    /* makes results with the batch between positions and features */
    size_t (*scratch)(const tow__conv *c, int threads);
    void (*run)(const tow__conv_run *r);
} tow__conv_way;
extern const tow__conv_way tow__conv_rows, tow__conv_gathered, tow__conv_sums, tow__conv_channels,
    tow__conv_channel_sums;

/* Taps that are gathered in a tile at a time. */
static inline int64_t tow__conv_taps_at_once(const tow__conv *c)
{
    enum {
        TILE_K = 1024 /* elements of a position in a tile, about */
    };
    return tow__min(c->taps, tow__max(1, TILE_K / c->inputs));
}

static inline size_t tow__conv_round(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* C = A B or C + A B for a piece of k that has its own blocks, on the own kernel or the unit. */
static inline void tow__conv_product(const tow__conv_run *r, tow__gemm *g)
{
    g->dtype = r->c->dtype;
    g->threads = 1;
    g->choice = &r->choice;
    tow__gemm_run(g, r->c->unit != NULL ? r->c->unit : &tow__gemm_own);
}

/* The epilogue on `times` strips of n elements of the result, the first of which begins at y; bytes from one to the
 * next. */
static inline void tow__conv_epilogue(const tow__conv_run *r, const char *y, int64_t times, int64_t step, int64_t n)
{
    if (r->epilogue != NULL) r->epilogue->run(r->epilogue->user, (y - r->y) / r->c->size, times, step / r->c->size, n);
}

/* True if the left operand has 16 bits and is widened. */
static inline bool tow__conv_widens(const tow__conv *c) { return c->x_size != c->size && c->unit == NULL; }
/* Bytes of an element of the left operand in tiles. */
static inline int64_t tow__conv_tile_size(const tow__conv *c) { return c->unit != NULL ? c->x_size : c->size; }

/* rows x columns elements of the kernel, whose strides are in bytes, to contiguous memory, as they are stored. */
void tow__conv_copy(const tow__conv *c, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                    char *to);
/* The same of the left operand, as tiles have it, to rows that begin `to_row` bytes apart. */
void tow__conv_read(const tow__conv *c, const char *from, int64_t rows, int64_t row, int64_t columns, int64_t column,
                    char *to, int64_t to_row);

/* Of a sum over positions: rows of h of a block, whose positions are one chain of multiply-adds (or more, if one row is
 * longer than those of products). */
int64_t tow__conv_block_rows(const tow__window_axis *h, const tow__window_axis *w);
/* The positions of such a block. */
int64_t tow__conv_block_positions(const tow__conv *c);
/* Result position p and tap k of all axes but h and w: offsets, with these strides of the operands. False: they meet
 * padding. */
bool tow__conv_outer(const tow__conv *c, const int64_t *x_strides, const int64_t *w_strides, int64_t p, int64_t k,
                     int64_t *x, int64_t *w, int64_t *y);

#endif
