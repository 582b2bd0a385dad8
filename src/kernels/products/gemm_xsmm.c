/* Small matrix products by libxsmm 1.17, which generates machine code for one shape of tile. Of libxsmm only the
 * generator is used: its own dispatch takes milliseconds at the first product of a process, a stack of 256 KiB for
 * each kernel, and a table look-up for each call. Here the code of a product is made when a program is linked and
 * kept with it.
 *
 * C is cut into tiles; those of one product have at most four shapes. libxsmm is column-major, so it computes
 * transposed: its first operand is B, which it cannot transpose; its second is A. A B whose columns run along k is
 * packed by the own kernel, a panel at a time. Products of one block of k are the own kernel's chains, which a trial
 * proves for every shape (gemm_trial.h); C + A B adds tiles that are computed apart. Whatever has no code runs on the
 * own kernel: the bits are the same. */
#include "src/kernels/products/gemm_trial.h"

#ifdef TOW_HAVE_LIBXSMM
#include <libxsmm.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/machine.h"
#include "src/kernels/products/gemm_own.h"

enum {
    ROWS = 48, /* of a tile of C: a multiple of the rows that libxsmm holds in registers */
    COLUMNS = 64,
    WHOLE = 1 << 16,       /* elements of C that may be one tile */
    CODE_BYTES = 32 << 10, /* of one tile, at most */
    PAGE = 4096,           /* of x86-64, the only processors that libxsmm 1.17 makes code for */
    TILES = 4
};

static bool fits(int64_t stride) { return stride > 0 && stride <= INT_MAX; }

/* libxsmm's name of the instruction set; 0: none that has fused multiply-adds. */
static unsigned instruction_set(void)
{
    return tow__has_avx512() ? LIBXSMM_X86_AVX512_CORE : tow__has_avx2() ? LIBXSMM_X86_AVX2 : 0;
}

/* Strides along axes of size 1 may be anything. */
static bool runs_along_k(const tow__gemm *g)
{
    return (g->a_column == 1 || g->k == 1) && (g->a_row >= g->k || g->m == 1);
}
static bool runs_along_m(const tow__gemm *g)
{
    return (g->a_row == 1 || g->m == 1) && (g->a_column >= g->m || g->k == 1);
}
static bool is_straight(const tow__gemm *g)
{
    return (g->b_column == 1 || g->n == 1) && (g->b_row >= g->n || g->k == 1);
}

/* Columns of B run along k. */
static bool is_transposed(const tow__gemm *g) { return !is_straight(g) && g->b_row == 1 && g->b_column >= g->k; }

/* Columns of a panel that the own kernel packs: two vectors. */
static int64_t panel_columns(void) { return tow__machine_here()->vector_bytes / (int64_t)sizeof(f32) * 2; }

static int64_t leading_of_a(const tow__gemm *g)
{
    if (runs_along_k(g)) return g->m == 1 ? g->k : g->a_row;
    return g->k == 1 ? g->m : g->a_column;
}
static int64_t leading_of_b(const tow__gemm *g)
{
    if (is_transposed(g)) return panel_columns();
    return g->k == 1 ? g->n : g->b_row;
}

