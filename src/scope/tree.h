/* Walks over the structs of a model, by the layouts of their classes (tow/module.h): tow_module_copy, and the check
 * that nothing of it has been left behind on the stack. */
#ifndef TOW_SRC_SCOPE_TREE_H
#define TOW_SRC_SCOPE_TREE_H

#include "src/base/options.h"
#include "tow/module.h"

/* In a public function: where it was called; what is above belongs to its callers. The function has TOW__OWN_FRAME in
 * front: inlined into its caller, as link-time optimization may do, it would refuse the caller's own layers. */
#define TOW__CALLERS_FRAME __builtin_dwarf_cfa()

/* False, reported in the context: the model, or something to which one of its layers points, lies on the stack below
 * `frame`, where the public function that got it was called (TOW__CALLERS_FRAME). Functions that had objects there have
 * returned. Layers whose classes have no layout are not looked into. model NULL: true. caller: that function, for the
 * message. */
bool tow__check_stack(tow_context *ctx, const char *caller, const tow_module *module, const void *frame);

/* True if p lies between the end of this thread's stack and `frame`. */
bool tow__is_left_behind(const void *p, const void *frame);

/* Why a layer with a class is refused for the size that it says; "" if it is accepted, or need not say any. Like
 * snprintf. */
size_t tow__layer_fault(const tow_module *module, char *text, size_t size);

/* .layout of a layer without pointers, and of one with members: a list of TOW_MEMBER. */
#define TOW__LAYOUT(type) (&(const tow_module_layout){sizeof(type), 0, NULL})
#define TOW__LAYOUT_OF(type, ...)                                                                                      \
    (&(const tow_module_layout){sizeof(type), sizeof((const tow_member[]){__VA_ARGS__}) / sizeof(tow_member),          \
                                (const tow_member[]){__VA_ARGS__}})

#endif
