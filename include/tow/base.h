/* Status codes, contexts, element types, arrays and the version: all other headers of Tow build on this one. */
#ifndef TOW_BASE_H
#define TOW_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(TOW_BUILD) && defined(__GNUC__)
#define TOW_API __attribute__((visibility("default")))
#else
#define TOW_API
#endif

/* ---- options ---------------------------------------------------------------------------------------------------- */

/* Structs of options begin with their size, which a macro of the same name in capitals sets, and zero means the default
 * in all other members:
 *
 *     tow_train_options options = TOW_TRAIN_OPTIONS(.seed = 1, .check_finite = true);
 *     tow_model_summary_text(summary, &TOW_SUMMARY_TEXT_OPTIONS(.depth = 2), text, sizeof text);
 *
 * So a later library takes options that an earlier program did not know for zero, and an earlier library takes a struct
 * of later headers if what it does not know is zero. Else, and for size 0, it is TOW_INVALID_ARGUMENT with the names
 * of struct and macro. In C++ every such struct has its size from the beginning, and TOW_TRAIN_OPTIONS() is
 * tow_train_options{}; options are assigned, or given by name from C++20 on. Layers and gradient transforms have their
 * size behind their class, where their macros set it. Structs in other structs have none; see docs/versions.md. */
#ifndef __cplusplus
#define TOW__OPTIONS(type, ...) (TOW__LEAVES_OUT(type){.size = sizeof(type), __VA_ARGS__} TOW__LEAVES_OUT_NO_MORE)
#define TOW__SIZE(type)
#else
#define TOW__OPTIONS(type, ...) (type{__VA_ARGS__})
#define TOW__SIZE(type)         = sizeof(type)
#endif

/* Members that are left out in braces are zero. Compilers that warn of it (-Wextra) are told that it is meant. */
#ifdef __cplusplus
#define TOW__ZERO = {}
#else
#define TOW__ZERO
#endif
#ifdef __clang__
#define TOW__LEAVES_OUT                                                                                                \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wmissing-field-initializers\"")
#define TOW__LEAVES_OUT_NO_MORE _Pragma("clang diagnostic pop")
#else
#define TOW__LEAVES_OUT
#define TOW__LEAVES_OUT_NO_MORE
#endif

/* ---- status --------------------------------------------------------------------------------------------------- */

/* X(symbol, text): every way in which a call can fail. */
#define TOW_STATUS_LIST(X)                                                                                             \
    X(TOW_OK, "ok")                                                                                                    \
    X(TOW_INVALID_ARGUMENT, "invalid argument")                                                                        \
    X(TOW_SHAPE_MISMATCH, "shape mismatch")                                                                            \
    X(TOW_TYPE_MISMATCH, "type mismatch")                                                                              \
    X(TOW_NOT_FOUND, "not found")                                                                                      \
    X(TOW_OUT_OF_MEMORY, "out of memory")                                                                              \
    X(TOW_IO_ERROR, "input/output error")                                                                              \
    X(TOW_BAD_FORMAT, "malformed input")                                                                               \
    X(TOW_UNSUPPORTED, "not supported")                                                                                \
    X(TOW_INTERRUPTED, "interrupted")                                                                                  \
    X(TOW_INTERNAL_ERROR, "internal error")                                                                            \
    X(TOW_CHECK_FAILED, "a check failed")                                                                              \
    X(TOW_CANCELLED, "cancelled")

typedef enum tow_status {
#define X(symbol, text) symbol,
    TOW_STATUS_LIST(X)
#undef X
} tow_status;

/* A function that returns a status, records in a trace or is called with a scope refuses NULL where it needs a pointer:
 * TOW_INVALID_ARGUMENT, with a message if one of its arguments leads to a context. Functions that only ask an object
 * (tow_graph_input_count, tow_array_data) need the object. */

/* The text of a status, for instance "shape mismatch". Never NULL. */
TOW_API const char *tow_status_text(tow_status status);

/* ---- context -------------------------------------------------------------------------------------------------- */

/* A context says where memory comes from and how many threads run, and it holds the text of the last error. There are
 * no globals: two contexts are independent, one context belongs to one thread at a time, and so does what is made from
 * it. Arrays alone may be used by several: see tow_array, and tow_params_share for lists of them. (Contexts of one
 * thread may use each other's graphs and lists, too.)
 *
 * Results do not depend on the floating-point environment of the calling thread (rounding, exception traps, flushing of
 * subnormal numbers): Tow computes in its own and leaves the caller's as it was, flags included. */
typedef struct tow_context tow_context;

