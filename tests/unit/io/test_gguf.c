/* GGUF: round trips, files damaged at every byte, hostile headers, the memory that these take, failing allocations and
 * system calls. Hyperparameters are read in test_gguf_model.c, files of llama.cpp's package gguf in test_gguf_golden.c.
 * Tests gguf_read.c, gguf_write.c, metadata.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/io_files.h"
#include "tow/gguf.h"

enum {
    U32 = 4,
    F32 = 6,
    BOOL = 7,
    STRING = 8,
    ARRAY = 9
};

/* ---- headers byte by byte ---------------------------------------------------------------------------------------- */

typedef struct image {
    unsigned char bytes[1 << 16];
    size_t size;
} image;

static void put(image *m, int size, uint64_t value)
{
    for (int i = 0; i < size; i++, value >>= 8) m->bytes[m->size++] = (unsigned char)value;
}

static void put_text(image *m, const char *text)
{
    put(m, 8, strlen(text));
    memcpy(m->bytes + m->size, text, strlen(text));
    m->size += strlen(text);
}

static void begin(image *m, uint64_t n_tensors, uint64_t n_entries)
{
    m->size = 0;
    put(m, 4, 0x46554747);
    put(m, 4, 3);
    put(m, 8, n_tensors);
    put(m, 8, n_entries);
}

static void put_tensor(image *m, const char *name, int rank, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    put_text(m, name);
    put(m, 4, (uint64_t)rank);
    for (int i = 0; i < rank; i++) put(m, 8, dims[i]);
    put(m, 4, type);
    put(m, 8, offset);
}

static void pad(image *m, size_t alignment)
{
    while (m->size % alignment != 0) m->bytes[m->size++] = 0;
}

static void refused(const fixture *f, const image *m, tow_status status, const char *message)
{
    tow_tensors *tensors;
    write_bytes(f->path, m->bytes, m->size);
    for (int mapped = 0; mapped < 2; mapped++) {
        tow_context_clear_error(f->ctx);
        const tow_status found = (mapped ? tow_gguf_mmap : tow_gguf_read)(f->ctx, f->path, &tensors);
        if (found != status)
            fail_msg("expected \"%s\", found status %d: %s", message, found, tow_context_error(f->ctx));
        assert_null(tensors);
        assert_message(f, f->path);
        assert_message(f, message);
    }
}

static void hostile_tensors(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *name;
        int rank;
        uint64_t dims[5];
        uint32_t type;
        uint64_t offset;
        const char *message;
    } cases[] = {
        {"x", 1, {4}, 0, 32, "x: expected its data at byte 0, found 32"},
        {"x", 1, {4}, 0, 1, "x: expected its data at byte 0, found 1"},
        {"x", 1, {9}, 0, 0, "its 36 bytes at byte 0 do not lie within the 32 bytes of data"},
        {"x", 1, {UINT64_MAX}, 0, 0, "expected axes < 2^63"},
        {"x", 2, {INT64_MAX, 4}, 0, 0, "more bytes than can be addressed"},
        {"x", 3, {INT64_MAX, INT64_MAX, INT64_MAX}, 1, 0, "more bytes than can be addressed"},
        {"x", 4, {1 << 30, 1 << 30, 1 << 30, 1 << 30}, 2, 0, "more bytes than can be addressed"},
        {"x", 5, {1, 1, 1, 1, 1}, 0, 0, "expected at most 4 axes, found 5"},
        {"x", 1, {4}, 4, 0, "expected a type of tensors, found the number 4"},
        {"x", 1, {4}, 4000000000, 0, "expected a type of tensors, found the number 4000000000"},
        {"x", 1, {33}, 8, 0, "expected rows of a multiple of 32 elements, as Q8_0 has them, found 33"},
        {"x", 2, {16, 2}, 2, 0, "expected rows of a multiple of 32 elements, as Q4_0 has them, found 16"},
        {"x", 1, {255}, 12, 0, "expected rows of a multiple of 256 elements, as Q4_K has them, found 255"},
        {"\xff", 1, {4}, 0, 0, "expected the name of a tensor in UTF-8"},
    };
    static image m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&m, 1, 0);
        put_tensor(&m, cases[i].name, cases[i].rank, cases[i].dims, cases[i].type, cases[i].offset);
        pad(&m, 32);
        m.size += 32;
        refused(f, &m, TOW_BAD_FORMAT, cases[i].message);
    }
    begin(&m, 2, 0);
    put_tensor(&m, "x", 1, (uint64_t[]){4}, 0, 0);
    put_tensor(&m, "x", 1, (uint64_t[]){4}, 0, 32);
    pad(&m, 32);
    m.size += 64;
    refused(f, &m, TOW_BAD_FORMAT, "x: duplicate name");
    begin(&m, 2, 0);
    put_tensor(&m, "x", 1, (uint64_t[]){4}, 0, 0);
    put_tensor(&m, "y", 1, (uint64_t[]){4}, 0, 0);
    pad(&m, 32);
    m.size += 64;
    refused(f, &m, TOW_BAD_FORMAT, "y: expected its data at byte 32, found 0; data overlap");
}

