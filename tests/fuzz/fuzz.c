/* The allocator, the file in memory and the failures of fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "src/io/file_calls.h"
#include "src/kernels/products/gemm.h"

/* ---- failures ---------------------------------------------------------------------------------------------------- */

void fuzz_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("fuzz: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const clock_t began = clock();
    const int result = fuzz_target(data, size);
    const double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    if (seconds > FUZZ_MOST_SECONDS) fuzz_fail("it took %.1f s: expected at most %d", seconds, FUZZ_MOST_SECONDS);
    return result;
}

bool fuzz_succeeds(const tow_context *ctx, tow_status status)
{
    if (status == TOW_INTERNAL_ERROR) fuzz_fail("an internal error: %s", tow_context_error(ctx));
    if (status != TOW_OK && tow_context_error(ctx)[0] == '\0')
        fuzz_fail("status '%s' without a message", tow_status_text(status));
    return status == TOW_OK;
}

void fuzz_expect(const tow_context *ctx, tow_status status, const char *what)
{
    if (status != TOW_OK) fuzz_fail("%s: %s", what, tow_context_error(ctx));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static size_t bytes_held;

static void *resize(void *pointer, size_t old_size, size_t size, void *user)
{
    (void)user;
    bytes_held -= old_size;
    if (size > FUZZ_MOST_BYTES - bytes_held)
        fuzz_fail("%zu bytes are held, and %zu more are asked for: expected at most %d", bytes_held, size,
                  FUZZ_MOST_BYTES);
    bytes_held += size;
    if (size == 0) {
        free(pointer);
        return NULL;
    }
    if (old_size % 64 != 0 || size % 64 != 0) return realloc(pointer, size);
    void *memory = aligned_alloc(64, size);
    if (memory != NULL && pointer != NULL) {
        memcpy(memory, pointer, old_size < size ? old_size : size);
        free(pointer);
    }
    return memory;
}

static tow_context *make_context(const tow_allocator *allocator)
{
    const tow__gemm_choice products = {0};
    tow_context *ctx;
    if (tow__context_create(allocator, 1, &products, sizeof products, &ctx) != TOW_OK)
        fuzz_fail("there is no memory for a context");
    return ctx;
}

tow_context *fuzz_context(void)
{
    bytes_held = 0;
    return make_context(&(tow_allocator){.resize = resize});
}

tow_context *fuzz_mutators_context(void) { return make_context(NULL); }

void fuzz_end(tow_context *ctx)
{
    tow_context_free(ctx);
    if (bytes_held != 0) fuzz_fail("%zu bytes are left when the context is gone", bytes_held);
}

size_t fuzz_bytes(void) { return bytes_held; }

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) fuzz_fail("there is no memory for the input");
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

typedef struct memory_file {
    const char *path; /* NULL: any */
    const uint8_t *data;
    size_t size;
} memory_file;

/* The input, and another file; the index is the descriptor. */
static memory_file files[2];

static int file_open(const char *path, int flags, mode_t mode)
{
    (void)flags, (void)mode;
    return files[1].path != NULL && strcmp(path, files[1].path) == 0;
}

static int file_close(int fd)
{
    (void)fd;
    return 0;
}

static int file_fstat(int fd, struct stat *info)
{
    *info = (struct stat){.st_mode = S_IFREG, .st_size = (off_t)files[fd].size};
    return 0;
}

/* Every file is there. */
static int file_stat(const char *path, struct stat *info) { return file_fstat(file_open(path, 0, 0), info); }

static ssize_t file_pread(int fd, void *data, size_t count, off_t offset)
{
    const memory_file *file = &files[fd];
    const size_t at = (size_t)offset < file->size ? (size_t)offset : file->size;
    if (count > file->size - at) count = file->size - at;
    if (count > 0) memcpy(data, file->data + at, count);
    return (ssize_t)count;
}

static void *file_map(int fd, size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return NULL;
    return memcpy(data, files[fd].data, bytes < files[fd].size ? bytes : files[fd].size);
}

static const tow__file_calls file_calls = {.open = file_open,
                                           .close = file_close,
                                           .stat = file_stat,
                                           .fstat = file_fstat,
                                           .pread = file_pread,
                                           .map = file_map};

void fuzz_file(tow_context *ctx, const uint8_t *data, size_t size)
{
    files[0] = (memory_file){.data = data, .size = size};
    files[1] = (memory_file){.path = NULL};
    ctx->file_calls = &file_calls;
}

void fuzz_other_file(const char *path, const uint8_t *data, size_t size)
{
    files[1] = (memory_file){.path = path, .data = data, .size = size};
}
