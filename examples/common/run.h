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

/* Options of programs that learn from images. */
/* clang-format off */
#define IMAGE_OPTIONS(batch, tensorboard)                                                                              \
    {"batch", "N", "Images per step", OPTION_WHOLE, (batch), 1, 1024},                                                 \
    {"tensorboard", "DIR", "Events for TensorBoard, in a new file of this directory", OPTION_PATH,                     \
     (void *)(tensorboard), 0, 0}
/* clang-format on */

/* Reads the command line: the common options, and the program's own, a table that ends with a row of zeros. A wrong
 * option ends the program with a message and status 2. */
void read_run_options(run *r, int argc, char **argv, const example_option *own);
/* Makes the context. Gives SUCCESS, or FAILURE with a message. */
int open_run(run *r);
/* Ends the bar and the log of a training that has come to this status. If the user interrupted it, the last line says
 * so, the number of steps done, and `consequence`. Gives the status of the run so far. */
int end_training(progress *p, int status, int64_t done, const char *consequence);
/* One update by the next batch of the loader, whose position the state keeps. Gives SUCCESS, or FAILURE with a
 * message. */
int step_on_next(const run *r, tow_loader *loader, tow_train_state *state, double *loss);
/* Writes OUT/PROGRAM.safetensors, and prints its path; and a chart into OUT. */
tow_status save_weights(const run *r, const tow_train_state *state);
tow_status write_chart(const run *r, const char *name, const tow_chart *chart);
/* Prints the message of the run's context. Gives FAILURE. */
int complain(const run *r);

#endif
