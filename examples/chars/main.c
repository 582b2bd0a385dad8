/* Trains a GRU on the characters of a text by truncated backpropagation through time, and lets it write. Every stream
 * of the batch reads its part of the text from beginning to end, some characters per step; the carry goes on from step
 * to step, and gradients end where a step begins. `chars --help` lists the options. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/text.h"
#include "evaluate.h"
#include "model.h"

/* The curves of the loss. */
typedef struct curve {
    double *x, *y;
    size_t n, capacity;
} curve;

typedef struct chars_run {
    run base;
    int64_t batch, time, width, layers, sample;
    const char *text_path, *resume;
    text text;
    chars model;
    tow_train_state *state;
    tow_array *tokens, *labels; /* of a step */
    reader held_out;
    curve losses, validation;
} chars_run;

static void read_options(int argc, char **argv, chars_run *r)
{
    *r = (chars_run){.base = {.program = "chars",
                              .purpose = "Trains a GRU on the characters of a text, and lets it write.",
                              .options = {.steps = 2000, .learning_rate = 4e-3, .out = "out/chars"}},
                     .batch = 32,
                     .time = 64,
                     .width = 256,
                     .layers = 1,
                     .sample = 500};
    const example_option own[] = {
        {"text", "FILE", "A text (Tow's own)", OPTION_PATH, (void *)&r->text_path, 0, 0},
        {"batch", "N", "Streams that are read side by side", OPTION_WHOLE, &r->batch, 1, 4096},
        {"time", "N", "Characters per step, through which gradients go", OPTION_WHOLE, &r->time, 1, 65536},
        {"width", "N", "Features of each layer", OPTION_WHOLE, &r->width, 1, 8192},
        {"layers", "N", "GRUs one above the other", OPTION_WHOLE, &r->layers, 1, MOST_LAYERS},
        {"sample", "N", "Characters to write at the end", OPTION_WHOLE, &r->sample, 0, INT32_MAX},
        {"resume", "FILE", "Go on from these weights", OPTION_PATH, (void *)&r->resume, 0, 0},
        {0}};
    read_run_options(&r->base, argc, argv, own);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* Tokens of each stream. */
static int64_t stream_length(const chars_run *r) { return (int64_t)r->text.train / r->batch; }

static bool read_text(chars_run *r)
{
    char path[4096];
    find_shared("tow.txt", path, sizeof path);
    if (!r->text_path && path[0] == '\0') {
        fprintf(stderr, "chars: Tow's text is not beside the program; give another one with --text FILE\n");
        return false;
    }
    if (!text_read(&r->text, "chars", r->text_path ? r->text_path : path, (size_t)r->time)) return false;
    const int64_t held_out = (int64_t)(r->text.size - r->text.train) / r->batch;
    if (held_out > r->time) return true;
    fprintf(
        stderr,
        "chars: %lld streams of the held-out tenth have %lld characters each, expected more than --time %lld; choose "
        "a longer text, a smaller --batch or a smaller --time\n",
        (long long)r->batch, (long long)held_out, (long long)r->time);
    return false;
}

/* Fills the arrays with the next `time` characters of each stream, and moves on. At its end a stream begins again,
 * without a carry. */
static void next_piece(chars_run *r)
{
    int64_t from = (int64_t)tow_train_data_position(r->state);
    int32_t *tokens = tow_array_data(r->tokens), *labels = tow_array_data(r->labels);
    if (from + r->time >= stream_length(r)) {
        tow_params *carries = tow_train_variables(r->state);
        for (size_t i = 0; i < tow_params_count(carries); i++) {
            tow_array *h = tow_params_array(carries, i);
            memset(tow_array_data(h), 0, tow_type_bytes(tow_array_type(h)));
        }
        from = 0;
    }
    for (int64_t i = 0; i < r->batch * r->time; i++) {
        const unsigned char *at = r->text.tokens + i / r->time * stream_length(r) + from + i % r->time;
        tokens[i] = at[0];
        labels[i] = at[1];
    }
    tow_train_set_data_position(r->state, (uint64_t)(from + r->time));
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static tow_status make_state(chars_run *r)
{
    const common_options *o = &r->base.options;
    const tow_type types[] = {tow_make_type(TOW_I32, 2, (int64_t[]){r->batch, r->time}),
                              tow_make_type(TOW_I32, 2, (int64_t[]){r->batch, r->time})};
    char description[64];
    snprintf(description, sizeof description, "chars, vocabulary %016llx",
             (unsigned long long)text_vocabulary_hash(&r->text));
    chars_make(&r->model, r->text.vocabulary, r->width, r->layers);
    const tow_train_options train =
        TOW_TRAIN_OPTIONS(.optimizer = {.learning_rate =
                                            tow_schedule_warmup_cosine(0, o->learning_rate, o->steps / 20, o->steps, 0),
                                        .clip_norm = 1},
                          .seed = o->seed, .n_inputs = 2, .input_types = types, .loss = chars_loss,
                          .description = description);
    tow_status status = tow_train_create(r->base.context, TOW_MODULE(&r->model), &train, &r->state);
    if (!status && r->resume) status = tow_train_load(r->state, r->resume);
    if (!status) status = tow_array_create(r->base.context, types[0], &r->tokens);
    if (!status) status = tow_array_create(r->base.context, types[1], &r->labels);
    if (status) return status;
    return reader_create(r->base.context, &r->model, tow_train_params(r->state), r->batch, r->time, true, &r->held_out);
}

static int prepare(chars_run *r)
{
    if (open_run(&r->base) != SUCCESS) return FAILURE;
    if (!read_text(r) || !make_directory("chars", r->base.options.out)) return FAILURE;
    if (make_state(r) != TOW_OK) return complain(&r->base);
    const tow_train_bytes bytes = tow_train_get_bytes(r->state);
    printf("%lld characters of %d kinds; %lld parameters; %.1f MiB for training, of which %.1f MiB are residuals\n",
           (long long)r->text.size, r->text.vocabulary,
           (long long)tow_params_element_count(tow_train_params(r->state), NULL), (double)bytes.total / 0x1p20,
           (double)bytes.residuals / 0x1p20);
    return SUCCESS;
}

static bool note(curve *c, int64_t step, double y)
{
    if (c->n == c->capacity) {
        const size_t capacity = 2 * c->capacity + 64;
        double *xs = realloc(c->x, capacity * sizeof *xs);
        if (xs) c->x = xs;
        double *ys = realloc(c->y, capacity * sizeof *ys);
        if (ys) c->y = ys;
        if (!xs || !ys) {
            fprintf(stderr, "chars: out of memory\n");
            return false;
        }
        c->capacity = capacity;
    }
    c->x[c->n] = (double)step;
    c->y[c->n++] = y;
    return true;
}

/* One update; twenty times in a run, and at its end, the loss of some of the held-out text. */
static int step(chars_run *r, progress *p)
{
    const int64_t number = tow_train_step_count(r->state) + 1, every = (r->base.options.steps + 19) / 20;
    tow_array *const inputs[] = {r->tokens, r->labels};
    double loss, validation = NAN;
    next_piece(r);
    if (tow_train_step(r->state, inputs, &loss) != TOW_OK) return complain(&r->base);
    if (number % every == 0 || number == r->base.options.steps) {
        if (validate(&r->held_out, &r->text, 20, false, &validation) != TOW_OK) return complain(&r->base);
        if (!note(&r->validation, number, validation)) return FAILURE;
    }
    if (!note(&r->losses, number, loss)) return FAILURE;
    return progress_step(p, number, loss, validation) ? SUCCESS : FAILURE;
}

static int train(chars_run *r)
{
    const common_options *o = &r->base.options;
    progress p;
    const progress_options shown = {.program = "chars",
                                    .first = tow_train_step_count(r->state),
                                    .steps = o->steps,
                                    .unit = "characters",
                                    .units_per_step = r->batch * r->time,
                                    .measure = "val",
                                    .measure_key = "val_loss",
                                    .log = o->log};
    if (!progress_start(&p, &shown)) return FAILURE;
    int status = SUCCESS;
    catch_interrupts();
    while (status == SUCCESS && !interrupted() && tow_train_step_count(r->state) < o->steps) status = step(r, &p);
    return end_training(&p, status, tow_train_step_count(r->state), "");
}

/* ---- what a run leaves ------------------------------------------------------------------------------------------- */

static tow_status draw_losses(const chars_run *r)
{
    const tow_series series[] = {
        {.name = "training", .n = r->losses.n, .x = r->losses.x, .y = r->losses.y},
        {.name = "held out", .n = r->validation.n, .x = r->validation.x, .y = r->validation.y}};
    const tow_chart chart = TOW_CHART(.title = "Loss of a character GRU", .x_label = "step",
                                      .y_label = "nats per character", .n_series = 2, .series = series);
    return write_chart(&r->base, "loss.svg", &chart);
}

/* The loss of the whole held-out text, with the carry and without, and some text. */
static tow_status report(chars_run *r)
{
    double kept, forgotten;
    reader single = {0};
    tow_status status = validate(&r->held_out, &r->text, INT64_MAX, false, &kept);
    if (!status) status = validate(&r->held_out, &r->text, INT64_MAX, true, &forgotten);
    if (status) return status;
    printf("\nheld-out text: %.4f nats (%.3f bits) per character; %.4f without the carry from piece to piece\n\n", kept,
           kept / log(2), forgotten);
    if (r->sample > 0) {
        status = reader_create(r->base.context, &r->model, tow_train_params(r->state), 1, 1, false, &single);
        if (!status) status = sample(&single, &r->text, r->base.options.seed, r->sample);
        reader_free(&single);
    }
    return status;
}

static tow_status finish(chars_run *r, bool whole)
{
    tow_status status = draw_losses(r);
    if (!status) status = save_weights(&r->base, r->state);
    return status || !whole ? status : report(r);
}

int main(int argc, char **argv)
{
    static chars_run r;
    read_options(argc, argv, &r);
    int status = prepare(&r);
    if (status == SUCCESS) status = train(&r);
    if ((status == SUCCESS || status == INTERRUPTED) && finish(&r, status == SUCCESS) != TOW_OK)
        status = complain(&r.base);
    status = finish_output("chars", status);
    reader_free(&r.held_out);
    tow_array_release(r.tokens);
    tow_array_release(r.labels);
    tow_train_free(r.state);
    text_free(&r.text);
    tow_context_free(r.base.context);
    free(r.losses.x);
    free(r.losses.y);
    free(r.validation.x);
    free(r.validation.y);
    return status;
}
