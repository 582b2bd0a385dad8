/* Data for training: batches of rows from files, which stay in the files until a row is asked for.
 *
 *     tow_source *images, *labels;
 *     tow_source_idx(context, "train-images-idx3-ubyte", &images);          rows u8[28,28]
 *     tow_source_idx(context, "train-labels-idx1-ubyte", &labels);          rows u8[]
 *     const tow_field fields[] = {{.source = images, .divide = 255}, {.source = labels, .dtype = TOW_I32}};
 *     tow_loader_options options =
 *         TOW_LOADER_OPTIONS(.fields = fields, .n_fields = 2, .batch = 64, .shuffle = true, .seed = 0);
 *     tow_loader_create(context, &options, &loader);
 *     tow_loader_seek(loader, tow_train_data_position(state));              after loading a checkpoint
 *     tow_array *const *batch;
 *     while (tow_loader_next(loader, &batch) == TOW_OK && batch) {
 *         tow_train_step(state, batch, &loss);
 *         tow_train_set_data_position(state, tow_loader_position(loader));
 *     }
 *
 * Batch number p of a loader is a pure function of its options and of p. So its position is all that a checkpoint
 * needs, and neither threads nor the number of batches that are made ahead change a bit. Processes that train together
 * (tow/group.h) read one batch in parts, each its own rows of it: .rank, .ranks and .row_groups.
 *
 * Sources and loaders belong to their context; a loader keeps its sources. Files are mapped: nobody may change or
 * truncate one in place as long as its source lives (tow/io.h says more). */
#ifndef TOW_DATA_H
#define TOW_DATA_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- sources: rows of one type ----------------------------------------------------------------------------------- */

/* Rows 0 .. n-1 of one element type and shape. Reference counted. */
typedef struct tow_source tow_source;

/* The rows of axis 0 of an array, which is retained and not copied. Error: TOW_TYPE_MISMATCH for a scalar. */
TOW_API tow_status tow_source_array(tow_context *context, tow_array *array, tow_source **source);
/* Those of a .npy file: of all that tow_npy_read reads, integers of 16 bits, which become i32, among them. Of an array
 * in Fortran order with several axes the data are copied. Errors: those of tow_npy_read; TOW_TYPE_MISMATCH for a
 * scalar. */
TOW_API tow_status tow_source_npy(tow_context *context, const char *path, tow_source **source);
/* Those of an IDX file, as of MNIST: u8, i8, i16 (rows are i32), i32, f32, f64, numbers in big-endian order. Errors:
 * TOW_IO_ERROR, TOW_BAD_FORMAT with path, offset, what was expected and what was found. */
TOW_API tow_status tow_source_idx(tow_context *context, const char *path, tow_source **source);

/* The types of elements in a file without a header. Integers of 16 bits become i32. */
typedef enum tow_stored {
    TOW_STORED_U8,
    TOW_STORED_I8,
    TOW_STORED_U16,
    TOW_STORED_I16,
    TOW_STORED_U32,
    TOW_STORED_I32,
    TOW_STORED_U64,
    TOW_STORED_I64,
    TOW_STORED_F16,
    TOW_STORED_BF16,
    TOW_STORED_F32,
    TOW_STORED_F64
} tow_stored;
/* Zero means the default. */
typedef struct tow_raw_options {
    size_t size TOW__SIZE(tow_raw_options); /* set by TOW_RAW_OPTIONS */
    tow_stored stored;
    int rank; /* of a row; 0: rows are scalars */
    int64_t dims[TOW_MAX_RANK];
    uint64_t skip;   /* bytes before the first row */
    bool big_endian; /* else little-endian */
} tow_raw_options;
#define TOW_RAW_OPTIONS(...) TOW__OPTIONS(tow_raw_options, __VA_ARGS__)
/* Rows one after the other up to the end of the file: token files of u16 or u32, for instance. Errors: TOW_IO_ERROR,
 * TOW_BAD_FORMAT if the bytes are no whole number of rows. */
TOW_API tow_status tow_source_raw(tow_context *context, const char *path, const tow_raw_options *options,
                                  tow_source **source);

