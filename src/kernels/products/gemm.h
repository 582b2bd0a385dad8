/* Products: what dot_general (dot.c), a product with what follows it (fused_dot.c) and sums of products over the
 * iterations of a scan (sum_dots.c) are made of. This header is the contract of matrix products, whatever computes
 * them.
 *
 *   C[m, n] (row-major, rows ldc apart) = A[m, k] B[k, n], or C + A B with accumulate
 *
 * Strides are in elements; those of A and B are positive, so transposes are strides.
 *
 * Bits. An engine that `cuts` gives each element of C bits that depend on its row of A, its column of B and k alone:
 * not on threads, nor on which rows and columns share the call, nor on strides. So callers may cut m and n as they
 * like, if all parts run on one engine, or on engines with the same bits. With accumulate, the engines of this library
 * round the element of A B as they would alone, then add it to C: the same as a product followed by an addition.
 *
 * The own kernel defines an element exactly: k is cut into kc blocks (tow__gemm_kc), each block is one chain of fused
 * multiply-adds from 0 in the order of k, and blocks are added in order. All its instruction sets have the same bits.
 * The matrix unit (amx) has the same blocks, with another arithmetic in each (gemm_amx_run.c), whose errors are like
 * those of the chain, mostly half of them. So on both a product may also be made in parts along k, of whole blocks but
 * for the last: each says the `kc` of the whole product, and all but the first accumulate, which then means that blocks
 * are added to C one by one.
 *
 * Engines. gemm.c has their table, in the order of preference: amx, avx512_bf16, own, blis, xsmm and reference; only
 * the last one accepts every product. libxsmm and BLIS have the bits of the own kernel: a trial proves it for the code
 * of every shape, and what has no proof runs on the own kernel (gemm_trial.h). The own kernel is compiled in plain C,
 * for AVX2 and for AVX-512, and gemm_own.c picks the best version that the processor has. Options of a context or
 * TOW_ENGINE force an engine or leave some out (tow__gemm_choice).
 *
 * The rule. The engine of a product depends on its type, k and strides, and on `rows` and `columns`: those of the
 * whole product as the user's graph states it, never on m and n of a part, because row regions, threads and products
 * that leave a scan cut or join rows. Callers that cut choose an engine for the whole product first (tow__gemm_choose)
 * and pass it with each part. bench/kernels/products.c measures it (183 products of training, forward, dX and dW).
 *   - f32 has the bits of the own kernel. Small products run on libxsmm where a trial on this machine finds it as fast
 *     (tow__gemm_prepare): with tiny tiles, few elements of k or products of a few microseconds it is ahead by up to 5,
 *     and on a tie the library has precedence. Large ones run on BLIS where the first runs find it as fast; else, and
 *     where callers cut in other ways, on the own kernel, which has epilogues on strips that are in cache. Its way
 *     through a product is tuned to the machine (gemm_tuning.h).
 *   - Large f32 products (at least 128 rows, columns and k, and 2^22 multiply-adds in a block of k) run on the matrix
 *     unit where there is one: 1.3 to 1.9 times as fast as the own kernel. Smaller ones would gain alone, but not among
 *     others: they wait for memory.
 *   - f64 runs on the own kernel as well.
 *   - Products of stored bf16 from 16 rows and columns on run on a unit for bf16 where there is one (gemm_bf16.h): the
 *     matrix unit, or vectors where they are faster than those of f32.
 *   - Other operands and results of 16 bits run where the same product of f32 does, on the matrix unit or the own
 *     kernel, which read A and B as they are stored while they pack them and round C where a rectangle of it is
 *     complete: no operand exists in f32 as a whole, and the bits are those of f32. */
#ifndef TOW_SRC_KERNELS_GEMM_H
#define TOW_SRC_KERNELS_GEMM_H

#include "src/kernels/strided.h"

/* True if the processor has a matrix unit for bf16 and the system lets this process use it, which it is asked for. */
bool tow__gemm_amx_usable(void);

/* Instruction sets of the own kernel; AUTO is the best that the processor has. */
typedef enum tow__gemm_set {
    TOW__GEMM_AUTO,
    TOW__GEMM_PLAIN,
    TOW__GEMM_AVX2,
    TOW__GEMM_AVX512
} tow__gemm_set;

