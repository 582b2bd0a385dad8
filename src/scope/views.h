/* Views: what the layers around a layer make of the parameters and variables that it asks for.
 *
 *     layer --request--> view --request--> view around it --request--> store
 *       ^ as asked for     |  <-- value          |  <-- value            |  as stored
 *
 * A layer asks for a variable of a name and a type. The innermost view that takes the request answers it, by requests
 * of its own in the scope outside it: for what is stored, of whatever name and type. So views nest in any order, each
 * sees what those around it made, and what none takes goes to the store. Clients: LoRA, WeightNorm, SpectralNorm, tied,
 * map_variables (transforms/).
 * A parameter is made once in each body that is traced; variables, which calls change, at every request. */
#ifndef TOW_SRC_SCOPE_VIEWS_H
#define TOW_SRC_SCOPE_VIEWS_H

#include "src/scope/scope.h"

/* y [..., features], a product of x with a parameter: letters of x, the parameter and y as in einsum. The axes of the
 * parameter are those that all three have, those that are contracted, and those that only the parameter and y have, in
 * this order. */
typedef struct tow__product {
    const char *x, *param, *y;
    int batch, contracted;   /* axes of the parameter */
    tow_dtype compute;       /* of x and y */
    const tow_dot_dims *dot; /* computes the same; NULL: einsum does */
} tow__product;

/* outside: the scope of the request as the views around this one see it, for requests of the view's own. */
struct tow__scope_view {
    tow__scope_view *outer;
    bool (*takes)(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request);
    tow_value (*read)(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request);
    /* The value that a product of x with the parameter becomes; NULL: that with what `read` gives. */
    tow_value (*product)(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request,
                         const tow__product *product, tow_value x);
    /* A new value of a variable, as the layer sees it; NULL: the view takes parameters only. */
    void (*write)(const tow__scope_view *view, tow_scope *outside, const tow_variable_request *request,
                  tow_value value);
    bool of_kept; /* it also takes what views within it keep beside parameters (tow__open_beside) */
    const void *user;
    const tow_scope *at;      /* of the layer with the view */
    struct tow__viewed *seen; /* what it was asked for, and parameters as it gave them */
};

/* The answer of the views around the scope, or else of the store. */
tow_value tow__request(tow_scope *scope, const tow_variable_request *request);
/* The same, where no view answers of the type in which the parameter is stored: other floats, or blocks. */
tow_value tow__request_stored(tow_scope *scope, const tow_variable_request *request);
/* The product of x, of the type product->compute, with a parameter. */
tow_value tow__request_product(tow_scope *scope, const tow_variable_request *request, const tow__product *product,
                               tow_value x);
void tow__request_write(tow_scope *scope, const tow_variable_request *request, tow_value value);
/* "attn/query/kernel": the path, as it is stored, of what is asked for, below the layer with the view; a scan in it is
 * "{}", whatever the axis of its layers. NULL: out of memory, reported. */
const char *tow__viewed_path(const tow__scope_view *view, const tow_scope *scope, const tow_variable_request *request);

#endif