/* Zero means the default. */
typedef struct tow_csv_options {
    size_t size TOW__SIZE(tow_csv_options); /* set by TOW_CSV_OPTIONS */
    char separator;                         /* 0: ',', or ';' if numbers have commas */
    bool header;                            /* the first line has the names of the columns */
    size_t n_columns;                       /* 0: all */
    const int *columns;                     /* their numbers, from 0; NULL: .names */
    const char *const *names;               /* their names in the header; NULL: .columns */
    bool integers;                          /* rows are i64, else f64 */
    const char *const
        *classes; /* of columns of words, each of which becomes its place in this list, NULL-terminated: rows are
                                 * i64; NULL: numbers */
    bool missing; /* an empty field and one of .missing_words is NaN, else an error; not with .integers and .classes */
    /* NULL-terminated; NULL: the words that pandas takes: NA, N/A, #N/A, NaN, null, None, ... */
    const char *const *missing_words;
    char decimal; /* what stands in front of a number's fraction: 0 or '.', or ',' */
    /* '#' for instance: what follows it on its line, outside of quotes, is left out; 0: there are no comments */
    char comment;
} tow_csv_options;
#define TOW_CSV_OPTIONS(...) TOW__OPTIONS(tow_csv_options, __VA_ARGS__)
/* The lines of a CSV file (RFC 4180: fields may stand between quotes, and have line breaks there) as rows
 * f64[n_columns] or i64[n_columns], scalars if one column is chosen. Empty lines are left out. Lines end
 * with LF, CR LF or CR. The file is read once to find where lines begin, of which
 * one in 64 is remembered; numbers are read when a row is asked for. Errors: TOW_IO_ERROR; TOW_NOT_FOUND with the
 * columns that there are; TOW_BAD_FORMAT with path, line, field, expected and found, here or, for fields of later
 * lines, from tow_loader_next. */
TOW_API tow_status tow_source_csv(tow_context *context, const char *path, const tow_csv_options *options,
                                  tow_source **source);

/* Row `row` to `data`, on the thread that makes batches. Any status but TOW_OK is that of tow_loader_next, with the
 * text in `error`. */
typedef tow_status (*tow_row_function)(int64_t row, void *data, char *error, size_t error_size, void *user);
/* Rows that a function makes: files of a directory, a data base, a simulation. It must give the same data for the same
 * row. */
TOW_API tow_status tow_source_function(tow_context *context, int64_t rows, tow_type row_type, tow_row_function function,
                                       void *user, tow_source **source);

/* Windows over a stream, whose rows may be tokens: row i of the new source holds rows [i stride, i stride + length) of
 * the old one, of type [length, row...]. `ahead` more rows follow each window, for tow_field.ahead: 1 for the labels of
 * a language model. stride 1 with .shuffle gives windows at random offsets, stride = length those that tile the stream.
 * Errors: TOW_INVALID_ARGUMENT for numbers out of range and a stream that holds no window. */
TOW_API tow_status tow_source_windows(tow_source *stream, int64_t length, int64_t stride, int64_t ahead,
                                      tow_source **source);

TOW_API tow_source *tow_source_retain(tow_source *source); /* NULL is accepted, as below */
TOW_API void tow_source_release(tow_source *source);
TOW_API int64_t tow_source_row_count(const tow_source *source);
TOW_API tow_type tow_source_row_type(const tow_source *source);
/* Row `row` as a new array of the row type. Errors: TOW_INVALID_ARGUMENT out of range; what reading it gives. */
TOW_API tow_status tow_source_row(tow_source *source, int64_t row, tow_array **array);

/* ---- loaders: batches -------------------------------------------------------------------------------------------- */

/* One array of the batch. Zero means the default. */
typedef struct tow_field {
    tow_source *source;
    /* Of the batch; 0: TOW_F32. Everything converts to floats, rounded once, integers to integers, in which each must
     * fit. */
    tow_dtype dtype;
    bool keep_type; /* that of the source's rows instead */
    /* Floats become (x - subtract) / divide, computed in f64 and rounded once. Per element of the last axis if there
     * are arrays, which are copied and have n_features numbers. */
    double subtract, divide; /* divide 0: 1 */
    size_t n_features;
    const double *subtract_each, *divide_each;
    int64_t ahead; /* windows: so many rows later */
    bool reshape;  /* the row has this shape, of as many elements: [28, 28, 1] for [28, 28] */
    int rank;
    int64_t dims[TOW_MAX_RANK];
} tow_field;

/* Some of the rows, the same for one seed: rows whose places in a random order are from n low to n high. Splits of one
 * seed that meet in a number have no row in common. All zero: all rows. */
typedef struct tow_row_split {
    double low, high; /* 0.8 and 1: a fifth */
    uint64_t seed;
    bool in_order; /* places are those of the file: the last fifth of a text or a time series */
} tow_row_split;

typedef enum tow_row_order {
    TOW_ORDER_FILE, /* as in the split */
    /* Every batch goes on where the one before it ended, in each of its rows: with M rows in all, row j of batch i is
     * row j (M / batch) + i. For windows over a stream and a carry that is passed from step to step. */
    TOW_ORDER_LANES
} tow_row_order;

/* The argument of a transform. It runs on the thread that makes batches. */
typedef struct tow_batch {
    tow_array *const *inputs;  /* the fields; they may be changed */
    tow_array *const *outputs; /* of .output_types; NULL without: then the fields are changed in place */
    uint32_t key[2];   /* random bits of this batch: fold_in(fold_in(fold_in(PRNGKey(seed), shard), epoch), batch) */
    uint64_t position; /* number of the batch */
    void *user;
    char *error; /* text of the failure that a transform reports */
    size_t error_size;
    /* The fields begin with row first_row of a batch of whole_rows rows: 0 and their number without .ranks. A transform
     * that draws for row i of the fields with fold_in(key, first_row + i) draws the same for any number of
     * processes. */
    int64_t first_row, whole_rows;
} tow_batch;
/* Any status but TOW_OK is that of tow_loader_next. Calls on arrays that need a context must use one of the transform's
 * own. */
