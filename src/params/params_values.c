/* Values of whole lists of parameters: copying, functions over their arrays, differences, sums by subtree. */
#include <inttypes.h>
#include <math.h>

#include "src/base/dtypes.h"
#include "src/params/params.h"

tow_status tow_params_copy(const tow_params *params, tow_params **copy)
{
    if (copy) *copy = NULL;
    if (!params || !copy)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters and a place for the copy");
    tow_params *made = NULL;
    tow_status status = tow__params_create(params->ctx, &made);
    for (uint32_t i = 0; i < params->names.count && !status; i++) {
        tow_array *array = NULL;
        status = tow_array_from_data(params->ctx, params->types[i], tow_array_data(params->arrays[i]), &array);
        if (!status) status = tow__params_append(made, params->names.names[i], array, params, i);
        tow_array_release(array);
    }
    if (status)
        tow_params_free(made);
    else
        *copy = made;
    return status;
}

tow_status tow_params_assign(tow_params *to, const tow_params *from)
{
    if (!to || !from) return tow__missing(to ? to->ctx : NULL, __func__, "two lists");
    for (uint32_t i = 0; i < from->names.count; i++) {
        const char *path = from->names.names[i];
        const uint32_t k = tow__params_index(to, path, i);
        if (k == TOW__NO_NAME)
            return tow__fail(to->ctx, TOW_NOT_FOUND,
                             "tow_params_assign: %s: the list that is assigned to has no such path; assign a part of "
                             "the other one (tow_params_select)",
                             path);
        if (!tow_type_equal(to->types[k], from->types[i]))
            return tow__fail(to->ctx, TOW_TYPE_MISMATCH, "tow_params_assign: %s: expected %s, found %s", path,
                             tow__type_name(to->types[k]).text, tow__type_name(from->types[i]).text);
    }
    for (uint32_t i = 0; i < from->names.count; i++) {
        const uint32_t k = tow__params_index(to, from->names.names[i], i);
        const size_t bytes = tow_type_bytes(from->types[i]);
        if (bytes > 0) memmove(tow_array_data(to->arrays[k]), tow_array_data(from->arrays[i]), bytes);
    }
    return TOW_OK;
}

/* ---- map and zip ------------------------------------------------------------------------------------------------- */

/* All lists have the paths of the first one. */
static tow_status check_same_paths(const char *caller, size_t n, const tow_params *const *lists)
{
    for (size_t l = 1; l < n; l++) {
        const tow_params *a = lists[0], *b = lists[l];
        for (uint32_t i = 0; i < a->names.count; i++)
            if (tow__params_index(b, a->names.names[i], i) == TOW__NO_NAME)
                return tow__fail(a->ctx, TOW_NOT_FOUND, "%s: %s: list %zu does not have it, list 0 has", caller,
                                 a->names.names[i], l);
        for (uint32_t i = 0; i < b->names.count; i++)
            if (tow__params_index(a, b->names.names[i], i) == TOW__NO_NAME)
                return tow__fail(a->ctx, TOW_NOT_FOUND, "%s: %s: list 0 does not have it, list %zu has", caller,
                                 b->names.names[i], l);
    }
    return TOW_OK;
}

/* Calls the function for entry i of the first list. */
static tow_status call_function(const char *caller, size_t n, const tow_params *const *lists, uint32_t i,
                                tow_params_function function, void *user, tow_array **arrays, tow_params *made)
{
    const tow_params *first = lists[0];
    const char *path = first->names.names[i];
    tow_array *result = NULL;
    tow_status status = TOW_OK;
    for (size_t l = 0; l < n; l++) arrays[l] = lists[l]->arrays[tow__params_index(lists[l], path, i)];
    if (made) {
        TRY(tow_array_create(first->ctx, first->types[i], &result));
        TRY(tow__params_append(made, path, result, first, i));
    }
    status = function(path, n, arrays, result, user);
    if (status)
        tow__fail(first->ctx, status, "%s: %s: the function returned %s", caller, path, tow_status_text(status));
done:
    tow_array_release(result);
    return status;
}

static tow_status zip(const char *caller, size_t n, const tow_params *const *lists, tow_params_function function,
                      void *user, tow_params **result)
{
    tow_context *ctx = lists[0]->ctx;
    tow_params *made = NULL;
    tow_array **arrays = tow__alloc(ctx, n, sizeof *arrays);
    if (!arrays) return TOW_OUT_OF_MEMORY;
    tow_status status = TOW_OK;
    TRY(check_same_paths(caller, n, lists));
    if (result) TRY(tow__params_create(ctx, &made));
    for (uint32_t i = 0; i < lists[0]->names.count; i++)
        TRY(call_function(caller, n, lists, i, function, user, arrays, made));
    if (result) *result = made;
    made = NULL;
done:
    tow_params_free(made);
    tow__free(ctx, arrays, n, sizeof *arrays);
    return status;
}

