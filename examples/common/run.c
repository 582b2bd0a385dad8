/* The parts of a run that are the same in most examples. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void read_run_options(run *r, int argc, char **argv, const example_option *own)
{
    common_options *o = &r->options;
    const example_option common[] = {COMMON_OPTIONS(o)};
    example_option table[MOST_OPTIONS + 1] = {{0}};
    size_t n = sizeof common / sizeof *common;
    memcpy(table, common, sizeof common);
    while (own->name && n < MOST_OPTIONS) table[n++] = *own++;
    read_command_line(argc, argv, r->program, r->purpose, table);
}

int open_run(run *r)
{
    const tow_context_options options = TOW_CONTEXT_OPTIONS(.threads = (int)r->options.threads);
    return tow_context_create(&options, &r->context) == TOW_OK ? SUCCESS : complain(r);
}

int end_training(progress *p, int status, int64_t done, const char *consequence)
{
    if (!progress_end(p) && status == SUCCESS) status = FAILURE;
    if (status != SUCCESS || !interrupted()) return status;
    printf("stopped after step %lld%s\n", (long long)done, consequence);
    return INTERRUPTED;
}

int step_on_next(const run *r, tow_loader *loader, tow_train_state *state, double *loss)
{
    tow_array *const *batch;
    if (tow_loader_next(loader, &batch) != TOW_OK || tow_train_step(state, batch, loss) != TOW_OK) return complain(r);
    tow_train_set_data_position(state, tow_loader_position(loader));
    return SUCCESS;
}

tow_status save_weights(const run *r, const tow_train_state *state)
{
    char name[64];
    snprintf(name, sizeof name, "%s.safetensors", r->program);
    char *path = path_in(r->program, r->options.out, name);
    tow_status status = path ? tow_train_save(state, path) : TOW_OUT_OF_MEMORY;
    if (!status) printf("weights: %s\n", path);
    free(path);
    return status;
}

tow_status write_chart(const run *r, const char *name, const tow_chart *chart)
{
    char *path = path_in(r->program, r->options.out, name);
    tow_status status = path ? tow_chart_write(r->context, path, chart) : TOW_OUT_OF_MEMORY;
    free(path);
    return status;
}

int complain(const run *r) { return report_error(r->program, r->context); }
