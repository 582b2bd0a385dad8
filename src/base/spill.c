/* See spill.h. */
#include "src/base/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ALIGNMENT = 4096 /* of regions in the file */
};

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static const char *folder_of(const tow_context *ctx)
{
    const char *folder = ctx->scratch_folder;
    if (!folder) folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/var/tmp";
}

/* A file that has no name: at once where the system can, else as soon as it is open. */
static int open_unnamed(const char *folder)
{
    char path[4096];
    int fd = -1;
#ifdef O_TMPFILE
    fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || errno == ENOENT || errno == EACCES || errno == ENOTDIR) return fd;
#endif
    if (snprintf(path, sizeof path, "%s/tow-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkstemp(path);
    if (fd < 0) return -1;
    unlink(path);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

static const tow__spill_calls system_calls = {open_unnamed, pread, pwrite};

static const tow__spill_calls *calls_of(const tow__spill *s)
{
    return s->ctx->spill_calls ? s->ctx->spill_calls : &system_calls;
}

/* 0, an errno, or -1: the end of the file came first. */
static int do_job(const tow__spill *s, const tow__spill_job *job)
{
    const tow__spill_region *r = job->region;
    off_t at = (off_t)(r->offset + job->row * (int64_t)r->row_bytes);
    char *data = job->data;
    for (size_t left = r->row_bytes; left > 0;) {
        const ssize_t n =
            job->writes ? calls_of(s)->pwrite(s->fd, data, left, at) : calls_of(s)->pread(s->fd, data, left, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        if (n == 0) return job->writes ? ENOSPC : -1;
        data += n, at += n, left -= (size_t)n;
    }
    return 0;
}

static tow_status report(const tow__spill *s)
{
    const char *why = s->error < 0 ? "the file has become shorter" : strerror(s->error);
    return tow__fail(s->ctx, TOW_IO_ERROR,
                     "states that a loop keeps in a file in %s: cannot %s: %s; make room, name another folder "
                     "(tow_context_options.scratch_folder, TMPDIR), or keep fewer states in it (.file_slots)",
                     folder_of(s->ctx), s->failed_write ? "write" : "read", why);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Does the first pending job; the mutex is held before and after, but not while the job is done. */
static void do_first(tow__spill *s)
{
    tow__spill_job *job = s->first;
    pthread_mutex_unlock(&s->mutex);
    const int error = do_job(s, job);
    pthread_mutex_lock(&s->mutex);
    if (error && !s->error) s->error = error, s->failed_write = job->writes;
    s->first = job->next;
    job->pending = false;
    pthread_cond_broadcast(&s->changed);
}

static void *work(void *spill)
{
    tow__spill *s = spill;
    pthread_mutex_lock(&s->mutex);
    while (true) {
        while (!s->first && !s->stops) pthread_cond_wait(&s->changed, &s->mutex);
        if (!s->first) break;
        do_first(s);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Opens the file and starts the thread, if they are not there. Signals are for the threads of the application, and a
 * limit of file sizes is an error, not a signal: so the thread blocks them all. */
static tow_status start(tow__spill *s)
{
    if (s->fd < 0 && (s->fd = calls_of(s)->open(folder_of(s->ctx))) < 0)
        return tow__fail(s->ctx, TOW_IO_ERROR,
                         "states that a loop keeps in a file: cannot make one in %s: %s; name another folder "
                         "(tow_context_options.scratch_folder, TMPDIR)",
                         folder_of(s->ctx), strerror(errno));
    if (!s->initialized) {
        if (pthread_mutex_init(&s->mutex, NULL) != 0) return TOW_OUT_OF_MEMORY;
        if (pthread_cond_init(&s->changed, NULL) != 0) {
            pthread_mutex_destroy(&s->mutex);
            return TOW_OUT_OF_MEMORY;
        }
        s->initialized = true;
    }
    if (!s->started) {
        sigset_t all, old;
        sigfillset(&all);
        const bool masked = pthread_sigmask(SIG_SETMASK, &all, &old) == 0;
        s->stops = false;
        s->started = pthread_create(&s->thread, NULL, work, s) == 0;
        if (masked) pthread_sigmask(SIG_SETMASK, &old, NULL);
    }
    return s->started ? TOW_OK : tow__fail(s->ctx, TOW_OUT_OF_MEMORY, "cannot start a thread that writes kept states");
}

static void wait_for(tow__spill *s, const tow__spill_job *job)
{
    pthread_mutex_lock(&s->mutex);
    while (job->pending) pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

/* Hands a job to the thread. */
static void begin_job(tow__spill *s, tow__spill_job *job, int64_t row)
{
    pthread_mutex_lock(&s->mutex);
    job->row = row;
    job->pending = true;
    job->next = NULL;
    if (s->first)
        s->last->next = job;
    else
        s->first = job;
    s->last = job;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static bool has_failed(tow__spill *s)
{
    pthread_mutex_lock(&s->mutex);
    const bool failed = s->error != 0;
    pthread_mutex_unlock(&s->mutex);
    return failed;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

bool tow__spill_count(int64_t rows, size_t row_bytes, int64_t *bytes)
{
    const int64_t most = INT64_MAX - *bytes - ALIGNMENT;
    if (rows < 0 || most < 0 || (rows > 0 && row_bytes > (uint64_t)most / (uint64_t)rows)) return false;
    *bytes += (rows * (int64_t)row_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return true;
}

void tow__spill_add(tow__spill *s, tow__spill_region *region, int64_t rows, size_t row_bytes)
{
    *region = (tow__spill_region){.next = s->regions, .offset = s->bytes, .rows = rows, .row_bytes = row_bytes};
    (void)tow__spill_count(rows, row_bytes, &s->bytes);
    s->regions = region;
}

void tow__spill_reset(tow__spill *s)
{
    s->error = 0;
    for (tow__spill_region *r = s->regions; r; r = r->next) r->token = 0;
}

void tow__spill_settle(tow__spill *s)
{
    if (!s->started) return;
    pthread_mutex_lock(&s->mutex);
    while (s->first) pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    for (tow__spill_region *r = s->regions; r; r = r->next) r->token = 0;
    while (ftruncate(s->fd, 0) < 0 && errno == EINTR) continue;
}

void tow__spill_end(tow__spill *s)
{
    if (s->started) {
        pthread_mutex_lock(&s->mutex);
        s->stops = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->thread, NULL);
    }
    if (s->initialized) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->mutex);
    }
    if (s->regions && s->fd >= 0) close(s->fd);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

tow_status tow__spill_begin(tow__spill *s, tow__spill_region *region, char *staging)
{
    static atomic_uint begun;
    const tow_status status = start(s);
    if (status != TOW_OK) return status;
    for (int i = 0; i < TOW__SPILL_STAGING; i++) {
        tow__spill_job *job = &region->jobs[i];
        wait_for(s, job);
        *job = (tow__spill_job){.region = region,
                                .data = staging + (size_t)i * region->row_bytes,
                                .row = -1,
                                .writes = i < TOW__SPILL_WRITES};
    }
    region->token = (int32_t)(atomic_fetch_add(&begun, 1) % INT32_MAX) + 1;
    return TOW_OK;
}

tow__spill_region *tow__spill_find(tow__spill *s, int32_t token, const char *staging)
{
    for (tow__spill_region *r = s->regions; r; r = r->next)
        if (r->token == token && token != 0 && r->jobs[0].data == staging) return r;
    tow__fail(s->ctx, TOW_UNSUPPORTED,
              "states that a loop keeps in a file are gone: another program, another run, or another iteration of a "
              "loop around it wrote them, or a cond around it copied what leads to them; take value and gradient in "
              "one program (tow_value_and_grad), put a remat region around a loop within a loop or a cond, or keep "
              "states in memory alone (.file_slots = 0)");
    return NULL;
}

char *tow__spill_room(tow__spill *s, tow__spill_region *region)
{
    tow__spill_job *job = &region->jobs[region->next_write];
    wait_for(s, job);
    return job->data;
}

tow_status tow__spill_write(tow__spill *s, tow__spill_region *region, int64_t row)
{
    if (has_failed(s)) return report(s);
    for (int i = TOW__SPILL_WRITES; i < TOW__SPILL_STAGING; i++) {
        if (region->jobs[i].row != row) continue;
        wait_for(s, &region->jobs[i]);
        region->jobs[i].row = -1;
    }
    begin_job(s, &region->jobs[region->next_write], row);
    region->next_write = (region->next_write + 1) % TOW__SPILL_WRITES;
    return TOW_OK;
}

/* The staging row that has, or will have, this row; NULL: none. */
static tow__spill_job *find_read(tow__spill_region *region, int64_t row)
{
    for (int i = TOW__SPILL_WRITES; i < TOW__SPILL_STAGING; i++)
        if (region->jobs[i].row == row) return &region->jobs[i];
    return NULL;
}

/* A staging row to read into, but not the one of row `but`. */
static tow__spill_job *spare_read(tow__spill_region *region, int64_t but)
{
    tow__spill_job *job = &region->jobs[TOW__SPILL_WRITES];
    return job->row == but ? job + 1 : job;
}

void tow__spill_prefetch(tow__spill *s, tow__spill_region *region, int64_t row)
{
    if (row < 0 || row >= region->rows || find_read(region, row)) return;
    tow__spill_job *job = spare_read(region, row + 1);
    wait_for(s, job);
    begin_job(s, job, row);
}

tow_status tow__spill_read(tow__spill *s, tow__spill_region *region, int64_t row, const char **data)
{
    tow__spill_job *job = find_read(region, row);
    if (!job) {
        job = spare_read(region, -1);
        wait_for(s, job);
        begin_job(s, job, row);
    }
    wait_for(s, job);
    if (has_failed(s)) return report(s);
    *data = job->data;
    return TOW_OK;
}
