/* See tree.h and tow/module.h.
 *
 * One walk serves both: it visits what a layer points to, member by member, and goes on into layers that it has not
 * seen. The check looks at each address before it reads what is there. A copy makes the same list of layers first, with
 * a place for each in one arena, then writes the structs and turns their pointers to the places. */
#include "src/scope/tree.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "src/graph/builder.h"
#include "tow/autodiff.h"

/* A layer of the model, and its copy. */
typedef struct seen {
    const tow_module *module;
    tow_module *copy;
} seen;

typedef struct walk {
    tow_context *ctx;
    const char *caller;
    const void *frame;  /* NULL: no check */
    tow__arena *arena;  /* of the copies; NULL: only the check */
    tow__vector layers; /* seen */
    bool failed;
} walk;

/* ---- the stack --------------------------------------------------------------------------------------------------- */

bool tow__is_left_behind(const void *p, const void *frame)
{
    enum {
        NEAR = 8 << 20 /* the usual size of a stack: whatever is further away needs no look at the bounds */
    };
    const char *at = p, *top = frame;
    if (at >= top || top - at > NEAR) return false;
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
    const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0;
    pthread_attr_destroy(&attributes);
    /* A frame that is not on the stack of the thread belongs to a coroutine, of which nothing is known. */
    return known && top > (char *)low && top <= (char *)low + size && at >= (char *)low;
}

/* False, reported: p was left behind. what: "a layer", in a layer of this class, or the model itself if it is NULL. */
static bool check_alive(walk *w, const void *p, const char *what, const tow_module_class *cls)
{
    if (!w->frame || !p || !tow__is_left_behind(p, w->frame)) return true;
    tow__fail(w->ctx, TOW_INVALID_ARGUMENT,
              "%s: %s%s%s was made in a function that has returned, and is gone; return a copy from that function "
              "(tow_module_copy), or make layers static or members of a struct that the caller holds",
              w->caller, what, cls ? " of " : "", cls ? cls->name : "");
    w->failed = true;
    return false;
}

/* ---- layers of other versions ------------------------------------------------------------------------------------ */

