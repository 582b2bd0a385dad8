/* A model that decodes, for a number of rows: programs for each number of positions in a call, all over one set of
 * parameters and one cache.
 *
 *   program: params..., variables..., tokens i32 [rows, T], inputs..., choice inputs...
 *         -> choice outputs..., variables...
 *
 * where the new variables are donated to the old ones. Calls have powers of two as their numbers of positions, so that
 * prompts of all lengths need a few programs only.
 *
 * Rows with positions of their own: the variables "cache_index", i32 [], become i32 [rows], which attention and
 * positions take as well. They are written here before each call. A row may begin at a negative position: what it has
 * there is padding, which sees nothing of what follows and of which nothing goes into the cache. So all rows end with
 * the last position of a call, and each row has its keys and values where it would have them alone. */
#include "src/model/decoder.h"

#include <string.h>

#include "src/params/params.h"

/* ---- variables --------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *name)
{
    const size_t length = strlen(path), n = strlen(name);
    return length >= n && strcmp(path + length - n, name) == 0;
}

static bool in_cache(const char *path) { return strncmp(path, "cache/", 6) == 0; }

static bool is_index(const tow_params *state, size_t i)
{
    const char *path = tow_params_path(state, i);
    return in_cache(path) && ends_with(path, "/cache_index") && state->types[i].dtype == TOW_I32;
}

/* Keys and values, [layers..., rows, positions, G, D]. */
static bool has_rows(const tow_params *state, size_t i)
{
    static const char *const names[] = {"/cached_key", "/cached_value", "/memory_key", "/memory_value"};
    const char *path = tow_params_path(state, i);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (in_cache(path) && ends_with(path, names[k]))
            return state->types[i].rank >= 4 && tow__path_in_front(path, state->types[i].rank);
    return false;
}

static bool is_memory(const char *path) { return ends_with(path, "/memory_key") || ends_with(path, "/memory_value"); }

/* The number of positions of the shortest cache; 0 without one. */
static int64_t find_length(const tow_params *state)
{
    int64_t length = 0;
    for (size_t i = 0; i < tow_params_count(state); i++) {
        const tow_type type = state->types[i];
        if (!ends_with(tow_params_path(state, i), "/cached_key") || type.rank < 4) continue;
        const int64_t own = type.dims[type.rank - 3];
        if (length == 0 || own < length) length = own;
    }
    return length;
}

/* Appends a variable of zeros. */
static tow_status add_zeros(tow_context *ctx, tow_params *state, const char *path, tow_type type)
{
    tow_array *zeros = NULL;
    tow_status status = tow_array_create(ctx, type, &zeros);
    if (status == TOW_OK) status = tow__params_append(state, path, zeros, NULL, 0);
    tow_array_release(zeros);
    return status;
}

static tow_status repeat_variable(tow_context *ctx, const tow_params *from, size_t i, int64_t rows, int64_t repeats,
                                  tow_params *state)
{
    const char *path = tow_params_path(from, i);
    tow_type type = from->types[i];
    if (!in_cache(path)) return tow__params_append(state, path, from->arrays[i], NULL, 0);
    if (is_index(from, i)) return add_zeros(ctx, state, path, type);
    if (has_rows(from, i) && type.dims[type.rank - 4] == rows) {
        type.dims[type.rank - 4] *= repeats;
        return add_zeros(ctx, state, path, type);
    }
    return tow__fail(
        ctx, TOW_UNSUPPORTED,
        "generator: variable \"%s\" %s: several sequences for a prompt need to know its axis of rows, which "
        "they do of cached_key, cached_value, memory_key and memory_value behind the axes of layers; "
        "generate with .sequences and .beams of 1, and give each prompt so many times",
        path, tow__type_name(type).text);
}

tow_status tow__repeat_state(tow_context *ctx, const tow_params *from, int64_t rows, int64_t repeats,
                             tow_params **state)
{
    tow_status status = tow__params_create(ctx, state);
    for (size_t i = 0; i < tow_params_count(from) && status == TOW_OK; i++)
        status = repeat_variable(ctx, from, i, rows, repeats, *state);
    if (status != TOW_OK) {
        tow_params_free(*state);
        *state = NULL;
    }
    return status;
}

static void set_state(tow__decoder *d, tow_params *state)
{
    const size_t n = tow_params_count(d->params);
    tow_params_free(d->state);
    d->state = state;
    for (size_t i = 0; i < tow_params_count(state); i++) d->in[n + i] = state->arrays[i];
}