static void put_key(image *m, const char *key, uint32_t type)
{
    put_text(m, key);
    put(m, 4, type);
}

static void hostile_metadata(void **state)
{
    fixture *f = *state;
    static image m;
#define REFUSED(message, ...)                                                                                          \
    do {                                                                                                               \
        begin(&m, 0, 1);                                                                                               \
        __VA_ARGS__;                                                                                                   \
        refused(f, &m, TOW_BAD_FORMAT, message);                                                                       \
    } while (0)
    REFUSED("the header claims 9223372036854775807 bytes of a string", put(&m, 8, INT64_MAX), put(&m, 8, 0));
    REFUSED("the header claims 18446744073709551615 bytes of a string", put(&m, 8, UINT64_MAX), put(&m, 8, 0));
    REFUSED("a: expected a type of metadata, 0 to 12, found 13", put_key(&m, "a", 13), put(&m, 8, 0));
    REFUSED("a: expected a bool of 0 or 1, found 2", put_key(&m, "a", BOOL), put(&m, 1, 2));
    REFUSED("a: the header claims 99 elements of an array", put_key(&m, "a", ARRAY), put(&m, 4, U32), put(&m, 8, 99),
            put(&m, 8, 0));
    REFUSED("a: the header claims 4611686018427387904 elements", put_key(&m, "a", ARRAY), put(&m, 4, U32),
            put(&m, 8, UINT64_C(1) << 62), put(&m, 8, 0));
    REFUSED("a: expected a type of metadata", put_key(&m, "a", ARRAY), put(&m, 4, 77), put(&m, 8, 1), put(&m, 8, 0));
    REFUSED("a: the header claims 7 bytes of a string, but only 6", put_key(&m, "a", STRING), put(&m, 8, 7),
            put(&m, 6, 0));
    REFUSED("a: expected bools of 0 or 1, found 3 as element 1", put_key(&m, "a", ARRAY), put(&m, 4, BOOL),
            put(&m, 8, 2), put(&m, 2, 0x301));
    REFUSED("a: expected arrays in arrays of at most 8 levels", put_key(&m, "a", ARRAY);
            for (int i = 0; i < 9; i++) put(&m, 4, ARRAY), put(&m, 8, 1); put(&m, 8, 0));
    REFUSED("expected a key of metadata in UTF-8", put_key(&m, "\xc3", U32), put(&m, 4, 0));
    REFUSED("general.alignment: expected a power of two", put_key(&m, "general.alignment", U32), put(&m, 4, 24));
    REFUSED("general.alignment: expected a power of two", put_key(&m, "general.alignment", U32), put(&m, 4, 0));
    REFUSED("general.alignment: expected a power of two", put_key(&m, "general.alignment", U32),
            put(&m, 4, UINT64_C(1) << 31));
    REFUSED("general.alignment: expected a power of two", put_key(&m, "general.alignment", STRING), put(&m, 8, 0));
#undef REFUSED
    begin(&m, 0, 2);
    for (int i = 0; i < 2; i++) put_key(&m, "a", U32), put(&m, 4, 0);
    refused(f, &m, TOW_BAD_FORMAT, "a: duplicate metadata");
    begin(&m, 0, 5000);
    m.size += 4000;
    refused(f, &m, TOW_BAD_FORMAT, "expected at most 4096 entries of metadata, found 5000");
    begin(&m, UINT64_MAX, 0);
    refused(f, &m, TOW_BAD_FORMAT, "the header claims 18446744073709551615 tensors");
    begin(&m, 1000, 0);
    refused(f, &m, TOW_BAD_FORMAT, "the header claims 1000 tensors, but only 0 bytes are left");
}

