/* Files that are either the old version or the whole new one.
 *
 * A new version is written to a temporary file in the same directory, synced, renamed over the old one, and the
 * directory is synced. The temporary file "NAME.16 hexadecimal digits.tmp" is created under a random name that must be
 * free, so nobody can put a file or a link in its place. Its writer holds a lock on it until it has been renamed. A
 * process that was killed leaves a temporary file without a lock: the next writer of the same path removes it. A locked
 * one means that another writer is at work. On systems without locks, temporary files of others are left alone.
 * Devices and pipes cannot be replaced and are written directly. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "src/io/file_calls.h"
#include "src/io/io.h"

enum {
    DIGITS = 16,
    SUFFIX = 1 + DIGITS + 4, /* ".0123456789abcdef.tmp" */
    ATTEMPTS = 100 /* to find a free name; one is enough unless another writer takes the file for a left-over */
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Length of the part of a path that names its directory: up to and with the last slash. */
static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

static const char *file_name(const tow__output_file *file) { return file->target + directory_length(file->target); }

/* The beginning of the names of temporary files: the name, or of a very long one as much as leaves room for the
 * suffix. */
static int stem_length(const tow__output_file *file)
{
    size_t length = strlen(file_name(file));
    return (int)(length < NAME_MAX - SUFFIX ? length : NAME_MAX - SUFFIX);
}

/* A path in the directory of the target: the first `length` bytes of `name`, then `suffix`. */
static char *beside(tow__output_file *file, const char *name, int length, const char *suffix)
{
    const size_t directory = directory_length(file->target), size = directory + (size_t)length + strlen(suffix) + 1;
    char *path = tow__arena_alloc(&file->memory, size, 1);
    if (path) snprintf(path, size, "%.*s%.*s%s", (int)directory, file->target, length, name, suffix);
    return path;
}

static bool is_temporary(const tow__output_file *file, const char *name)
{
    const size_t stem = (size_t)stem_length(file);
    return strlen(name) == stem + SUFFIX && memcmp(name, file_name(file), stem) == 0 && name[stem] == '.' &&
           strspn(name + stem + 1, "0123456789abcdef") == DIGITS && strcmp(name + stem + 1 + DIGITS, ".tmp") == 0;
}

/* ---- temporary files of others ----------------------------------------------------------------------------------- */

typedef enum lock {
    LOCKED,
    BUSY, /* somebody else holds it */
    UNKNOWN
} lock;

static lock take_lock(const tow__file_calls *calls, int fd)
{
    int result;
    TOW__RETRY(result, calls->flock(fd, LOCK_EX | LOCK_NB));
    return result == 0 ? LOCKED : errno == EWOULDBLOCK ? BUSY : UNKNOWN;
}

/* True if the name `path` still stands for the open file. */
static bool still_names(const tow__file_calls *calls, const char *path, int fd)
{
    struct stat opened, named;
    return calls->fstat(fd, &opened) == 0 && calls->lstat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* Removes `path` if it is what a killed writer of the same user left. False if its writer is alive. */
static bool remove_leftover(const tow__file_calls *calls, const char *path)
{
    struct stat info;
    int fd;
    TOW__RETRY(fd, calls->open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0));
    if (fd < 0) return true;
    bool ours = calls->fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && info.st_nlink == 1;
    lock l = ours ? take_lock(calls, fd) : UNKNOWN;
    if (l == LOCKED && still_names(calls, path, fd)) calls->unlink(path);
    calls->close(fd);
    return l != BUSY;
}

/* The directory may be one that can be written but not listed; then left-overs stay. */
static tow_status remove_leftovers(tow__output_file *file)
{
    tow_status status = TOW_OK;
    DIR *directory = opendir(file->directory);
    if (!directory) return TOW_OK;
    for (const struct dirent *entry; (entry = readdir(directory));) {
        if (!is_temporary(file, entry->d_name)) continue;
        const char *path = beside(file, entry->d_name, (int)strlen(entry->d_name), "");
        if (!path) TRY(TOW_OUT_OF_MEMORY);
        if (!remove_leftover(tow__calls(file->ctx), path))
            TRY(tow__fail(file->ctx, TOW_IO_ERROR,
                          "%s: another process is writing this file (it holds %s); try again later", file->path, path));
    }
done:
    closedir(directory);
    return status;
}

/* ---- the temporary file ------------------------------------------------------------------------------------------ */

static tow_status cannot_create(const tow__output_file *file, int error)
{
    return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot create a temporary file in %s: %s", file->path,
                     file->directory, strerror(error));
}

