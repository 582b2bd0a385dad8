/* What is seen of a running training: a bar on a terminal, plain lines otherwise, and a log of JSON lines. */
#ifndef GPT_PROGRESS_H
#define GPT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct progress {
    bool terminal;
    int64_t first, steps; /* steps done before this run; steps in all */
    int64_t tokens_per_step;
    double start;            /* seconds */
    double last, last_shown; /* seconds: end of the last step, last drawing */
    double val_loss;         /* the last one measured; NAN: none yet */
    FILE *log;               /* or NULL */
    const char *log_path;
} progress;

/* Seconds of a clock that only goes forward. */
double seconds_now(void);

/* `first` steps are done already: lines of the log that are older than that are kept, later ones dropped.
 * Prints a message and returns false if the log cannot be written. */
bool progress_start(progress *p, int64_t first, int64_t steps, int64_t tokens_per_step, const char *log_path);
/* After each step: its number (from 1), its loss, and the validation loss or NAN. False if the log cannot be written. */
bool progress_step(progress *p, int64_t step, double loss, double val_loss);
/* Ends the bar's line and closes the log. */
bool progress_end(progress *p);

#endif
