/* One process or several: forked ones of this machine, or those that mpirun has started on any machines. */
#ifndef GPT_PROCESSES_H
#define GPT_PROCESSES_H

#include <tow/tow.h>

/* Runs `body` in `count` new processes of this machine, or, if the program was started by mpirun, in this one as one of
 * a group; else in this one alone, with a group of NULL. Gives the exit status of the program: what body returned, or
 * FAILURE, with a message, if a process has failed. All processes return INTERRUPTED, or none. watchdog:
 * as in tow_group_options. */
int run_in_processes(tow_context *context, int64_t count, double watchdog,
                     int (*body)(tow_context *context, tow_group *group, void *user), void *user);
/* True in all processes that run_in_processes has started once it got SIGTERM: they are to end as after Ctrl-C. */
bool asked_to_end(void);
/* Runs `body` in this process as rank `rank` of `count` that are not there: it plans and trains nothing. */
int plan_for_processes(tow_context *context, int64_t rank, int64_t count,
                       int (*body)(tow_context *context, tow_group *group, void *user), void *user);
/* Was the program started by mpirun, or by srun, as one of several? */
bool started_by_mpi(void);
/* The CPUs that this process may use. */
int usable_cpus(void);

#endif
