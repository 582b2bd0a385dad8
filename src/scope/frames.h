/* Frames of the bodies that are being traced (scope.h): values of parameters and variables, and what is sown. */
#ifndef TOW_SRC_SCOPE_FRAMES_H
#define TOW_SRC_SCOPE_FRAMES_H

#include "src/scope/scope.h"

/* Value of parameter `index` in the body that is being traced: the graph's input, or the row of the innermost scan that
 * has one. */
tow_value tow__param_value(const tow__model *model, uint32_t index);
/* Value of variable `index` in the body that is being traced, and a new one. */
tow_value tow__variable_value(const tow__model *model, uint32_t index);
void tow__variable_write(tow__model *model, uint32_t index, tow_value value);
/* False, reported: the scope is in a body out of which nothing written or sown gets. what: done to the variable or
 * value at `path`. */
bool tow__check_returned(tow_scope *scope, const char *path, const char *what);
/* True inside a body that has no frame: what is written there would not get out. */
bool tow__unreturned(const tow__model *model);
/* Opens and closes a frame of the innermost body. Values that are written and sown in between are in *frame afterwards
 * and nowhere else. */
void tow__frame_open(tow__model *model, tow__frame *frame);
void tow__frame_close(tow__model *model);

/* The value that was sown at this path, in this frame or one around it; NULL: nothing. */
const tow__sown *tow__find_sown(const tow__model *model, const char *path);
/* Adds a value to what the innermost frame sowed; a reduced one takes the place of what was there. */
void tow__add_sown(tow__model *model, const tow__sown *like, tow_value value);

/* A body recorded aside, so that it is known what it writes and sows before its equation is bound. */
typedef struct tow__recorded_body {
    tow_graph *graph; /* captures, explicit inputs -> outputs of the function, variables written, values sown */
    size_t n_captures;
    tow_value *captures;
    size_t n_out; /* of the graph */
    tow__frame frame;
    size_t n_written;
    uint32_t *written;
} tow__recorded_body;
/* Records `function` in a frame of its own. False: an error sticks. */
bool tow__body_record(tow__model *model, tow_function function, void *user, size_t n_in, const tow_type *types,
                      size_t n_out, tow__recorded_body *body);
/* A tow_function with the body as `user`: records it again where an equation is being made of it. */
void tow__body_replay(tow_trace *trace, const tow_value *in, tow_value *out, void *body);
/* The values that the body wrote and sowed become written and sown here. values: the last outputs of the equation. */
void tow__body_commit(tow__model *model, const tow__recorded_body *body, const tow_value *values);
void tow__body_free(tow__recorded_body *body);

#endif
