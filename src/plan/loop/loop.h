/* Passes on loops.
 *
 * Distribution, fission, strip mining and sinking transform graphs (stage TOW__ON_GRAPH): they record a scan and what
 * is around it anew. They do not work on instructions with bodies, although a scan is one, for three reasons. A loop
 * that is split has other carries, rows and captures, whose types the trace infers and checks, and what nobody reads
 * any more the graph's own elimination drops; a function of instructions would need both a second time. All of them
 * come before recomputation is placed and values are numbered, so nothing that instructions know more than equations
 * would help them. And they ask the same questions of equations as differentiation does (graph/region.h), which made
 * these loops.
 *
 * Parallelization and the remainder of iterations work on instructions on views: they decide by memory and by cost. */
#ifndef TOW_SRC_PLAN_LOOP_H
#define TOW_SRC_PLAN_LOOP_H

#include "src/plan/ir.h"

/* A graph with the same inputs, outputs and bits; `g` itself, retained, if nothing moves. defers: what carries of small
 * scans do not wait for may come later (loop/fission.c). */
tow_status tow__distribute_loops(const tow_graph *g, const tow__machine *machine, bool defers, tow_graph **result);
/* The same, with elementwise readers of stacked results in the bodies of scans. homes: [outputs] the input whose place
 * an output takes, or TOW__NONE. */
tow_status tow__sink_into_loops(const tow_graph *g, const uint32_t *homes, tow_graph **result);
/* Makes donated stacks, of which the runs of a loop that is cut read rows each, two arrays of the plan each, where all
 * that reads them allows it: rows are updated in the run that makes their gradients, while others are still read. */
tow_status tow__split_donated_stacks(tow_program *p);
/* Lets gathers of rows begin an iteration ahead, and waits for stacked sums end an iteration later, in the loops of the
 * function. */
tow_status tow__pipeline_exchanges(tow__function_state *s);
/* Makes a loop whose iterations, or whose rows, do without each other run side by side. After
 * fusion of its body, before tile groups. */
tow_status tow__parallelize_loop(tow__function_state *s);
/* Once the body of a parallel loop has its instructions: says how many iterations all threads share. */
tow_status tow__distribute_remainder(tow__function_state *s);
/* Do all threads share the last pieces % threads pieces of equal work, after rounds in which each takes one? A piece
 * takes one thread `alone` seconds, and all of them together `shared`. */
bool tow__remainder_pays(const tow__machine *machine, int64_t pieces, double alone, double shared);

#endif