static void other_versions(void **state)
{
    fixture *f = *state;
    static image m;
    begin(&m, 0, 0);
    m.bytes[4] = 1;
    refused(f, &m, TOW_UNSUPPORTED, "expected version 2 or 3 of GGUF, found 1; convert the model anew");
    m.bytes[4] = 4;
    refused(f, &m, TOW_UNSUPPORTED, "found 4");
    memcpy(m.bytes + 4, "\0\0\0\3", 4);
    refused(f, &m, TOW_UNSUPPORTED, "the highest byte first");
    memcpy(m.bytes, "ggml", 4);
    refused(f, &m, TOW_BAD_FORMAT, "expected a GGUF file, found other first bytes");
    memcpy(m.bytes, "\x93NUMPY\1\0", 8);
    refused(f, &m, TOW_BAD_FORMAT, "found a .npy file, which tow_npy_read reads");
    m.size = 0;
    refused(f, &m, TOW_BAD_FORMAT, "expected 4 more bytes of the header at byte 0, found 0");
    tow_tensors *tensors;
    begin(&m, 0, 0);
    m.bytes[4] = 2;
    write_bytes(f->path, m.bytes, m.size);
    assert_int_equal(tow_gguf_read(f->ctx, f->path, &tensors), TOW_OK);
    tow_tensors_free(tensors);
}

/* Arrays in arrays, an alignment of 64, axes from the last to the first, padding behind the last tensor left out. */
static void rare_files(void **state)
{
    fixture *f = *state;
    static image m;
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    tow_tensors *t;
    begin(&m, 1, 2);
    put_key(&m, "general.alignment", U32);
    put(&m, 4, 64);
    put_key(&m, "a", ARRAY);
    put(&m, 4, ARRAY), put(&m, 8, 2);
    put(&m, 4, U32), put(&m, 8, 1), put(&m, 4, 7);
    put(&m, 4, STRING), put(&m, 8, 1), put_text(&m, "z");
    put_tensor(&m, "x", 2, (uint64_t[]){3, 2}, 0, 0);
    pad(&m, 64);
    memcpy(m.bytes + m.size, x, sizeof x);
    m.size += sizeof x;
    write_bytes(f->path, m.bytes, m.size);
    for (int round = 0; round < 2; round++) {
        if (tow_gguf_mmap(f->ctx, f->path, &t) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_array(tow_tensors_find(t, "x"), tow_make_type(TOW_F32, 2, (int64_t[]){2, 3}), x);
        const tow_metadata_value outer = tow_tensors_metadata_value(t, "a"), *inner = outer.elements;
        assert_int_equal(outer.count, 2);
        assert_int_equal(((const uint32_t *)inner[0].elements)[0], 7);
        assert_string_equal(((const char *const *)inner[1].elements)[0], "z");
        assert_int_equal(tow_gguf_write(f->path, t, NULL), TOW_OK);
        unsigned char back[512];
        assert_int_equal(read_bytes(f->path, back, sizeof back), (m.size + 63) / 64 * 64);
        assert_memory_equal(back, m.bytes, m.size);
        tow_tensors_free(t);
    }
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

/* Arrays of the types that GGUF has, with metadata. */
static tow_tensors *make_set(const fixture *f)
{
    tow_tensors *all = sample(f), *t;
    static const char *const left_out[] = {"b", "empty", "u8", "u64"};
    static float rows[2][64];
    static const char *const tokens[] = {"<s>", "a"};
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    for (size_t i = 0; i < tow_tensors_count(all); i++) {
        bool out = false;
        for (size_t k = 0; k < 4; k++) out |= strcmp(tow_tensors_name(all, i), left_out[k]) == 0;
        if (!out) assert_int_equal(tow_tensors_add(t, tow_tensors_name(all, i), tow_tensors_at(all, i)), TOW_OK);
    }
    for (int i = 0; i < 128; i++) rows[i / 64][i % 64] = (float)(i % 16 - 8);
    tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (int64_t[]){2, 64}), rows);
    assert_int_equal(tow_tensors_add(t, "rows", array), TOW_OK);
    tow_array_release(array);
    assert_int_equal(tow_tensors_set_metadata(t, "general.architecture", "llama"), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "n", integer(TOW_METADATA_I16, -7)), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "tokens",
                                                    (tow_metadata_value){.type = TOW_METADATA_ARRAY,
                                                                         .element = TOW_METADATA_STRING,
                                                                         .count = 2,
                                                                         .elements = tokens}),
                     TOW_OK);
    tow_tensors_free(all);
    return t;
}