/* Replaces malloc and free. `resize` is realloc with the old size given; size 0 frees and returns NULL; `pointer` NULL
 * allocates. Memory must be aligned to 64 bytes if `old_size` and `size` are both multiples of 64, else to 16.
 * Called by the thread that uses the context, and by any thread that drops the last reference to an array of it: where
 * threads share arrays (tow_params_share), the allocator must be safe for threads, as the C library's is. */
typedef struct tow_allocator {
    void *(*resize)(void *pointer, size_t old_size, size_t size, void *user);
    void *user;
} tow_allocator;

typedef struct tow_context_options {
    size_t size TOW__SIZE(tow_context_options); /* set by TOW_CONTEXT_OPTIONS */
    tow_allocator allocator;                    /* zero: the C library */
    int threads; /* threads that run programs, at most; 0: as many as the affinity mask allows */
    /* The engine that computes the matrix products that it can: "amx" (the matrix unit of some x86-64 processors: bf16,
     * f32 as sums of three bf16; docs/techniques.md), "avx512_bf16" (vectors of stored bf16), "own", "blis", "xsmm"
     * (libxsmm) or "reference"; others are computed as if it were not set. Or the engines that must not compute them,
     * as names behind minus signs, for instance "-amx" or "-blis,-xsmm" (but not "-reference"). blis and xsmm have the
     * bits of own: xsmm computes the products for which a trial proves that. NULL: the environment variable
     * TOW_ENGINE, else the best one for each product. */
    const char *engine;
    /* Products only by engines that give the same bits on all machines, so that a seed gives the same losses
     * everywhere: without the matrix unit. Functions of f64 that the C library computes (exp, log, tanh and the like)
     * have the bits of that library. Signs and payloads of NaNs are not promised, only where NaNs are. */
    bool portable_bits;
    /* Gradients made in the context, also those of layers and of functions of one's own (vmap of them, Jacobians, parts
     * of larger programs), compare what they make again with what they keep, as .verify of tow_compile_options says. */
    bool verify;
    /* An existing folder in which programs keep states of loops that have .file_slots (tow/autodiff.h), in files that
     * have no names and vanish with the program. NULL: the environment variable TMPDIR, else /var/tmp. */
    const char *scratch_folder;
} tow_context_options;
#define TOW_CONTEXT_OPTIONS(...) TOW__OPTIONS(tow_context_options, __VA_ARGS__)

/* Makes a context. `options` may be NULL. On Linux with AMX it asks the system to let this process use the matrix unit;
 * from then on signal stacks (sigaltstack) need about 11 KiB, as getauxval(AT_MINSIGSTKSZ) tells. If the system
 * refuses, products run without it; tow_context_describe says which is the case. Errors: TOW_OUT_OF_MEMORY,
 * TOW_INVALID_ARGUMENT for options (and TOW_ENGINE) that tow_context_options_check refuses. Then *context is a context
 * that only holds the message, for tow_context_error, and is to be destroyed like any other. It is NULL if memory for
 * it was missing, of which tow_context_error(NULL) tells:
 *
 *     if (tow_context_create(&options, &context) != TOW_OK) fprintf(stderr, "%s\n", tow_context_error(context));
 *     tow_context_free(context);
 *
 * Stacks of 128 KiB are enough for all threads that call functions of Tow, if it was compiled with optimization. */
TOW_API tow_status tow_context_create(const tow_context_options *options, tow_context **context);
/* Why tow_context_create refuses these options (and TOW_ENGINE): what was expected and what was found; "" if it accepts
 * them. Written like snprintf: returns the length that the whole text needs. */
TOW_API size_t tow_context_options_check(const tow_context_options *options, char *text, size_t size);
/* Frees a context. Everything made from it must be freed before, but arrays and graphs, and lists of other contexts
 * that hold its arrays: these stay as they are, and what memory of the context they need, the allocator included, is in
 * use until the last of them is released. NULL is accepted. */
TOW_API void tow_context_free(tow_context *context);
/* The message of the last failed call: what was expected, what was found, what to do. "" if none failed. NULL is
 * accepted, and stands for a context for which there was no memory. */
