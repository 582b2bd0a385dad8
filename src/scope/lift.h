/* Rules of lifted transforms: how a scope sees an entry or a stream of keys behind the transforms around it. */
#ifndef TOW_SRC_SCOPE_LIFT_H
#define TOW_SRC_SCOPE_LIFT_H

#include "src/scope/scope.h"

/* The view that a scope has of an entry or of a stream of keys. */
typedef struct tow__resolved {
    const tow_scope *scope;  /* without the iterations that share it */
    tow_lifting how;         /* TOW_STACKED, or what an iteration that shares it says */
    bool in_unrolled;        /* iterations of an unrolled scan share it */
    const tow_scope *hidden; /* the transform that hides it, or NULL */
} tow__resolved;
/* False: out of memory, reported. */
bool tow__resolve(const tow_scope *scope, const char *collection, const char *name, tow__resolved *result);
bool tow__resolve_stream(const tow_scope *scope, const char *stream, tow__resolved *result);
/* The scope by which the initial value of an entry is drawn: also without iterations that share the stream "params". */
const tow_scope *tow__resolve_draw(const tow_scope *scope, const char *collection, const char *name);
/* "collection/path/name", without the collection if it is NULL. NULL: out of memory, reported. */
const char *tow__entry_path(const tow_scope *resolved, const char *collection, const char *name);
/* The part behind the path of `scope` in that of an entry; NULL: the entry is not below it. path: without the
 * collection. *rule: what the iteration `scope` says of the entry. */
const char *tow__entry_below(const tow_scope *scope, const char *collection, const char *path, tow_lift_rule *rule);
/* The rule of the transform at `scope` for "collection/below"; out of memory: stacked, and the error sticks. */
tow_lift_rule tow__rule_below(const tow_scope *scope, const char *collection, const char *below);
/* The collection that the path of a variable begins with, and what stands behind it. NULL: out of memory, reported. */
const char *tow__collection_of(tow__model *model, const char *path, const char **below);
/* The way in which a transform calls the layer in it; it decides which rules mean something there. */
typedef enum tow__lift_kind {
    /* as it stands: remat, a branch, a derivative. There are no iterations that could share or hand on */
    TOW__LIFT_ONCE,
    TOW__LIFT_REPEATS, /* as often as a condition says: a while. Its iterations are not counted and so not stacked */
    TOW__LIFT_ROWS,    /* on all rows at once: a vmap. None comes after another one */
    TOW__LIFT_LAYERS   /* one after the other: a scan, a stack */
} tow__lift_kind;
/* The rules of a transform, as long as the trace lives. NULL: there are none, or an error sticks, such as that of a
 * rule which means nothing there. */
tow__lift *tow__lift_make(tow_scope *scope, const char *transform, tow__lift_kind kind, const tow_lift_rule *variables,
                          const tow_lift_rule *streams);
/* After the layer was called: an error for a rule that nothing matched. */
void tow__lift_check_used(tow_scope *scope, const char *transform, const tow__lift *lift);

#endif
