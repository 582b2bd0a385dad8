/* Continuous batching: rows of a running batch that requests join and leave.
 *
 *   waiting: request -> request -> ...        `reader`, one row: reads a prompt, and chooses its first token
 *                |                               |
 *                +---------> row of `rows` <-----+ keys and values are copied
 *
 * Each row counts its own positions. A row without a request is fed the token 0 at position 0, of which nothing is
 * read. */
#include <string.h>

#include "src/base/options.h"
#include "src/model/generator.h"
#include "src/scope/tree.h"
#include "tow/random.h"

typedef struct request {
    struct request *next;
    int64_t id;
    tow_batch_request asked; /* .prompt is `prompt` */
    int64_t count;           /* tokens so far */
    int32_t *tokens;         /* [limit]: those of the answer, of which stop sequences are looked for */
    bool cancelled;
    int32_t prompt[];
} request;

struct tow_batcher {
    tow_context *ctx;
    tow_generator *reader, *rows;
    request **running; /* [batch]; NULL: a free row */
    request *waiting, **last;
    int32_t *fed; /* [batch] of a step */
    int64_t batch, next_id, count;
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static size_t request_bytes(const request *r) { return sizeof *r + (size_t)r->asked.n * sizeof *r->prompt; }

static void free_request(tow_context *ctx, request *r)
{
    if (!r) return;
    if (r->tokens) tow__free(ctx, r->tokens, (size_t)r->asked.limit, sizeof *r->tokens);
    tow__free(ctx, r, request_bytes(r), 1);
}

/* Tells the end of a request, which is in no row and no queue any more. */
static void end_request(tow_batcher *b, request *r, tow_status status, tow_ending ending)
{
    b->count--;
    if (r->asked.on_end) r->asked.on_end(r->id, status, ending, r->count, r->asked.user);
    free_request(b->ctx, r);
}

static tow_status check_request(const tow_batcher *b, const tow_batch_request *q)
{
    const int64_t length = b->rows->length;
    if (q->n >= 1 && q->prompt && q->limit >= 1 && q->n <= length && q->limit - 1 <= length - q->n) return TOW_OK;
    return tow__fail(
        b->ctx, TOW_INVALID_ARGUMENT,
        "tow_batcher_add: a prompt of %lld tokens%s and a limit of %lld; expected at least one of each, and "
        "at most %lld together, which the cache of %lld has; the last token needs none",
        (long long)q->n, q->prompt ? "" : " at NULL", (long long)q->limit, (long long)length + 1, (long long)length);
}

tow_status tow_batcher_add(tow_batcher *b, const tow_batch_request *asked, int64_t *id)
{
    if (!b) return TOW_INVALID_ARGUMENT;
    tow_batch_request q = {0};
    if (!asked) return tow__fail(b->ctx, TOW_INVALID_ARGUMENT, "tow_batcher_add: the request is NULL");
    if (!TOW__OPTIONS_TAKE(b->ctx, tow_batch_request, asked, &q)) return TOW_INVALID_ARGUMENT;
    q = *asked;
    const tow_status status = check_request(b, &q);
    if (status != TOW_OK) return status;
    request *r = tow__alloc(b->ctx, sizeof *r + (size_t)q.n * sizeof *r->prompt, 1);
    if (!r) return TOW_OUT_OF_MEMORY;
    *r = (request){.id = b->next_id, .asked = q};
    r->tokens = tow__alloc(b->ctx, (size_t)q.limit, sizeof *r->tokens);
    if (!r->tokens) {
        free_request(b->ctx, r);
        return TOW_OUT_OF_MEMORY;
    }
    memcpy(r->prompt, q.prompt, (size_t)q.n * sizeof *r->prompt);
    r->asked.prompt = r->prompt;
    *b->last = r;
    b->last = &r->next;
    b->count++;
    if (id) *id = r->id;
    b->next_id++;
    return TOW_OK;
}

void tow_batcher_cancel(tow_batcher *b, int64_t id)
{
    if (!b) return;
    for (request *r = b->waiting; r; r = r->next) r->cancelled |= r->id == id;
    for (int64_t row = 0; row < b->batch; row++)
        if (b->running[row] && b->running[row]->id == id) b->running[row]->cancelled = true;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* One more token for a request, chosen by generator g for its sequence s. True: it goes on; else *status and *ending
 * say why it ends. */
static bool take_token(request *r, tow_generator *g, int64_t s, const tow__prompts *p, tow_status *status,
                       tow_ending *ending)
{
    *ending = TOW_NOT_ENDED;
    *status = tow__check_logits(g, s, p);
    if (*status != TOW_OK) return false;
    const int32_t token = ((const int32_t *)tow_array_data(g->last->out[0]))[s];
    r->tokens[r->count++] = token;
    g->draws[s]++;
    tow__note_generated(g, s, token);
    *ending = tow__ending_of(g, r->tokens, r->count);
    if (r->asked.on_token && !r->asked.on_token(r->id, token, r->asked.user)) r->cancelled = true;
    if (*ending != TOW_NOT_ENDED || r->count == r->asked.limit) return false;
    if (r->cancelled) *status = TOW_CANCELLED;
    return !r->cancelled;
}

/* Copies what the reader knows of its sequence to a row. */
static void enter_row(tow_batcher *b, request *r, int64_t row)
{
    tow_generator *from = b->reader, *to = b->rows;
    tow__decoder_copy_row(&to->prompts, row, &from->prompts, r->asked.n);
    to->positions[row] = r->asked.n;
    to->draws[row] = from->draws[0];
    memcpy(to->roots[row], from->roots[0], sizeof to->roots[row]);
    if (to->history) {
        const size_t bytes = tow_type_bytes(tow_array_type(from->history));
        memcpy((char *)tow_array_data(to->history) + (size_t)row * bytes, tow_array_data(from->history), bytes);
    }
    b->running[row] = r;
}

/* The reader begins anew: the positions say what of its cache counts. */
static void clear_reader(tow_generator *g, uint64_t seed)
{
    g->positions[0] = 0;
    g->draws[0] = 0;
    g->fresh = true;
    tow_random_host_key(seed, g->roots[0]);
    if (g->history) memset(tow_array_data(g->history), 0, tow_type_bytes(tow_array_type(g->history)));
}

/* Reads the prompt of the first request that waits, and puts it into a row if it goes on behind its first token. */
static tow_status let_in(tow_batcher *b, int64_t row)
{
    request *r = b->waiting;
    tow_status status = TOW_OK, end = TOW_CANCELLED;
    tow_ending ending = TOW_NOT_ENDED;
    bool goes_on = false;
    if (!r->cancelled) {
        const tow__prompts p = {r->asked.n, r->prompt, NULL, false};
        clear_reader(b->reader, r->asked.seed);
        status = tow__feed_prompts(b->reader, &p, 0);
        if (status != TOW_OK) return status;
        goes_on = take_token(r, b->reader, 0, &p, &end, &ending);
    }
    b->waiting = r->next;
    if (!b->waiting) b->last = &b->waiting;
    r->next = NULL;
    if (goes_on)
        enter_row(b, r, row);
    else
        end_request(b, r, end, ending);
    return TOW_OK;
}

/* Lets in as many as there are rows for. fresh[row]: it has a new request. */
static tow_status fill_rows(tow_batcher *b)
{
    tow_status status = TOW_OK;
    for (int64_t row = 0; row < b->batch && status == TOW_OK; row++)
        while (!b->running[row] && b->waiting && status == TOW_OK) status = let_in(b, row);
    return status;
}

/* One more token of each request that runs. */
static tow_status feed_rows(tow_batcher *b)
{
    tow_generator *g = b->rows;
    int64_t used = 0;
    for (int64_t row = 0; row < b->batch; row++) {
        const request *r = b->running[row];
        if (!r) g->positions[row] = 0;
        b->fed[row] = r ? r->tokens[r->count - 1] : 0;
        used += r != NULL;
    }
    if (used == 0) return TOW_OK;
    const tow_status status = tow__feed_tokens(g, b->fed, 1);
    for (int64_t row = 0; row < b->batch && status == TOW_OK; row++) {
        request *r = b->running[row];
        tow_status end;
        tow_ending ending;
        if (!r || take_token(r, g, row, NULL, &end, &ending)) continue;
        b->running[row] = NULL;
        end_request(b, r, end, ending);
    }
    return status;
}

/* Ends the running requests that were cancelled between steps. */
static void end_cancelled(tow_batcher *b)
{
    for (int64_t row = 0; row < b->batch; row++) {
        request *r = b->running[row];
        if (!r || !r->cancelled) continue;
        b->running[row] = NULL;
        end_request(b, r, TOW_CANCELLED, TOW_NOT_ENDED);
    }
}

tow_status tow_batcher_step(tow_batcher *b, int64_t *left)
{
    if (!b) return TOW_INVALID_ARGUMENT;
    end_cancelled(b);
    tow_status status = feed_rows(b);
    if (status == TOW_OK) status = fill_rows(b);
    if (left) *left = b->count;
    return status;
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static tow_status check_options(tow_context *ctx, const tow_generator_options *o)
{
    const char *wrong = o->state                        ? ".state"
                        : o->on_token                   ? ".on_token"
                        : o->min_tokens > 0             ? ".min_tokens"
                        : o->n_inputs > 0 || o->further ? ".n_inputs and .further"
                        : o->sequences > 1              ? ".sequences"
                        : o->beams > 1                  ? ".beams"
                                                        : NULL;
    if (!wrong) return TOW_OK;
    return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                     "tow_batcher_create: %s of the options: expected none; requests have their own", wrong);
}

TOW__OWN_FRAME tow_status tow_batcher_create(tow_context *context, const tow_module *model, const tow_params *params,
                                             const tow_generator_options *options, tow_batcher **batcher)
{
    tow_status status = TOW_OK;
    tow_generator_options own = TOW_GENERATOR_OPTIONS();
    if (batcher) *batcher = NULL;
    if (!context) return TOW_INVALID_ARGUMENT;
    if (!model || !params || !batcher)
        return tow__fail(context, TOW_INVALID_ARGUMENT,
                         "tow_batcher_create: the model, the parameters or the result is NULL");
    if (!TOW__OPTIONS_TAKE(context, tow_generator_options, options, &own)) return TOW_INVALID_ARGUMENT;
    if (options) own = *options;
    if (!tow__check_stack(context, __func__, model, TOW__CALLERS_FRAME)) return tow_context_status(context);
    tow_batcher *b = tow__alloc(context, 1, sizeof *b);
    if (!b) return TOW_OUT_OF_MEMORY;
    *b = (tow_batcher){.ctx = context, .batch = own.batch > 0 ? own.batch : 1};
    b->last = &b->waiting;
    TRY(check_options(context, &own));
    TRY(tow_generator_create(context, model, params, &own, &b->rows));
    own.batch = 1;
    TRY(tow_generator_create(context, model, params, &own, &b->reader));
    TRY(tow__decoder_part_rows(&b->rows->prompts));
    TRY(tow__decoder_prepare(&b->rows->prompts, false, 0));
    b->running = tow__alloc(context, (size_t)b->batch, sizeof *b->running);
    b->fed = tow__alloc(context, (size_t)b->batch, sizeof *b->fed);
    if (!b->running || !b->fed) TRY(TOW_OUT_OF_MEMORY);
    memset(b->running, 0, (size_t)b->batch * sizeof *b->running);
    *batcher = b;
    return TOW_OK;
done:
    tow_batcher_free(b);
    return status;
}

void tow_batcher_free(tow_batcher *b)
{
    if (!b) return;
    for (request *r = b->waiting, *next; r; r = next) {
        next = r->next;
        free_request(b->ctx, r);
    }
    for (int64_t row = 0; row < b->batch && b->running; row++) free_request(b->ctx, b->running[row]);
    if (b->running) tow__free(b->ctx, b->running, (size_t)b->batch, sizeof *b->running);
    if (b->fed) tow__free(b->ctx, b->fed, (size_t)b->batch, sizeof *b->fed);
    tow_generator_free(b->reader);
    tow_generator_free(b->rows);
    tow__free(b->ctx, b, 1, sizeof *b);
}
