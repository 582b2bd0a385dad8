/* The inside of a set of tensors: it also holds what the headers of files say while the data are still in the files. */
#ifndef TOW_SRC_IO_TENSORS_H
#define TOW_SRC_IO_TENSORS_H

#include "src/base/blocks.h"
#include "src/io/io.h"
#include "tow/gguf.h"

/* The forms in which a file stores the elements of a tensor. Elements of every form but the plain one are decoded when
 * they are read, to the type that follows. */
enum {
    TOW__STORED_PLAIN,
    TOW__STORED_I16, /* to i32 */
    TOW__STORED_U16,
    TOW__STORED_Q8_0, /* to f32, in blocks (tow/gguf.h) */
    TOW__STORED_Q4_0,
    TOW__STORED_Q4_K,
    TOW__STORED_Q6_K,
    TOW__STORED_COUNT
};

/* A form that is not plain: blocks of `elements`, in `bytes` each. */
typedef struct tow__stored_form {
    int elements, bytes;
    void (*decode)(const unsigned char *blocks, int64_t count, void *elements); /* blocks are aligned to 2 bytes */
    tow_dtype dtype; /* of arrays of these blocks; 0: there is none */
} tow__stored_form;
enum {
    TOW__BLOCK_ELEMENTS = TOW__MOST_BLOCK_NUMBERS,
    TOW__BLOCK_BYTES = TOW__MOST_BLOCK_BYTES
};
/* [TOW__STORED_COUNT] that of TOW__STORED_PLAIN is empty. */
extern const tow__stored_form tow__stored_forms[];

typedef struct tow__tensor {
    const char *name;
    tow_type type;
    tow_array *array;  /* NULL: only in a file, */
    uint32_t file;     /* this one of the set (UINT32_MAX: never in one), */
    bool has_checksum; /* which says what it must be; */
    uint64_t offset;   /* from this byte on */
    /* Of a tensor that Tow cannot read, whose type has rank -1: what it is, "F8_E4M3", or, where it has no file, the
     * whole message for those who ask for it. NULL: Tow reads it. */
    const char *foreign;
    int stored; /* one of the above */
    /* The array has only a process's share of the elements (tow_group_share), on one axis. */
    bool is_share;
    union {
        uint64_t checksum;
        uint64_t foreign_bytes; /* of its data; a foreign tensor has no checksum */
    };
} tow__tensor;

/* A file of tensors without arrays: mapped, or open. */
typedef struct tow__tensor_file {
    const char *path; /* for messages */
    tow__format format;
    tow__input_file input;
    tow_array *mapping; /* of the whole file; NULL: not mapped */
    const char *set;    /* which set of files it says that it belongs to; NULL: none */
} tow__tensor_file;

typedef struct tow__metadata {
    const char *key;
    const char *text; /* of a string; NULL: the value is none */
    tow_metadata_value value;
} tow__metadata;

/* Tensors are in the order of insertion; an open-addressing table of indices finds them by name. Its capacity is a
 * power of two and at least twice the number of entries, so every probe ends. */
struct tow_tensors {
    tow_context *ctx;
    tow__arena strings; /* names and metadata */
    tow__tensor *items;
    size_t count, capacity;
    uint32_t *slots; /* index + 1; 0: empty */
    size_t n_slots;
    tow__metadata *metadata;
    size_t n_metadata, metadata_capacity;
    tow__tensor_file *files;
    size_t n_files, files_capacity;
};

