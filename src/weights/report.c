/* Reports what became of every tensor and of every parameter. */
#include "src/weights/mapping.h"

typedef struct entry {
    const char *name;
    tow_weight_mapping_fate fate;
} entry;

struct tow_weight_mapping_report {
    tow_context *ctx;
    tow__arena memory;
    entry *entries;
    size_t count, capacity, counts[TOW_FATE_COUNT];
};

tow_status tow__report_create(tow_context *ctx, tow_weight_mapping_report **report)
{
    *report = tow__alloc(ctx, 1, sizeof **report);
    if (!*report) return TOW_OUT_OF_MEMORY;
    (*report)->ctx = ctx;
    tow__arena_init(&(*report)->memory, ctx);
    return TOW_OK;
}

void tow_weight_mapping_report_free(tow_weight_mapping_report *r)
{
    if (!r) return;
    if (r->entries) tow__free(r->ctx, r->entries, r->capacity, sizeof *r->entries);
    tow__arena_free(&r->memory);
    tow__free(r->ctx, r, 1, sizeof *r);
}

tow_status tow__report_add(tow_weight_mapping_report *r, tow_weight_mapping_fate fate, const char *name)
{
    if (r->count == r->capacity) {
        const size_t capacity = r->capacity ? 2 * r->capacity : 64;
        entry *entries = tow__grow(r->ctx, r->entries, r->capacity, capacity, sizeof *entries);
        if (!entries) return TOW_OUT_OF_MEMORY;
        r->entries = entries;
        r->capacity = capacity;
    }
    const char *copy = tow__arena_string(&r->memory, name);
    if (!copy) return TOW_OUT_OF_MEMORY;
    r->entries[r->count++] = (entry){.name = copy, .fate = fate};
    r->counts[fate]++;
    return TOW_OK;
}

size_t tow_weight_mapping_report_count(const tow_weight_mapping_report *r, tow_weight_mapping_fate fate)
{
    return (unsigned)fate < TOW_FATE_COUNT ? r->counts[fate] : 0;
}

const char *tow_weight_mapping_report_name(const tow_weight_mapping_report *r, tow_weight_mapping_fate fate,
                                           size_t index)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->entries[i].fate == fate && index-- == 0) return r->entries[i].name;
    return NULL;
}

static const char *const titles[TOW_FATE_COUNT] = {
    [TOW_FATE_TENSOR] = "tensors mapped",
    [TOW_FATE_PARAMETER] = "parameters mapped",
    [TOW_FATE_MISSING] = "missing",
    [TOW_FATE_UNUSED] = "unused",
    [TOW_FATE_OPTIONAL] = "optional, left out",
    [TOW_FATE_IGNORED] = "ignored",
    [TOW_TIED] = "tied",
};
static const bool listed[TOW_FATE_COUNT] = {
    [TOW_FATE_MISSING] = true, [TOW_FATE_UNUSED] = true, [TOW_FATE_OPTIONAL] = true};

size_t tow_weight_mapping_report_text(const tow_weight_mapping_report *r, char *text, size_t size)
{
    tow__string s;
    tow__string_init(&s, r->ctx);
    for (int fate = 0; fate < TOW_FATE_COUNT; fate++) {
        if (r->counts[fate] == 0 && fate > TOW_FATE_UNUSED) continue;
        tow__string_add(&s, "%-18s %zu\n", titles[fate], r->counts[fate]);
        for (size_t i = 0; i < r->count && listed[fate]; i++)
            if ((int)r->entries[i].fate == fate) tow__string_add(&s, "  %s\n", r->entries[i].name);
    }
    if (s.failed) s.length = 0; /* a part would mislead; the context has the error */
    const size_t length = tow__string_export(&s, text, size);
    tow__string_free(&s);
    return length;
}

/* "2 parameters are missing (a, b)". */
static void add_problem(const tow_weight_mapping_report *r, tow_weight_mapping_fate fate, const char *one,
                        const char *many, tow__string *s)
{
    enum {
        SHOWN = 5
    };
    const size_t count = r->counts[fate];
    size_t shown = 0;
    if (count == 0) return;
    tow__string_add(s, "%s%zu %s (", s->length > 0 ? ", " : "", count, count == 1 ? one : many);
    for (size_t i = 0; i < r->count && shown < SHOWN; i++)
        if (r->entries[i].fate == fate) tow__string_add(s, "%s%.100s", shown++ > 0 ? ", " : "", r->entries[i].name);
    tow__string_add(s, count > SHOWN ? ", ...)" : ")");
}

tow_status tow__report_strict(const tow_weight_mapping_report *r, tow_context *ctx, const char *where, bool writing)
{
    tow__string s;
    if (r->counts[TOW_FATE_MISSING] + r->counts[TOW_FATE_UNUSED] == 0) return TOW_OK;
    tow__string_init(&s, ctx);
    if (writing)
        add_problem(r, TOW_FATE_MISSING, "parameter has no rule", "parameters have no rule", &s);
    else
        add_problem(r, TOW_FATE_MISSING, "parameter has no tensor", "parameters have no tensor", &s);
    add_problem(r, TOW_FATE_UNUSED, "tensor has no parameter", "tensors have no parameter", &s);
    const tow_status status =
        s.failed ? TOW_OUT_OF_MEMORY
                 : tow__fail(ctx, TOW_NOT_FOUND,
                             "%s%s%s; use the mapping and the options of that model, or .partial to go on without them",
                             where ? where : "", where ? ": " : "", s.text);
    tow__string_free(&s);
    return status;
}
