/* The inside of a source. Rows are read on any thread, by one at a time for each source and buffer: reading
 * allocates nothing and touches neither context nor reference counts. */
#ifndef TOW_SRC_DATA_SOURCE_H
#define TOW_SRC_DATA_SOURCE_H

#include "src/base/base.h"
#include "tow/data.h"

/* The place where a failure on another thread is noted; the first one stays. */
typedef struct tow__row_error {
    tow_status status;
    char text[1024];
} tow__row_error;
__attribute__((format(printf, 3, 4))) tow_status tow__row_fail(tow__row_error *error, tow_status status,
                                                               const char *format, ...);

typedef struct tow__source_class {
    /* n_rows rows from `row` on as they are stored, one after the other, to `data`. */
    tow_status (*read)(const tow_source *source, int64_t row, int64_t n_rows, void *data, tow__row_error *error);
    /* Of windows: the rows of the stream from `start` on that make a window. Otherwise NULL. */
    tow_status (*read_window)(const tow_source *source, int64_t start, void *data, tow__row_error *error);
    void (*free)(tow_source *source);
} tow__source_class;

struct tow_source {
    const tow__source_class *cls;
    tow_context *ctx; /* held: loaders of other contexts may outlive it */
    size_t bytes;     /* of the struct that this one begins */
    atomic_size_t references;
    const char *name; /* of the file, for messages; "" */
    size_t name_bytes;
    int64_t rows;
    tow_type row;       /* of the public interface: i32 for elements of 16 bits */
    size_t stored_size; /* bytes of an element in the file */
    bool narrow;        /* integers of 16 bits, */
    bool is_signed;     /* with a sign */
    bool swapped;       /* bytes of elements are in the other order */
    int64_t ahead;      /* rows of the stream behind a window, else 0 */
    int64_t stride;     /* of a window in rows of the stream, else 0 */
};

/* A new source with one reference, of so many bytes, of which the class frees what it adds. */
tow_status tow__source_create(tow_context *ctx, size_t bytes, const tow__source_class *cls, const char *name,
                              tow_source **source);

/* Rows that lie one after the other in an array of bytes. */
typedef struct tow__memory_source {
    tow_source source; /* this field comes first */
    tow_array *array;
    const unsigned char *data;
} tow__memory_source;
/* `array` is retained; rows begin at `offset` and are described by `like`, of which the class and what belongs to it
 * are set here. */
tow_status tow__source_of_memory(tow_context *ctx, const char *name, tow_array *array, size_t offset,
                                 const tow_source *like, tow_source **source);

/* The row as it is stored, `ahead` rows of the stream later if it is a window. `data`: row elements of stored_size. */
tow_status tow__source_read(const tow_source *source, int64_t row, int64_t ahead, void *data, tow__row_error *error);
/* In place: n stored elements to those of the row's type. There must be room. */
void tow__source_widen(const tow_source *source, void *data, int64_t n);

/* The whole of a file, mapped, and its name; a file without bytes has no array. */
tow_status tow__source_map(tow_context *ctx, const char *path, tow_array **array, uint64_t *size);

#endif