/* The index of a tensor, or -1. */
ptrdiff_t tow__tensors_lookup(const tow_tensors *tensors, const char *name);
/* Appends a tensor without an array. The name is copied. */
tow_status tow__tensors_append(tow_tensors *tensors, const char *name, tow_type type, bool *duplicate);
/* Appends a tensor of another set, without an array, as one of this `file`. The name is copied. */
tow_status tow__tensors_take(tow_tensors *tensors, const tow__tensor *tensor, uint32_t file, bool *duplicate);
/* Makes room for `capacity` tensors in all. */
tow_status tow__tensors_reserve(tow_tensors *tensors, size_t capacity);
/* Of its data: those in its file if it has no array. */
uint64_t tow__tensor_bytes(const tow__tensor *tensor);
/* Error: TOW_UNSUPPORTED for a foreign tensor, with its path, name and what it is. */
tow_status tow__tensors_known(const tow_tensors *tensors, size_t index);
/* Sorts the tensors, which have no arrays, by offset; empty ones come before others at the same offset. */
tow_status tow__tensors_sort(tow_tensors *tensors);
/* Opens a file of the set. The path is copied. */
tow_status tow__tensors_open_file(tow_tensors *tensors, const char *path);
/* Copies what a value points to into the memory of the set. Error: TOW_OUT_OF_MEMORY. */
tow_status tow__metadata_copy(tow_tensors *tensors, tow_metadata_value *value);
/* Appends an entry with a key and a value that the set's memory has. */
tow_status tow__metadata_append(tow_tensors *tensors, const char *key, tow_metadata_value value);
/* Bytes of an element of an array of values; 0 for what is no type. */
size_t tow__metadata_size(tow_metadata_type type);
/* Tensor `index` as an array that the set owns: a view of the mapping, or read from the file. */
tow_status tow__tensors_load(const tow_tensors *tensors, size_t index);

/* The bytes of a tensor in its mapped file, if these are elements of `dtype`: of its own type, or blocks of few bits.
 * NULL: they are not, or there is no mapping. */
const void *tow__tensors_mapped(const tow_tensors *tensors, size_t index, tow_dtype dtype);
/* The array of `type` that begins `offset` bytes behind there. */
tow_status tow__tensors_view(const tow_tensors *tensors, size_t index, size_t offset, tow_type type, tow_array **view);
/* A type of floats in blocks: 32 along the last axis are one. False if that does not go. */
bool tow__type_in_blocks(tow_type *type, tow_dtype dtype);
/* True if the tensor is used in place where its file is mapped: an array of it is a view. */
bool tow__tensors_have_view(const tow_tensors *tensors, size_t index);
/* Gives memory back that holds pages of the tensor's mapped file, if nobody has written to them: it is read again when
 * it is asked for. Only for a set that nobody else has. */
void tow__tensors_drop_pages(const tow_tensors *tensors, size_t index);
/* Drops the array of a tensor that is in a mapped file, too. */
void tow__tensors_forget(tow_tensors *tensors, size_t index);
/* Maps all open files of the set; reads all tensors. */
tow_status tow__tensors_map(tow_tensors *tensors);
tow_status tow__tensors_load_all(tow_tensors *tensors);
/* Opens a set by its format's function, gets its data by one of the two above, and closes its files. */
tow_status tow__tensors_open(tow_context *context, const char *path,
                             tow_status (*open)(tow_context *ctx, const char *path, tow_tensors **tensors),
                             tow_status (*get)(tow_tensors *t), tow_tensors **tensors);

/* ---- safetensors ------------------------------------------------------------------------------------------------- */

/* Headers of more bytes are neither read nor written, as by the reference implementation. */
#define TOW__SAFETENSORS_MAX_HEADER UINT64_C(100000000)

/* "F32". */
const char *tow__safetensors_dtype(tow_dtype dtype);

/* Checksums are metadata of 16 hexadecimal digits. With the key "tow.xxh3/NAME": XXH3 (64 bits, no seed) of the bytes
 * of that tensor. With the key "tow.xxh3": of the header, whatever the order of its entries and its spaces, the sum of
 * what the functions below give for all tensors and for all metadata but checksums. A file has all of them or none. */
extern const char tow__checksum_key[];
/* Metadata of one file of several: 16 hexadecimal digits that depend on the names, types and data of all of them, so
 * that a reader finds files of two sets that a killed writer left side by side. */
extern const char tow__set_key[];
/* True for the key of a checksum. Sets *name to the tensor's, or to NULL. */
bool tow__is_checksum_key(const char *key, const char **name);
uint64_t tow__tensor_sum(const char *name, tow_type type, uint64_t checksum);
uint64_t tow__metadata_sum(const char *key, const char *value);

