/* The time that other processes and the hypervisor take on the CPUs of this process while it measures. */
#ifndef BENCH_WATCH_H
#define BENCH_WATCH_H

/* Seconds up to one moment: of the clock, of this process on all of its threads, and of the CPUs that it may use. */
typedef struct bench_watch {
    double now, own;
    double busy, stolen; /* 0 where the system does not count them */
    int cpus;
} bench_watch;

bench_watch bench_watch_start(void);
/* Shares of the CPUs that others and the hypervisor (steal) took since then, 0 where the system does not count. Two
 * ticks of each CPU do not count: the counters are not more precise than that. */
void bench_watch_stop(const bench_watch *start, double *others, double *steal);

#endif
