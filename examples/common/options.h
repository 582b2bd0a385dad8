/* The command line of an example: a table of options, of which each says where its value goes and what is allowed. */
#ifndef EXAMPLE_OPTIONS_H
#define EXAMPLE_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum option_kind {
    OPTION_FLAG,  /* bool: given or not */
    OPTION_WHOLE, /* int64_t from low to high */
    OPTION_SEED,  /* uint64_t */
    OPTION_REAL,  /* double above 0 */
    OPTION_PATH,  /* const char *, not empty */
    OPTION_TEXT   /* const char * */
} option_kind;

enum {
    MOST_OPTIONS = 32 /* of a table */
};

/* The value before is the default. A table ends with a row of zeros. */
typedef struct example_option {
    const char *name, *argument, *help;
    option_kind kind;
    void *value;
    int64_t low, high; /* of whole numbers */
} example_option;

/* Options that most examples have. */
typedef struct common_options {
    int64_t steps, threads;
    uint64_t seed;
    double learning_rate;
    const char *out, *log;
} common_options;
/* clang-format off */
#define COMMON_OPTIONS_BUT_SEED(o)                                                                                     \
    {"steps", "N", "Updates of the parameters", OPTION_WHOLE, &(o)->steps, 1, INT32_MAX},                              \
    {"learning-rate", "X", "Peak of the schedule", OPTION_REAL, &(o)->learning_rate, 0, 0},                            \
    {"threads", "N", "Threads (as many as the CPUs that may be used)", OPTION_WHOLE, &(o)->threads, 1, 1024},          \
    {"out", "DIR", "Where pictures and weights go", OPTION_PATH, (void *)&(o)->out, 0, 0},                             \
    {"log", "FILE", "One line of JSON per step", OPTION_PATH, (void *)&(o)->log, 0, 0}
#define COMMON_OPTIONS(o)                                                                                              \
    COMMON_OPTIONS_BUT_SEED(o),                                                                                        \
    {"seed", "N", "Of parameters and batches", OPTION_SEED, &(o)->seed, 0, 0}
/* clang-format on */

/* Reads the command line of `program`. --help prints the table, with defaults, and `purpose`. A wrong option ends the
 * program with a message and status 2. */
void read_command_line(int argc, char **argv, const char *program, const char *purpose, const example_option *table);

/* Numbers in the text of option `name`; others end the program. */
int64_t whole_number(struct argp_state *state, const char *name, const char *text, int64_t low, int64_t high);
uint64_t seed_number(struct argp_state *state, const char *name, const char *text);
double positive_number(struct argp_state *state, const char *name, const char *text);

#endif