TOW_API const char *tow_context_error(const tow_context *context);
/* Status of the last failed call since tow_context_clear_error; TOW_OK if none. */
TOW_API tow_status tow_context_status(const tow_context *context);
/* Forgets the last failure: status TOW_OK, message "". */
TOW_API void tow_context_clear_error(tow_context *context);
/* Number of threads that programs of this context run on: no more than the affinity mask allows now. */
TOW_API int tow_context_thread_count(const tow_context *context);
/* Cancels what programs of this context compute now and from now on, until tow_context_cancel_reset: from any thread,
 * or from a signal handler (it is async-signal-safe). A program that runs (tow_program_run, a training step, an
 * evaluation) ends within 10 milliseconds with TOW_CANCELLED; one that begins ends at once. Its outputs hold anything
 * then, and its inputs are as before, donated ones among them: a program that has begun to overwrite donated inputs is
 * not cancelled any more and goes to its end, with TOW_OK. So a training step is done or it has changed nothing; it
 * goes to its end once the first parameter is updated, which may be in the midst of the
 * backward pass. Functions of the caller's own that a program calls (tow/primitive.h, tow/kernel.h) are waited for;
 * long ones can ask tow_context_is_cancelled. Cancelling costs programs nothing that can be measured. (Sorting and
 * scatters look between pieces of about a million elements; libxsmm, where it is chosen by name, only between
 * products.) NULL is accepted. */
TOW_API void tow_context_cancel(tow_context *context);
/* Programs run again. Only while none runs can the caller know what that means for it. */
TOW_API void tow_context_cancel_reset(tow_context *context);
/* Would a program end now: is the context cancelled, or the request at hand, or has that one's deadline passed? */
TOW_API bool tow_context_is_cancelled(const tow_context *context);
/* A request: all that the programs of a context compute for one question, for which a server has so much time. It
 * begins and ends on the context's thread; the next one ends it, too. Its number is never given out again by this
 * context, and never 0. While it lasts, its programs end within 10 milliseconds, as tow_context_cancel says and with
 * the same promises about state, once somebody has cancelled it or its deadline has passed, and programs that begin
 * then end at once. Afterwards nothing of it is left: whoever cancels a request that has ended, as a watchdog may that
 * comes late, cancels nothing.
 *
 *     tow_request request = tow_request_begin(context, 0.2);
 *     status = tow_model_function_call(function, &arguments, &results);      TOW_CANCELLED after 200 milliseconds
 *     tow_request_end(context);
 *
 * seconds: from now until the deadline; INFINITY: none; 0, less and NaN: it has passed. A deadline needs no second
 * thread: programs look at the clock (CLOCK_MONOTONIC) where they look whether somebody cancelled them, which costs
 * some tens of nanoseconds for each call of a kernel or block of work. A context of NULL is accepted: request 0. */
typedef uint64_t tow_request;
TOW_API tow_request tow_request_begin(tow_context *context, double seconds);
TOW_API void tow_request_end(tow_context *context);
/* Cancels the request if it is the one at hand, else does nothing: from any thread or signal handler, as
 * tow_context_cancel. NULL is accepted. */
TOW_API void tow_request_cancel(tow_context *context, tow_request request);
/* Describes CPU, threads, the engines of products by their size, and what is known and measured of the machine, in a
 * few lines of text, written like snprintf: returns the length that the whole text needs. */
TOW_API size_t tow_context_describe(const tow_context *context, char *text, size_t size);

/* ---- types ---------------------------------------------------------------------------------------------------- */

/* X(symbol, name in textual form, bytes per element). bf16 and f16 are floats of 16 bits: bf16 has the exponents of f32
 * and 8 bits of precision, f16 is binary16 of IEEE 754, with 11 bits. Operations on them compute in f32 and round their
 * results once, to nearest with ties to even; elements in memory are uint16_t (tow_array_convert makes them from
 * others). */
#define TOW_DTYPE_LIST(X)                                                                                              \
    X(TOW_F32, "f32", 4)                                                                                               \
    X(TOW_F64, "f64", 8)                                                                                               \
    X(TOW_I32, "i32", 4)                                                                                               \
    X(TOW_U32, "u32", 4)                                                                                               \
    X(TOW_BOOL, "bool", 1)                                                                                             \
    X(TOW_BF16, "bf16", 2)                                                                                             \
    X(TOW_F16, "f16", 2)                                                                                               \
    X(TOW_I8, "i8", 1)                                                                                                 \
    X(TOW_U8, "u8", 1)                                                                                                 \
    X(TOW_I64, "i64", 8)                                                                                               \
    X(TOW_U64, "u64", 8)

