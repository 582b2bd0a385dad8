/* Checks of a program, which is a graph: what Tow promises about it, each promise a check. And a search for the
 * smallest program that fails a check. */
#ifndef TOW_TESTS_PROGRAMS_PROGRAMS_H
#define TOW_TESTS_PROGRAMS_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/graph/graph.h"
#include "tow/tow.h"

typedef enum verdict {
    PASSES,
    FAILS,
    UNDECIDED /* the check has nothing to say about this program */
} verdict;

enum {
    MESSAGE = 1200
};

/* The input of a check. Variants (which passes are left out, which rows, ...) depend on the seed alone, so that a
 * smaller program meets the same ones. */
typedef struct trial {
    tow_context *plain, *portable; /* the second one with portable bits */
    const tow_graph *graph;        /* of the plain context */
    uint32_t seed;
    const char *broken; /* the check that is broken on purpose, by its name, or NULL */
    char *message;      /* [MESSAGE] what is wrong */
} trial;

typedef struct check {
    const char *name, *what;
    verdict (*run)(trial *t);
} check;

extern const check checks[];
extern const size_t n_checks;
/* True if the check of this name is to go wrong in programs that contain `primitive`. */
bool is_broken(const trial *t, const char *name, const char *primitive);
/* FAILS with a message (printf format). */
__attribute__((format(printf, 2, 3))) verdict fail(trial *t, const char *format, ...);

/* ---- choices of a check ------------------------------------------------------------------------------------------ */

typedef struct choices {
    uint64_t random;
} choices;
choices choices_of(const trial *t, uint32_t salt);
int choose(choices *c, int n); /* 0 .. n - 1 */

/* ---- graphs (run.c) ---------------------------------------------------------------------------------------------- */

char *text_of(const tow_graph *g); /* to be freed */
/* The graph with every `from` in its text replaced; NULL if that is no program. */
tow_graph *read_with(tow_context *context, const tow_graph *g, const char *from, const char *to);
tow_graph *read_as_doubles(tow_context *context, const tow_graph *g);
/* The value and the gradients of all float inputs; NULL with the context's error. */
tow_graph *gradient_of(const tow_graph *g);
bool mentions(const tow_graph *g, const char *primitive);

/* ---- runs (run.c) ------------------------------------------------------------------------------------------------ */

typedef struct arrays {
    size_t n;
    tow_array **list;
} arrays;

typedef struct how {
    int threads;
    bool no_regions, no_fusion, verify;
    int limit;           /* of bytes: 1 .. 1000 from the least to the most of all plans; 0: none */
    const char *without; /* a pass, or NULL */
    const char *machine; /* that it is planned for; NULL: the one at hand */
} how;

arrays inputs_of(const tow_graph *g, uint32_t seed);
void release(arrays *a);
/* Numbers for an array, from a stream. */
void fill(tow_array *array, choices *c);
/* The program's plan is checked before it runs. False: an error, which is in the context. */
bool run(const tow_graph *g, const how *h, const arrays *in, arrays *out);
/* The first difference; NaNs are equal. */
bool same_bits(const arrays *a, const arrays *b, char *text);
bool all_finite(const arrays *a);

/* ---- the interpreter (interpret.c) ------------------------------------------------------------------------------- */

/* Computes g equation by equation, each as a program of its own; regions run in C. False: an error. */
bool interpret(const tow_graph *g, const arrays *in, arrays *out);

/* ---- checks in files of their own -------------------------------------------------------------------------------- */

verdict check_text(trial *t); /* checks.c */
verdict check_passes(trial *t);
verdict check_machines(trial *t);
verdict check_policies(trial *t);
verdict check_schedules(trial *t);
verdict check_interpreter(trial *t);
verdict check_rows(trial *t);        /* check_rows.c */
verdict check_differences(trial *t); /* check_derivatives.c */
verdict check_transposes(trial *t);
verdict check_counts(trial *t); /* check_plans.c */
verdict check_residuals(trial *t);
verdict check_bytes(trial *t);
verdict check_damage(trial *t);

/* ---- shrinking (shrink.c) ---------------------------------------------------------------------------------------- */

/* The smallest graph found that fails(graph, user); takes g and returns it or another one. */
tow_graph *shrink(tow_graph *g, bool (*fails)(const tow_graph *g, void *user), void *user);

#endif
