/* Names on disk: every layer of a stack has one, and no two may be equal. A scan "f" stacks its layers under "f/{}",
 * which are "f/0", "f/1", ... in a file; so is a child "0" of the scope "f", and a model with both could not be
 * saved. */
#include "src/params/params.h"

/* Writes `path` with every number in place of a component as "{}": paths of which names can be equal become equal. */
static void add_skeleton(tow__string *s, const char *path)
{
    for (const char *c = path;;) {
        tow__numbering numbering;
        size_t length = strcspn(c, "/"), digits = strspn(c, "0123456789");
        if (digits == length || tow__numbering_read(c, length, &numbering))
            tow__string_add(s, "{}");
        else
            tow__string_add(s, "%.*s", (int)length, c);
        if (!c[length]) return;
        tow__string_add(s, "/");
        c += length + 1;
    }
}

/* Names seen so far, and the entries that they are of. */
typedef struct seen {
    tow_context *ctx;
    tow__names names;
    uint32_t *owners, capacity;
} seen;

/* *other: the entry that has this name already, else TOW__NO_NAME and it is added. */
static tow_status see(seen *s, const tow__string *name, uint32_t entry, uint32_t *other)
{
    *other = TOW__NO_NAME;
    if (name->failed) return TOW_OUT_OF_MEMORY;
    uint32_t index = tow__names_find(&s->names, name->text);
    if (index != TOW__NO_NAME) {
        *other = s->owners[index];
        return TOW_OK;
    }
    if (s->names.count == s->capacity) {
        uint32_t capacity = s->capacity ? 2 * s->capacity : 64;
        uint32_t *owners = tow__grow(s->ctx, s->owners, s->capacity, capacity, sizeof *owners);
        if (!owners) return TOW_OUT_OF_MEMORY;
        s->owners = owners;
        s->capacity = capacity;
    }
    index = tow__names_add(&s->names, name->text);
    if (index == TOW__NO_NAME) return TOW_OUT_OF_MEMORY;
    s->owners[index] = entry;
    return TOW_OK;
}

static void forget(seen *s)
{
    tow__names_free(&s->names);
    if (s->owners) tow__free(s->ctx, s->owners, s->capacity, sizeof *s->owners);
    *s = (seen){.ctx = s->ctx};
    tow__names_init(&s->names, s->ctx);
}

/* skeletons: compares these alone, *found says whether two are equal; else all names, and equal ones are an error. */
static tow_status compare_names(const tow_params *p, const char *kind, bool skeletons, bool *found)
{
    tow_status status = TOW_OK;
    tow__string name;
    seen s = {.ctx = p->ctx};
    tow__names_init(&s.names, p->ctx);
    tow__string_init(&name, p->ctx);
    for (uint32_t i = 0; i < p->names.count && !*found; i++) {
        int64_t rows = skeletons ? 1 : tow__params_rows(p, i), index[TOW_MAX_RANK];
        for (int64_t row = 0; row < rows && !*found; row++) {
            uint32_t other;
            tow__string_free(&name);
            tow__string_init(&name, p->ctx);
            if (skeletons) {
                add_skeleton(&name, p->names.names[i]);
            } else {
                tow__params_row_index(p, i, row, index);
                tow__params_add_layer_path(&name, p->names.names[i], index);
            }
            TRY(see(&s, &name, i, &other));
            *found = other != TOW__NO_NAME;
            if (*found && !skeletons)
                TRY(tow__fail(p->ctx, TOW_INVALID_ARGUMENT,
                              "%s%s and %s%s: both would be called %s in a file, where layers of a scan have numbers; "
                              "give the child or the scan another name",
                              kind, p->names.names[other], kind, p->names.names[i], name.text));
        }
    }
done:
    tow__string_free(&name);
    forget(&s);
    return status;
}

tow_status tow__params_check_names(const tow_params *params, const char *kind)
{
    bool numbers = false, collision = false;
    tow_status status = compare_names(params, kind, true, &numbers);
    if (!status && numbers) status = compare_names(params, kind, false, &collision);
    return status;
}