/* Elements that hold several numbers: blocks of 32 or 256 neighboring numbers along the last axis, in few bits each,
 * with scales d and m of f16, byte for byte as in GGUF files. So f32[768,3072] is q8_0[768,96], or q4_k[768,12].
 *     q8_0: 34 bytes of 32 numbers; d, then bytes q[32] of i8; number j is d q[j]
 *     q4_0: 18 bytes of 32 numbers; d, then 16 bytes with q[j] in their lower and q[16 + j] in their upper four bits;
 *           number j is d (q[j] - 8)
 *     q4_k: 144 bytes of 256 numbers, 8 groups of 32; d, m, 12 bytes with a scale s and a minimum t of 6 bits for each
 *           group, 128 bytes with q of 4 bits; number j of group g is d s[g] q[32 g + j] - m t[g]
 *     q6_k: 210 bytes of 256 numbers, 16 groups of 16; 128 and 64 bytes with the lower four and the upper two bits of
 *           q, scales s[16] of i8, d; number j of group g is d s[g] (q[16 g + j] - 32)
 * They are types of weights, which are made once and read often. Moving and choosing elements (reshape, slice, gather,
 * scan and the other control flow) work as for all types; of the operations that compute, tow_dequantize and
 * tow_quantized_dot alone take them, all others refuse them. There are no derivatives with respect to them.
 * tow_array_convert and tow_quantize make them of floats. */
#define TOW_BLOCK_DTYPE_LIST(X)                                                                                        \
    X(TOW_Q8_0, "q8_0", 34)                                                                                            \
    X(TOW_Q4_0, "q4_0", 18)                                                                                            \
    X(TOW_Q4_K, "q4_k", 144)                                                                                           \
    X(TOW_Q6_K, "q6_k", 210)

enum tow__dtype_order {
#define X(symbol, name, size) tow__order_##symbol,
    TOW_DTYPE_LIST(X)
#undef X
    tow__order_blocks = 22, /* what comes after has numbers of its own, whatever is added above */
#define X(symbol, name, size) tow__order_##symbol,
    TOW_BLOCK_DTYPE_LIST(X)
#undef X
};

/* Numbers from 1 on: 0 is no element type, and stands for the default where there is one. */
typedef enum tow_dtype {
#define X(symbol, name, size) symbol = tow__order_##symbol + 1,
    TOW_DTYPE_LIST(X) TOW_BLOCK_DTYPE_LIST(X)
#undef X
} tow_dtype;

enum {
#define X(symbol, name, size) +1
    TOW_DTYPE_END = 1 TOW_DTYPE_LIST(X), /* one more than the last type of single numbers */
#undef X
    TOW_MAX_RANK = 8
};

/* "f32"; "?" for what is no dtype. */
TOW_API const char *tow_dtype_name(tow_dtype dtype);
/* Bytes of one element; 0 for what is no dtype. */
TOW_API size_t tow_dtype_size(tow_dtype dtype);
/* Numbers in one element: 32 for q8_0 and q4_0, 256 for q4_k and q6_k, 1 for all other types, 0 for what is none. */
TOW_API int tow_dtype_numbers(tow_dtype dtype);
/* True for f32, f64, bf16 and f16. */
TOW_API bool tow_dtype_is_float(tow_dtype dtype);
/* True for i32, u32, i8, u8, i64 and u64. */
TOW_API bool tow_dtype_is_integer(tow_dtype dtype);

/* Element type and static shape. rank 0 is a scalar; dims beyond rank are 0. */
typedef struct tow_type {
    tow_dtype dtype;
    int32_t rank;
    int64_t dims[TOW_MAX_RANK];
} tow_type;

/* tow_make_type(TOW_F32, 2, (int64_t[]){3, 4}) is f32[3,4]. Without dims that it needs: of rank -1, which is refused
 * wherever it is used. */
TOW_API tow_type tow_make_type(tow_dtype dtype, int rank, const int64_t *dims);
/* Same dtype, rank and dimensions. */
TOW_API bool tow_type_equal(tow_type a, tow_type b);
/* Number of elements (1 for a scalar), which may be blocks of numbers, and bytes. */
TOW_API int64_t tow_type_element_count(tow_type type);
TOW_API size_t tow_type_bytes(tow_type type);
/* Writes "f32[3,4]" like snprintf. */
TOW_API size_t tow_type_text(tow_type type, char *text, size_t size);

/* ---- concrete arrays -------------------------------------------------------------------------------------------- */

/* A concrete array: row-major, 64-byte-aligned data. Reference counted; views share storage.
 *
 * Functions that take arrays take those of any context: lists, programs, training states, loaders. Any thread may
 * retain and release an array and read its type and data, whatever context it is of. A function that makes a new array
 * from one, such as tow_array_row, makes it in the array's context, with whose thread it must not run at once;
 * tow_array_share makes it an array of one's own context first. Writing is the callers' business: nobody else may read
 * or write at that time. */
