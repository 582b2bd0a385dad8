/* Attention on stored bf16 whose products run on a unit for bf16 (products/gemm_bf16.h): which jobs, and the products
 * of a block of keys. Queries, keys, values and cotangents are read where they are. Logits and their cotangents stand
 * as in attention_f32.inc: [keys, 64], row j has key j against the queries of a strip.
 *
 * Bits, where they differ from those of f32. Products are those of the unit, each over one block of keys, one strip of
 * queries or the width of a head; blocks and strips are added in order. Logits are multiplied with the scale when they
 * are complete. Probabilities and cotangents of logits are rounded to bf16 for the products that read them; sums of
 * exponentials have them as they are. So bits depend on shapes, causality and the mask alone, here as well. */
#include "src/base/clones.h"
#include "src/kernels/attention/attention.h"
#include "src/kernels/halves.h"

const tow__gemm_bf16_version *tow__attention_unit(const tow__attention_job *a)
{
    if (a->q.dtype != TOW_BF16 || a->k.dtype != TOW_BF16 || a->v.dtype != TOW_BF16) return NULL;
    tow__gemm g = {.dtype = TOW_F32, .a_dtype = TOW_BF16, .b_dtype = TOW_BF16, .choice = a->products};
    g.m = a->t, g.n = tow__min(a->s, a->v.width), g.k = tow__min(a->q.width, a->s);
    g.a_row = g.k, g.b_row = g.ldc = g.n, g.a_column = g.b_column = 1;
    const tow__gemm_engine *engine = tow__gemm_choose(&g);
#ifdef TOW__BF16_UNITS
    if (engine == &tow__gemm_amx) return &tow__gemm_bf16_amx;
    if (engine == &tow__gemm_dots) return &tow__gemm_bf16_dots;
#endif
    (void)engine;
    return NULL;
}

static tow__gemm_operand of_halves(const void *data, int64_t row, int64_t column)
{
    return (tow__gemm_operand){data, row, column, TOW_BF16};
}

static tow__gemm_operand rows_of(const tow__heads *x, int64_t b, int64_t head, int64_t first)
{
    return of_halves(tow__head_row(x, b, head, first), x->row, x->column);
}

static tow__gemm product_of(int64_t m, int64_t n, int64_t k, tow__gemm_operand x, tow__gemm_operand y)
{
    return tow__gemm_of(TOW_F32, m, n, k, x, y, NULL);
}

static void run(const tow__unit_block *w, tow__gemm g, f32 *c, int64_t ldc, bool add)
{
    g.c = c, g.ldc = ldc, g.accumulate = add, g.scratch = w->scratch;
    w->unit->run(&g);
}

void tow__unit_scores(const tow__unit_block *w, const tow__heads *keys, const tow__heads *queries, f32 *p)
{
    const tow__strip *s = w->strip;
    const tow__gemm_operand x = rows_of(keys, s->b, s->g, w->first), y = rows_of(queries, s->b, s->h, s->first);
    run(w, product_of(w->keys, s->rows, keys->width, x, tow__gemm_transposed(y)), p, TOW__STRIP, false);
    for (int64_t j = 0; j < w->keys && s->rows < TOW__STRIP; j++)
        memset(p + j * TOW__STRIP + s->rows, 0, (size_t)(TOW__STRIP - s->rows) * sizeof *p);
}

void tow__unit_sum_over_keys(const tow__unit_block *w, const tow__heads *x, f32 *c, int64_t ldc, bool add)
{
    const tow__strip *s = w->strip;
    const tow__gemm_operand p = of_halves(w->halves, 1, TOW__STRIP);
    run(w, product_of(s->rows, x->width, w->keys, p, rows_of(x, s->b, s->g, w->first)), c, ldc, add);
}

void tow__unit_sum_over_queries(const tow__unit_block *w, const tow__heads *x, f32 *c, int64_t ldc)
{
    const tow__strip *s = w->strip;
    const tow__gemm_operand p = of_halves(w->halves, TOW__STRIP, 1);
    run(w, product_of(w->keys, x->width, s->rows, p, rows_of(x, s->b, s->h, s->first)), c + w->first * ldc, ldc, true);
}

size_t tow__unit_scratch(int64_t block, int64_t width)
{
    const tow__gemm_operand none = of_halves(NULL, 1, 2);
    const tow__gemm products[] = {product_of(block, TOW__STRIP, width, none, none),
                                  product_of(TOW__STRIP, width, block, none, none),
                                  product_of(block, width, TOW__STRIP, none, none)};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        const size_t bytes = tow__gemm_bf16_scratch(&products[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

TOW__CLONES static void narrow(int64_t n, const f32 *from, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (uint16_t)(tow__rounded_to_bf16(tow__bits_of_f32(from[i])) >> 16);
}

void tow__unit_narrow(int64_t keys, const f32 *p, uint16_t *halves) { narrow(keys * TOW__STRIP, p, halves); }
