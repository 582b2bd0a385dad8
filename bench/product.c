/* A matrix product of one element type, Y = X W for X [rows, in] and W [in, out], or one of its gradients.
 *
 *     product --rows 2048 --in 384 --out 1536 [--dtype f32|bf16|f16] [--part forward]
 *
 * --part: forward; input, dY W^T, and kernel, X^T dY, the gradients of one operand for given cotangents. Operands,
 * cotangents and results are of the type, sums are f32. bench_products times the kernels of all shapes. */
#include <string.h>

#include "bench.h"

enum {
    INPUTS = 3 /* X, W, cotangents of Y */
};

static void multiply(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_matmul(in[0], in[1]);
}

typedef struct part {
    const char *name;
    size_t n_inputs, n_wrt, wrt;
} part;

static const part *find_part(const char *name)
{
    static const part parts[] = {{"forward", 2, 0, 0}, {"input", INPUTS, 1, 0}, {"kernel", INPUTS, 1, 1}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    bench_fail("product: --part: expected forward, input or kernel, found '%s'", name);
}

static tow_dtype find_dtype(const char *name)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_BF16, TOW_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(tow_dtype_name(dtypes[i]), name) == 0) return dtypes[i];
    bench_fail("product: --dtype: expected f32, bf16 or f16, found '%s'", name);
}

int main(int argc, char **argv)
{
    bench b;
    int64_t rows = 2048, in = 384, out = 1536;
    const char *name = "forward", *type = "f32";
    const bench_option options[] = {{"rows", .number = &rows, .least = 1},
                                    {"in", .number = &in, .least = 1},
                                    {"out", .number = &out, .least = 1},
                                    {"dtype", .text = &type},
                                    {"part", .text = &name},
                                    {0}};
    bench_start(&b, "product", argc, argv, options);
    const part *p = find_part(name);
    const tow_dtype dtype = find_dtype(type);
    const tow_type types[INPUTS] = {tow_make_type(dtype, 2, (int64_t[]){rows, in}),
                                    tow_make_type(dtype, 2, (int64_t[]){in, out}),
                                    tow_make_type(dtype, 2, (int64_t[]){rows, out})};
    bench_run_gradient(&b, &(bench_gradient){.loss = multiply,
                                             .n_inputs = p->n_inputs,
                                             .types = types,
                                             .scales = (const double[INPUTS]){1, 1, 1},
                                             .n_wrt = p->n_wrt,
                                             .wrt = &p->wrt,
                                             .pulls_back = p->n_inputs == INPUTS,
                                             .without_y = true});
    return bench_finish(&b, 2.0 * (double)rows * (double)in * (double)out);
}