static void assert_set(const fixture *f, const tow_tensors *back)
{
    tow_tensors *t = make_set(f);
    assert_int_equal(tow_tensors_count(back), tow_tensors_count(t));
    for (size_t i = 0; i < tow_tensors_count(t); i++) {
        tow_array *array = tow_tensors_at(t, i);
        assert_array(tow_tensors_find(back, tow_tensors_name(t, i)), tow_array_type(array), tow_array_data(array));
    }
    for (size_t i = 0; tow_tensors_metadata_key(t, i); i++)
        assert_string_equal(tow_tensors_metadata_key(back, i), tow_tensors_metadata_key(t, i));
    assert_string_equal(tow_tensors_metadata(back, "general.architecture"), "llama");
    assert_int_equal(tow_tensors_metadata_value(back, "n").integer, -7);
    tow_tensors_free(t);
}

static void write_set(const fixture *f)
{
    tow_tensors *t = make_set(f);
    if (tow_gguf_write(f->path, t, NULL) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    tow_tensors_free(t);
}

static void round_trip(void **state)
{
    fixture *f = *state;
    tow_tensors *back;
    for (int mapped = 0; mapped < 2; mapped++) {
        write_set(f);
        assert_int_equal((mapped ? tow_gguf_mmap : tow_gguf_read)(f->ctx, f->path, &back), TOW_OK);
        assert_set(f, back);
        tow_tensors_free(back);
    }
}

/* Plain tensors of a mapped file are views of it: they take no memory, and writing to one changes memory alone. */
static void mapped_in_place(void **state)
{
    fixture *f = *state;
    enum {
        N = 1 << 16
    };
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_tensors *t, *again;
    tow_array *array;
    const tow_type type = tow_make_type(TOW_F32, 1, (int64_t[]){N});
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    assert_int_equal(tow_array_create(ctx, type, &array), TOW_OK);
    ((float *)tow_array_data(array))[N - 1] = -8;
    assert_int_equal(tow_tensors_create(ctx, &t), TOW_OK);
    assert_int_equal(tow_tensors_add(t, "x", array), TOW_OK);
    assert_int_equal(tow_gguf_write(f->path, t, NULL), TOW_OK);
    tow_array_release(array);
    tow_tensors_free(t);
    const size_t idle = c.bytes;
    c.peak = idle;
    assert_int_equal(tow_gguf_mmap(ctx, f->path, &t), TOW_OK);
    float *x = tow_array_data(tow_tensors_find(t, "x"));
    assert_true(x[N - 1] == -8);
    assert_true(c.peak - idle < N / 2);
    x[N - 1] = 77;
    assert_int_equal(tow_gguf_read(ctx, f->path, &again), TOW_OK);
    assert_true(((float *)tow_array_data(tow_tensors_find(again, "x")))[N - 1] == -8);
    tow_tensors_free(t);
    tow_tensors_free(again);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
}

static void refused_on_writing(void **state)
{
    fixture *f = *state;
    static const float x[32] = {INFINITY};
    static const struct {
        const char *name;
        tow_dtype dtype;
        int rank;
        tow_gguf_type type;
        tow_status status;
        const char *message;
    } cases[] = {
        {"x", TOW_U32, 1, TOW_GGUF_AS_IT_IS, TOW_UNSUPPORTED, "found u32, which GGUF does not have"},
        {"x", TOW_BOOL, 1, TOW_GGUF_F16, TOW_UNSUPPORTED, "found bool"},
        {"\xff", TOW_F32, 1, TOW_GGUF_F16, TOW_INVALID_ARGUMENT, "UTF-8 of at most 63 bytes"},
        {"0123456789012345678901234567890123456789012345678901234567890123", TOW_F32, 1, TOW_GGUF_F16,
         TOW_INVALID_ARGUMENT, "UTF-8 of at most 63 bytes"},
        {"x", TOW_F32, 5, TOW_GGUF_F16, TOW_INVALID_ARGUMENT, "expected at most 4 axes"},
        {"x", TOW_F32, 2, TOW_GGUF_Q8_0, TOW_INVALID_ARGUMENT, "expected finite numbers"},
        {"x", TOW_F32, 2, TOW_GGUF_Q4_0, TOW_INVALID_ARGUMENT, "elements 0 to 31"},
        {"x", TOW_F32, 2, (tow_gguf_type)99, TOW_INVALID_ARGUMENT, "found 99"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t dims[] = {1, 32, 1, 1, 1}, row[] = {32};
        tow_tensors *t;
        tow_array *array =
            array_of(f, tow_make_type(cases[i].dtype, cases[i].rank, cases[i].rank == 1 ? row : dims), x);
        assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
        assert_int_equal(tow_tensors_add(t, cases[i].name, array), TOW_OK);
        assert_int_equal(tow_gguf_write(f->path, t, &TOW_GGUF_WRITE_OPTIONS(.type = cases[i].type)), cases[i].status);
        assert_message(f, cases[i].message);
        assert_int_equal(access(f->path, F_OK), -1);
        tow_tensors_free(t);
        tow_array_release(array);
    }
}

/* Numbers that were finite stay that; infinities are what they were. */
static void too_large_for_16_bits(void **state)
{
    fixture *f = *state;
    static const struct {
        tow_gguf_type type;
        float large;
        tow_status status;
    } cases[] = {
        {TOW_GGUF_F16, 1e5F, TOW_INVALID_ARGUMENT},
        {TOW_GGUF_F16, 65519.0F, TOW_OK},
        {TOW_GGUF_F16, -INFINITY, TOW_OK},
        {TOW_GGUF_BF16, 1e5F, TOW_OK},
        {TOW_GGUF_BF16, -3.4e38F, TOW_INVALID_ARGUMENT},
        {TOW_GGUF_F32, 1e38F, TOW_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static float x[2 * 2049];
        tow_tensors *t;
        x[4097] = cases[i].large; /* in another piece than the first */
        tow_array *array = array_of(f, tow_make_type(TOW_F32, 2, (const int64_t[]){2, 2049}), x);
        assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
        assert_int_equal(tow_tensors_add(t, "x", array), TOW_OK);
        assert_int_equal(tow_gguf_write(f->path, t, &TOW_GGUF_WRITE_OPTIONS(.type = cases[i].type)), cases[i].status);
        if (cases[i].status != TOW_OK) assert_message(f, "found a larger one at element 4097");
        tow_tensors_free(t);
        tow_array_release(array);
    }
}

static void values_refused(void **state)
{
    fixture *f = *state;
    tow_tensors *t;
    const tow_metadata_value array = {.type = TOW_METADATA_ARRAY, .count = 1};
    assert_int_equal(tow_tensors_create(f->ctx, &t), TOW_OK);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_U8, 256)), TOW_INVALID_ARGUMENT);
    assert_message(f, "'a': expected an integer of 0 to 255, found 256");
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_I8, -129)), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_U32, -1)), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_BOOL, 2)), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_NONE, 2)), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", array), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "tow.xxh3", integer(TOW_METADATA_U8, 1)), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_tensors_set_metadata_value(t, "a", integer(TOW_METADATA_U64, -1)), TOW_OK);
    assert_true(tow_tensors_metadata_value(t, "a").number == 18446744073709551616.0);
    assert_int_equal(tow_tensors_set_metadata(t, "a", "text"), TOW_OK); /* another type under the same key */
    assert_string_equal(tow_tensors_metadata_value(t, "a").text, "text");
    assert_int_equal(tow_tensors_set_metadata_value(t, "b", integer(TOW_METADATA_I8, 1)), TOW_OK);
    assert_int_equal(tow_safetensors_write(f->path, t), TOW_OK); /* which has strings alone */
    tow_tensors_free(t);
    assert_int_equal(tow_safetensors_read(f->ctx, f->path, &t), TOW_OK);
    assert_string_equal(tow_tensors_metadata(t, "a"), "text");
    assert_null(tow_tensors_metadata_key(t, 1));
    tow_tensors_free(t);
}

