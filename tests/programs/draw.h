/* Random programs: graphs drawn from a seed through the public interface. draw.c has the values that a drawing works on
 * and whole programs, the files draw_*.c have one kind of operation each.
 *
 * A program is numbers in, numbers out: float inputs of one type, indices, a key, a flag. Output 0 is a scalar loss
 * over every float that was made, further outputs are values of any type. Values stay of moderate size, so that
 * differences can be taken; rules of its own (custom_jvp, custom_vjp) are true derivatives. */
#ifndef TOW_TESTS_PROGRAMS_DRAW_H
#define TOW_TESTS_PROGRAMS_DRAW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tow/tow.h"

enum {
    MOST_VALUES = 48,
    MOST_AXES = 4,
    N_FLOATS = 4, /* inputs: floats, indices, a small index, unsigned numbers, a flag, a key */
    N_INPUTS = N_FLOATS + 5,
    MOST_OUTPUTS = 3
};

typedef struct drawing {
    uint64_t random;
    tow_trace *t;
    tow_dtype floats;  /* of all float values */
    int64_t sizes[3];  /* that inputs and new axes have */
    int64_t most;      /* elements of a value */
    const char *fault; /* the planted operation that is still to be recorded (fault.h), or NULL */
    int depth;         /* regions that may be nested in the values at hand */
    tow_value values[MOST_VALUES];
    int n;
    tow_value key;
} drawing;

/* ---- choices ----------------------------------------------------------------------------------------------------- */

int draw(drawing *d, int n); /* 0 .. n - 1 */
int draw_axis(drawing *d, tow_value x);
/* A float value; one of `least` axes or more (the first input, of two axes, where none is found). */
tow_value draw_float(drawing *d);
tow_value draw_ranked(drawing *d, int least);
/* A value of this type of numbers (i32, u32, bool), which is made from a float where there is none. */
tow_value draw_of(drawing *d, tow_dtype dtype);
/* An i32 scalar. */
tow_value draw_index(drawing *d);
/* Indices in [0, n), n > 0, of any shape. */
tow_value draw_indices(drawing *d, int64_t n);

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* x as a value of this type: itself, broadcast, or its sum. */
tow_value fitted(tow_value x, tow_type type);
/* x, sometimes brought back to moderate size. */
tow_value tamed(drawing *d, tow_value x);
int64_t count_of(tow_value x);
int64_t size_of(tow_value x, int axis);
/* Adds a value that is small enough. */
void add_value(drawing *d, tow_value x);

/* ---- operations: each returns a new value, or a null value where nothing fits ------------------------------------ */

tow_value draw_unary(drawing *d); /* draw_elementwise.c */
tow_value draw_binary(drawing *d);
tow_value draw_integers(drawing *d);
tow_value draw_truth(drawing *d);
tow_value draw_move(drawing *d); /* draw_moves.c */
tow_value draw_broadcast(drawing *d);
tow_value draw_indexed(drawing *d); /* draw_indexing.c */
tow_value draw_sorted(drawing *d);
tow_value draw_reduction(drawing *d); /* draw_reductions.c */
tow_value draw_window(drawing *d);
tow_value draw_product(drawing *d); /* draw_products.c */
tow_value draw_convolution(drawing *d);
tow_value draw_layer(drawing *d);
tow_value draw_random(drawing *d);
tow_value draw_region(drawing *d); /* draw_regions.c */
tow_value draw_control(drawing *d);
tow_value draw_custom(drawing *d);

/* Records so many operations. */
void draw_operations(drawing *d, int n);

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* fault: the name of a planted operation, or NULL. large: fewer operations, on so many numbers that plans cut them in
 * blocks for threads and caches. NULL with the context's error. */
tow_graph *draw_program(tow_context *context, uint32_t seed, const char *fault, bool large);

#endif