/* If an old version exists, only its owner may read the new one until it gets the permissions of the old one. */
static tow_status create_temporary(tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(file->ctx);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        uint64_t random;
        char suffix[SUFFIX + 1];
        if (getentropy(&random, sizeof random) != 0) return cannot_create(file, errno);
        snprintf(suffix, sizeof suffix, ".%016" PRIx64 ".tmp", random);
        file->temporary = beside(file, file_name(file), stem_length(file), suffix);
        if (!file->temporary) return TOW_OUT_OF_MEMORY;
        TOW__RETRY(file->fd, calls->open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                         file->replaces ? 0600 : 0666));
        if (file->fd < 0) {
            file->temporary = NULL;
            if (errno == EEXIST) continue;
            return cannot_create(file, errno);
        }
        /* Another writer that found the file before it was locked takes it for a left-over and removes it. */
        if (take_lock(calls, file->fd) != BUSY && still_names(calls, file->temporary, file->fd)) return TOW_OK;
        calls->unlink(file->temporary);
        calls->close(file->fd);
        file->temporary = NULL;
        file->fd = -1;
    }
    return tow__fail(
        file->ctx, TOW_IO_ERROR,
        "%s: cannot keep a temporary file in %s: %d were removed or could not be examined; try again later", file->path,
        file->directory, ATTEMPTS);
}

/* Sets the names of the target, with symbolic links resolved, and of its directory. */
static tow_status find_target(tow__output_file *file)
{
    char resolved[PATH_MAX];
    if (file->replaces && !realpath(file->path, resolved))
        return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot resolve the path: %s", file->path, strerror(errno));
    file->target = tow__arena_string(&file->memory, file->replaces ? resolved : file->path);
    if (!file->target) return TOW_OUT_OF_MEMORY;
    file->directory = directory_length(file->target) > 0 ? beside(file, "", 0, "") : ".";
    return file->directory != NULL ? TOW_OK : TOW_OUT_OF_MEMORY;
}

tow_status tow__output_open(tow_context *ctx, const char *path, tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(ctx);
    *file = (tow__output_file){.ctx = ctx, .path = path, .fd = -1};
    tow__arena_init(&file->memory, ctx);
    if (!path || path[0] == '\0')
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected the path of a file to write, found %s",
                         path ? "\"\"" : "NULL");
    struct stat info;
    int result;
    TOW__RETRY(result, calls->stat(path, &info));
    if (result != 0 && errno != ENOENT)
        return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot write: %s", path, strerror(errno));
    if (result == 0 && S_ISDIR(info.st_mode))
        return tow__fail(ctx, TOW_IO_ERROR, "%s: expected the name of a file to write, found a directory", path);
    if (result == 0 && !S_ISREG(info.st_mode)) {
        TOW__RETRY(file->fd, calls->open(path, O_WRONLY | O_CLOEXEC, 0));
        if (file->fd < 0) return tow__fail(ctx, TOW_IO_ERROR, "%s: cannot open for writing: %s", path, strerror(errno));
        return TOW_OK;
    }
    file->replaces = result == 0;
    if (file->replaces) file->old = info;
    tow_status status = find_target(file);
    if (status == TOW_OK) status = remove_leftovers(file);
    if (status == TOW_OK) status = create_temporary(file);
    return status;
}

