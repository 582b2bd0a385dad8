/* The display of a running training: a bar on a terminal, plain lines otherwise, and a log of JSON lines. */
#ifndef EXAMPLE_PROGRESS_H
#define EXAMPLE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <tow/tow.h>

/* Fields that are zero are left out or have the default. */
typedef struct progress_options {
    const char *program;  /* in messages */
    int64_t first, steps; /* steps done before this run; steps in all */
    const char *unit;     /* what the rate counts: "tokens", "images" */
    int64_t units_per_step;
    const char *measure;     /* what is measured now and then, on the screen; "val" */
    const char *measure_key; /* and in the log; "val_loss" */
    const char *log;         /* path; NULL: none */
    const char *events;      /* a directory for TensorBoard; NULL: none */
} progress_options;

typedef struct progress {
    progress_options options;
    bool terminal;
    double start;            /* seconds */
    double last, last_shown; /* seconds: end of the last step, last drawing */
    double measured;         /* the last one; NAN: none yet */
    tow_context *context;    /* of the log, which has one for itself: the run's may be in use */
    tow_logger *log;         /* or NULL */
} progress;

/* The log is that of tow_logger_create: lines of steps up to .first are kept, later ones dropped. Prints a message and
 * returns false if the log cannot be written. */
bool progress_start(progress *p, const progress_options *options);
/* After each step: its number (from 1), its loss, and what was measured or NAN. Prints a message and returns false if
 * the log cannot be written, and for a loss that is not finite, which it shows and logs. */
bool progress_step(progress *p, int64_t step, double loss, double measured);
/* Ends the bar's line and closes the log. */
bool progress_end(progress *p);

#endif
