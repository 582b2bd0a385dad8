/* Short texts of what reverse mode keeps and repeats: counts of primitives in linear and backward programs, and lists
 * of residuals. One test program includes it once. */
#ifndef TOW_TESTS_RESIDUAL_TEXTS_H
#define TOW_TESTS_RESIDUAL_TEXTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/autodiff.h"
#include "tow/ops.h"

static tow_type f32(int rank, int64_t a, int64_t b, int64_t c)
{
    int64_t dims[] = {a, b, c};
    return tow_make_type(TOW_F32, rank, dims);
}
#define SCALAR f32(0, 0, 0, 0)

static tow_graph *trace(tow_function function, void *user, size_t n_in, const tow_type *types, const char *const *names,
                        size_t n_out)
{
    tow_graph *g;
    OK(tow_trace_function(ctx, function, user, n_in, types, names, n_out, &g));
    return g;
}

/* f inside remat(policy), with named arguments as f. */
static tow_graph *remat(tow_graph *g, const tow_policy *policy)
{
    tow_graph *r;
    OK(tow_remat_whole(g, policy, &r));
    tow_graph_release(g);
    return r;
}

/* Occurrences of each primitive in the linear (or backward) program: "sin 1, cos 2". Frees g. */
static void expect_counts(tow_graph *g, bool vjp, size_t n_wrt, const size_t *wrt, const char *expected)
{
    tow_graph *forward, *second;
    OK((vjp ? tow_vjp : tow_linearize)(g, n_wrt, wrt, &forward, &second));
    char found[256] = "", name[32];
    for (const char *p = expected; *p;) {
        int length, count, used;
        assert_int_equal(sscanf(p, "%31[a-z_]%n %d%n", name, &length, &count, &used), 2);
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s %zu", n ? ", " : "", name, tow_graph_primitive_count(second, name));
        p += used;
        if (*p) p += 2;
    }
    if (strcmp(found, expected) != 0) {
        fprintf(stderr, "program:\n");
        tow_graph_print(second, stderr);
    }
    assert_string_equal(found, expected);
    tow_graph_release(forward);
    tow_graph_release(second);
    tow_graph_release(g);
}

/* The residual list in short form: "f32[5,4] W1; f32[5] sin; f32[5] 'a'". Frees g. */
static void expect_residuals(tow_graph *g, size_t n_wrt, const size_t *wrt, const char *expected)
{
    tow_residuals r;
    OK(tow_saved_residuals(g, n_wrt, wrt, &r));
    char found[1024] = "";
    for (size_t i = 0; i < r.count; i++) {
        char type[64];
        size_t n = strlen(found);
        const char *quote = r.items[i].kind == TOW_RESIDUAL_NAMED ? "'" : "";
        tow_type_text(r.items[i].type, type, sizeof type);
        snprintf(found + n, sizeof found - n, "%s%s %s%s%s", i ? "; " : "", type, quote,
                 r.items[i].kind == TOW_RESIDUAL_CONSTANT ? "constant" : r.items[i].what, quote);
    }
    assert_string_equal(found, expected);
    tow_residuals_free(&r);
    tow_graph_release(g);
}

#endif