static bool applicable(const tow__gemm *g)
{
    const bool one_block = g->k <= TOW__GEMM_KC && (g->kc == 0 || g->k <= g->kc);
    return g->dtype == TOW_F32 && one_block && instruction_set() != 0 && (is_straight(g) || is_transposed(g)) &&
           (runs_along_k(g) || runs_along_m(g)) && fits(leading_of_a(g)) && fits(leading_of_b(g)) && fits(g->ldc);
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

/* Writes the code of a tile of so many rows and columns to `to`; returns its bytes, 0 if there is none. */
static size_t generate(const tow__gemm *g, int64_t rows, int64_t columns, int64_t ldc, void *to)
{
    const libxsmm_blasint lda = (libxsmm_blasint)leading_of_b(g), ldb = (libxsmm_blasint)leading_of_a(g);
    libxsmm_descriptor_blob blob;
    const libxsmm_gemm_descriptor *d = libxsmm_sgemm_descriptor_init(
        &blob, (libxsmm_blasint)columns, (libxsmm_blasint)rows, (libxsmm_blasint)g->k, lda, ldb, (libxsmm_blasint)ldc,
        1, 0, runs_along_k(g) ? LIBXSMM_GEMM_FLAG_NONE : LIBXSMM_GEMM_FLAG_TRANS_B, LIBXSMM_GEMM_PREFETCH_NONE);
    if (!d) return 0;
    libxsmm_generated_code code = {
        .generated_code = to, .buffer_size = CODE_BYTES, .code_type = 2, .arch = instruction_set()};
    libxsmm_generator_gemm_kernel(&code, d);
    return code.last_error == 0 ? code.code_size : 0;
}

static size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

static bool make(const tow__gemm *g, int way, tow__gemm_code *code)
{
    const bool one_tile = way == 1, transposes = is_transposed(g);
    const int64_t most_columns = transposes ? panel_columns() : COLUMNS;
    if (way > 1 ||
        (one_tile && (transposes || g->accumulate || g->m * g->n > WHOLE || (g->m <= ROWS && g->n <= COLUMNS))))
        return false;
    *code = (tow__gemm_code){.engine = &tow__gemm_xsmm, .m = g->m, .n = g->n, .apart = g->accumulate};
    code->transposes = transposes;
    code->bytes = TILES * CODE_BYTES;
    code->rows = one_tile ? g->m : tow__min(g->m, ROWS);
    code->columns = one_tile ? g->n : tow__min(g->n, most_columns);
    char *memory = mmap(NULL, code->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    const int64_t rows[2] = {code->rows, g->m % code->rows}, columns[2] = {code->columns, g->n % code->columns};
    size_t used = 0;
    bool complete = true;
    for (int i = 0; i < TILES; i++) {
        if (rows[i / 2] == 0 || columns[i % 2] == 0) continue;
        const size_t bytes =
            generate(g, rows[i / 2], columns[i % 2], code->apart ? code->columns : g->ldc, memory + used);
        complete &= bytes > 0;
        code->tiles[i / 2][i % 2] = (tow__gemm_tile)(uintptr_t)(memory + used);
        used += whole_lines(bytes);
    }
    /* The rest of the room is given back. */
    const size_t kept = used > 0 ? (used + PAGE - 1) / PAGE * PAGE : PAGE;
    if (kept < code->bytes) munmap(memory + kept, code->bytes - kept);
    code->memory = memory, code->bytes = kept;
    if (complete && mprotect(memory, kept, PROT_READ | PROT_EXEC) == 0) return true;
    munmap(memory, kept);
    return false;
}

static void unmake(const tow__gemm_code *code) { munmap(code->memory, code->bytes); }

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void add_tile(f32 *c, int64_t ldc, const f32 *tile, int64_t rows, int64_t columns, int64_t width)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) c[i * ldc + j] += tile[i * width + j];
}

/* All rows of some columns of C, of which b is a B or a panel of it. */
static void run_columns(const tow__gemm *g, int64_t column, int64_t columns, const f32 *b)
{
    const tow__gemm_code *code = g->code;
    f32 tile[ROWS * COLUMNS] __attribute__((aligned(64)));
    for (int64_t i = 0; i < g->m; i += code->rows) {
        const int64_t rows = tow__min(code->rows, g->m - i);
        const f32 *a = (const f32 *)g->a + i * g->a_row;
        f32 *c = (f32 *)g->c + i * g->ldc + column;
        code->tiles[rows < code->rows][columns < code->columns](b, a, code->apart ? tile : c);
        if (code->apart) add_tile(c, g->ldc, tile, rows, columns, code->columns);
    }
}

/* In a frame of its own: others need no panel. */
static __attribute__((noinline)) void run_transposed(const tow__gemm *g)
{
    f32 panel[TOW__GEMM_KC * TOW__GEMM_PACKED_COLUMNS] __attribute__((aligned(64)));
    const int64_t width = panel_columns();
    tow__gemm part = *g;
    part.packed = panel, part.packed_column = 0, part.choice = NULL;
    for (int64_t j = 0; j < g->n; j += width) {
        part.n = tow__min(width, g->n - j);
        part.b = (const f32 *)g->b + j * g->b_column;
        tow__gemm_own.pack(&part);
        run_columns(g, j, part.n, panel);
    }
}

static void run(const tow__gemm *g)
{
    const tow__gemm_code *code = g->code;
    if (!code || g->m != code->m || g->n != code->n || g->accumulate != code->apart) {
        tow__gemm_own.run(g);
        return;
    }
    if (code->transposes)
        run_transposed(g);
    else
        for (int64_t j = 0; j < g->n; j += code->columns)
            run_columns(g, j, tow__min(code->columns, g->n - j), (const f32 *)g->b + j);
    if (g->epilogue) tow__gemm_epilogue_on_all(g);
}

/* The own kernel may run. */
static size_t scratch(const tow__gemm *g) { return tow__gemm_own.scratch(g); }

static const char *describe(void) { return "libxsmm " LIBXSMM_VERSION; }

const tow__gemm_engine tow__gemm_xsmm = {
    "xsmm", "libxsmm",        applicable,         run,          describe,         true,
    true,   .in_parts = true, .scratch = scratch, .make = make, .unmake = unmake, .needs_code = true};
#endif
