/* Logs that the subcommand plot reads. */
#ifndef TOW_TOOL_PLOT_H
#define TOW_TOOL_PLOT_H

#include "src/tool/tool.h"

/* One number over the steps of one log. */
typedef struct tool_curve {
    char *name;
    const char *log; /* the argument */
    size_t n, capacity;
    double *steps, *seconds, *values; /* seconds since the beginning of the log; NAN: unknown */
} tool_curve;

typedef struct tool_logs {
    size_t n_curves, capacity;
    tool_curve *curves;
} tool_logs;

/* Adds the curves of a log. Lines and records that make no sense are reported on standard error by their number, and
 * left out. */
tow_status tool_read_log(tool *t, const char *path, tool_logs *logs);
void tool_free_logs(tool_logs *logs);

#endif
