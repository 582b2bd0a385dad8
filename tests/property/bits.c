/* Prints what a case gives as one hash per graph, so that builds for several processors can be compared
 * (scripts/same-bits.sh). f32 has the same bits everywhere; f64 only where the C library takes no part. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/property/property.h"

/* FNV-1a over the bits of all results. NaN has a sign and a payload that processors choose; here it has one. */
static uint64_t hash(const tow__check_values *values)
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

static bool print(tow__check *k, const char *what, const tow_graph *graph, const tow__check_values *inputs)
{
    const property_case *c = k->c;
    tow__check_values found = tow__check_no_values(k);
    const bool good = graph != NULL && tow__check_evaluate(k, graph, inputs, &found);
    if (good)
        printf("%s%s%s %s %016" PRIx64 "\n", c->primitive, c->label ? ", " : "", c->label ? c->label : "", what,
               hash(&found));
    tow__check_free(&found);
    return good;
}

int property_bits(tow_context *context, const property_case *c, tow_dtype floats)
{
    tow__check k = property_begin(context, c);
    tow__check_values inputs = {0};
    size_t wrt[MAX_IN];
    const size_t n_wrt = c->no_derivative ? 0 : tow__check_differentiable(c, wrt);
    tow_graph *value = tow__check_graph(&k, c, floats), *scalar = NULL, *gradient = NULL;
    bool good = tow__check_draw(&k, c, 0, &inputs) && print(&k, tow_dtype_name(floats), value, &inputs);
    /* comparisons and argmax have no gradient: none of their results is a float */
    if (good && n_wrt > 0 && tow__check_has_float_output(value)) {
        scalar = tow__check_scalar_graph(&k, c, floats);
        good = scalar != NULL && tow_grad(scalar, n_wrt, wrt, false, &gradient) == TOW_OK &&
               tow__check_draw_weights(scalar, &inputs);
        good = good && print(&k, floats == TOW_F32 ? "gradient in f32" : "gradient in f64", gradient, &inputs);
    }
    if (!good)
        fprintf(stderr, "%s%s%s in %s: %s\n", c->primitive, c->label ? ", " : "", c->label ? c->label : "",
                tow_dtype_name(floats), tow_context_error(context));
    tow_graph_release(value);
    tow_graph_release(scalar);
    tow_graph_release(gradient);
    tow__check_free(&inputs);
    return good ? 0 : 1;
}
