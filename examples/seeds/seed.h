/* Shared by the programs of this folder: they stop at the first error with its message, and they print residuals. */
#ifndef SEED_H
#define SEED_H

#include <tow/tow.h>

/* Prints the context's message and leaves with status 1 unless `status` is TOW_OK. */
void must(tow_context *context, tow_status status);
/* A context with default options. */
tow_context *open_context(void);

/* Traces a function of arguments with these types and names. */
tow_graph *trace(tow_context *context, tow_function function, void *user, size_t n, const tow_type *types,
                 const char *const *names, size_t n_outputs);
/* Prints what reverse mode keeps when all float arguments are differentiated. */
void print_residuals(const char *title, const tow_graph *graph);

/* A .npy file as f32. Other numbers are converted, as JAX does by default: NumPy's own default is f64. */
tow_array *read_f32(tow_context *context, const char *path);
/* The value of a float scalar. */
double scalar_of(const tow_array *array);
/* Seconds of a clock that only goes forward. */
double seconds_now(void);
/* If --version is the first argument: prints the program's name and version, and leaves with status 0. */
void show_version(const char *program, int argc, char **argv);
/* A whole number of a command line, from low to high; leaves with status 2 and a message otherwise. */
int64_t number_option(const char *program, const char *name, const char *text, int64_t low, int64_t high);

#endif
