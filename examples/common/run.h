/* The parts that the runs of most examples have: options, a context, messages. The struct of a program begins with
 * it. */
#ifndef EXAMPLE_RUN_H
#define EXAMPLE_RUN_H

#include "common.h"
#include "options.h"
#include "progress.h"

typedef struct run {
    const char *program;    /* its name, in messages */
    const char *purpose;    /* a sentence, for --help */
    common_options options; /* the defaults of the program, until read_run_options */
    tow_context *context;   /* of open_run; the program destroys it */
} run;

/* Reads the command line: the common options, and the program's own, a table that ends with a row of zeros. A wrong
 * option ends the program with a message and status 2. */
void read_run_options(run *r, int argc, char **argv, const example_option *own);
/* Makes the context. Gives SUCCESS, or FAILURE with a message. */
int open_run(run *r);
/* Ends the bar and the log of a training that has come to this status. If the user interrupted it, the last line says
 * so, the number of steps done, and `consequence`. Gives the status of the run so far. */
int end_training(progress *p, int status, int64_t done, const char *consequence);
/* Prints the message of the run's context. Gives FAILURE. */
int complain(const run *r);

#endif
