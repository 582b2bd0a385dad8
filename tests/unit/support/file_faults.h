/* System calls that fail when a test wants it: put &faulty into a context, then plan_fault. One test program includes
 * it once. */
#ifndef TOW_TESTS_FILE_FAULTS_H
#define TOW_TESTS_FILE_FAULTS_H

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "src/io/file_calls.h"

/* Instead of an error: every call reads or writes half of what was asked for; the process ends. */
enum {
    HALF = -1,
    KILL = -2
};

static const char *const call_names[] = {"open",  "close", "stat",   "lstat",  "fstat", "flock",  "pread",
                                         "write", "map",   "fchown", "fchmod", "fsync", "rename", "unlink"};
enum {
    N_CALLS = sizeof call_names / sizeof call_names[0]
};

static struct {
    long calls, fail_at; /* the call with this number (from 0) fails; -1: none */
    bool from_then_on;   /* and all that follow, too */
    int error;           /* or HALF or KILL */
    const char *failed;  /* its name; NULL: none so far */
    bool renamed;        /* the new version is in place */
    uint64_t bytes_read;
    bool seen[N_CALLS]; /* has failed in one of the runs */
} faults;

static void plan_fault(long fail_at, int error)
{
    faults.calls = 0;
    faults.fail_at = fail_at;
    faults.from_then_on = false;
    faults.error = error;
    faults.failed = NULL;
    faults.renamed = false;
    faults.bytes_read = 0;
}

/* True if this call is the one that fails. */
static bool strikes(const char *name)
{
    const long call = faults.calls++;
    if (faults.fail_at < 0 || call < faults.fail_at || (call > faults.fail_at && !faults.from_then_on)) return false;
    if (faults.error == KILL) raise(SIGKILL);
    if (faults.failed == NULL) faults.failed = name;
    for (size_t i = 0; i < N_CALLS; i++)
        if (strcmp(name, call_names[i]) == 0) faults.seen[i] = true;
    errno = faults.error;
    return true;
}

static const tow__file_calls *const real = &tow__system_file_calls;

static int faulty_open(const char *path, int flags, mode_t mode)
{
    return strikes("open") ? -1 : real->open(path, flags, mode);
}
static int faulty_close(int fd) /* closes even so, as Linux does */
{
    const bool fails = strikes("close");
    const int error = errno, result = real->close(fd);
    errno = error;
    return fails ? -1 : result;
}
static int faulty_stat(const char *path, struct stat *info) { return strikes("stat") ? -1 : real->stat(path, info); }
static int faulty_lstat(const char *path, struct stat *info) { return strikes("lstat") ? -1 : real->lstat(path, info); }
static int faulty_fstat(int fd, struct stat *info) { return strikes("fstat") ? -1 : real->fstat(fd, info); }
static int faulty_flock(int fd, int operation) { return strikes("flock") ? -1 : real->flock(fd, operation); }
static ssize_t faulty_pread(int fd, void *data, size_t count, off_t offset)
{
    if (strikes("pread")) return -1;
    if (faults.error == HALF) count = (count + 1) / 2;
    faults.bytes_read += count;
    return real->pread(fd, data, count, offset);
}
static ssize_t faulty_write(int fd, const void *data, size_t count)
{
    if (strikes("write")) return -1;
    return real->write(fd, data, faults.error == HALF ? (count + 1) / 2 : count);
}
static ssize_t faulty_pwrite(int fd, const void *data, size_t count, off_t offset)
{
    if (strikes("pwrite")) return -1;
    return real->pwrite(fd, data, faults.error == HALF ? (count + 1) / 2 : count, offset);
}
static int faulty_ftruncate(int fd, off_t size) { return strikes("ftruncate") ? -1 : real->ftruncate(fd, size); }
static void *faulty_map(int fd, size_t bytes) { return strikes("map") ? NULL : real->map(fd, bytes); }
static int faulty_fchown(int fd, uid_t owner, gid_t group)
{
    return strikes("fchown") ? -1 : real->fchown(fd, owner, group);
}
static int faulty_fchmod(int fd, mode_t mode) { return strikes("fchmod") ? -1 : real->fchmod(fd, mode); }
static int faulty_fsync(int fd) /* no power is cut here, so nothing is synced */
{
    (void)fd;
    return strikes("fsync") ? -1 : 0;
}
static int faulty_rename(const char *from, const char *to)
{
    if (strikes("rename")) return -1;
    faults.renamed = real->rename(from, to) == 0;
    return faults.renamed ? 0 : -1;
}
static int faulty_unlink(const char *path) { return strikes("unlink") ? -1 : real->unlink(path); }

static const tow__file_calls faulty = {
    .open = faulty_open,
    .close = faulty_close,
    .stat = faulty_stat,
    .lstat = faulty_lstat,
    .fstat = faulty_fstat,
    .flock = faulty_flock,
    .pread = faulty_pread,
    .write = faulty_write,
    .pwrite = faulty_pwrite,
    .ftruncate = faulty_ftruncate,
    .map = faulty_map,
    .fchown = faulty_fchown,
    .fchmod = faulty_fchmod,
    .fsync = faulty_fsync,
    .rename = faulty_rename,
    .unlink = faulty_unlink,
};

#endif
