/* Files that are either the old version or the whole new one.
 *
 * A new version is written to "<path>.tmp" in the same directory, synced, renamed over the old one, and the directory
 * is synced. The name is fixed, so a process that was killed leaves at most one temporary file, which the next writer
 * takes over; a lock on it keeps two writers apart. Devices and pipes cannot be replaced and are written directly. */
#include "src/io/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/base.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

tow_status tow__input_open(tow_context *ctx, const char *path, tow__input_file *file)
{
    *file = (tow__input_file){.ctx = ctx, .path = path, .fd = -1};
    if (path == NULL) return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected the path of a file to read, found NULL");
    /* O_NONBLOCK: opening a pipe without a writer must not hang; it has no effect on regular files */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot open for reading: %s", path, strerror(errno));
    struct stat info;
    tow_status status = TOW_OK;
    if (fstat(file->fd, &info) != 0)
        status = tow__fail(ctx, TOW_IO_ERROR, "%s: cannot get its size: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = tow__fail(ctx, TOW_IO_ERROR, "%s: expected a regular file, found %s", path,
                           S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe; copy it to a file first");
    else
        file->size = (uint64_t)info.st_size;
    if (status != TOW_OK) tow__input_close(file);
    return status;
}

tow_status tow__input_read(const tow__input_file *file, uint64_t offset, void *data, size_t count)
{
    unsigned char *bytes = data;
    while (count > 0) {
        ssize_t n = pread(file->fd, bytes, count, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot read: %s", file->path, strerror(errno));
        if (n == 0)
            return tow__fail(file->ctx, TOW_IO_ERROR,
                             "%s: expected %zu more bytes at offset %llu, found the end of the file", file->path, count,
                             (unsigned long long)offset);
        bytes += n;
        offset += (uint64_t)n;
        count -= (size_t)n;
    }
    return TOW_OK;
}

void tow__input_close(tow__input_file *file)
{
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* malloc'ed copies: paths come from realpath, which allocates with malloc, so all of this file's strings do */
static char *join(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    char *text = malloc(m + n + 1);
    if (text == NULL) return NULL;
    memcpy(text, a, m);
    memcpy(text + m, b, n + 1);
    return text;
}

/* Opens and locks the temporary file. It may have been renamed away by another writer between open and lock; then the
 * descriptor is of the finished file, which must not be touched, and opening starts again. */
static tow_status open_temporary(tow__output_file *file)
{
    for (;;) {
        /* O_NONBLOCK: a pipe of that name must not hang; it has no effect on regular files */
        int fd = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0)
            return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot create the temporary file %s: %s", file->path,
                             file->temporary, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            return tow__fail(file->ctx, TOW_IO_ERROR,
                             "%s: another process is writing this file (it holds %s); try again later", file->path,
                             file->temporary);
        }
        struct stat opened, named;
        if (fstat(fd, &opened) == 0 && lstat(file->temporary, &named) == 0 && opened.st_ino == named.st_ino &&
            opened.st_dev == named.st_dev) {
            if (!S_ISREG(opened.st_mode)) { /* somebody else's, so it is not removed */
                close(fd);
                return tow__fail(file->ctx, TOW_IO_ERROR,
                                 "%s: the temporary file %s is a device or pipe; remove it or choose another name",
                                 file->path, file->temporary);
            }
            file->fd = fd;
            if (ftruncate(fd, 0) == 0) return TOW_OK;
            return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot empty the temporary file: %s", file->path,
                             strerror(errno));
        }
        close(fd);
    }
}

tow_status tow__output_open(tow_context *ctx, const char *path, tow__output_file *file)
{
    *file = (tow__output_file){.ctx = ctx, .path = path, .fd = -1};
    if (path == NULL || path[0] == '\0')
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected the path of a file to write, found %s",
                         path ? "\"\"" : "NULL");
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return tow__fail(ctx, TOW_IO_ERROR, "%s: expected the name of a file to write, found a directory", path);
    if (exists && !S_ISREG(info.st_mode)) {
        file->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (file->fd < 0) return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot open for writing: %s", path, strerror(errno));
        return TOW_OK;
    }
    file->target = exists ? realpath(path, NULL) : join(path, "");
    file->temporary = file->target != NULL ? join(file->target, ".tmp") : NULL;
    if (file->temporary == NULL) {
        free(file->target);
        file->target = NULL;
        return tow__fail(ctx, TOW_OUT_OF_MEMORY, "%s: out of memory while preparing to write", path);
    }
    return open_temporary(file);
}

tow_status tow__output_write(tow__output_file *file, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    while (count > 0) {
        ssize_t n = write(file->fd, bytes, count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot write: %s", file->path, strerror(errno));
        bytes += n;
        count -= (size_t)n;
    }
    return TOW_OK;
}

/* After this the rename survives a power cut. Some file systems cannot sync directories; they order renames themselves. */
static tow_status sync_directory(const tow__output_file *file)
{
    const char *slash = strrchr(file->target, '/');
    size_t length = slash == NULL ? 0 : slash == file->target ? 1 : (size_t)(slash - file->target);
    char *directory = length == 0 ? join(".", "") : join(file->target, "");
    if (directory == NULL)
        return tow__fail(file->ctx, TOW_OUT_OF_MEMORY, "%s: out of memory after writing", file->path);
    if (length > 0) directory[length] = '\0';
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0) return TOW_OK; /* a directory that may be written but not read */
    tow_status status = TOW_OK;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot sync its directory: %s", file->path, strerror(errno));
    close(fd);
    return status;
}

tow_status tow__output_commit(tow__output_file *file)
{
    if (file->temporary == NULL) {
        int fd = file->fd;
        file->fd = -1;
        if (close(fd) == 0) return TOW_OK;
        return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot write: %s", file->path, strerror(errno));
    }
    if (fsync(file->fd) != 0)
        return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot write: %s", file->path, strerror(errno));
    if (rename(file->temporary, file->target) != 0)
        return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot rename %s to it: %s", file->path, file->temporary,
                         strerror(errno));
    free(file->temporary);
    file->temporary = NULL;
    return sync_directory(file);
}

void tow__output_close(tow__output_file *file)
{
    /* removed before the lock goes, so that no file of another writer can be hit */
    if (file->temporary != NULL && file->fd >= 0) unlink(file->temporary);
    if (file->fd >= 0) close(file->fd);
    free(file->temporary);
    free(file->target);
    *file = (tow__output_file){.fd = -1};
}

bool tow__valid_bools(const void *data, size_t count)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        if (bytes[i] > 1) return false;
    return true;
}
