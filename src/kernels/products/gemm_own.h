/* Inside the own kernel of matrix products: what its versions for instruction sets share. See gemm_own.inc. */
#ifndef TOW_SRC_KERNELS_GEMM_OWN_H
#define TOW_SRC_KERNELS_GEMM_OWN_H

#include "src/kernels/products/gemm.h"

enum {
    TOW__GEMM_KC = 384 /* longest block of k; part of the definition of the bits */
};

/* Length of the blocks of k (the last may be shorter), 0 if there are none: decided by k alone. */
static inline int64_t tow__gemm_kc(int64_t k)
{
    if (k == 0) return 0;
    int64_t blocks = tow__ceil_div(k, TOW__GEMM_KC);
    return tow__min(k, tow__ceil_div(tow__ceil_div(k, blocks), 16) * 16);
}

/* The cache into which the next panel of a B that was not packed beforehand is prefetched. */
typedef enum tow__gemm_fetch {
    TOW__FETCH_TO_L2,
    TOW__FETCH_TO_L1,
    TOW__FETCH_NOTHING
} tow__gemm_fetch;

/* The order in which the own kernel goes through a product: the best numbers depend on the caches of a machine, and no
 * bits depend on them. Zero means what the version for an instruction set does by itself. */
typedef struct tow__gemm_tuning {
    int64_t packed_panels; /* an A that runs along k is packed where C has more panels (of 2 vectors) than these */
    int64_t rows;          /* of a tile, at most */
    int64_t block;         /* rows of A that are used again and again while they are in L2, at most */
    int64_t thin;          /* k up to which C is written row by row, and not panel by panel */
    tow__gemm_fetch fetch;
} tow__gemm_tuning;

/* The tuning that suits this machine, or that of the choice of g. */
const tow__gemm_tuning *tow__gemm_tuning_of(const tow__gemm *g);
/* The tuning for g with which it needs the most scratch memory, whatever timings will say. */
const tow__gemm_tuning *tow__gemm_tuning_at_most(const tow__gemm *g);

/* One of several products with the same B: C = A B, or C + A B if it adds. */
typedef struct tow__gemm_member {
    const void *a;
    void *c;
    bool adds;
    bool completes; /* the epilogue runs on C */
} tow__gemm_member;

/* Products of A of the same shape [m, k], which run along k, with one B [k, n] that was packed (tow__gemm_pack, with as
 * many columns), all in near caches: rows of an image with a row of a kernel, for instance. Bits are those of single
 * products, each of which is a part along k of a whole product with this kc. Strides are in elements; m, n, k > 0. */
typedef struct tow__gemm_series {
    tow_dtype dtype;
    int64_t m, n, k, kc;
    int64_t a_row, ldc;
    const void *packed;
    const tow__gemm_member *members;
    int64_t count;
    const tow__gemm_choice *choice;
    /* Called on rows [row, row + rows) and columns [column, column + columns) of a C that are complete and still in
     * cache, as many as the epilogue of a tow__gemm gets at once. May be NULL. */
    void (*epilogue)(void *user, const tow__gemm_member *member, int64_t row, int64_t rows, int64_t column,
                     int64_t columns);
    void *user;
} tow__gemm_series;

/* Runs on the own kernel. */
void tow__gemm_run_series(const tow__gemm_series *s);

/* An A of m rows and so many positions along k, in strips of the own kernel: tow__gemm_lay_strips writes them. */
typedef struct tow__gemm_strips {
    tow_dtype dtype;
    tow_dtype stored; /* of what is laid, if that has 16 bits; else 0 */
    int64_t m, positions;
    void *data; /* [m * positions] */
    const tow__gemm_choice *choice;
} tow__gemm_strips;

/* Writes positions [first, first + count) of all rows. Row i has position first + p at `from`, i rows and p columns
 * further on; strides are in elements. NULL: these positions are zeros. */
void tow__gemm_lay_strips(const tow__gemm_strips *s, int64_t first, int64_t count, const void *from, int64_t row,
                          int64_t column);

/* A B of k positions and n columns as the own kernel packs it: tow__gemm_lay_panels writes it. `data` has room for a
 * multiple of TOW__GEMM_PACKED_COLUMNS columns. */
typedef struct tow__gemm_panels {
    tow_dtype dtype;
    tow_dtype stored; /* as of strips */
    int64_t n, k;
    void *data;
    const tow__gemm_choice *choice;
} tow__gemm_panels;

/* The same for positions of all columns: p rows and j columns behind `from`. */
void tow__gemm_lay_panels(const tow__gemm_panels *s, int64_t first, int64_t count, const void *from, int64_t row,
                          int64_t column);

/* A product with k positions of strips, from `first` on. */
typedef struct tow__gemm_window {
    int64_t first;
    void *c;
} tow__gemm_window;

/* Products of windows of one A with one B [k, n]: what a cotangent meets of an image at each tap of a
 * kernel, for instance. C = A B, or C + A B for all of them. The bits are those of single products, each of which is a
 * part along k of a whole product with this kc. m, n, k > 0. */
typedef struct tow__gemm_windows {
    const tow__gemm_strips *strips;
    const tow__gemm_panels *panels;
    int64_t kc, ldc;
    const tow__gemm_window *windows;
    int64_t count;
    bool adds;
} tow__gemm_windows;

/* Runs on the own kernel. */
void tow__gemm_run_windows(const tow__gemm_windows *s);

typedef struct tow__gemm_version {
    const char *text;
    void (*run)(const tow__gemm *g); /* m, n, k > 0; of its type */
    void (*run_series)(const tow__gemm_series *s);
    void (*lay_strips)(const tow__gemm_strips *s, int64_t first, int64_t count, const void *from, int64_t row,
                       int64_t column);
    void (*lay_panels)(const tow__gemm_panels *s, int64_t first, int64_t count, const void *from, int64_t row,
                       int64_t column);
    void (*run_windows)(const tow__gemm_windows *s);
    size_t (*scratch)(const tow__gemm *g);
    size_t (*packed)(const tow__gemm *g);
    void (*pack)(const tow__gemm *g);
} tow__gemm_version;

extern const tow__gemm_version tow__gemm_plain_version, tow__gemm_plain_f64_version;
#if defined(__x86_64__)
extern const tow__gemm_version tow__gemm_avx2_version, tow__gemm_avx512_version;
extern const tow__gemm_version tow__gemm_avx2_f64_version, tow__gemm_avx512_f64_version;
#endif

/* In gemm_amx_run.c: f32; m, n, k > 0; only if tow__gemm_amx_usable. */
void tow__gemm_amx_run(const tow__gemm *g);
size_t tow__gemm_amx_scratch(const tow__gemm *g);
size_t tow__gemm_amx_packed(const tow__gemm *g);
void tow__gemm_amx_pack(const tow__gemm *g);

#endif
