/* Rules on graphs where they have something to do: the operation that they replace is gone, the one that they make is
 * there, and every output has the bits that it has without the rule, on one thread and on several.
 *
 * Tests iota_to_broadcast.c, fold_constants.c, divide_to_multiply.c, outer_product_to_multiply.c.
 * Tests accumulate_products.c, scan_to_reduction.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/support/graph_runs.h"

typedef struct example {
    const char *rule, *text;
    const char *counted;  /* an operation */
    size_t with, without; /* how often it is done */
} example;

static const example examples[] = {
    {"iota-to-broadcast",
     "{ lambda ; x:f32[3,5,2]. let\n"
     "    n:f32[3,5,2] = iota[dtype=f32 shape=(3,5,2) axis=1]\n"
     "    m:f32[3,5,2] = iota[dtype=f32 shape=(3,5,2) axis=2]\n"
     "    y:f32[3,5,2] = mul x n\n"
     "    z:f32[3,5,2] = add y m\n"
     "    t:f32[5,3,2] = transpose[permutation=(1,0,2)] n\n"
     "  in (z, t, n) }",
     "iota", 2, 2},
    {"iota-to-broadcast",
     "{ lambda ; x:f32[0,5]. let\n"
     "    n:f32[0,5] = iota[dtype=f32 shape=(0,5) axis=1]\n"
     "    y:f32[0,5] = mul x n\n"
     "  in (y) }",
     "iota", 0, 0},
    /* A constant that is an output twice, a view of it, and others that are made of it. */
    {"fold-constants",
     "{ lambda ; x:f32[3]. let\n"
     "    a:f32[3] = const[value=f32[3] (1, -2, 3)]\n"
     "    b:f32[3] = sin a\n"
     "    c:f32[3] = mul b b\n"
     "    d:f32[1,3] = reshape[shape=(1,3)] b\n"
     "    y:f32[3] = add x c\n"
     "  in (b, y, b, d) }",
     "sin", 0, 1},
    /* A carry and a row that are functions of constants of the body, and of one outside. */
    {"fold-constants",
     "{ lambda ; x:f32[3] xs:f32[4,3]. let\n"
     "    o:f32[3] = const[value=f32[3] (1, -2, 3)]\n"
     "    u:f32[3] = sin o\n"
     "    y:f32[3] p:f32[3] r:f32[4,3] q:f32[4,3] = scan[length=4 reverse=false consts=1 carry=2\n"
     "      body={ lambda ; u:f32[3] c:f32[3] d:f32[3] w:f32[3]. let\n"
     "          a:f32[3] = const[value=f32[3] (4, 5, 6)]\n"
     "          b:f32[3] = sin a\n"
     "          e:f32[3] = sin u\n"
     "          f:f32[3] = mul c w\n"
     "          g:f32[3] = add f d\n"
     "        in (b, g, e, b) }] u x x xs\n"
     "  in (y, p, r, q) }",
     "sin", 0, 9},
    {"divide-to-multiply",
     "{ lambda ; x:f32[3,3]. let\n"
     "    c:f32[] = const[value=-8.0]\n"
     "    d:f32[3,3] = broadcast_in_dim[shape=(3,3) axes=()] c\n"
     "    y:f32[3,3] = div x d\n"
     "    z:f32[3,3] = div d x\n"
     "    w:f32[3,3] = div x z\n"
     "  in (y, z, w) }",
     "div", 2, 3},
    {"outer-product-to-multiply",
     "{ lambda ; x:f32[2,3,1] y:f32[2,1,5] a:f32[3] b:f32[4]. let\n"
     "    z:f32[2,3,5] = dot_general[lhs_contract=(2) rhs_contract=(1) lhs_batch=(0) rhs_batch=(0)] x y\n"
     "    t:f32[2,3,5] = tanh z\n"
     "    w:f32[3,4] = dot_general[lhs_contract=() rhs_contract=()] a b\n"
     "  in (z, t, w) }",
     "dot_general", 0, 0}, /* it cannot be left out; without fusion, the bits are the same */
    {"scan-to-reduction",
     "{ lambda ; s:f32[8,4] xs:f32[6,3,8] ys:f32[6,3,4]. let\n"
     "    y:f32[8,4] = scan[length=6 reverse=true consts=0 carry=1\n"
     "      body={ lambda ; s:f32[8,4] x:f32[3,8] y:f32[3,4]. let\n"
     "          d:f32[8,4] = dot_general[lhs_contract=(0) rhs_contract=(0)] x y\n"
     "          t:f32[8,4] = add d s\n"
     "        in (t) }] s xs ys\n"
     "  in (y) }",
     "scan", 0, 1},
    /* The row is read transposed: the body adds something else than its rows. */
    {"scan-to-reduction",
     "{ lambda ; s:f32[3,3] xs:f32[6,3,3]. let\n"
     "    y:f32[3,3] = scan[length=6 reverse=false consts=0 carry=1\n"
     "      body={ lambda ; s:f32[3,3] x:f32[3,3]. let\n"
     "          t:f32[3,3] = transpose[permutation=(1,0)] x\n"
     "          u:f32[3,3] = add s t\n"
     "        in (u) }] s xs\n"
     "  in (y) }",
     "scan", 1, 1},
    {"accumulate-products",
     "{ lambda ; s:f32[8,8] h:f32[2,8] ys:f32[5,2,8]. let\n"
     "    y:f32[8,8] z:f32[2,8] = scan[length=5 reverse=false consts=0 carry=2\n"
     "      body={ lambda ; s:f32[8,8] x:f32[2,8] y:f32[2,8]. let\n"
     "          d:f32[8,8] = dot_general[lhs_contract=(0) rhs_contract=(0)] x y\n"
     "          t:f32[8,8] = add s d\n"
     "          h:f32[2,8] = dot_general[lhs_contract=(1) rhs_contract=(0)] x t\n"
     "        in (t, h) }] s h ys\n"
     "  in (y, z) }",
     "dot_general", 10, 10},
};

