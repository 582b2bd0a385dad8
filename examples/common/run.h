/* What the runs of most examples have: options, a context, messages. The struct of a program begins with it. */
#ifndef EXAMPLE_RUN_H
#define EXAMPLE_RUN_H

#include "common.h"
#include "options.h"

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
/* Prints the message of the run's context. Gives FAILURE. */
int complain(const run *r);

#endif
