/* A program over the shared library: traces, differentiates, runs. Fails if a public function is not exported. */
#include <math.h>
#include <stdio.h>

#include "tow/tow.h"

static void sine(tow_trace *trace, const tow_value *in, tow_value *out, void *user)
{
    (void)trace, (void)user;
    out[0] = tow_sin(in[0]);
}

int main(void)
{
    tow_context *context = NULL;
    tow_graph *graph = NULL, *gradient = NULL;
    tow_array *x = NULL, *dx = NULL;
    const tow_type scalar = tow_make_type(TOW_F64, 0, NULL);
    const double at = 0.5;
    int failed = 1;
    if (tow_context_create(NULL, &context) == TOW_OK &&
        tow_trace_function(context, sine, NULL, 1, &scalar, NULL, 1, &graph) == TOW_OK &&
        tow_grad(graph, 0, NULL, false, &gradient) == TOW_OK &&
        tow_array_from_data(context, scalar, &at, &x) == TOW_OK && tow_evaluate(gradient, &x, &dx) == TOW_OK) {
        const double found = *(const double *)tow_array_data(dx);
        failed = fabs(found - cos(at)) > 1e-15;
        printf("d sin(0.5) = %.17g\n", found);
    } else {
        fprintf(stderr, "%s\n", tow_context_error(context));
    }
    tow_array_release(x);
    tow_array_release(dx);
    tow_graph_release(graph);
    tow_graph_release(gradient);
    tow_context_free(context);
    return failed;
}
