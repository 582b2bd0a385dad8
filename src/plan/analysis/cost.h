/* The cost model: seconds that an operation takes on a machine (src/base/machine.h). Every decision between two plans
 * of one function asks it: fuse-reductions, parallelize, split-norm-gradient, tile and distribute-remainder compare
 * seconds with seconds (the picture is in src/plan/pipeline.c), and reports print them.
 *
 *   operation ──tow__work_of──> work: flops, functions, bytes by level ──tow__seconds_of_work──> seconds
 *
 * Work is a sum over parts, and seconds are a sum over work: nothing overlaps. So seconds grow with the number of rows,
 * and a value that is farther away costs more. The decisions of a function may depend on seconds, its bits never do. */
#ifndef TOW_SRC_PLAN_COST_H
#define TOW_SRC_PLAN_COST_H

#include "src/base/machine.h"
#include "src/plan/ir.h"

/* The work of an operation, of several, or of a part of one. */
typedef struct tow__work {
    double f32, f64;           /* floating-point operations of products */
    double functions;          /* cheap functions of f32 elements, or as many as take as long */
    double bytes[TOW__LEVELS]; /* read and written, by the level in which they lie */
    double calls;              /* of kernels */
} tow__work;

/* The levels of memory in which the data of an instruction lie. */
typedef struct tow__where {
    tow__memory_level rows;  /* operands of which a row of the results needs a row, and the results */
    tow__memory_level whole; /* operands of which a row of the results needs everything, such as weights */
} tow__where;

/* The work of `rows` of the rows (axis 0) of a kernel's instruction; all of them if the instruction mixes rows or rows
 * is 0. where NULL: each view lies where data of its size are found. Not for loops. */
tow__work tow__work_of(const tow__machine *m, const tow__instruction *inst, int64_t rows, const tow__where *where);
/* The same of an operation, of a graph or of a plan, as a whole: each view lies where data of its size are found. */
tow__work tow__work_of_operation(const tow__machine *m, const tow__operation *o);
void tow__add_work(tow__work *sum, const tow__work *more, double times);

/* One thread does it. */
double tow__seconds_of_work(const tow__machine *m, const tow__work *work);
/* One thread reads or writes so many bytes where data of their size are found. */
double tow__moving_seconds(const tow__machine *m, double bytes);
/* m->threads threads do it together, if that is faster; memory is one for all. */
double tow__shared_seconds_of_work(const tow__machine *m, const tow__work *work);

/* One thread runs the instruction on so many rows: tow__work_of. */
double tow__seconds(const tow__machine *m, const tow__instruction *inst, int64_t rows, const tow__where *where);
/* All threads run the instruction, which may be a loop: its body as often as there are iterations, in the way that its
 * schedule says. Loops that data end count once. */
double tow__instruction_seconds(const tow__machine *m, const tow__instruction *inst);
double tow__body_seconds(const tow__machine *m, const tow__body *body);
/* One thread computes an equation of a graph, with all that its regions run: of branches the dearest, of a number of
 * iterations that data decide the most there may be, or one. This is what it costs to make its results again. Equations
 * that become views cost nothing. views: room for tow__most_views of them. */
double tow__equation_seconds(const tow__machine *m, const tow_graph *g, const tow__equation *e, tow__view *views);
/* Seconds of an equation that is no region: of one thread, and of all of them if they share it. */
typedef struct tow__equation_time {
    double alone, shared;
} tow__equation_time;

tow__equation_time tow__time_equation(const tow__machine *m, const tow_graph *g, const tow__equation *e,
                                      tow__view *views);
/* Operands and results of one equation of g or of the graphs in it, at most. */
uint32_t tow__most_views(const tow_graph *g);

/* The share of its time that a loop saves at least if it is split among threads or into several loops. */
#define TOW__GAIN (1.0 / 16)
/* Is it worth `bytes` of memory more that a loop takes `after` seconds and not `before`? The time that it saves must be
 * a share of the whole, and more than it takes to bring these bytes from memory, where they lie when a run begins. */
bool tow__is_worth(const tow__machine *m, double before, double after, double bytes);
/* The fewest rows of a product that do not wait for its weights: reading these from L3 takes a sixteenth of the time of
 * the operations at most. With fewer, an iteration of a loop had better not read, transpose, or add to, as many
 * elements as the weights have. */
int64_t tow__enough_rows(const tow__machine *m);
/* The share of the time of a block of rows that the calls of its instructions may take. */
#define TOW__CALLS_SHARE (1.0 / 32)
/* The level where weights of so many bytes lie that blocks of rows read in turn: other data pass through L1 and L2
 * meanwhile. */
tow__memory_level tow__weight_level(const tow__machine *m, double bytes);
/* The fewest rows of a product for which reading its weights, which lie at `level`, takes `share` of the time of its
 * operations at most, while so many threads read theirs. [rows, k] [k, n] of f32: 2 k n rows operations, 4 k n
 * bytes. */
int64_t tow__rows_for_share(const tow__machine *m, tow__memory_level level, double share, int threads);

#endif