/* Opens a file, or all files that an index names, and checks the headers as a whole; tensors are in the order of the
 * files, and in each in the order of the data. Errors: those of tow_safetensors_read. */
tow_status tow__safetensors_open(tow_context *ctx, const char *path, tow_tensors **tensors);
/* Adds what the header of the one open file of a set, which is empty, says. */
tow_status tow__safetensors_read_header(tow_tensors *tensors);
/* Opens the files that the index, which is file 0 of the set, names, and adds what their headers say. */
tow_status tow__safetensors_read_index(tow_tensors *tensors);
/* Bytes of a tensor in its file, from byte `at` of its data on, as the file stores them. */
tow_status tow__tensors_read_bytes(const tow_tensors *tensors, size_t index, uint64_t at, void *data, size_t count);
/* TOW_BAD_FORMAT if the tensor has a checksum, and this is another one. */
tow_status tow__tensors_check_sum(const tow_tensors *tensors, size_t index, uint64_t found);
/* Elements `first` to `first` + n as the type has them, to `data`, without a look at the checksum. Allocates nothing.
 * Errors: TOW_IO_ERROR, TOW_BAD_FORMAT for booleans that are none. */
tow_status tow__tensors_read_elements(const tow_tensors *tensors, size_t index, int64_t first, int64_t n, void *data);
/* Copies one tensor to `data` as `dtype`, to which its own converts, from its array or from the file, and compares it
 * with its checksum. Allocates nothing. Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_TYPE_MISMATCH for integers that do
 * not fit, with path and name. */
tow_status tow__tensors_copy(const tow_tensors *tensors, size_t index, tow_dtype dtype, void *data);
/* Finds what would make that fail, but for errors of the system, without a place for the data. */
tow_status tow__tensors_check(const tow_tensors *tensors, size_t index, tow_dtype dtype);

/* ---- writing safetensors ----------------------------------------------------------------------------------------- */

/* The source from which a writer gets the data of tensor `index` of a set. They are valid until the next call. */
typedef struct tow__tensor_data {
    tow_status (*get)(void *user, size_t index, const void **data);
    void *user;
} tow__tensor_data;
/* Those that the set has, or reads. */
tow__tensor_data tow__tensors_data(const tow_tensors *tensors);

/* A file of the tensors `first` to `end` of a set, whose names and types these are. */
typedef struct tow__tensor_writer {
    const tow_tensors *tensors;
    tow__tensor_data data;
    uint64_t *checksums; /* [count] of the data of all tensors */
    size_t first, end;
    const char *set; /* which set of files it belongs to; NULL: none */
} tow__tensor_writer;
/* Makes the checksums: asks for all data once. */
tow_status tow__tensor_writer_sum(tow__tensor_writer *writer);
void tow__tensor_writer_free(tow__tensor_writer *writer);
/* The order of the data: starts with *index first and *size 0, and goes on with *index + 1. False behind the last
 * tensor. */
bool tow__tensor_writer_next(const tow__tensor_writer *writer, size_t *size, size_t *index);
/* The text of the header, to which its length does not belong. The length does not depend on the checksums. */
tow_status tow__tensor_writer_header(const tow__tensor_writer *writer, const char *path, tow__string *text);
/* Writes the file without committing it; it is to be closed, also after an error. */
tow_status tow__tensor_writer_write(const tow__tensor_writer *writer, const char *path, tow__output_file *file);
/* Error: TOW_INVALID_ARGUMENT for names and metadata that are not UTF-8. */
tow_status tow__safetensors_check(const char *path, const tow_tensors *tensors);
/* tow_safetensors_write and tow_safetensors_write_sharded with data from elsewhere. */
tow_status tow__safetensors_write_file(const char *path, const tow_tensors *tensors, tow__tensor_data data);
tow_status tow__safetensors_write_sharded(const char *path, const tow_tensors *tensors, tow__tensor_data data,
                                          uint64_t max_file_bytes);

#endif