static void expect_count(const example *x, const tow_program *program, size_t expected)
{
    uint64_t found = tow_program_operation_count(program, x->counted);
    if (found != expected)
        fail_msg("%s on %s: %llu times %s, expected %zu", x->rule, x->text, (unsigned long long)found, x->counted,
                 expected);
}

static void expect_same(const problem *p, const example *x, char **a, char **b)
{
    for (size_t i = 0; i < tow_graph_output_count(p->graph); i++) {
        if (memcmp(a[i], b[i], bytes_of(p->outputs[i])) != 0)
            fail_msg("%s on %s: output %zu has other bits without it", x->rule, x->text, i);
        free(b[i]);
    }
}

/* Without the rule; without fusion if the rule cannot be left out. */
static tow_compile_options options_without(const char *const rule[2])
{
    size_t i = 0;
    while (strcmp(tow_pass_name(i), rule[0]) != 0) i++;
    if (tow_pass_required(i)) return TOW_COMPILE_OPTIONS(.threads = 1, .no_fusion = true);
    return TOW_COMPILE_OPTIONS(.threads = 1, .without = rule);
}

static void rules_change_programs_and_no_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *x = &examples[i];
        const char *const without[] = {x->rule, NULL};
        problem p;
        tow_graph *graph = NULL;
        char *plain[MOST_ARRAYS], *bits[MOST_ARRAYS];
        start_context(&p);
        OK(&p, tow_graph_parse(p.ctx, x->text, &graph));
        set_graph(&p, graph, 2);
        tow_program *program = compile(&p, options_without(without));
        expect_count(x, program, x->without);
        run_to(&p, program, plain);
        tow_program_free(program);
        for (int threads = 1; threads <= 3; threads += 2) {
            program = compile(&p, TOW_COMPILE_OPTIONS(.threads = threads));
            expect_count(x, program, x->with);
            run_to(&p, program, bits);
            expect_same(&p, x, plain, bits);
            tow_program_free(program);
        }
        for (size_t k = 0; k < tow_graph_output_count(p.graph); k++) free(plain[k]);
        end(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_change_programs_and_no_bits)};
    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