static void free_programs(tow__decoder *d)
{
    for (int first = 0; first < 2; first++)
        for (int i = 0; i < TOW__CALL_SIZES; i++) {
            tow_program_free(d->programs[first][i]);
            d->programs[first][i] = NULL;
        }
}

/* Variables of other layers may count positions, too, or carry what padding would spoil. */
static tow_status check_parting(const tow__decoder *d)
{
    for (size_t i = 0; i < tow_params_count(d->state); i++) {
        const char *path = tow_params_path(d->state, i);
        if (!in_cache(path) || is_index(d->state, i) || has_rows(d->state, i)) continue;
        return tow__fail(d->ctx, TOW_UNSUPPORTED,
                         "generator: variable \"%s\" %s: rows at different positions need a cache that has only what "
                         "MultiHeadAttention and positions keep there; give prompts of one length",
                         path, tow__type_name(d->state->types[i]).text);
    }
    return TOW_OK;
}

tow_status tow__decoder_part_rows(tow__decoder *d)
{
    tow_params *state = NULL;
    if (d->own_positions) return TOW_OK;
    tow_status status = check_parting(d);
    if (status == TOW_OK) status = tow__params_create(d->ctx, &state);
    for (size_t i = 0; i < tow_params_count(d->state) && status == TOW_OK; i++) {
        const char *path = tow_params_path(d->state, i);
        tow_type type = d->state->types[i];
        if (!is_index(d->state, i)) {
            status = tow__params_append(state, path, d->state->arrays[i], NULL, 0);
            continue;
        }
        type.dims[type.rank++] = d->choice.rows;
        status = add_zeros(d->ctx, state, path, type);
    }
    if (status != TOW_OK) {
        tow_params_free(state);
        return status;
    }
    free_programs(d);
    set_state(d, state);
    d->own_positions = true;
    return TOW_OK;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* Input i of the model, for the rows of this decoder. */
static tow_type input_type(const tow__decoder *d, size_t i)
{
    tow_type type = d->options->input_types[i];
    if (type.rank > 0 && type.dims[0] == d->options->batch) type.dims[0] = d->choice.rows;
    return type;
}

/* Makes the arrays that take the choice, once their types are known. */
static tow_status make_outputs(tow__decoder *d, const tow_graph *graph)
{
    tow_status status = TOW_OK;
    for (size_t i = 0; i < TOW__CHOICE_OUTPUTS && status == TOW_OK; i++)
        if (!d->out[i]) status = tow_array_create(d->ctx, tow_graph_output_type(graph, i), &d->out[i]);
    return status;
}

static tow_status compile(tow__decoder *d, const tow_graph *graph, tow_program **program)
{
    const size_t n = tow_params_count(d->params), n_state = tow_params_count(d->state);
    tow_compile_options options = d->options->compile ? *d->options->compile : TOW_COMPILE_OPTIONS();
    tow_donation *donations = tow__alloc(d->ctx, n_state, sizeof *donations);
    if (!donations) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n_state; i++)
        donations[i] = (tow_donation){.output = TOW__CHOICE_OUTPUTS + i, .input = n + i};
    options.donations = donations;
    options.n_donations = n_state;
    const tow_status status = tow_compile(d->ctx, graph, &options, program);
    tow__free(d->ctx, donations, n_state, sizeof *donations);
    return status;
}

enum {
    MOST_INPUTS = 16 /* that a chooser can have */
};

/* The types of what the chooser gets; how many. types: [MOST_INPUTS] */
static size_t make_types(const tow__decoder *d, int size, tow_type *types)
{
    size_t n = 0;
    types[n++] = tow_make_type(TOW_I32, 2, (int64_t[]){d->choice.rows, (int64_t)1 << size});
    for (size_t i = 0; i < d->choice.n_inputs; i++) types[n++] = input_type(d, i);
    return n + tow__choice_inputs(&d->choice, d->classes, types + n);
}

static const char *const every[] = {TOW_EVERY_COLLECTION, NULL};

/* Penalties need to know how many tokens there are, before the program is traced. */
static tow_status find_classes(tow__decoder *d)
{
    tow_type types[MOST_INPUTS];
    tow_graph *graph = NULL;
    tow_model_options options =
        TOW_MODEL_OPTIONS(.deterministic = true, .state = d->state, .mutable_collections = every);
    if (!tow__has_history(d->options)) return TOW_OK;
    make_types(d, 0, types);
    tow_status status = tow_model_forward_graph(d->model, d->params, 1 + d->choice.n_inputs, types, &options, &graph);
    if (status != TOW_OK) return status;
    const tow_type logits = tow_graph_output_type(graph, 0);
    d->classes = logits.rank > 0 ? logits.dims[logits.rank - 1] : 0;
    tow_graph_release(graph);
    return TOW_OK;
}

