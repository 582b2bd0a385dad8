/* Facts before the first step: parameters, planned memory, and the values that the forward pass keeps for the backward
 * pass. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <tow/tow.h>

/* Prints the table of parameters. */
void report_parameters(const tow_train_state *state);
/* Prints the planned bytes by kind. */
void report_plan(const tow_train_state *state);
/* Prints the bytes that a process sends and receives in a step, and the time of that by the model; bandwidth in bytes
 * in a second, latency in seconds. */
void report_exchange(const tow_train_state *state, const tow_group *group, double bandwidth, double latency);
/* Writes both as a JSON object. Prints a message and returns false if that fails. */
bool write_plan(const tow_train_state *state, const char *path, double bandwidth, double latency);
/* Draws the memory of a step, as SVG. Prints a message and returns false if that fails. */
bool write_memory(const tow_train_state *state, const char *path);
/* Writes the graph of the loss as text. Prints a message and returns false if that fails. */
bool write_graph(const tow_train_state *state, const char *path);
/* Prints the instructions of the training step, in order. False: no memory, reported. */
bool report_instructions(const tow_train_state *state);
/* Prints what the memory limit counts, and the time of the step beside that without a limit. */
void report_limit(const tow_train_state *state, size_t limit);
/* Prints the residuals of the training step. within: of its plan within a limit; why: with reasons. */
tow_status report_residuals(const tow_train_state *state, bool within, bool why);
/* The number of values that a step makes again and compares with the first ones. */
unsigned long long count_compared(const tow_train_state *state);

/* The plans among which a memory limit chooses, and others beside them. */
void report_plans(size_t n, const tow_memory_point *points, size_t n_marks, const tow_memory_mark *marks);

#endif
