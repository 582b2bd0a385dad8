/* loss = sum of rotary(A x, angles) w with a sparse matrix A: its value and its gradients by x and by the entries of A,
 * against the same sums written out in double precision. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "own.h"

enum {
    M = 3, /* rows of A, [[2, 0], [-1, 3], [0, 0.5]] */
    K = 2,
    C = 4,
    N = 4
};
static const float values[N] = {2, -1, 3, 0.5f}, x[K * C] = {1, -2, 0.5f, 3, -1, 0.25f, 2, 1};
static const int32_t columns[N] = {0, 0, 1, 1}, starts[M + 1] = {0, 1, 3, 4};
static const float angles[M * C / 2] = {0.5f, -1, 0.25f, 2, -0.75f, 1};
static const float w[M * C] = {1, -1, 2, 0.5f, 0.25f, 3, -2, 1, 1, 0.5f, -0.5f, 2};

static void loss(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_reduce_sum(tow_mul(rotary(csr_matmul(in[0], in[1], in[2], in[3]), in[4]), in[5]), 0, NULL);
}

/* The gradient of the loss by A x: w turned back. */
static double turned_back(int i, int k)
{
    const double a = angles[(i * C + k) / 2], u = w[i * C + k / 2 * 2], v = w[i * C + k / 2 * 2 + 1];
    return k % 2 == 0 ? u * cos(a) + v * sin(a) : v * cos(a) - u * sin(a);
}

static int compare(const char *what, const tow_array *found, const double *expected, int n)
{
    for (int i = 0; i < n; i++) {
        const double f = ((const float *)tow_array_data(found))[i];
        if (fabs(f - expected[i]) > 1e-5 * (1 + fabs(expected[i]))) {
            printf("%s, element %d: expected %g, found %g\n", what, i, expected[i], f);
            return 1;
        }
    }
    return 0;
}

static int check(tow_array *const *results)
{
    double by_values[N] = {0}, by_x[K * C] = {0}, sum = 0;
    for (int i = 0; i < M; i++)
        for (int e = starts[i]; e < starts[i + 1]; e++)
            for (int k = 0; k < C; k++) {
                by_values[e] += turned_back(i, k) * x[columns[e] * C + k];
                by_x[columns[e] * C + k] += turned_back(i, k) * values[e];
            }
    for (int i = 0; i < K * C; i++) sum += by_x[i] * x[i]; /* the loss is linear in x */
    return compare("loss", results[0], &sum, 1) + compare("by values", results[1], by_values, N) +
           compare("by x", results[2], by_x, K * C);
}

/* Runs the checks that Tow's own primitives go through: kernels, derivatives, rows of batches, tiles. */
static int check_primitives(tow_context *context)
{
    const bool back = false;
    const tow_check_input turned[] = {{.type = {TOW_F32, 2, {5, 6}}}, {.type = {TOW_F32, 2, {5, 3}}, .constant = true}};
    const tow_check_input sparse[] = {{.type = {TOW_F32, 1, {N}}},
                                      {.type = {TOW_I32, 1, {N}}, .data = columns},
                                      {.type = {TOW_I32, 1, {M + 1}}, .data = starts},
                                      {.type = {TOW_F32, 2, {K, C}}}};
    const tow_check_case rotary = {.label = "6 columns", .inputs = turned, .attributes = &back};
    const tow_check_case product = {.label = "3 rows", .inputs = sparse};
    static const char *const names[] = {"rotary", "csr_matmul"};
    for (int i = 0; i < 2; i++)
        if (tow_primitive_check(context, tow_primitive_find(context, names[i]), 1, i < 1 ? &rotary : &product, NULL,
                                NULL) != TOW_OK) {
            printf("%s\n", tow_context_error(context));
            return 1;
        }
    return 0;
}

int main(void)
{
    const tow_type types[] = {
        {TOW_F32, 1, {N}},    {TOW_I32, 1, {N}},        {TOW_I32, 1, {M + 1}},
        {TOW_F32, 2, {K, C}}, {TOW_F32, 2, {M, C / 2}}, {TOW_F32, 2, {M, C}},
    };
    const void *const data[] = {values, columns, starts, x, angles, w};
    const size_t wrt[] = {0, 3};
    tow_context *context = NULL;
    tow_graph *graph = NULL, *gradient = NULL;
    tow_program *program = NULL;
    tow_array *in[6] = {0}, *out[3] = {0};
    int failures = 1;
    bool fine = tow_context_create(NULL, &context) == TOW_OK && define_rotary(context) && define_csr(context) &&
                tow_trace_function(context, loss, NULL, 6, types, NULL, 1, &graph) == TOW_OK &&
                tow_value_and_grad(graph, 2, wrt, false, &gradient) == TOW_OK &&
                tow_compile(context, gradient, NULL, &program) == TOW_OK;
    for (size_t i = 0; fine && i < 6; i++) fine = tow_array_from_data(context, types[i], data[i], &in[i]) == TOW_OK;
    for (size_t i = 0; fine && i < 3; i++)
        fine = tow_array_create(context, tow_graph_output_type(gradient, i), &out[i]) == TOW_OK;
    if (fine && tow_program_run(program, in, out) == TOW_OK)
        failures = check(out) + check_primitives(context);
    else
        printf("%s\n", tow_context_error(context));
    for (size_t i = 0; i < 6; i++) tow_array_release(in[i]);
    for (size_t i = 0; i < 3; i++) tow_array_release(out[i]);
    tow_program_free(program);
    tow_graph_release(gradient);
    tow_graph_release(graph);
    tow_context_free(context);
    if (failures == 0) printf("value and gradients are right\n");
    return failures != 0;
}