/* ---- damage and faults ------------------------------------------------------------------------------------------- */

static tow_status read_gguf(tow_context *ctx, const char *path, void **result)
{
    tow_tensors *tensors;
    tow_status status = tow_gguf_read(ctx, path, &tensors);
    *result = tensors;
    tow_tensors_free(tensors);
    return status;
}

static void damaged(void **state)
{
    fixture *f = *state;
    static image m;
    begin(&m, 2, 2);
    put_key(&m, "general.alignment", U32), put(&m, 4, 8);
    put_key(&m, "a", ARRAY), put(&m, 4, STRING), put(&m, 8, 2), put_text(&m, "xy"), put_text(&m, "");
    put_tensor(&m, "p", 2, (uint64_t[]){1, 2}, 0, 0);
    put_tensor(&m, "q", 1, (uint64_t[]){32}, 2, 8);
    pad(&m, 8);
    memset(m.bytes + m.size, 1, 8 + 18);
    m.size += 8 + 18;
    write_bytes(f->path, m.bytes, m.size);
    void *result;
    assert_int_equal(read_gguf(f->ctx, f->path, &result), TOW_OK);
    damage(f, read_gguf, false);
}

/* A header takes at most eight times its bytes, whatever it claims. */
static void headers_take_bounded_memory(void **state)
{
    fixture *f = *state;
    static image m;
    counting c;
    tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    tow_tensors *tensors;
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    for (int kind = 0; kind < 4; kind++) {
        begin(&m, 0, 1);
        if (kind == 3) m.bytes[8] = 0xff, m.bytes[9] = 8, m.bytes[16] = 0; /* tensors without names */
        if (kind < 3) put_key(&m, "a", ARRAY);
        for (int depth = 0; kind == 0 && depth < 8; depth++) put(&m, 4, ARRAY), put(&m, 8, 100); /* claims in claims */
        if (kind == 1) put(&m, 4, ARRAY), put(&m, 8, 5000);
        for (int i = 0; kind == 1 && i < 5000; i++) put(&m, 4, F32), put(&m, 8, 0);
        if (kind == 2) put(&m, 4, STRING), put(&m, 8, 6000);
        if (kind != 1) memset(m.bytes + m.size, 0, 60000 - m.size), m.size = 60000;
        write_bytes(f->path, m.bytes, m.size);
        const size_t idle = c.bytes;
        c.peak = idle;
        const tow_status status = tow_gguf_mmap(ctx, f->path, &tensors);
        assert_int_equal(status, kind == 1 || kind == 2 ? TOW_OK : TOW_BAD_FORMAT);
        if (c.peak - idle > 8 * m.size) fail_msg("%d: a header of %zu bytes takes %zu", kind, m.size, c.peak - idle);
        tow_tensors_free(tensors);
        assert_int_equal(c.bytes, idle);
    }
    tow_context_free(ctx);
}