/* The engine that computes products, by the options of a context. Zero: the rule. */
typedef struct tow__gemm_choice {
    const struct tow__gemm_engine *engine; /* forced; products that it cannot run use the rule. NULL: the rule */
    unsigned without;                      /* bit i: the rule leaves engine i (tow__gemm_at) out */
    bool portable;                         /* only what has the same bits on all machines */
    bool matrix_unit;                      /* may be used: tow__gemm_amx_usable */
    bool dots;                             /* AVX512_BF16 may be used: tow__gemm_bf16_dots_gain */
    int set;                               /* tow__gemm_set, for tests */
    const struct tow__gemm_tuning *tuning; /* of the own kernel, for tests; NULL: what suits the machine */
    const struct tow__gemm_times *times;   /* that trials found, for tests; NULL: what they find */
} tow__gemm_choice;

typedef struct tow__gemm {
    tow_dtype dtype; /* TOW_F32 or TOW_F64 */
    /* Of A, B and C that are stored as TOW_BF16 or TOW_F16, with sums of f32; 0: that of the sums. The bits are those
     * of the product of the same numbers as f32, whose C is rounded once (two operands of bf16 on a unit have others).
     * A C of 16 bits is written whole: nothing is added to it (`accumulate`), and it is not made in parts (`kc`). */
    tow_dtype a_dtype, b_dtype, c_dtype;
    bool accumulate; /* C += */
    bool as_f32;     /* has the bits of f32 even if both operands are bf16: no unit for bf16 runs it */
    int threads;     /* that the engine may use; 1 inside a team's body, and for engines that have none */
    int64_t m, n, k;
    int64_t rows, columns; /* of the whole product, as the user's graph states it; 0: m and n */
    int64_t kc; /* own, amx: of the whole product, of which this is a part along k; 0: the product is whole */
    const void *a;
    int64_t a_row, a_column;
    const void *b;
    int64_t b_row, b_column;
    void *c;
    int64_t ldc;
    const tow__gemm_choice *choice; /* what the context says; NULL: the rule */
    /* tow__gemm_packed bytes, 64-byte-aligned, in which tow__gemm_pack left B; NULL: it did not. B must be there, too.
     * This product's B begins at `packed_column` of that one, a multiple of TOW__GEMM_PACKED_COLUMNS. */
    void *packed;
    int64_t packed_column;
    const struct tow__gemm_code *code; /* of tow__gemm_prepare, with the engine that it returned; NULL: none */
    void *scratch; /* tow__gemm_scratch bytes for this call alone, 64-byte-aligned; NULL: works, but may be slower */
    /* The epilogue. Called on rectangles of C that are complete and still in cache: rows [row, row + rows), columns
     * [column, column + columns) of this C. They cover C, each element once, in no particular order; at most
     * TOW__GEMM_EPILOGUE_COLUMNS columns and TOW__GEMM_EPILOGUE_BYTES each. Runs on the thread of the call. Also called
     * if k is 0. May be NULL. */
    void (*epilogue)(void *user, int64_t row, int64_t rows, int64_t column, int64_t columns);
    void *user;
    /* The beginnings of the arrays that the epilogue reads or writes at the places that its rectangle has in C. As much
     * of them is prefetched with C as fits between multiply-adds (own; not in products of a few rows or columns). The
     * last one is followed by NULL. */
    const void *epilogue_operands[TOW__EPILOGUE_OPERANDS];
    /* B of the product that this thread may run next, with the same strides: its beginning is prefetched during
     * this one, whether it exists or not. NULL: unknown. */
    const void *next_b;
    /* [TOW__SPANS] memory that this thread may read after this product. As much of it is prefetched as fits between
     * multiply-adds (own; not in products of a few rows or columns), whether it exists or not. NULL: unknown. */
    const tow__span *read_after;
} tow__gemm;

/* An operand of a product: element (i, j) is number i * row + j * column of data. */
typedef struct tow__gemm_operand {
    const void *data;
    int64_t row, column;
    tow_dtype half; /* TOW_BF16 or TOW_F16, in which it is stored; 0: that of the sums */
} tow__gemm_operand;

static inline tow__gemm_operand tow__gemm_transposed(tow__gemm_operand x)
{
    return (tow__gemm_operand){x.data, x.column, x.row, x.half};
}

