/* Sets of tensors that processes write together, as a function of a version. A test program includes it once, after
 * cmocka. */
#ifndef TOW_TESTS_SHARED_SETS_H
#define TOW_TESTS_SHARED_SETS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tow/io.h"

enum {
    N_TENSORS = 36 /* more than pass along the chain at once */
};

static inline tow_type type_of(int index)
{
    static const tow_dtype dtypes[] = {TOW_F32, TOW_BF16, TOW_I8, TOW_F64, TOW_U32, TOW_BOOL};
    static const int64_t sizes[] = {1000, 17, 0, 1, 333, 64, 5};
    const tow_dtype dtype = dtypes[index % 6];
    if (index % 7 == 3) return tow_make_type(dtype, 0, NULL);
    return tow_make_type(dtype, 2, (int64_t[]){3, sizes[index % 7]});
}

/* Byte i of a tensor; those of booleans are 0 and 1. */
static inline unsigned char byte_of(int index, size_t i, int version)
{
    const unsigned x = (unsigned)i * 2654435761U + (unsigned)(index * 97 + version * 31);
    return (unsigned char)(type_of(index).dtype == TOW_BOOL ? (x >> 9) & 1 : (x >> 11) & 0x7f);
}

/* Every other tensor is a share, the rest whole arrays. */
static inline tow_status make_set(tow_context *ctx, const tow_group *group, int version, tow_tensors **tensors)
{
    char name[32], text[32];
    tow_status status = tow_tensors_create(ctx, tensors);
    snprintf(text, sizeof text, "%d", version);
    if (!status) status = tow_tensors_set_metadata(*tensors, "step", text);
    for (int k = 0; k < N_TENSORS && !status; k++) {
        const tow_type type = type_of(k);
        const size_t size = tow_dtype_size(type.dtype);
        int64_t first = 0, n = tow_type_element_count(type);
        tow_array *array = NULL;
        snprintf(name, sizeof name, "layer %d/kernel", k);
        if (k % 2) status = tow_group_share(tow_group_rank(group), tow_group_count(group), n, &first, &n);
        if (!status) status = tow_array_create(ctx, k % 2 ? tow_make_type(type.dtype, 1, &n) : type, &array);
        for (size_t i = 0; !status && i < (size_t)n * size; i++)
            ((unsigned char *)tow_array_data(array))[i] = byte_of(k, (size_t)first * size + i, version);
        if (!status)
            status = k % 2 ? tow_tensors_add_share(*tensors, name, type, group, array)
                           : tow_tensors_add(*tensors, name, array);
        tow_array_release(array);
    }
    return status;
}

static inline tow_status write_version(tow_context *ctx, tow_group *group, const char *path, int version)
{
    tow_tensors *tensors = NULL;
    tow_status status = make_set(ctx, group, version, &tensors);
    if (!status) status = tow_safetensors_write_all(group, path, tensors);
    tow_tensors_free(tensors);
    return status;
}

/* The version that a file has, which must be whole: names, types, checksums and bytes. -1: it is damaged. */
static inline int version_of(tow_context *ctx, const char *path)
{
    tow_tensors *tensors = NULL;
    if (tow_safetensors_read(ctx, path, &tensors) != TOW_OK) return -1;
    const char *text = tow_tensors_metadata(tensors, "step");
    int version = text ? atoi(text) : -1;
    if (tow_tensors_count(tensors) != N_TENSORS) version = -1;
    for (int k = 0; k < N_TENSORS && version >= 0; k++) {
        char name[32];
        snprintf(name, sizeof name, "layer %d/kernel", k);
        const tow_array *array = tow_tensors_find(tensors, name);
        if (!array || !tow_type_equal(tow_array_type(array), type_of(k))) version = -1;
        for (size_t i = 0; version >= 0 && i < tow_type_bytes(type_of(k)); i++)
            if (((unsigned char *)tow_array_data((tow_array *)(uintptr_t)array))[i] != byte_of(k, i, version))
                version = -1;
    }
    tow_tensors_free(tensors);
    return version;
}

#endif
