/* Convolutions with epilogues: random ones, with what reads them and with their gradients, give the same bits fused and
 * instruction by instruction, on one thread and on two; worked examples become the instructions that they should.
 *
 * Tests fuse.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/fusion.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

typedef struct recipe {
    uint32_t number;
    tow_dtype dtype;
    const char *dimensions;
    int spatial, ops;
    int64_t features, out;
    tow_conv_options options;
    tow_type lhs, rhs, result, bias;
} recipe;

static const char *const layouts[][3] = {{"NWC,WIO->NWC", "NCW,OIW->NCW", "NWC,OIW->NCW"},
                                         {"NHWC,HWIO->NHWC", "NCHW,OIHW->NCHW", "NHWC,HWIO->NCHW"},
                                         {"NDHWC,DHWIO->NDHWC", "NCDHW,OIDHW->NCDHW", "NDHWC,DHWIO->NCDHW"}};

/* A type with these sizes for the letters of `order`: N, C or I, O, and the rest spatial. */
static tow_type type_of(tow_dtype dtype, const char *order, int rank, int64_t n, int64_t c, int64_t o, int64_t space)
{
    int64_t dims[TOW_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        const char letter = order[i];
        dims[i] = letter == 'N' ? n : letter == 'C' || letter == 'I' ? c : letter == 'O' ? o : space + (letter == 'H');
    }
    return tow_make_type(dtype, rank, dims);
}

static recipe draw(uint32_t number)
{
    seed = number * 2654435761u + 11;
    recipe r = {.number = number, .dtype = number % 6 == 5 ? TOW_F64 : TOW_F32, .spatial = 1 + pick(3)};
    r.dimensions = layouts[r.spatial - 1][pick(3)];
    r.ops = 1 + pick(6);
    const int rank = r.spatial + 2, groups = pick(4) == 0 ? 1 + pick(3) : 1;
    const int64_t of_group = pick(5) == 0 ? 1 : 1 + pick(9), out = pick(5) == 0 ? 1 : 1 + pick(40);
    r.features = groups * of_group;
    r.out = groups * out;
    r.options = TOW_CONV_OPTIONS(.dimensions = r.dimensions, .feature_groups = groups, .padding = TOW_PAD_EXPLICIT);
    for (int i = 0; i < r.spatial; i++) {
        r.options.strides[i] = 1 + (pick(4) == 0);
        r.options.rhs_dilation[i] = 1 + (pick(5) == 0);
        r.options.lhs_dilation[i] = 1 + (pick(5) == 0);
        r.options.low[i] = pick(3);
        r.options.high[i] = pick(3);
    }
    const int64_t space = 4 + pick(r.spatial == 1 ? 200 : r.spatial == 2 ? 20 : 3), window = 1 + pick(3);
    r.lhs = type_of(r.dtype, r.dimensions, rank, 1 + pick(3), r.features, 0, space);
    r.rhs = type_of(r.dtype, r.dimensions + rank + 1, rank, 0, of_group, r.out, window);
    return r;
}

static tow_value convolve(const recipe *r, const tow_value *in)
{
    return tow_mul_scalar(tow_conv_general_dilated(in[0], in[1], &r->options), 0.25);
}

/* Adds a bias to the features. */
static tow_value biased(const recipe *r, tow_value x, tow_value bias)
{
    tow_type type = tow_value_type(x);
    const int features = (int)(strchr(strstr(r->dimensions, "->") + 2, 'C') - (strstr(r->dimensions, "->") + 2));
    return tow_add(x, tow_broadcast_in_dim(bias, type.rank, type.dims, &features));
}

static tow_value chain(const recipe *r, tow_value x, const tow_value *in)
{
    tow_value y = x;
    for (int i = 0; i < r->ops; i++) switch (pick(7)) {
        case 0:
            y = biased(r, y, in[2]);
            break;
        case 1:
            y = tow_relu(y);
            break;
        case 2:
            y = tow_gelu(y);
            break;
        case 3:
            y = tow_add(y, in[3]);
            break;
        case 4:
            y = tow_mul(y, x);
            break;
        case 5:
            y = tow_silu(y);
            break;
        default:
            y = tow_tanh(y);
        }
    return y;
}

static void forward(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const recipe *r = user;
    (void)t;
    seed = r->number * 40503u + 7;
    tow_value x = convolve(r, in);
    out[0] = chain(r, x, in);
    if (pick(3) == 0) out[0] = tow_add(out[0], tow_convert(tow_convert(x, TOW_I32), r->dtype));
}

static void loss(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    forward(t, in, out, user);
    out[0] = tow_reduce_sum(out[0], 0, NULL);
}

/* The operands, an array like the result, and a bias. */
static void result_type(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    (void)t;
    out[0] = convolve(user, in);
}

static void test_random_convolutions(void **state)
{
    (void)state;
    size_t fused_total = 0, separate_total = 0, tested = 0;
    for (uint32_t number = 0; number < 300; number++) {
        recipe r = draw(number);
        tow_graph *g = trace(result_type, &r, 2, (tow_type[]){r.lhs, r.rhs}, 1);
        tow_type y = tow_graph_output_type(g, 0), bias = tow_make_type(r.dtype, 1, &r.out);
        tow_graph_release(g);
        if (tow_type_element_count(y) == 0) continue;
        tow_type types[] = {r.lhs, r.rhs, bias, y};
        g = trace(number % 2 ? forward : loss, &r, 4, types, 1);
        if (number % 2 == 0) {
            tow_graph *gradient;
            OK(tow_value_and_grad(g, 3, (size_t[]){0, 1, 2}, false, &gradient));
            tow_graph_release(g);
            g = gradient;
        }
        size_t fused, separate;
        expect_same(g, number, &fused, &separate);
        fused_total += fused;
        separate_total += separate;
        tested++;
        tow_graph_release(g);
    }
    assert_true(tested > 250);
    assert_true(fused_total < separate_total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_random_convolutions, setup, teardown)};
    return cmocka_run_group_tests_name("fuse_conv", tests, NULL, NULL);
}
