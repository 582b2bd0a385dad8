/* The wishes of the command line. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tow/base.h>

typedef struct options {
    const char *text;        /* file to train on */
    char default_text[4096]; /* that without --text */
    int64_t layers, width, heads, context;
    int64_t batch, steps;
    int64_t micro_batches, row_groups, processes, shard;
    int64_t watchdog;          /* seconds */
    int64_t rank;              /* of the process that is planned, with processes and 0 steps */
    double bandwidth, latency; /* bytes in a second, seconds: of the network of the model */
    tow_dtype dtype, param_dtype;
    bool master, stochastic_rounding; /* of parameters of 16 bits */
    int64_t slot_bits;                /* of moments; 0: as they are */
    const char *policy;               /* textual form of a tow_policy; NULL: no remat */
    bool unrolled;                    /* --no-scan */
    uint64_t seed;
    bool early_update;    /* of parameters inside the backward pass, without clipping */
    size_t memory_limit;  /* bytes of a step; 0: none */
    double limit_percent; /* of the bytes without a limit, in its place, or 0 */
    bool verify;          /* compare what a step makes again */
    int threads;          /* 0: as many as the affinity mask allows */
    double learning_rate;
    int64_t warmup;         /* steps; -1: a tenth of all, at most 100 */
    const char *checkpoint; /* directory, or NULL */
    bool resume;
    int64_t save_every, eval_every;                    /* 0: never */
    int64_t sample;                                    /* characters of text to write at the end */
    const char *log, *plan;                            /* files, or NULL */
    const char *tensorboard;                           /* directory, or NULL */
    const char *memory, *html, *graph, *curve, *trace; /* the same */
    bool residuals, why, instructions;
} options;

/* Fills in defaults and reads the command line. Leaves the program with a message and status 2 for anything that does
 * not make sense, and with status 0 after --help. */
void read_options(int argc, char **argv, options *o);

#endif
