/* Prints what a case gives as one hash per graph, so that builds for several processors can be compared
 * (scripts/same-bits.sh). f32 has the same bits everywhere; f64 only where the C library takes no part. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/property/property.h"

/* FNV-1a over the bits of all results. NaN has a sign and a payload that processors choose; here it has one. */
static uint64_t hash(const property_values *values)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < values->n; i++)
        for (int64_t k = 0; k < values->counts[i]; k++) {
            const double x = isnan(values->arrays[i][k]) ? (double)NAN : values->arrays[i][k];
            uint64_t bits;
            memcpy(&bits, &x, sizeof bits);
            for (int b = 0; b < 64; b += 8) h = (h ^ (bits >> b & 0xff)) * 0x100000001b3u;
        }
    return h;
}

static bool print(const property_case *c, const char *what, const tow_graph *graph, const property_values *inputs)
{
    property_values found = {0};
    const bool good = graph != NULL && property_evaluate(graph, inputs, &found);
    if (good)
        printf("%s%s%s %s %016" PRIx64 "\n", c->primitive, c->label ? ", " : "", c->label ? c->label : "", what,
               hash(&found));
    property_free(&found);
    return good;
}

/* Comparisons and argmax have no gradient: none of their results is a float. */
static bool has_float_output(const tow_graph *graph)
{
    for (size_t i = 0; graph && i < tow_graph_outputs(graph); i++)
        if (tow_dtype_is_float(tow_graph_output_type(graph, i).dtype)) return true;
    return false;
}

int property_bits(tow_context *context, const property_case *c, tow_dtype floats)
{
    property_values inputs = {0};
    size_t wrt[MAX_IN];
    const size_t n_wrt = c->no_derivative ? 0 : property_differentiable(c, wrt);
    tow_graph *value = property_graph(context, c, floats), *scalar = NULL, *gradient = NULL;
    property_draw(c, &inputs);
    bool good = print(c, tow_dtype_name(floats), value, &inputs);
    if (good && n_wrt > 0 && has_float_output(value)) {
        scalar = property_scalar_graph(context, c, floats);
        good = scalar != NULL && tow_grad(scalar, n_wrt, wrt, false, &gradient) == TOW_OK;
        if (good) property_draw_weights(scalar, &inputs);
        good = good && print(c, floats == TOW_F32 ? "gradient in f32" : "gradient in f64", gradient, &inputs);
    }
    if (!good)
        fprintf(stderr, "%s%s%s in %s: %s\n", c->primitive, c->label ? ", " : "", c->label ? c->label : "",
                tow_dtype_name(floats), tow_context_error(context));
    tow_graph_release(value);
    tow_graph_release(scalar);
    tow_graph_release(gradient);
    property_free(&inputs);
    return good ? 0 : 1;
}