tow_status tow__decoder_prepare(tow__decoder *d, bool first, int size)
{
    tow_status status = TOW_OK;
    tow_graph *graph = NULL;
    tow_type types[MOST_INPUTS];
    first = first || d->further == d->model;
    const tow__chooser model = {{&tow__chooser_class}, first ? d->model : d->further, &d->choice};
    const tow_model_options options = TOW_MODEL_OPTIONS(.n_outputs = TOW__CHOICE_OUTPUTS, .deterministic = true,
                                                        .state = d->state, .mutable_collections = every);
    if (d->programs[first][size]) return TOW_OK;
    const size_t n = make_types(d, size, types);
    if (!d->tokens[size]) TRY(tow_array_create(d->ctx, types[0], &d->tokens[size]));
    TRY(tow_model_forward_graph(&model.module, d->params, n, types, &options, &graph));
    TRY(make_outputs(d, graph));
    status = compile(d, graph, &d->programs[first][size]);
done:
    tow_graph_release(graph);
    return status;
}

int tow__call_size(const tow__decoder *d, int64_t most)
{
    int size = 0;
    if (most > d->options->chunk) most = d->options->chunk;
    while (size + 1 < TOW__CALL_SIZES && (int64_t)2 << size <= most) size++;
    return size;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Also where all rows have one position: a call that was cancelled between its programs has left another. */
static void write_positions(tow__decoder *d, const int64_t *positions)
{
    const int64_t rows = d->choice.rows;
    for (size_t i = 0; i < tow_params_count(d->state); i++) {
        if (!is_index(d->state, i)) continue;
        int32_t *to = tow_array_data(d->state->arrays[i]);
        const int64_t n = tow_type_element_count(d->state->types[i]);
        for (int64_t k = 0; k < n; k++) to[k] = (int32_t)positions[k % rows];
    }
}

tow_status tow__decoder_run(tow__decoder *d, bool first, int size, const int64_t *positions)
{
    const size_t place = tow_params_count(d->params) + tow_params_count(d->state);
    first = first || d->further == d->model;
    write_positions(d, positions);
    d->in[place] = d->tokens[size];
    return tow_program_run(d->programs[first][size], d->in, d->out);
}

void tow__decoder_reset(tow__decoder *d)
{
    for (size_t i = 0; i < tow_params_count(d->state); i++) {
        if (!in_cache(tow_params_path(d->state, i))) continue;
        memset(tow_array_data(d->state->arrays[i]), 0, tow_type_bytes(d->state->types[i]));
    }
}

/* ---- moving rows ------------------------------------------------------------------------------------------------- */

/* The parts of a variable with rows. */
typedef struct row_layout {
    int64_t layers, rows;
    size_t bytes, used; /* of a row, and of these what counts */
} row_layout;

static row_layout layout_of(const tow_params *state, size_t i, int64_t positions)
{
    const tow_type type = state->types[i];
    const int64_t *dims = type.dims + type.rank - 4;
    row_layout l = {.layers = 1, .rows = dims[0]};
    const size_t position = (size_t)(dims[2] * dims[3]) * tow_dtype_size(type.dtype);
    for (const int64_t *k = type.dims; k < dims; k++) l.layers *= *k;
    l.bytes = (size_t)dims[1] * position;
    l.used = is_memory(tow_params_path(state, i)) || positions > dims[1] ? l.bytes : (size_t)positions * position;
    return l;
}

size_t tow__row_bytes(const tow__decoder *d)
{
    size_t most = 0;
    for (size_t i = 0; i < tow_params_count(d->state); i++) {
        const size_t bytes = has_rows(d->state, i) ? layout_of(d->state, i, 0).bytes : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

enum {
    SCRATCH = -1 /* in place of a row */
};

/* Moves row from[i] to i, all at once: pairs (to, from) in an order in which nothing is overwritten that is still read.
 * A cycle goes by way of the scratch row. Returns the number of pairs; work: [6 rows], the pairs at first. */
static int64_t order_moves(const int64_t *from, int64_t rows, int64_t *work)
{
    int64_t *readers = work + 4 * rows, *waits = work + 5 * rows, n = 0;
    memset(readers, 0, 2 * (size_t)rows * sizeof *readers);
    for (int64_t i = 0; i < rows; i++) {
        waits[i] = from[i] != i;
        readers[from[i]] += from[i] != i;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t i = 0; i < rows; i++) {
            if (!waits[i] || readers[i] > 0) continue;
            work[2 * n] = i, work[2 * n + 1] = from[i], n++;
            readers[from[i]]--;
            waits[i] = 0;
            moved = true;
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        if (!waits[i]) continue;
        work[2 * n] = SCRATCH, work[2 * n + 1] = i, n++;
        for (int64_t k = i; waits[k]; k = from[k]) {
            waits[k] = 0;
            work[2 * n] = k, work[2 * n + 1] = from[k] == i ? SCRATCH : from[k], n++;
        }
    }
    return n;
}

static void copy_variable(tow__decoder *d, const tow__decoder *source, size_t i, int64_t n, const int64_t *moves,
                          int64_t positions, char *scratch)
{
    const row_layout to = layout_of(d->state, i, positions), from = layout_of(source->state, i, positions);
    char *target = tow_array_data(d->state->arrays[i]);
    const char *origin = tow_array_data(source->state->arrays[i]);
    for (int64_t layer = 0; layer < to.layers; layer++)
        for (int64_t k = 0; k < n; k++) {
            const int64_t a = moves[2 * k], b = moves[2 * k + 1];
            char *there = a == SCRATCH ? scratch : target + (size_t)(layer * to.rows + a) * to.bytes;
            memcpy(there, b == SCRATCH ? scratch : origin + (size_t)(layer * from.rows + b) * from.bytes, to.used);
        }
}

void tow__decoder_copy_rows(tow__decoder *d, const tow__decoder *source, const int64_t *from, int64_t positions,
                            int64_t *work, char *scratch)
{
    const int64_t rows = d->choice.rows;
    int64_t n = rows;
    if (source == d)
        n = order_moves(from, rows, work);
    else
        for (int64_t i = 0; i < rows; i++) work[2 * i] = i, work[2 * i + 1] = from[i];
    for (size_t i = 0; i < tow_params_count(d->state); i++) {
        if (has_rows(d->state, i)) copy_variable(d, source, i, n, work, positions, scratch);
        if (source != d && is_index(d->state, i) && !d->own_positions)
            memcpy(tow_array_data(d->state->arrays[i]), tow_array_data(source->state->arrays[i]),
                   tow_type_bytes(d->state->types[i]));
    }
}

void tow__decoder_copy_row(tow__decoder *d, int64_t row, const tow__decoder *source, int64_t positions)
{
    const int64_t move[2] = {row, 0};
    for (size_t i = 0; i < tow_params_count(d->state); i++)
        if (has_rows(d->state, i)) copy_variable(d, source, i, 1, move, positions, NULL);
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static size_t count_inputs(const tow__decoder *d)
{
    return tow_params_count(d->params) + tow_params_count(d->state) + MOST_INPUTS;
}

tow_status tow__decoder_open(tow__decoder *d, tow_context *ctx, const tow_module *model, const tow_params *params,
                             const tow_generator_options *options, int64_t rows, int64_t repeats, tow_params *state)
{
    const size_t n = tow_params_count(params), n_state = tow_params_count(state);
    *d = (tow__decoder){.ctx = ctx,
                        .model = model,
                        .further = options->further ? options->further : model,
                        .params = params,
                        .options = options,
                        .choice = {options, rows, repeats, options->n_inputs},
                        .state = state,
                        .length = find_length(state)};
    d->in = tow__alloc(ctx, count_inputs(d), sizeof *d->in);
    d->out = tow__alloc(ctx, TOW__CHOICE_OUTPUTS + n_state, sizeof *d->out);
    if (!d->in || !d->out) return TOW_OUT_OF_MEMORY;
    for (size_t i = 0; i < n; i++) d->in[i] = tow_params_array(params, i);
    for (size_t i = 0; i < n_state; i++) d->in[n + i] = state->arrays[i];
    return find_classes(d);
}

void tow__decoder_close(tow__decoder *d)
{
    if (!d->ctx) return;
    free_programs(d);
    for (int i = 0; i < TOW__CALL_SIZES; i++) tow_array_release(d->tokens[i]);
    for (size_t i = 0; d->out && i < TOW__CHOICE_OUTPUTS; i++) tow_array_release(d->out[i]);
    if (d->out) tow__free(d->ctx, d->out, TOW__CHOICE_OUTPUTS + tow_params_count(d->state), sizeof *d->out);
    if (d->in) tow__free(d->ctx, d->in, count_inputs(d), sizeof *d->in);
    tow_params_free(d->state);
}