typedef tow_status (*tow_batch_function)(const tow_batch *batch);

/* Zero means the default. */
typedef struct tow_loader_options {
    size_t size TOW__SIZE(tow_loader_options); /* set by TOW_LOADER_OPTIONS */
    size_t n_fields;
    const tow_field *fields; /* of sources with equally many rows */
    int64_t batch;           /* rows in a batch, at least 1 */
    uint64_t seed;           /* of the order and of transforms */
    /* Another order in each epoch: a permutation that is computed row by row (a Feistel network), so that it needs no
     * memory, whatever the number of rows. */
    bool shuffle;
    tow_row_order order; /* without .shuffle */
    tow_row_split split;
    /* Rank `shard` of `shards`: takes every shards-th row of the order, beginning with row `shard`; what is left over
     * when all have equally many is left out. Together the ranks see the rows that one loader with .batch = shards
     * batch sees. */
    int64_t shard, shards; /* shards 0: 1 */
    /* Process `rank` of `ranks`, which train on one batch together: reads only the rows of its row groups in each batch
     * (tow_group_rows), in their order, so that what all ranks read, one after the other, is the batch of one process.
     * .batch, .keep_last, positions and descriptions are those of whole batches, the same in all processes: a
     * checkpoint goes on with any number of them, and no row is lost or read twice. row_groups is a power of two that
     * divides .batch. In a last batch of n rows, group g has those from n g / row_groups (rounded down) on, which may
     * be none. With a group: .rank = tow_group_rank(group), .ranks = tow_group_count(group). */
    int rank, ranks;             /* ranks 0: 1 */
    int row_groups;              /* 0 with one rank: 1 */
    int64_t epochs;              /* 0: without end */
    bool keep_last;              /* a last batch of fewer rows, instead of none */
    tow_batch_function on_batch; /* changes a batch, or makes another one of it; NULL: nobody does */
    void *user;
    size_t n_outputs; /* of the transform, if it makes other types: those of a whole batch, or of the rank's part */
    const tow_type *output_types;
    int prefetch;   /* batches that a thread makes ahead; 0: 2 */
    bool no_thread; /* made by the caller's thread, when they are asked for */
} tow_loader_options;
#define TOW_LOADER_OPTIONS(...) TOW__OPTIONS(tow_loader_options, __VA_ARGS__)

typedef struct tow_loader tow_loader;

/* Checks everything and takes all memory that batches need. Errors: TOW_INVALID_ARGUMENT, TOW_TYPE_MISMATCH with the
 * number of the field, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_loader_create(tow_context *context, const tow_loader_options *options, tow_loader **loader);
/* Ends the thread. NULL is accepted. */
TOW_API void tow_loader_free(tow_loader *loader);
/* The next batch: arrays of the fields, or of the transform, which belong to the loader and are valid until the next
 * call; NULL behind the last one.
 * Errors: those of reading and of the transform, with the number of the batch; the position stays, and a further call
 * tries again. */
TOW_API tow_status tow_loader_next(tow_loader *loader, tow_array *const **batch);
/* Batches that were given out so far, those before tow_loader_seek included: what a checkpoint keeps. */
TOW_API uint64_t tow_loader_position(const tow_loader *loader);
/* Batch number `position` comes next. It costs nothing, wherever that is. Error: TOW_INVALID_ARGUMENT behind the last
 * epoch. */
TOW_API tow_status tow_loader_seek(tow_loader *loader, uint64_t position);
/* Batches and rows of one epoch, and how many arrays a batch has. */
TOW_API int64_t tow_loader_batch_count(const tow_loader *loader);
TOW_API int64_t tow_loader_row_count(const tow_loader *loader);
TOW_API size_t tow_loader_array_count(const tow_loader *loader);
/* The type of array `index` of a whole batch, or of this rank's part of one. */
TOW_API tow_type tow_loader_type(const tow_loader *loader, size_t index);
/* Rows [*first, *first + *rows) of a whole batch are those that this rank reads: 0 and .batch without .ranks. */
TOW_API void tow_loader_part(const tow_loader *loader, int64_t *first, int64_t *rows);
/* Describes all that decides which batches come, as a line of text, for tow_train_options.description: a checkpoint
 * then refuses to go on with other data. Like snprintf. */
TOW_API size_t tow_loader_describe(const tow_loader *loader, char *text, size_t size);
/* Place `index` of the order of epoch `epoch` as the number of a row: index from 0 to below tow_loader_row_count. */
TOW_API int64_t tow_loader_row(const tow_loader *loader, uint64_t epoch, int64_t index);

#ifdef __cplusplus
}
#endif
#endif
