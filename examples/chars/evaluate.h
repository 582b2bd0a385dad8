/* Validation and sampling. */
#ifndef CHARS_EVALUATE_H
#define CHARS_EVALUATE_H

#include "common/text.h"
#include "reader.h"

/* The mean loss, in nats per character, of the text's last tenth, cut into as many streams as the reader has, of which
 * at most `most` pieces each are read. forget: begin every piece without what came before it. */
tow_status validate(reader *r, const text *t, int64_t most, bool forget, double *loss);

/* Prints `count` characters, drawn one by one by a reader of single characters without labels. */
tow_status sample(reader *r, const text *t, uint64_t seed, int64_t count);

#endif