size_t tow__layer_fault(const tow_module *module, char *text, size_t size)
{
    const tow_module_class *cls = module->cls;
    const tow__struct_kind kind = {cls->name, cls->macro, cls->size};
    if (size > 0) text[0] = '\0';
    return cls->macro ? tow__struct_fault(&kind, module, module->size, text, size) : 0;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static const tow_module *copy_of(const walk *w, const tow_module *module)
{
    const seen *all = w->layers.data;
    for (uint32_t i = 0; i < w->layers.count; i++)
        if (all[i].module == module) return w->arena ? all[i].copy : module;
    return NULL;
}

/* The place where the pointer of a member is read, and written if there is a copy. */
static void *member_of(const tow_module *layer, size_t offset) { return (char *)(uintptr_t)layer + offset; }

/* The header in front of each copied layer; of the model, the arena of everything, itself included. */
typedef union owner {
    tow__arena arena;
    max_align_t align;
} owner;

/* Adds a layer that is not known yet. NULL: an error. of: the class of the layer that points to it. */
static const tow_module *visit(walk *w, const tow_module *module, const char *what, const tow_module_class *of)
{
    const tow_module *known = copy_of(w, module);
    if (known || !check_alive(w, module, what, of)) return known;
    const tow_module_class *cls = module->cls;
    if (w->arena && (!cls || !cls->name || !cls->layout || cls->layout->size < sizeof *module)) {
        if (cls && cls->name)
            tow__fail(w->ctx, TOW_UNSUPPORTED,
                      "%s: the class of layer %s has no .layout, which says what its struct points to; give it one "
                      "(tow/module.h)",
                      w->caller, cls->name);
        else
            tow__fail(w->ctx, TOW_INVALID_ARGUMENT, "%s: a layer has no class; make it with its macro", w->caller);
        w->failed = true;
        return NULL;
    }
    seen *s = tow__vector_push(w->ctx, &w->layers, sizeof *s);
    if (!s) {
        w->failed = true;
        return NULL;
    }
    *s = (seen){.module = module};
    if (!w->arena) return module;
    char text[320];
    if (tow__layer_fault(module, text, sizeof text) > 0) {
        tow__fail(w->ctx, TOW_INVALID_ARGUMENT, "%s: %s", w->caller, text);
        w->failed = true;
        return NULL;
    }
    char *place = tow__arena_alloc(w->arena, 1, sizeof(owner) + cls->layout->size);
    w->failed = !place;
    if (!place) return NULL;
    s->copy = (tow_module *)(void *)(place + sizeof(owner));
    const size_t size = cls->layout->size;
    memcpy(s->copy, module, cls->macro && module->size < size ? module->size : size);
    if (cls->macro) s->copy->size = size;
    return s->copy;
}

static size_t length_of(const tow_module *layer, const tow_member *m, const tow_module *const *list)
{
    size_t n = 0;
    if (m->count) return *(const size_t *)member_of(layer, m->count);
    while (list[n]) n++;
    return n;
}

static const char *text_of(walk *w, const char *text, const tow_module_class *cls)
{
    if (!text || !check_alive(w, text, "a text", cls) || !w->arena) return text;
    const char *copy = tow__arena_string(w->arena, text);
    w->failed = w->failed || !copy;
    return copy;
}

static const char *const *names_of(walk *w, const char *const *names, const tow_module_class *cls)
{
    size_t n = 0;
    if (!names || !check_alive(w, names, "a list of names", cls)) return names;
    while (names[n]) n++;
    const char **copy = w->arena ? tow__arena_alloc(w->arena, n + 1, sizeof *copy) : NULL;
    w->failed = w->failed || (w->arena && !copy);
    for (size_t i = 0; i < n && !w->failed; i++) {
        const char *text = text_of(w, names[i], cls);
        if (copy) copy[i] = text;
    }
    return copy ? copy : names;
}

static const tow_lift_rule *rules_of(walk *w, const tow_lift_rule *rules, const tow_module_class *cls)
{
    size_t n = 0;
    if (!rules || !check_alive(w, rules, "a list of rules", cls)) return rules;
    while (rules[n].pattern) n++;
    tow_lift_rule *copy = w->arena ? tow__arena_copy(w->arena, rules, n + 1, sizeof *copy) : NULL;
    w->failed = w->failed || (w->arena && !copy);
    for (size_t i = 0; i < n && !w->failed; i++) {
        const char *text = text_of(w, rules[i].pattern, cls);
        if (copy) copy[i].pattern = text;
    }
    return copy ? copy : rules;
}

static const tow_dtype_rule *dtypes_of(walk *w, const tow_dtype_rule *rules, const tow_module_class *cls)
{
    size_t n = 0;
    if (!rules || !check_alive(w, rules, "a list of rules", cls)) return rules;
    while (rules[n].pattern) n++;
    tow_dtype_rule *copy = w->arena ? tow__arena_copy(w->arena, rules, n + 1, sizeof *copy) : NULL;
    w->failed = w->failed || (w->arena && !copy);
    for (size_t i = 0; i < n && !w->failed; i++) {
        const char *text = text_of(w, rules[i].pattern, cls);
        if (copy) copy[i].pattern = text;
    }
    return copy ? copy : rules;
}

/* depth: of policies in policies. */
static void policy_of(walk *w, tow_policy *policy, const tow_policy *from, const tow_module_class *cls, int depth)
{
    const tow_policy *both[2] = {from->a, from->b};
    const char *const *names = names_of(w, from->names, cls);
    if (policy) policy->names = names;
    for (int i = 0; i < 2 && !w->failed; i++) {
        if (!both[i] || depth > 64 || !check_alive(w, both[i], "a policy", cls)) continue;
        tow_policy *copy = w->arena ? tow__arena_copy(w->arena, both[i], 1, sizeof *copy) : NULL;
        w->failed = w->failed || (w->arena && !copy);
        if (!w->failed) policy_of(w, copy, both[i], cls, depth + 1);
        if (policy && copy) *(i ? &policy->b : &policy->a) = copy;
    }
}

static const tow_module *const *layers_of(walk *w, const tow_module *from, const tow_member *m)
{
    const tow_module *const *list = *(const tow_module *const *const *)member_of(from, m->offset);
    if (!list || !check_alive(w, list, "the list of layers", from->cls)) return list;
    const size_t n = length_of(from, m, list);
    const tow_module **copy = w->arena ? tow__arena_alloc(w->arena, n + 1, sizeof *copy) : NULL;
    w->failed = w->failed || (w->arena && !copy);
    for (size_t i = 0; i < n && !w->failed; i++) {
        const tow_module *layer = list[i] ? visit(w, list[i], "a layer in the list", from->cls) : NULL;
        if (copy) copy[i] = layer;
    }
    return copy ? copy : list;
}

/* Goes through what a layer points to. to: its copy, or NULL. */
static void follow(walk *w, const tow_module *from, tow_module *to)
{
    const tow_module_layout *layout = from->cls && from->cls->name ? from->cls->layout : NULL;
    for (size_t i = 0; layout && i < layout->n_members && !w->failed; i++) {
        const tow_member *m = &layout->members[i];
        if (from->cls->macro && m->offset >= from->size) continue; /* an earlier program did not know the member */
        const void *at = member_of(from, m->offset);
        void *written = to ? member_of(to, m->offset) : NULL;
        const void *result = NULL;
        if (m->kind == TOW_MEMBER_POLICY) {
            policy_of(w, written, at, from->cls, 0);
            continue;
        }
        if (m->kind == TOW_MEMBER_LAYER) {
            const tow_module *layer = *(const tow_module *const *)at;
            result = layer ? visit(w, layer, "a layer", from->cls) : NULL;
        } else if (m->kind == TOW_MEMBER_LAYERS)
            result = layers_of(w, from, m);
        else if (m->kind == TOW_MEMBER_TEXT)
            result = text_of(w, *(const char *const *)at, from->cls);
        else if (m->kind == TOW_MEMBER_NAMES)
            result = names_of(w, *(const char *const *const *)at, from->cls);
        else if (m->kind == TOW_MEMBER_DTYPES)
            result = dtypes_of(w, *(const tow_dtype_rule *const *)at, from->cls);
        else
            result = rules_of(w, *(const tow_lift_rule *const *)at, from->cls);
        if (written && !w->failed) memcpy(written, &result, sizeof result);
    }
}

/* The whole model. False: an error. */
static bool walk_model(walk *w, const tow_module *module)
{
    visit(w, module, "the model", NULL);
    for (uint32_t i = 0; i < w->layers.count && !w->failed; i++) {
        const seen s = ((const seen *)w->layers.data)[i];
        follow(w, s.module, s.copy);
    }
    return !w->failed;
}

bool tow__check_stack(tow_context *ctx, const char *caller, const tow_module *module, const void *frame)
{
    walk w = {.ctx = ctx, .caller = caller, .frame = frame};
    if (!module) return true;
    const bool fine = walk_model(&w, module);
    tow__vector_free(ctx, &w.layers, sizeof(seen));
    return fine;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

TOW__OWN_FRAME tow_status tow_module_copy(tow_context *context, const tow_module *module, tow_module **copy)
{
    if (copy) *copy = NULL;
    if (!context || !module || !copy)
        return tow__missing(context, __func__, "a context, a layer and a place for its copy");
    tow__arena arena;
    tow__arena_init(&arena, context);
    walk w = {.ctx = context, .caller = __func__, .frame = TOW__CALLERS_FRAME, .arena = &arena};
    const bool fine = walk_model(&w, module);
    tow_module *root = fine ? ((const seen *)w.layers.data)[0].copy : NULL;
    tow__vector_free(context, &w.layers, sizeof(seen));
    if (!fine) {
        tow__arena_free(&arena);
        return tow_context_status(context);
    }
    ((owner *)(void *)root - 1)->arena = arena;
    *copy = root;
    return TOW_OK;
}

void tow_module_free(tow_module *copy)
{
    if (!copy) return;
    tow__arena arena = ((owner *)(void *)copy - 1)->arena;
    tow__arena_free(&arena);
}
