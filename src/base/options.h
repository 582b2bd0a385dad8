/* Structs that programs of other versions of the headers made: structs of options, layers and gradient transforms,
 * which say their size. An earlier program knows a prefix of the struct; a later one knows more, which is accepted if
 * it is zero. docs/versions.md has the rules by which structs grow. */
#ifndef TOW_SRC_OPTIONS_H
#define TOW_SRC_OPTIONS_H

#include "tow/base.h"

/* A reader of a struct knows this of it. */
typedef struct tow__struct_kind {
    const char *name;  /* that messages begin with: "tow_load_options", "layer Dense" */
    const char *macro; /* that makes such structs: "TOW_LOAD_OPTIONS"; NULL: name in capitals */
    size_t size;       /* of the struct in this library */
} tow__struct_kind;

/* Why a struct that says it has `found` bytes is refused; "" if it is accepted. Like snprintf. */
size_t tow__struct_fault(const tow__struct_kind *kind, const void *given, size_t found, char *text, size_t size);
/* Copies an accepted struct of `found` bytes to `own`, of kind->size bytes: what its program did not know is zero. */
void tow__struct_copy(const tow__struct_kind *kind, const void *given, size_t found, void *own);

/* The same of a struct of options, whose first member is the size. own->size becomes that of this library. */
size_t tow__options_fault(const tow__struct_kind *kind, const void *given, char *text, size_t size);
void tow__options_copy(const tow__struct_kind *kind, const void *given, void *own);
/* Both, for functions that take options. options: the address of their pointer, which leads to `own` afterwards, or
 * stays if it is NULL. False: refused, with TOW_INVALID_ARGUMENT in ctx, which may be NULL. */
bool tow__options_take(tow_context *ctx, const tow__struct_kind *kind, void *options, void *own);

/* In the class of a layer or of a gradient transform: the macro that makes it and its size. */
#define TOW__MADE_BY(maker, type) .macro = #maker, .size = sizeof(type)

#define TOW__STRUCT_KIND(type) (&(const tow__struct_kind){.name = #type, .size = sizeof(type)})
/* Compiles only if `options` and `own` point to `type`. */
#define TOW__SAME_TYPE(type, options, own)                                                                             \
    ((void)sizeof((options) == (const type *)0), (void)sizeof((own) == (type *)0))
/* In the public function:
 *     tow_load_options own;
 *     if (!TOW__OPTIONS_TAKE(ctx, tow_load_options, options, &own)) return TOW_INVALID_ARGUMENT; */
#define TOW__OPTIONS_TAKE(ctx, type, options, own)                                                                     \
    (TOW__SAME_TYPE(type, options, own), tow__options_take(ctx, TOW__STRUCT_KIND(type), &(options), own))

#endif