typedef struct tow_array tow_array;

/* A new array, filled with zeros. Errors: TOW_OUT_OF_MEMORY, TOW_INVALID_ARGUMENT (bad rank, negative dimension, size
 * overflow). */
TOW_API tow_status tow_array_create(tow_context *context, tow_type type, tow_array **array);
/* A new array with a copy of `data` (tow_type_bytes(type) bytes). */
TOW_API tow_status tow_array_from_data(tow_context *context, tow_type type, const void *data, tow_array **array);
/* An array over the caller's memory, which must outlive it; `data` is not copied or freed.
 * Aligned as its elements at least. Error: TOW_INVALID_ARGUMENT without memory. */
TOW_API tow_status tow_array_borrow(tow_context *context, tow_type type, void *data, tow_array **array);
/* Row `index` of axis 0 as a view that shares storage: type [d1, d2, ...]. Error: TOW_INVALID_ARGUMENT out of range. */
TOW_API tow_status tow_array_row(tow_array *array, int64_t index, tow_array **row);
/* An array of `context` that shares the storage of `array`, which may be of another context and of a thread that is at
 * work with it now, and keeps it alive. Errors: TOW_OUT_OF_MEMORY. tow_params_share does so for a whole list. */
TOW_API tow_status tow_array_share(tow_context *context, tow_array *array, tow_array **shared);
/* A new array with the elements of `array` as `dtype`, which are those that the operation convert gives: floats are
 * rounded once, to nearest with ties to even; from a float to an integer toward zero, what is beyond the range becomes
 * its end and NaN 0; integers wrap; a bool is what is not 0. Makes arrays of bf16 from floats, and back:
 *
 *     tow_array_from_data(context, tow_make_type(TOW_F32, 1, &n), numbers, &wide);
 *     tow_array_convert(wide, TOW_BF16, &array);
 *
 * Blocks (TOW_BLOCK_DTYPE_LIST) are made of numbers along the last axis: f32[8,64] becomes q8_0[8,2], and back. q8_0
 * and q4_0 have the bytes that the gguf package of llama.cpp makes of f32: the scale of q8_0 is the largest magnitude /
 * 127, that of q4_0 the number of largest magnitude / -8, and numbers are multiplied with 1 / scale and rounded, halves
 * away from zero; the scale is rounded to f16 afterwards. q4_k and q6_k span the range of each group evenly, while
 * llama.cpp's quantize searches for scales of a smaller error. A block with an infinity or NaN has the scale NaN.
 *
 * Errors: TOW_OUT_OF_MEMORY, TOW_INVALID_ARGUMENT for what is no dtype, TOW_SHAPE_MISMATCH for a last axis that is no
 * multiple of the numbers in a block. */
TOW_API tow_status tow_array_convert(const tow_array *array, tow_dtype dtype, tow_array **converted);
/* One reference more; returns `array`. NULL is accepted. */
TOW_API tow_array *tow_array_retain(tow_array *array);
/* Drops a reference. NULL is accepted. */
TOW_API void tow_array_release(tow_array *array);
TOW_API tow_type tow_array_type(const tow_array *array);
/* Its elements, row-major, tow_type_bytes(type) bytes, for reading and writing; valid as long as the array. */
TOW_API void *tow_array_data(const tow_array *array);
/* One line per row, numpy-like, long axes shortened; written like snprintf. */
TOW_API size_t tow_array_text(const tow_array *array, char *text, size_t size);

/* ---- version ----------------------------------------------------------------------------------------------------- */

/* The version of these headers, and of the library that a program runs with. docs/versions.md says what may change from
 * one version to the next. */

/* The build takes the project's version from these numbers. */
#define TOW_VERSION_MAJOR 0
#define TOW_VERSION_MINOR 1
#define TOW_VERSION_PATCH 0

/* "0.1.0" */
#define TOW_VERSION                                                                                                    \
    TOW__VERSION_TEXT(TOW_VERSION_MAJOR)                                                                               \
    "." TOW__VERSION_TEXT(TOW_VERSION_MINOR) "." TOW__VERSION_TEXT(TOW_VERSION_PATCH)
#define TOW__VERSION_TEXT(number)  TOW__VERSION_TEXT2(number)
#define TOW__VERSION_TEXT2(number) #number

/* The version of the library, for instance "0.1.0". A shared library may be newer than the headers. */
TOW_API const char *tow_version(void);

#ifdef __cplusplus
}
#endif
#endif
