/* Cancellation: the words that are asked, and which of them a thread looks at. */
#include "src/base/cancel.h"

#include "src/base/base.h"
#include "src/base/clock.h"

static _Thread_local tow__cancellation *current;
/* Of shielded runs: it has no context, so nobody writes to it. */
static tow__cancellation shield;

tow__cancellation *tow__cancellation_enter(tow__cancellation *c)
{
    tow__cancellation *before = current;
    current = c;
    return before;
}

tow__cancellation *tow__cancellation_now(void) { return current; }
tow__cancellation *tow__cancellation_shield(void) { return tow__cancellation_enter(&shield); }
bool tow__cancellation_shielded(void) { return current == &shield; }

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

void tow__cancellation_begin(tow__cancellation *c, const tow_context *ctx)
{
    c->ctx = ctx;
    c->request = ctx ? atomic_load_explicit(&ctx->request, memory_order_relaxed) : 0;
    c->deadline = c->request ? atomic_load_explicit(&ctx->deadline, memory_order_relaxed) : INT64_MAX;
    atomic_store_explicit(&c->seen, TOW__GOES_ON, memory_order_relaxed);
}

static tow__cancel_reason look(const tow_context *ctx, tow_request request, int64_t deadline)
{
    if (atomic_load_explicit(&ctx->cancelled, memory_order_relaxed)) return TOW__ASKED;
    if (request == 0) return TOW__GOES_ON;
    if (atomic_load_explicit(&ctx->cancelled_request, memory_order_relaxed) == request) return TOW__REQUEST_ASKED;
    return deadline != INT64_MAX && tow__nanoseconds() >= deadline ? TOW__DEADLINE_PASSED : TOW__GOES_ON;
}

bool tow__cancelled(void)
{
    tow__cancellation *c = current;
    if (!c || !c->ctx) return false;
    if (atomic_load_explicit(&c->seen, memory_order_relaxed)) return true;
    const tow__cancel_reason reason = look(c->ctx, c->request, c->deadline);
    if (reason == TOW__GOES_ON) return false;
    atomic_store_explicit(&c->seen, reason, memory_order_relaxed);
    return true;
}

tow__cancel_reason tow__cancel_reason_of(const tow_context *ctx)
{
    return look(ctx, atomic_load_explicit(&ctx->request, memory_order_relaxed),
                atomic_load_explicit(&ctx->deadline, memory_order_relaxed));
}

tow_status tow__fail_cancelled(tow_context *ctx, tow__cancel_reason reason, const char *what, const char *consequence)
{
    static const char *const reasons[] = {
        [TOW__GOES_ON] = "was cancelled",
        [TOW__ASKED] = "was cancelled (tow_context_cancel)",
        [TOW__REQUEST_ASKED] = "was cancelled with its request (tow_request_cancel)",
        [TOW__DEADLINE_PASSED] = "went beyond the deadline of its request (tow_request_begin)",
    };
    return tow__fail(ctx, TOW_CANCELLED, "%s %s and %s; %s", what, reasons[reason], consequence,
                     reason == TOW__ASKED ? "tow_context_cancel_reset lets programs run again"
                                          : "tow_request_end, or the next tow_request_begin, lets programs run again");
}

/* ---- whole contexts ---------------------------------------------------------------------------------------------- */

void tow_context_cancel(tow_context *context)
{
    if (context) atomic_store_explicit(&context->cancelled, 1, memory_order_relaxed);
}

void tow_context_cancel_reset(tow_context *context)
{
    if (context) atomic_store_explicit(&context->cancelled, 0, memory_order_relaxed);
}

bool tow_context_is_cancelled(const tow_context *context)
{
    return context && tow__cancel_reason_of(context) != TOW__GOES_ON;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The moment in so many seconds. More than a century: none. */
static int64_t deadline_in(double seconds)
{
    const double century = 3.2e9;
    if (seconds >= century) return INT64_MAX;
    return seconds > 0 ? tow__nanoseconds() + (int64_t)(seconds * 1e9) : 0; /* NaN: it has passed */
}

tow_request tow_request_begin(tow_context *context, double seconds)
{
    if (!context) return 0;
    const tow_request request = ++context->requests;
    atomic_store_explicit(&context->deadline, deadline_in(seconds), memory_order_relaxed);
    atomic_store_explicit(&context->request, request, memory_order_relaxed);
    return request;
}

void tow_request_end(tow_context *context)
{
    if (!context) return;
    atomic_store_explicit(&context->request, 0, memory_order_relaxed);
    atomic_store_explicit(&context->deadline, INT64_MAX, memory_order_relaxed);
}

/* Only a later request takes the word: whoever is late with an older one must not undo that. */
void tow_request_cancel(tow_context *context, tow_request request)
{
    if (!context || atomic_load_explicit(&context->request, memory_order_relaxed) != request) return;
    tow_request before = atomic_load_explicit(&context->cancelled_request, memory_order_relaxed);
    while (before < request && !atomic_compare_exchange_weak_explicit(&context->cancelled_request, &before, request,
                                                                      memory_order_relaxed, memory_order_relaxed))
        ;
}
