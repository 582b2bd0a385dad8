/* Reads the held-out text piece by piece, and writes new text character by character. */
#include "evaluate.h"

#include <math.h>
#include <stdio.h>

#include "common/common.h"

static const double temperature = 0.7;

tow_status validate(reader *r, const text *t, int64_t most, bool forget, double *loss)
{
    const tow_type type = tow_array_type(r->tokens);
    const int64_t batch = type.dims[0], time = type.dims[1], length = (int64_t)(t->size - t->train) / batch;
    const unsigned char *held_out = t->tokens + t->train;
    int32_t *tokens = tow_array_data(r->tokens), *labels = tow_array_data(r->labels);
    double sum = 0;
    int64_t pieces = 0;
    reader_reset(r);
    for (int64_t from = 0; from + time < length && pieces < most; from += time, pieces++) {
        if (forget) reader_reset(r);
        for (int64_t i = 0; i < batch * time; i++) {
            const unsigned char *at = held_out + i / time * length + from + i % time;
            tokens[i] = at[0];
            labels[i] = at[1];
        }
        tow_status status = reader_read(r);
        if (status) return status;
        const float *losses = tow_array_data(r->outputs[0]);
        double piece = 0;
        for (int64_t i = 0; i < batch * time; i++) piece += (double)losses[i];
        sum += piece / (double)(batch * time);
    }
    *loss = pieces ? sum / (double)pieces : NAN;
    return TOW_OK;
}

tow_status sample(reader *r, const text *t, uint64_t seed, int64_t count)
{
    int32_t *token = tow_array_data(r->tokens);
    *token = t->token_of['\n'] >= 0 ? t->token_of['\n'] : 0;
    reader_reset(r);
    for (int64_t i = 0; i < count && !interrupted(); i++) {
        tow_status status = reader_read(r);
        if (status) return status;
        const double u = (double)(random_bits(seed, (uint64_t)i) >> 11) * 0x1p-53;
        *token = text_draw(tow_array_data(r->outputs[0]), t->vocabulary, temperature, u);
        putchar(t->bytes[*token]);
        fflush(stdout);
    }
    putchar('\n');
    return TOW_OK;
}
