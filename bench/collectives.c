/* The time of collectives among processes, and the constants that it gives: the latency of a message, and the bytes
 * that a process sends in a second while it receives as many.
 *
 *     bench_collectives --processes 2                      over shared memory
 *     mpirun -n 2 bench_collectives_mpi                    over MPI
 *     ... --bytes 65536,1048576 --repeat 20 --bandwidth 1e9 --latency 50e-6      beside what docs/scaling.md predicts
 *
 * Each time is that of rank 0, from a barrier on. Prints a line for each collective and size, then the constants. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tow/tow.h"
#ifdef TOW_BENCH_MPI
#include "tow/mpi.h"
#endif

enum {
    MOST_SIZES = 16,
    MOST_REPEATS = 1000
};

typedef struct task {
    int64_t bytes[MOST_SIZES];
    int n, repeat, processes;
    double bandwidth, latency; /* bits in a second, seconds; bandwidth 0: nothing is predicted */
} task;

typedef tow_status (*collective)(tow_group *group, int row_groups, tow_array *array);

static tow_status gather(tow_group *group, int row_groups, tow_array *array)
{
    (void)row_groups;
    return tow_group_all_gather(group, array);
}

static const struct {
    const char *name;
    collective run;
    int ways; /* the array is sent so often */
} kinds[] = {{"reduce_scatter", tow_group_reduce_scatter, 1},
             {"all_gather", gather, 1},
             {"all_reduce", tow_group_all_reduce, 2}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(tow_context *context, tow_group *group, tow_status status)
{
    if (status) tow_group_abort(group, 1, "%s", tow_context_error(context));
}

static double rounds(const tow_group *group) { return ceil(log2(tow_group_count(group))); }

static double sent(const tow_group *group, double bytes) { return bytes * (1 - 1.0 / tow_group_count(group)); }

/* Seconds, best and median. */
static void measure(tow_context *context, tow_group *group, collective run, int repeat, tow_array *array,
                    double best_and_median[2])
{
    int row_groups = 1;
    double *times = calloc((size_t)repeat, sizeof *times);
    if (!times) tow_group_abort(group, 1, "out of memory");
    while (row_groups < tow_group_count(group)) row_groups *= 2;
    for (int i = -1; i < repeat; i++) { /* the first one only warms up */
        check(context, group, tow_group_barrier(group));
        const double begin = now();
        check(context, group, run(group, row_groups, array));
        if (i >= 0) times[i] = now() - begin;
    }
    qsort(times, (size_t)repeat, sizeof *times, by_value);
    best_and_median[0] = times[0];
    best_and_median[1] = times[repeat / 2];
    free(times);
}

static int work(tow_context *context, tow_group *group, void *user)
{
    const task *t = user;
    double smallest[3] = {0}, largest[3] = {0};
    const bool prints = tow_group_rank(group) == 0;
    if (prints) printf("%-15s %10s %12s %12s %12s\n", "collective", "bytes", "best us", "median us", "predicted us");
    for (int i = 0; i < t->n; i++) {
        const int64_t n = t->bytes[i] / 4;
        tow_array *array = NULL;
        check(context, group, tow_array_create(context, tow_make_type(TOW_F32, 1, &n), &array));
        for (int k = 0; k < 3; k++) {
            double times[2];
            measure(context, group, kinds[k].run, t->repeat, array, times);
            if (i == 0) smallest[k] = times[0];
            largest[k] = times[0];
            const double predicted =
                kinds[k].ways * (rounds(group) * t->latency + 8 * sent(group, (double)t->bytes[i]) / t->bandwidth);
            if (!prints) continue;
            printf("%-15s %10lld %12.1f %12.1f", kinds[k].name, (long long)t->bytes[i], 1e6 * times[0], 1e6 * times[1]);
            if (t->bandwidth > 0)
                printf(" %12.1f\n", 1e6 * predicted);
            else
                printf(" %12s\n", "-");
        }
        tow_array_release(array);
    }
    const double latency = smallest[0] / rounds(group), bytes = sent(group, (double)t->bytes[t->n - 1]);
    if (prints)
        printf("latency %.1f us, bandwidth of sums %.3g Gbit/s, of gathers %.3g Gbit/s\n", 1e6 * latency,
               8e-9 * bytes / fmax(largest[0] - smallest[0], 1e-9),
               8e-9 * bytes / fmax(largest[1] - smallest[1], 1e-9));
    fflush(stdout);
    return 0;
}

static void read_sizes(task *t, char *text)
{
    t->n = 0;
    for (char *size = strtok(text, ","); size && t->n < MOST_SIZES; size = strtok(NULL, ","))
        t->bytes[t->n++] = strtoll(size, NULL, 10);
}

static bool read_options(int argc, char **argv, task *t)
{
    static const struct option names[] = {
        {"processes", required_argument, NULL, 'p'}, {"bytes", required_argument, NULL, 'b'},
        {"repeat", required_argument, NULL, 'r'},    {"bandwidth", required_argument, NULL, 'w'},
        {"latency", required_argument, NULL, 'l'},   {0}};
    for (int k; (k = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (k == 'p') t->processes = atoi(optarg);
        if (k == 'b') read_sizes(t, optarg);
        if (k == 'r') t->repeat = atoi(optarg);
        if (k == 'w') t->bandwidth = strtod(optarg, NULL);
        if (k == 'l') t->latency = strtod(optarg, NULL);
        if (k == '?') return false;
    }
    for (int i = 0; i < t->n; i++)
        if (t->bytes[i] < 4) return false;
    return optind == argc && t->n > 0 && t->repeat >= 1 && t->repeat <= MOST_REPEATS;
}

int main(int argc, char **argv)
{
    task t = {.bytes = {4096, 32768, 262144, 2097152, 16777216}, .n = 5, .repeat = 100, .processes = 2};
    tow_context *context = NULL;
    if (!read_options(argc, argv, &t)) {
        fputs("collectives: expected [--processes N] [--bytes B,...] [--repeat 1..1000] [--bandwidth BITS] [--latency "
              "S]\n",
              stderr);
        return 2;
    }
    tow_status status = tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context);
#ifdef TOW_BENCH_MPI
    tow_group *group = NULL;
    if (!status) status = tow_mpi_create(context, NULL, NULL, &group);
    if (!status) work(context, group, &t);
    tow_group_free(group);
#else
    if (!status) status = tow_processes_run(context, &TOW_PROCESSES_OPTIONS(.count = t.processes), work, &t);
#endif
    if (status) fprintf(stderr, "collectives: %s\n", tow_context_error(context));
    tow_context_free(context);
    return status ? 1 : 0;
}
