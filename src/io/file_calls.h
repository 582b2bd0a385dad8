/* The system calls that files are read and written with, as a table: a context has one of its own if a test wants each
 * call to fail in turn, else all contexts share the system's. */
#ifndef TOW_SRC_IO_FILE_CALLS_H
#define TOW_SRC_IO_FILE_CALLS_H

#include <errno.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "src/base/base.h"

typedef struct tow__file_calls {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    int (*stat)(const char *path, struct stat *info);
    int (*lstat)(const char *path, struct stat *info);
    int (*fstat)(int fd, struct stat *info);
    int (*flock)(int fd, int operation);
    ssize_t (*pread)(int fd, void *data, size_t count, off_t offset);
    ssize_t (*write)(int fd, const void *data, size_t count);
    ssize_t (*pwrite)(int fd, const void *data, size_t count, off_t offset);
    int (*ftruncate)(int fd, off_t size);
    void *(*map)(int fd, size_t bytes);     /* private, writable; NULL on an error */
    void (*drop)(void *data, size_t bytes); /* pages of a mapping to be read again; NULL: they stay */
    int (*fchown)(int fd, uid_t owner, gid_t group);
    int (*fchmod)(int fd, mode_t mode);
    int (*fsync)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
} tow__file_calls;

extern const tow__file_calls tow__system_file_calls;

static inline const tow__file_calls *tow__calls(const tow_context *ctx)
{
    return ctx->file_calls != NULL ? ctx->file_calls : &tow__system_file_calls;
}

/* Sets `result` to that of the call, which is repeated as long as signals interrupt it. */
#define TOW__RETRY(result, call)                                                                                       \
    do {                                                                                                               \
        (result) = (call);                                                                                             \
    } while ((result) < 0 && errno == EINTR)

#endif
