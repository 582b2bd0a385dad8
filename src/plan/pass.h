/* Passes: what they are given, and how they are run. The list, in order and with reasons, is in src/plan/pipeline.c. */
#ifndef TOW_SRC_PLAN_PASS_H
#define TOW_SRC_PLAN_PASS_H

#include "src/plan/analysis/analysis.h"
#include "src/plan/ir.h"

/* The form that a pass works on, and the functions that it visits one after the other. */
typedef enum tow__stage {
    TOW__ON_GRAPH,  /* the whole graph that is compiled */
    TOW__ON_VALUES, /* the instructions of a function before lowering: of the program, or of a scan, inner ones first */
    TOW__LOWERING,  /* all functions at once: instructions get views */
    TOW__OUTSIDE_IN, /* the instructions of a function, outer ones first: of the program, then of scans; what is known
                        outside, that a value is constant or how it lies in memory, is known inside */
    TOW__ON_VIEWS,  /* the instructions of a function, inner ones first: of the program, of a scan or of a tile group */
    TOW__ON_PROGRAM /* all functions at once, when each has offsets: once, last of all */
} tow__stage;

/* The form of a function after a pass: what can be verified and printed of it. */
typedef enum tow__form {
    TOW__FORM_OF_STAGE, /* in the table of passes: the form that passes of the stage work on; of lowering: views */
    TOW__AS_GRAPH,      /* equations */
    TOW__AS_VALUES,     /* instructions on values */
    TOW__AS_VIEWS,      /* instructions on views of storages */
    TOW__AS_OFFSETS     /* the same, and storages have offsets in an arena and lifetimes */
} tow__form;

typedef enum tow__function_kind {
    TOW__TOP,       /* the program itself */
    TOW__SCAN_BODY, /* what a loop runs in each iteration */
    TOW__TILE_BODY  /* what a tile group runs for each block of rows */
} tow__function_kind;

/* A function on its way through the passes. Only what its stage has made is there. */
struct tow__function_state {
    tow_program *p;
    tow__arena *scratch;
    tow__function_kind kind;
    const tow_graph *graph;
    tow__body *body;
    tow__loop *loop;        /* that runs the body; NULL: the program */
    tow__analyses analyses; /* of the body */
};

typedef struct tow__rule tow__rule; /* rules/rewrite.h */

typedef struct tow__pass {
    const char *name;
    tow__stage stage;
    tow_status (*run)(tow__function_state *s); /* NULL: it is a rule, or another pass does it on its way */
    const char *within;                        /* the pass that does it; NULL: it runs by itself */
    bool required;                             /* cannot be left out */
    const char *reason;                        /* why it is there, and why there */
    const tow__rule *rule;                     /* that is applied to the function; or NULL */
    tow__form leaves;                          /* if it changes the form */
} tow__pass;

extern const tow__pass tow__passes[TOW__PASSES];

/* The form in which the pass leaves a function. */
tow__form tow__form_after(tow__pass_id id);

/* The passes of a stage from `first` on, in order. */
tow_status tow__run_passes(tow__function_state *s, tow__stage stage, tow__pass_id first);
/* The passes on instructions, once all functions are lowered: from the outside in, then from the inside out. */
tow_status tow__run_view_passes(tow__function_state *s);
/* Ends a pass: the verifier runs, if checks are wanted, and the caller's dump. */
tow_status tow__end_pass(tow__function_state *s, tow__pass_id id);
/* Leaves out what options->without names, and what .no_fusion and .no_regions stand for. */
tow_status tow__select_passes(tow_program *p, const tow_compile_options *options);

/* verify.c: is every instruction well-formed, and does it read what is there? Before storages have places. */
tow_status tow__verify_values(tow_context *ctx, const tow__body *f, const char *pass);
tow_status tow__verify_views(const tow_program *p, const tow__body *body, const char *pass);

/* report/print.c: the function in the given form, for dumps. The text is the caller's. */
void tow__string_add_function(tow__string *text, const tow__function_state *s, tow__form form);

#endif
