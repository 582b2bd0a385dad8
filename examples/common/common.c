/* Messages, clock, files, interrupts, random numbers. */
#include "common.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int report_error(const char *program, const tow_context *context)
{
    fprintf(stderr, "%s: %s\n", program, tow_context_error(context));
    return FAILURE;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

void find_shared(const char *name, char *path, size_t size)
{
    static const char share[] = "/share/tow/";
    path[0] = '\0';
    if (size < sizeof share + strlen(name)) return;
    ssize_t length = readlink("/proc/self/exe", path, size - sizeof share - strlen(name));
    for (int levels = 0; levels < 2 && length > 0; levels++) {
        while (length > 0 && path[length - 1] != '/') length--;
        if (length > 0) length--;
    }
    if (length > 0) {
        strcpy(path + length, share);
        strcat(path, name);
    }
    if (length <= 0 || access(path, R_OK) != 0) path[0] = '\0';
}

int finish_output(const char *program, int status)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status != SUCCESS) return status;
    fprintf(stderr, "%s: cannot write the output: %s\n", program, strerror(errno));
    return FAILURE;
}

char *path_in(const char *program, const char *directory, const char *name)
{
    const size_t size = strlen(directory) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", directory, name);
    else
        fprintf(stderr, "%s: out of memory\n", program);
    return path;
}

static bool cannot_create(const char *program, const char *path)
{
    fprintf(stderr, "%s: %s: cannot create the directory: %s\n", program, path, strerror(errno));
    return false;
}

bool make_directory(const char *program, const char *path)
{
    char *part = path_in(program, path, "");
    if (!part) return false;
    bool ok = true;
    for (char *at = strchr(part + 1, '/'); at && ok; at = strchr(at + 1, '/')) {
        *at = '\0';
        ok = mkdir(part, 0777) == 0 || errno == EEXIST || cannot_create(program, part);
        *at = '/';
    }
    free(part);
    struct stat info;
    if (ok && stat(path, &info) == 0 && !S_ISDIR(info.st_mode))
        errno = ENOTDIR;
    else if (!ok || access(path, W_OK | X_OK) == 0)
        return ok;
    fprintf(stderr, "%s: %s: cannot write there: %s\n", program, path, strerror(errno));
    return false;
}

/* ---- interrupts -------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupt_seen;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupt_seen = 1;
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void) { return interrupt_seen != 0; }

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

/* The finaliser of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t seed, uint64_t index)
{
    return mix(mix(seed + 0x9e3779b97f4a7c15u) + (index + 1) * 0x9e3779b97f4a7c15u);
}

/* The method of Box and Muller (1958). */
double random_normal(uint64_t seed, uint64_t index)
{
    double u = ((double)(random_bits(seed, 2 * index) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(random_bits(seed, 2 * index + 1) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
