/* Reads /proc/stat, which has a line for each CPU: its name, then ticks of user, nice, system, idle, iowait, irq,
 * softirq and steal. Peers do the same in bench/peers/common.py. */
#include "watch.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static void read_cpus(const cpu_set_t *allowed, double ticks, bench_watch *w)
{
    FILE *file = fopen("/proc/stat", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        unsigned cpu;
        double user, nice, system, irq, softirq, steal;
        if (sscanf(line, "cpu%u %lf %lf %lf %*f %*f %lf %lf %lf", &cpu, &user, &nice, &system, &irq, &softirq,
                   &steal) != 7)
            continue;
        if (cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, allowed)) continue;
        w->busy += (user + nice + system + irq + softirq) / ticks;
        w->stolen += steal / ticks;
    }
    if (file) fclose(file);
}

bench_watch bench_watch_start(void)
{
    bench_watch w = {.now = bench_now()};
    struct timespec own;
    cpu_set_t allowed;
    long ticks = sysconf(_SC_CLK_TCK);
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0) w.own = (double)own.tv_sec + 1e-9 * (double)own.tv_nsec;
    if (ticks <= 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return w;
    w.cpus = CPU_COUNT(&allowed);
    read_cpus(&allowed, (double)ticks, &w);
    return w;
}

/* seconds of all CPUs together as a share, less what the counters cannot tell. */
static double share_of(double seconds, double elapsed, int cpus)
{
    const double error = 2 * cpus / (double)sysconf(_SC_CLK_TCK);
    return seconds > error ? (seconds - error) / (elapsed * cpus) : 0;
}

void bench_watch_stop(const bench_watch *start, double *others, double *steal)
{
    const bench_watch end = bench_watch_start();
    const double elapsed = end.now - start->now;
    *others = *steal = 0;
    if (end.cpus == 0 || elapsed <= 0) return;
    *others = share_of(end.busy - start->busy - (end.own - start->own), elapsed, end.cpus);
    *steal = share_of(end.stolen - start->stolen, elapsed, end.cpus);
}