/* The product of a [m, k] and b [k, n] on one thread; the caller says where C is, and what else there is to say. */
static inline tow__gemm tow__gemm_of(tow_dtype dtype, int64_t m, int64_t n, int64_t k, tow__gemm_operand a,
                                     tow__gemm_operand b, const tow__gemm_choice *choice)
{
    return (tow__gemm){.dtype = dtype,
                       .a_dtype = a.half,
                       .b_dtype = b.half,
                       .threads = 1,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = a.data,
                       .a_row = a.row,
                       .a_column = a.column,
                       .b = b.data,
                       .b_row = b.row,
                       .b_column = b.column,
                       .choice = choice};
}

static inline bool tow__gemm_has_halves(const tow__gemm *g) { return g->a_dtype || g->b_dtype || g->c_dtype; }
/* Products that units for bf16 run (gemm_bf16.h), with bits of their own. */
static inline bool tow__gemm_of_bf16(const tow__gemm *g)
{
    return g->a_dtype == TOW_BF16 && g->b_dtype == TOW_BF16 && !g->as_f32;
}
/* Bytes of an element. */
static inline int64_t tow__gemm_a_bytes(const tow__gemm *g)
{
    return (int64_t)tow__element_bytes(g->a_dtype ? g->a_dtype : g->dtype);
}
static inline int64_t tow__gemm_b_bytes(const tow__gemm *g)
{
    return (int64_t)tow__element_bytes(g->b_dtype ? g->b_dtype : g->dtype);
}
static inline int64_t tow__gemm_c_bytes(const tow__gemm *g)
{
    return (int64_t)tow__element_bytes(g->c_dtype ? g->c_dtype : g->dtype);
}

/* The beginning of C of a product in the result that an epilogue runs on, in elements, and the length of rows there. */
typedef struct tow__epilogue_place {
    const tow__epilogue *epilogue;
    int64_t first, row;
} tow__epilogue_place;
/* The `epilogue` of a tow__gemm whose `user` is a tow__epilogue_place. */
void tow__epilogue_on_rectangle(void *place, int64_t row, int64_t rows, int64_t column, int64_t columns);
/* Calls the epilogue of g on all of C, which is complete. */
void tow__gemm_epilogue_on_all(const tow__gemm *g);
/* On all of a result of so many elements, when it is complete. */
void tow__epilogue_on_all(tow__team *team, const tow__epilogue *epilogue, int64_t count);

enum {
    TOW__GEMM_EPILOGUE_COLUMNS = 128,
    TOW__GEMM_EPILOGUE_BYTES = 256 << 10,
    TOW__GEMM_PACKED_COLUMNS = 32
};

typedef struct tow__gemm_engine {
    const char *name;
    const char *label;                      /* in sentences */
    bool (*applicable)(const tow__gemm *g); /* depends on types, n, k and strides alone */
    void (*run)(const tow__gemm *g);        /* m, n, k > 0; calls the epilogue only if `runs_epilogue` */
    const char *(*describe)(void);
    bool runs_epilogue; /* calls the epilogue itself, else tow__gemm_run does so after the product */
    bool cuts;          /* bits do not depend on how rows and columns are cut; the rule picks no other engines */
    bool in_parts;      /* products may be made in parts along k */
    bool halves;        /* A, B and C may be stored in 16 bits */
    bool (*gains)(const tow__gemm *g); /* reads what `applicable` reads, rows and columns: else the rule leaves g to the
                                              next engine. NULL: always */
    size_t (*scratch)(const tow__gemm *g); /* bytes; NULL: none */
    /* The form that the engine gives B in every call unless it finds it done: its bytes, and the function that makes it
     * beforehand. NULL: it takes B as it is. */
    size_t (*packed)(const tow__gemm *g);
    void (*pack)(const tow__gemm *g);
    /* Of engines that stand in for the own kernel, with its bits (gemm_trial.h). make: machine code for products like
     * g, in one of several ways, counted from 0; false: there is none. NULL: the engine makes none. */
    bool (*make)(const tow__gemm *g, int way, struct tow__gemm_code *code);
    void (*unmake)(const struct tow__gemm_code *code);
    bool needs_code; /* without it, the own kernel does its work */
} tow__gemm_engine;

extern const tow__gemm_engine tow__gemm_amx, tow__gemm_dots, tow__gemm_own, tow__gemm_reference;
/* These are not in every build. They are declared in every one, so that what includes this header is compiled once for
 * builds with and without them. */
extern const tow__gemm_engine tow__gemm_blis, tow__gemm_xsmm;

