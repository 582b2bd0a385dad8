/* Files that are read: opened, read in ranges, mapped. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/io/file_calls.h"
#include "src/io/io.h"

/* ---- the system's calls ------------------------------------------------------------------------------------------ */

static int system_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }

static void *system_map(int fd, size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    return data != MAP_FAILED ? data : NULL;
}

/* Whole pages of it. */
static void system_drop(void *data, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (end > begin) madvise((char *)data + (begin - (uintptr_t)data), end - begin, MADV_DONTNEED);
}

/* Functions of this file, because stat and its kin are macros or inline functions in some C libraries. */
static int system_stat(const char *path, struct stat *info) { return stat(path, info); }
static int system_lstat(const char *path, struct stat *info) { return lstat(path, info); }
static int system_fstat(int fd, struct stat *info) { return fstat(fd, info); }

const tow__file_calls tow__system_file_calls = {
    .open = system_open,
    .close = close,
    .stat = system_stat,
    .lstat = system_lstat,
    .fstat = system_fstat,
    .flock = flock,
    .pread = pread,
    .write = write,
    .pwrite = pwrite,
    .ftruncate = ftruncate,
    .map = system_map,
    .drop = system_drop,
    .fchown = fchown,
    .fchmod = fchmod,
    .fsync = fsync,
    .rename = rename,
    .unlink = unlink,
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

tow_status tow__input_open(tow_context *ctx, const char *path, tow__input_file *file)
{
    const tow__file_calls *calls = tow__calls(ctx);
    *file = (tow__input_file){.ctx = ctx, .fd = -1};
    if (!path) return tow__fail(ctx, TOW_INVALID_ARGUMENT, "expected the path of a file to read, found NULL");
    file->path = tow__alloc(ctx, strlen(path) + 1, 1);
    if (!file->path) return TOW_OUT_OF_MEMORY;
    memcpy(file->path, path, strlen(path) + 1);
    tow_status status = TOW_OK;
    struct stat info;
    int result;
    /* O_NONBLOCK: opening a pipe without a writer must not hang; it has no effect on regular files */
    TOW__RETRY(file->fd, calls->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0));
    if (file->fd < 0) TRY(tow__fail(ctx, TOW_IO_ERROR, "%s: cannot open for reading: %s", path, strerror(errno)));
    TOW__RETRY(result, calls->fstat(file->fd, &info));
    if (result != 0) TRY(tow__fail(ctx, TOW_IO_ERROR, "%s: cannot get its size: %s", path, strerror(errno)));
    if (!S_ISREG(info.st_mode))
        TRY(tow__fail(ctx, TOW_IO_ERROR, "%s: expected a regular file, found %s", path,
                      S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe; copy it to a file first"));
    file->size = (uint64_t)info.st_size;
done:
    if (status != TOW_OK) tow__input_close(file);
    return status;
}

tow_status tow__input_read(const tow__input_file *file, uint64_t offset, void *data, size_t count)
{
    unsigned char *bytes = data;
    while (count > 0) {
        ssize_t n;
        TOW__RETRY(n, tow__calls(file->ctx)->pread(file->fd, bytes, count, (off_t)offset));
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

tow_status tow__input_map(const tow__input_file *file, tow_array **array)
{
    *array = NULL;
    const size_t bytes = (size_t)file->size;
    const tow__file_calls *calls = tow__calls(file->ctx);
    struct stat info;
    int result;
    void *data = calls->map(file->fd, bytes);
    if (!data) return tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot map: %s", file->path, strerror(errno));
    tow_status status = TOW_OK;
    TOW__RETRY(result, calls->fstat(file->fd, &info)); /* the header was checked against the size before */
    if (result != 0)
        TRY(tow__fail(file->ctx, TOW_IO_ERROR, "%s: cannot get its size: %s", file->path, strerror(errno)));
    if ((uint64_t)info.st_size < file->size)
        TRY(tow__fail(file->ctx, TOW_IO_ERROR,
                      "%s: expected %llu bytes, as the file had them when it was opened, found %lld: another process "
                      "cuts it off; try again later",
                      file->path, (unsigned long long)file->size, (long long)info.st_size));
    TRY(tow__array_of_mapping(file->ctx, data, bytes, array));
done:
    if (status != TOW_OK) munmap(data, bytes);
    return status;
}

void tow__input_close(tow__input_file *file)
{
    if (file->fd >= 0) tow__calls(file->ctx)->close(file->fd);
    if (file->path) tow__free(file->ctx, file->path, strlen(file->path) + 1, 1);
    file->path = NULL;
    file->fd = -1;
}

bool tow__valid_bools(const void *data, size_t count)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        if (bytes[i] > 1) return false;
    return true;
}
