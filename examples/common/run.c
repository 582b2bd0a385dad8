/* The parts of a run that are the same in most examples. */
#include "run.h"

#include <stdio.h>
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
    const tow_context_options options = {.threads = (int)r->options.threads};
    return tow_context_create(&options, &r->context) == TOW_OK ? SUCCESS : complain(r);
}

int end_training(progress *p, int status, int64_t done, const char *consequence)
{
    if (!progress_end(p) && status == SUCCESS) status = FAILURE;
    if (status != SUCCESS || !interrupted()) return status;
    printf("stopped after step %lld%s\n", (long long)done, consequence);
    return INTERRUPTED;
}

int complain(const run *r) { return report_error(r->program, r->context); }
