/* Copies of models. Layers point to one another, and macros such as TOW_SEQUENTIAL, TOW_LAYERS, TOW_RULES and TOW_NAMES
 * make lists that live as long as the block in which they stand. So a function that builds a model and returns a layer
 * of it returns pointers to what is gone. A copy owns all of it:
 *
 *     static tow_module *build(tow_context *context, int64_t width)
 *     {
 *         tow_dense in = TOW_DENSE(.features = width), out = TOW_DENSE(.features = 10);
 *         tow_sequential model =
 *             TOW_SEQUENTIAL(TOW_MODULE(&in), TOW_MODULE(&TOW_ACTIVATION(tow_relu)), TOW_MODULE(&out));
 *         tow_module *copy = NULL;
 *         tow_module_copy(context, TOW_MODULE(&model), &copy);
 *         return copy;
 *     }
 *     tow_module *model = build(context, 64);
 *     tow_model_init(context, model, seed, 1, &type, &params);            ... and last, tow_module_free(model);
 *
 * docs/where-layers-live.md has the other ways. */
#ifndef TOW_COPY_H
#define TOW_COPY_H

#include <stddef.h>

#include "tow/module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a layer struct points to ------------------------------------------------------------------------------- */

typedef enum tow_member_kind {
    TOW_MEMBER_LAYER,  /* const tow_module *, or a pointer to a layer struct */
    TOW_MEMBER_LAYERS, /* const tow_module *const *: a list that ends with NULL, or has the length in .count */
    TOW_MEMBER_TEXT,   /* const char * */
    TOW_MEMBER_NAMES,  /* const char *const *: a list that ends with NULL */
    TOW_MEMBER_RULES,  /* const tow_lift_rule *: a list that ends with .pattern NULL */
    TOW_MEMBER_POLICY  /* a tow_policy, not a pointer to one */
} tow_member_kind;

/* A member of a layer struct. All that are pointers may be NULL. */
typedef struct tow_member {
    tow_member_kind kind;
    size_t offset;
    size_t count; /* of TOW_MEMBER_LAYERS: the offset of a size_t with the length; 0: the list ends with NULL */
} tow_member;

/* In the class of a layer: .layout. Of members that are not listed the copy has the same bits: numbers and arrays in
 * the struct, and pointers to what outlives the copy (`user`, .in_axes and .out_axes of TOW_SCAN and TOW_VMAP, arrays
 * of one's own).
 *     typedef struct twice { tow_module module; const tow_module *inner; int64_t n; } twice;
 *     static const tow_member members[] = {TOW_MEMBER(twice, inner, TOW_MEMBER_LAYER)};
 *     static const tow_module_layout layout = {sizeof(twice), 1, members};
 *     static const tow_module_class twice_class = {.name = "Twice", .call = call_twice, .layout = &layout};
 * A layer without members needs the size: {sizeof(twice), 0, NULL}. */
typedef struct tow_module_layout {
    size_t size; /* of the struct */
    size_t n_members;
    const tow_member *members; /* [n_members] */
} tow_module_layout;
#define TOW_MEMBER(type, member, kind)                                                                                 \
    {                                                                                                                  \
        (kind), offsetof(type, member), 0                                                                              \
    }
#define TOW_MEMBER_LIST(type, member, length)                                                                          \
    {                                                                                                                  \
        TOW_MEMBER_LAYERS, offsetof(type, member), offsetof(type, length)                                              \
    }

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Copies a layer with all that it points to, layers in it included; a layer that is pointed to twice is one in the
 * copy, too. Paths, initial values and programs are those of the original, which may be gone afterwards.
 * Errors: TOW_UNSUPPORTED for a layer whose class has no .layout, with its name; TOW_INVALID_ARGUMENT for a layer
 * without a class, and for what has been left behind on the stack by a function that has returned; *copy is then
 * NULL. */
TOW_API tow_status tow_module_copy(tow_context *context, const tow_module *module, tow_module **copy);
/* Frees a copy, before its context is destroyed. NULL is accepted. */
TOW_API void tow_module_free(tow_module *copy);

#ifdef __cplusplus
}
#endif
#endif