tow_status tow_params_zip(size_t n, const tow_params *const *lists, tow_params_function function, void *user,
                          tow_params **result)
{
    if (result) *result = NULL;
    bool complete = n > 0 && lists && function;
    for (size_t l = 0; complete && l < n; l++) complete = lists[l] != NULL;
    if (!complete)
        return tow__missing(n > 0 && lists && lists[0] ? lists[0]->ctx : NULL, __func__,
                            "at least one list and a function");
    return zip(__func__, n, lists, function, user, result);
}

tow_status tow_params_map(const tow_params *params, tow_params_function function, void *user, tow_params **result)
{
    if (result) *result = NULL;
    if (!params || !function) return tow__missing(params ? params->ctx : NULL, __func__, "parameters and a function");
    return zip(__func__, 1, &params, function, user, result);
}

int64_t tow_params_element_count(const tow_params *params, const char *const *patterns)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < params->names.count; i++)
        if (tow__entry_wanted(patterns, params, i))
            total += tow_type_element_count(params->types[i]) * tow_dtype_numbers(params->types[i].dtype);
    return total;
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* The largest difference between the numbers of two elements. */
static double difference(tow_dtype dtype, const void *x, const void *y)
{
    double largest = 0;
    for (int j = 0; j < tow_dtype_numbers(dtype); j++) {
        const double p = tow__load_element(dtype, x, j).f, q = tow__load_element(dtype, y, j).f;
        const double distance = p == q || (isnan(p) && isnan(q)) ? 0 : fabs(p - q);
        largest = isnan(distance) ? (double)INFINITY : fmax(largest, distance);
    }
    return largest;
}

/* Elements of other bits, and the largest difference between them. */
static int64_t compare_arrays(const tow_array *a, const tow_array *b, double *largest)
{
    const tow_type type = tow_array_type(a);
    const size_t size = tow_dtype_size(type.dtype);
    const char *x = tow_array_data(a), *y = tow_array_data(b);
    int64_t different = 0;
    *largest = 0;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        if (memcmp(x + (size_t)i * size, y + (size_t)i * size, size) == 0) continue;
        *largest = fmax(*largest, difference(type.dtype, x + (size_t)i * size, y + (size_t)i * size));
        different++;
    }
    return different;
}

/* Compares entry i of a with b's; a line of text if `s` is there. */
static void compare_entry(const tow_params *a, const tow_params *b, uint32_t i, tow_params_difference *d,
                          tow__string *s)
{
    const char *path = a->names.names[i];
    const uint32_t k = tow__params_index(b, path, i);
    const tow_params_difference before = *d;
    double largest = 0;
    int64_t elements = 0;
    if (k == TOW__NO_NAME) {
        d->only_a++;
        if (s) tow__string_add(s, "%s: only in the first, %s\n", path, tow__type_name(a->types[i]).text);
    } else if (!tow_type_equal(a->types[i], b->types[k])) {
        d->types++;
        if (s) tow__string_add(s, "%s: %s", path, tow__type_name(a->types[i]).text);
        if (s) tow__string_add(s, " and %s\n", tow__type_name(b->types[k]).text);
    } else if ((elements = compare_arrays(a->arrays[i], b->arrays[k], &largest)) > 0) {
        d->arrays++;
        d->elements += elements;
        if (largest > d->largest) d->largest = largest;
        if (s)
            tow__string_add(s, "%s: %" PRId64 " of %" PRId64 " elements differ, by %.3g at most\n", path, elements,
                            tow_type_element_count(a->types[i]), largest);
    }
    if (!before.where && (d->only_a > before.only_a || d->types > before.types || d->arrays > before.arrays))
        d->where = path;
}

static tow_params_difference compare(const tow_params *a, const tow_params *b, tow__string *s)
{
    tow_params_difference d = {0};
    for (uint32_t i = 0; i < a->names.count; i++) compare_entry(a, b, i, &d, s);
    for (uint32_t i = 0; i < b->names.count; i++) {
        const char *path = b->names.names[i];
        if (tow__params_index(a, path, i) != TOW__NO_NAME) continue;
        d.only_b++;
        if (!d.where) d.where = path;
        if (s) tow__string_add(s, "%s: only in the second, %s\n", path, tow__type_name(b->types[i]).text);
    }
    return d;
}

tow_params_difference tow_params_compare(const tow_params *a, const tow_params *b) { return compare(a, b, NULL); }
bool tow_params_equal(const tow_params *a, const tow_params *b) { return !compare(a, b, NULL).where; }

size_t tow_params_compare_text(const tow_params *a, const tow_params *b, char *text, size_t size)
{
    tow__string s;
    tow__string_init(&s, a->ctx);
    const tow_params_difference d = compare(a, b, &s);
    if (d.where)
        tow__string_add(
            &s,
            "%zu only in the first, %zu only in the second, %zu of other types, %zu of other values (%" PRId64
            " elements, by %.3g at most)\n",
            d.only_a, d.only_b, d.types, d.arrays, d.elements, d.largest);
    return tow__string_hand_out(&s, text, size);
}
