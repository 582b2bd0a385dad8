/* The tables that are part of the library, and mappings from files. */
#include "src/weights/mapping.h"

static const struct {
    const char *name, *text;
} tables[] = {
#include "weights_tables.inc"
};
enum {
    N_TABLES = sizeof tables / sizeof *tables,
    MAX_BYTES = 1 << 24 /* of a file of rules */
};

const char *tow_weight_mapping_table_name(size_t index) { return index < N_TABLES ? tables[index].name : NULL; }
const char *tow_weight_mapping_table_text(size_t index) { return index < N_TABLES ? tables[index].text : NULL; }

static tow_status no_table(tow_context *ctx, const char *name)
{
    tow__string known;
    tow__string_init(&known, ctx);
    for (size_t i = 0; i < N_TABLES; i++) tow__string_add(&known, " %s", tables[i].name);
    const tow_status status = tow__fail(
        ctx, TOW_NOT_FOUND, "%.200s: no such mapping; there are%s, and files, whose names have a '/' or a '.'", name,
        known.text ? known.text : " others");
    tow__string_free(&known);
    return status;
}

static tow_status read_file(tow_context *ctx, const char *path, tow_weight_mapping **mapping)
{
    tow_status status = TOW_OK;
    tow__input_file file;
    char *text = NULL;
    size_t bytes = 0;
    TRY(tow__input_open(ctx, path, &file));
    if (file.size > MAX_BYTES)
        TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a text of rules, found a file of more than 16 MiB", path));
    bytes = (size_t)file.size + 1;
    text = tow__alloc(ctx, bytes, 1);
    if (!text) TRY(TOW_OUT_OF_MEMORY);
    TRY(tow__input_read(&file, 0, text, bytes - 1));
    if (strlen(text) != bytes - 1)
        TRY(tow__fail(ctx, TOW_BAD_FORMAT, "%s: expected a text of rules, found a zero byte", path));
    TRY(tow_weight_mapping_parse(ctx, path, text, mapping));
done:
    if (text) tow__free(ctx, text, bytes, 1);
    tow__input_close(&file);
    return status;
}

tow_status tow_weight_mapping_read(tow_context *context, const char *path, tow_weight_mapping **mapping)
{
    if (mapping) *mapping = NULL;
    if (!context || !path || !mapping)
        return tow__missing(context, __func__, "a context, a path and a place for the mapping");
    for (size_t i = 0; i < N_TABLES; i++)
        if (strcmp(path, tables[i].name) == 0) return tow_weight_mapping_parse(context, path, tables[i].text, mapping);
    return strpbrk(path, "/.") ? read_file(context, path, mapping) : no_table(context, path);
}