/* Runs g on `engine`, or with NULL on the one that tow__gemm_choose finds. m, n or k may be 0. */
void tow__gemm_run(const tow__gemm *g, const tow__gemm_engine *engine);
/* C as a sum over groups of k, a power of two of them, which is a binary tree: neighbors are added, then their sums. g
 * is the product of the first group; A and B of the next one begin k columns and k rows further on. The bits are those
 * of a product for each group (chosen and run as g) and additions. The epilogue of g runs on the whole sum. `scratch`:
 * tow__gemm_groups_scratch bytes, which have to be there. Nothing was packed, and g does not accumulate. */
void tow__gemm_run_groups(const tow__gemm *g, const tow__gemm_engine *engine, int64_t groups);
size_t tow__gemm_groups_scratch(const tow__gemm *g, const tow__gemm_engine *engine, int64_t groups);
/* The engine for g and for every cut of it in rows or columns. Reads no pointers; m and n only if rows
 * and columns are 0. */
const tow__gemm_engine *tow__gemm_choose(const tow__gemm *g);
/* The engine that runs calls like g, with m and n as they are: `engine`, which tow__gemm_choose found, or one with the
 * same bits that is faster here (gemm_trial.h), for which it sets g->code; where the first runs decide, it sets the
 * code beside the own kernel. To be called before the first run of a program; the first call for a shape takes some
 * tens of microseconds. Other calls with that engine and code are right as well. Reads no pointers but whether `packed`
 * and `epilogue` are NULL. */
const tow__gemm_engine *tow__gemm_prepare(tow__gemm *g, const tow__gemm_engine *engine);
/* True if parts of g along k have the bits of the whole. Units for bf16 make one chain of all of k. */
bool tow__gemm_in_parts(const tow__gemm *g, const tow__gemm_engine *engine);
/* True if `engine` may run what the rule gives to the own kernel: nobody leaves it out, and none is forced, nor a
 * version of the own kernel. */
bool tow__gemm_may_stand_in(const tow__gemm_choice *choice, const tow__gemm_engine *engine);
/* Why calls like g, of the engine that tow__gemm_choose found, run on the engine that tow__gemm_prepare finds:
 * "libxsmm: bits of the own kernel, 1.31 times as fast here". Written like snprintf. unprepared: why the caller does
 * not ask tow__gemm_prepare; NULL: it does. */
size_t tow__gemm_explain(tow__gemm *g, const tow__gemm_engine *engine, const char *unprepared, char *text, size_t size);
/* Times what the tuning of products as large as g depends on, unless that is known. To be called before the first run
 * of a program. */
void tow__gemm_tune_for(const tow__gemm *g);
/* Bytes of `scratch` with which g runs fastest on `engine`, however the machine is tuned. A product of another k, or of
 * fewer rows, may need more. */
size_t tow__gemm_scratch(const tow__gemm *g, const tow__gemm_engine *engine);
/* Bytes that B takes when it is packed for products with any number of rows on `engine`; 0: that gains nothing. Reads
 * what tow__gemm_choose reads. */
size_t tow__gemm_packed(const tow__gemm *g, const tow__gemm_engine *engine);
/* Packs B [k, n] into g->packed, from packed_column on; several threads may pack columns of one B. Products that use it
 * have the same k, kc and bits as without. */
void tow__gemm_pack(const tow__gemm *g, const tow__gemm_engine *engine);
/* The engine of this name, or NULL. */
const tow__gemm_engine *tow__gemm_find(const char *name);
/* Reads what a context is told: the name of an engine that is forced, or names of some that are left out, each behind a
 * minus sign, with commas between them ("-blis,-xsmm"). "reference" cannot be left out: something must do the rest. */
bool tow__gemm_read_choice(const char *text, tow__gemm_choice *choice);
/* Engine number `index` of this build, in the order of preference; NULL behind the last one. */
const tow__gemm_engine *tow__gemm_at(int index);
/* The engines of products under this choice, in a line for tow_context_describe; written like snprintf. */
size_t tow__gemm_describe(const tow__gemm_choice *choice, char *text, size_t size);
/* The engines of large products of f32, and of stored bf16: where they are others, bits are. Likewise. */
size_t tow__gemm_describe_units(const tow__gemm_choice *choice, char *text, size_t size);
/* The machine, and what was timed for large products, likewise. */
size_t tow__gemm_describe_machine(char *text, size_t size);
/* True if strides address rows * columns different elements in a plain row- or column-like layout. */
bool tow__gemm_plain(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);

#endif
