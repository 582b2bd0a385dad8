/* Recomputation elimination within a budget of bytes. */
#ifndef TOW_SRC_PLAN_REMAT_H
#define TOW_SRC_PLAN_REMAT_H

#include "src/plan/ir.h"

tow_status tow__compile_with_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options,
                                    int threads, tow__remat_budget budget, tow_program **program);
/* *budget: how options->keep_within is spent best. Compiles the graph several times, without memory. */
tow_status tow__search_budget(tow_context *ctx, const tow_graph *graph, const tow_compile_options *options, int threads,
                              tow__remat_budget *budget);
/* Leaves out those repeated instructions that p->budget says, counts products in
 * p->n_repeated. Before the merges below. */
tow_status tow__eliminate_recomputation(tow_program *p, tow__arena *scratch, tow__body *f);

#endif