tow_status tow__output_join(tow_context *ctx, const char *path, const char *temporary, uint64_t size,
                            tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(ctx);
    *file = (tow__output_file){.ctx = ctx, .path = path, .target = path, .fd = -1, .joined = true};
    tow__arena_init(&file->memory, ctx);
    struct stat info;
    file->temporary = tow__arena_string(&file->memory, temporary);
    if (!file->temporary) return TOW_OUT_OF_MEMORY;
    TOW__RETRY(file->fd, calls->open(temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0));
    if (file->fd < 0 || calls->fstat(file->fd, &info) != 0)
        return tow__fail(ctx, TOW_IO_ERROR,
                         "%s: cannot open %s, which another process of the group writes, too: %s; all processes need a "
                         "file system that they share",
                         path, temporary, strerror(errno));
    if (S_ISREG(info.st_mode) && (uint64_t)info.st_size == size) return TOW_OK;
    return tow__fail(ctx, TOW_IO_ERROR,
                     "%s: expected %s to be a file of %" PRIu64
                     " bytes, as another process of the group made it, found "
                     "%lld; all processes need a file system that they share",
                     path, temporary, size, (long long)info.st_size);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static tow_status cannot_write(const tow__output_file *file)
{
    return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot write: %s", file->path, strerror(errno));
}

tow_status tow__output_write(tow__output_file *file, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    while (count > 0) {
        ssize_t n;
        TOW__RETRY(n, tow__calls(file->ctx)->write(file->fd, bytes, count));
        if (n == 0) errno = EIO; /* neither progress nor an error */
        if (n <= 0) return cannot_write(file);
        bytes += n;
        count -= (size_t)n;
    }
    return TOW_OK;
}

tow_status tow__output_write_at(tow__output_file *file, uint64_t offset, const void *data, size_t count)
{
    const unsigned char *bytes = data;
    while (count > 0) {
        ssize_t n;
        TOW__RETRY(n, tow__calls(file->ctx)->pwrite(file->fd, bytes, count, (off_t)offset));
        if (n == 0) errno = EIO; /* neither progress nor an error */
        if (n <= 0) return cannot_write(file);
        bytes += n;
        offset += (uint64_t)n;
        count -= (size_t)n;
    }
    return TOW_OK;
}

tow_status tow__output_resize(tow__output_file *file, uint64_t size)
{
    int result;
    TOW__RETRY(result, tow__calls(file->ctx)->ftruncate(file->fd, (off_t)size));
    return result == 0 ? TOW_OK : cannot_write(file);
}

/* The new version gets owner, group and permissions of the old one. If its group cannot be kept, nobody else gets
 * what the old group was allowed. */
static tow_status keep_permissions(const tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(file->ctx);
    struct stat new;
    mode_t mode = file->old.st_mode & 0777;
    int result;
    TOW__RETRY(result, calls->fstat(file->fd, &new));
    if (result != 0) return cannot_write(file);
    const bool owner = new.st_uid == file->old.st_uid, group = new.st_gid == file->old.st_gid;
    if (!owner || !group) {
        TOW__RETRY(result, calls->fchown(file->fd, file->old.st_uid, file->old.st_gid));
        if (result != 0 && !group) TOW__RETRY(result, calls->fchown(file->fd, (uid_t)-1, file->old.st_gid));
        if (result != 0 && !group) mode &= ~(mode_t)070;
    }
    if ((new.st_mode & 0777) == mode) return TOW_OK;
    TOW__RETRY(result, calls->fchmod(file->fd, mode));
    if (result == 0) return TOW_OK;
    return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot keep its permissions %03o: %s", file->path, (unsigned)mode,
                     strerror(errno));
}

/* After this the rename survives a power cut. Some file systems cannot sync directories; they order renames
 * themselves. */
static tow_status sync_directory(const tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(file->ctx);
    int fd, result;
    TOW__RETRY(fd, calls->open(file->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    if (fd < 0 && errno == EACCES) return TOW_OK; /* a directory that may be written but not read */
    if (fd >= 0) {
        TOW__RETRY(result, calls->fsync(fd));
        const int error = errno;
        calls->close(fd);
        if (result == 0 || error == EINVAL || error == ENOTSUP) return TOW_OK;
        errno = error;
    }
    return tow__fail(file->ctx, TOW_IO_ERROR, "%s: written, but cannot sync its directory: %s", file->path,
                     strerror(errno));
}

tow_status tow__output_sync(tow__output_file *file)
{
    int result;
    if (!file->temporary) return TOW_OK;
    tow_status status = file->replaces ? keep_permissions(file) : TOW_OK;
    if (status != TOW_OK) return status;
    TOW__RETRY(result, tow__calls(file->ctx)->fsync(file->fd));
    return result == 0 ? TOW_OK : cannot_write(file);
}

tow_status tow__output_commit(tow__output_file *file)
{
    const tow__file_calls *calls = tow__calls(file->ctx);
    int result;
    if (!file->temporary) {
        result = calls->close(file->fd);
        file->fd = -1;
        return result == 0 || errno == EINTR ? TOW_OK : cannot_write(file);
    }
    const tow_status status = tow__output_sync(file);
    if (status != TOW_OK) return status;
    TOW__RETRY(result, calls->rename(file->temporary, file->target));
    if (result != 0)
        return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot rename %s to it: %s", file->path, file->temporary,
                         strerror(errno));
    file->temporary = NULL;
    return sync_directory(file);
}

void tow__output_close(tow__output_file *file)
{
    if (!file->ctx) return;
    const tow__file_calls *calls = tow__calls(file->ctx);
    int result;
    /* removed before the lock goes, while nobody takes it for a left-over; closing reports nothing that fsync did
     * not */
    if (file->temporary && !file->joined) TOW__RETRY(result, calls->unlink(file->temporary));
    if (file->fd >= 0) calls->close(file->fd);
    tow__arena_free(&file->memory);
    *file = (tow__output_file){.fd = -1};
}
