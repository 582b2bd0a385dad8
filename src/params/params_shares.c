/* Entries of which each process has its share of every layer, and whole arrays from shares. */
#include "src/group/agreement.h"
#include "src/group/group.h"
#include "src/params/params.h"

tow_status tow__params_keep_share(tow_params *p, uint32_t i, tow_group *shards, int64_t *first, int64_t *count)
{
    tow_type kept = p->types[i];
    const char *path = p->names.names[i];
    const int64_t n = tow_type_element_count(kept), rows = tow__params_rows(p, i);
    *first = 0;
    *count = rows > 0 ? n / rows : 0;
    if (!shards || n == 0 || !tow_dtype_is_float(kept.dtype) || !tow__path_in_front(path, kept.rank)) return TOW_OK;
    const tow__range_of own = tow__share_of(tow_group_rank(shards), tow_group_count(shards), *count, 0);
    *first = own.offset;
    *count = own.count;
    kept.rank = tow__path_levels(path) + 1;
    kept.dims[kept.rank - 1] = own.count;
    return tow__params_set_share(p, i, shards, kept);
}

/* Copies the share [layers, own.count] into whole layers of n elements. */
static void put_share(const void *share, tow__range_of own, int64_t layers, int64_t n, size_t size, void *whole)
{
    for (int64_t l = 0; l < layers && own.count > 0; l++)
        memcpy((char *)whole + (size_t)(l * n + own.offset) * size,
               (const char *)share + (size_t)(l * own.count) * size, (size_t)own.count * size);
}

/* The array of entry i in all processes, of which `share` is this one's. */
static tow_status gather(const tow_params *p, uint32_t i, tow_array **whole)
{
    const tow_type type = p->wholes[i];
    const int64_t n = tow_type_element_count(tow__params_whole_layer(p, i)), layers = tow_type_element_count(type) / n;
    tow__collective *c = NULL;
    tow_status status = TOW_OK;
    TRY(tow_array_create(p->ctx, type, whole));
    TRY(tow__collective_create(
        p->ctx, p->shards,
        &(tow__collective_options){
            .kind = TOW__ALL_GATHER, .dtype = type.dtype, .n = n, .layers = layers, .what = p->names.names[i]},
        &c));
done:
    status = tow__group_agree(p->ctx, p->shards, status); /* before anybody waits for who has no memory */
    if (status != TOW_OK) goto end;
    put_share(tow_array_data(p->arrays[i]), tow__collective_share(c, n), layers, n, tow_dtype_size(type.dtype),
              tow_array_data(*whole));
    status = tow__collective_run(c, (void *[]){tow_array_data(*whole)}, NULL);
end:
    tow__collective_free(c);
    return status;
}

tow_status tow_params_gather(const tow_params *params, tow_params **whole)
{
    if (whole) *whole = NULL;
    if (!params || !whole)
        return tow__missing(params ? params->ctx : NULL, __func__, "parameters and a place for the list");
    tow_params *made = NULL;
    tow_status status = TOW_OK;
    TRY(tow__params_create(params->ctx, &made));
    for (uint32_t i = 0; i < params->names.count; i++) {
        const bool is_share = tow__params_whole_layer(params, i).rank >= 0;
        tow_array *array = is_share ? NULL : tow_array_retain(params->arrays[i]);
        status = is_share ? gather(params, i, &array) : TOW_OK;
        if (!status) status = tow__params_append(made, params->names.names[i], array, params, i);
        if (!status && made->wholes) made->wholes[i].rank = -1; /* also where this process's share is all of it */
        tow_array_release(array);
        if (status) goto done;
    }
    *whole = made;
    made = NULL;
done:
    tow_params_free(made);
    return status;
}
