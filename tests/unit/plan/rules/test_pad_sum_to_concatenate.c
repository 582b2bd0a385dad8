/* Sums of pads that become concatenations: values and bits against the sum worked out by hand, and which sums do not.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/plain_context.h"
#include "tow/ops.h"
#include "tow/program.h"

enum {
    ROWS = 2,
    COLUMNS = 6, /* of the sum */
    PIECES = 3
};

/* Piece i has widths[i] columns and begins at column at[i]. */
typedef struct sum {
    int64_t widths[PIECES], at[PIECES];
    double padding;
    bool shared;         /* a partial sum has another reader */
    const char *expects; /* primitive that runs once */
    uint64_t pads;       /* that run */
    bool leans;          /* the last two are added first */
    bool made;           /* pieces are made by elementwise functions, of which one is needed elsewhere */
} sum;

static const sum sums[] = {
    {{1, 3, 2}, {0, 1, 4}, 0, false, "concatenate", 0},
    {{2, 1, 3}, {3, 5, 0}, 0, false, "concatenate", 0}, /* in another order */
    {{2, 0, 4}, {0, 2, 2}, 0, false, "concatenate", 0}, /* one is empty */
    {{2, 3, 3}, {0, 1, 3}, 0, false, "concatenate", 0}, /* two overlap */
    {{1, 2, 2}, {0, 1, 4}, 0, false, "concatenate", 0}, /* a column is bare */
    {{5, 5, 5}, {1, 0, 1}, 0, false, "concatenate", 0}, /* all overlap, two of them wholly */
    {{1, 1, 1}, {3, 3, 3}, 0, false, "concatenate", 0},
    {{1, 3, 2}, {0, 1, 4}, 1, false, "reduce_sum", 3}, /* padded by ones */
    {{1, 3, 2}, {0, 1, 4}, -0.0, false, "concatenate", 0},
    {{1, 2, 2}, {0, 1, 4}, -0.0, false, "concatenate", 0}, /* a column is bare */
    {{1, 3, 2}, {0, 1, 4}, 0, true, "concatenate", 1},     /* only the first two are a sum of pads */
};

/* out: the sum, and a number that keeps reduce_sum in the program */
static void add_up(tow_trace *t, const tow_value *in, tow_value *out, void *user)
{
    const sum *s = user;
    tow_value padded[PIECES], kept[PIECES];
    for (int i = 0; i < PIECES; i++) {
        int64_t low[] = {0, s->at[i]}, high[] = {0, COLUMNS - s->at[i] - s->widths[i]};
        tow_value piece = in[i];
        if (s->made) kept[i] = tow_mul(piece, tow_add_scalar(piece, 1)), piece = tow_neg(tow_sub(kept[i], piece));
        padded[i] = tow_pad(piece, tow_scalar(t, TOW_F32, s->padding), low, high, NULL);
    }
    tow_value part = tow_add(padded[s->leans], padded[1 + s->leans]);
    out[0] = s->leans ? tow_add(padded[0], part) : tow_add(part, padded[2]);
    out[1] = tow_reduce_sum(s->shared ? part : s->made ? kept[2] : in[2], 0, NULL);
}

static void check_sum(sum s)
{
    float cells[PIECES][ROWS * COLUMNS], expected[ROWS][COLUMNS];
    tow_type types[PIECES];
    tow_array *in[PIECES], *out[2];
    tow_graph *g;
    tow_program *p;
    for (int i = 0; i < PIECES; i++) {
        types[i] = tow_make_type(TOW_F32, 2, (int64_t[]){ROWS, s.widths[i]});
        for (int j = 0; j < ROWS * COLUMNS; j++) cells[i][j] = j % 3 == 0 ? -0.0f : (float)(10 * i + j) * 0.1f;
        OK(tow_array_from_data(ctx, types[i], cells[i], &in[i]));
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            float x[PIECES];
            for (int i = 0; i < PIECES; i++) {
                int64_t at = c - s.at[i];
                bool there = at >= 0 && at < s.widths[i];
                x[i] = there ? cells[i][r * s.widths[i] + at] : (float)s.padding;
                if (there && s.made) x[i] = -(x[i] * (x[i] + 1) - x[i]);
            }
            expected[r][c] = s.leans ? x[0] + (x[1] + x[2]) : (x[0] + x[1]) + x[2];
        }
    OK(tow_trace_function(ctx, add_up, &s, PIECES, types, NULL, 2, &g));
    OK(tow_compile(ctx, g, NULL, &p));
    OK(tow_program_check(p));
    assert_int_equal(tow_program_operation_count(p, s.expects), 1);
    assert_int_equal(tow_program_operation_count(p, "pad"), s.pads);
    for (size_t i = 0; i < 2; i++) OK(tow_array_create(ctx, tow_graph_output_type(g, i), &out[i]));
    OK(tow_program_run(p, in, out));
    assert_memory_equal(tow_array_data(out[0]), expected, sizeof expected);
    for (int i = 0; i < PIECES; i++) tow_array_release(in[i]);
    for (int i = 0; i < 2; i++) tow_array_release(out[i]);
    tow_program_free(p);
    tow_graph_release(g);
}

static void sums_of_pads(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) check_sum(sums[k]);
}

/* All sums of pieces of up to five columns, so that each has some padding. */
static void all_sums(void **state)
{
    (void)state;
    for (int n = 0; n < 6 * 6 * 6 * 2 * 5; n++) {
        sum s = {.padding = n % 5 == 0 ? -0.0 : 0, .expects = "concatenate", .leans = n % 2, .made = n % 3 > 0};
        for (int i = 0, rest = n / 2; i < PIECES; i++, rest /= 6) {
            s.widths[i] = rest % 6;
            s.at[i] = (n / 7 + 5 * i + n / 432) % (COLUMNS - s.widths[i] + 1);
        }
        check_sum(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_of_pads), cmocka_unit_test(all_sums)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
