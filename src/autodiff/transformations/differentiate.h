/* A differentiated graph in its two parts, which linearize, vjp, grad and the residual report share. */
#ifndef TOW_SRC_DIFFERENTIATE_H
#define TOW_SRC_DIFFERENTIATE_H

#include "src/autodiff/autodiff.h"

/* split.known: x -> (y, residuals);  split.unknown: (used x, used dx, residuals) -> dy of outputs with nonzero[i]. */
typedef struct tow__parts {
    const tow_graph *g;
    bool *chosen;  /* [inputs] differentiated */
    bool *nonzero; /* [outputs] its tangent depends on the chosen inputs */
    size_t n_used; /* primal inputs that the unknown graph reads */
    tow__partial split;
    tow__arena arena;
} tow__parts;

/* The inputs that are differentiated, checked: in increasing order, in range, of float type. chosen: [inputs], false
 * before. Errors name `caller`. n_wrt 0: all float inputs. */
tow_status tow__choose_inputs(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt, bool *chosen);
/* An error if no input is of float type. */
tow_status tow__check_any_float(const tow_graph *g, const char *caller);
/* Errors name `caller`. n_wrt 0: all float inputs. manner: of the split; without a policy. */
tow_status tow__differentiate(const tow_graph *g, const char *caller, size_t n_wrt, const size_t *wrt,
                              tow__manner manner, tow__parts *parts);
/* The backward pass as a graph: (used primals, residuals, ct of float outputs) -> ct of the chosen inputs. */
tow_status tow__backward_graph(const tow__parts *parts, tow_graph **result);
void tow__parts_free(tow__parts *parts);

#endif