static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    write_set(f);
    for (long n = 0;; n++) {
        counting c;
        tow_context_options options = counting_options(&c, n);
        tow_context *ctx;
        tow_tensors *tensors = NULL;
        if (tow_context_create(&options, &ctx) != TOW_OK) continue;
        tow_status status = tow_gguf_read(ctx, f->path, &tensors);
        if (status == TOW_OK)
            status = tow_gguf_write(f->path, tensors, &TOW_GGUF_WRITE_OPTIONS(.type = TOW_GGUF_AS_IT_IS));
        tow_tensors_free(tensors);
        assert_true(status == TOW_OK || status == TOW_OUT_OF_MEMORY);
        tow_context_free(ctx);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.wrong_sizes, 0);
        if (status == TOW_OK) break;
    }
}

/* The file is the old one or the new one, whatever fails; half reads and writes go on. */
static void system_calls_fail_in_turn(void **state)
{
    fixture *f = *state;
    tow_tensors *tensors = make_set(f), *back;
    f->ctx->file_calls = &faulty;
    for (long n = 0;; n++) {
        plan_fault(-1, 0);
        write_bytes(f->path, "old", 3);
        plan_fault(n, ENOSPC);
        const tow_status status = tow_gguf_write(f->path, tensors, NULL);
        const bool failed = faults.failed != NULL, renamed = faults.renamed;
        plan_fault(-1, 0);
        unsigned char bytes[4];
        if (!renamed) assert_int_equal(read_bytes(f->path, bytes, 4), 3);
        if (renamed) assert_int_equal(tow_gguf_read(f->ctx, f->path, &back), TOW_OK);
        if (renamed) tow_tensors_free(back);
        assert_true(renamed || status == TOW_IO_ERROR);
        if (!failed) break;
    }
    for (int mapped = 0; mapped < 2; mapped++)
        for (long n = 0;; n++) {
            plan_fault(n, EIO);
            const tow_status status = (mapped ? tow_gguf_mmap : tow_gguf_read)(f->ctx, f->path, &back);
            if (status == TOW_OK) assert_set(f, back);
            if (status != TOW_OK) assert_int_equal(status, TOW_IO_ERROR);
            assert_true((status == TOW_OK) == (back != NULL));
            tow_tensors_free(back);
            if (!faults.failed) break;
        }
    plan_fault(-1, HALF);
    assert_int_equal(tow_gguf_write(f->path, tensors, NULL), TOW_OK);
    assert_int_equal(tow_gguf_read(f->ctx, f->path, &back), TOW_OK);
    assert_set(f, back);
    tow_tensors_free(back);
    f->ctx->file_calls = NULL;
    tow_tensors_free(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hostile_tensors),
        TEST(hostile_metadata),
        TEST(other_versions),
        TEST(rare_files),
        TEST(round_trip),
        TEST(mapped_in_place),
        TEST(refused_on_writing),
        TEST(too_large_for_16_bits),
        TEST(values_refused),
        TEST(damaged),
        TEST(headers_take_bounded_memory),
        TEST(allocations_fail_in_turn),
        TEST(system_calls_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
