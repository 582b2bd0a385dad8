/* One array of the batches of a loader: how rows of a source become its elements. */
#ifndef TOW_SRC_DATA_FIELD_H
#define TOW_SRC_DATA_FIELD_H

#include "src/data/source.h"

typedef struct tow__field {
    tow_source *source; /* retained */
    tow_type row;       /* of the batch */
    int64_t elements;   /* of a row */
    int64_t ahead;
    bool plain;         /* elements are stored as the batch has them */
    bool scaled;        /* x -> (x - subtract) / divide, */
    int64_t n_features; /* with arrays of so many numbers; 0: one for all */
    double subtract, divide;
    double *subtract_each, *divide_each; /* one allocation, at subtract_each */
} tow__field;

/* `index`: for messages. After an error the field is to be freed as well. */
tow_status tow__field_create(tow_context *ctx, const tow_field *options, size_t index, tow__field *field);
void tow__field_free(tow_context *ctx, tow__field *field);
/* Bytes of `scratch` in the next function. */
size_t tow__field_scratch(const tow__field *field);
/* Row `row` of the source to row `place` of the batch at `data`. */
tow_status tow__field_read(const tow__field *field, size_t index, int64_t row, int64_t place, void *data, void *scratch,
                           tow__row_error *error);

#endif
