/* Cancellation: the words that are asked, and which of them a thread looks at. */
#include "src/base/cancel.h"

#include "src/base/base.h"

static _Thread_local tow__cancellation *current;
/* Of shielded runs: its `asked` is NULL, so nobody writes to it. */
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

bool tow__cancelled(void)
{
    tow__cancellation *c = current;
    if (!c || !c->asked) return false;
    if (atomic_load_explicit(&c->seen, memory_order_relaxed)) return true;
    if (!atomic_load_explicit(c->asked, memory_order_relaxed)) return false;
    atomic_store_explicit(&c->seen, 1, memory_order_relaxed);
    return true;
}

void tow_cancel(tow_context *context)
{
    if (context) atomic_store_explicit(&context->cancelled, 1, memory_order_relaxed);
}

void tow_cancel_reset(tow_context *context)
{
    if (context) atomic_store_explicit(&context->cancelled, 0, memory_order_relaxed);
}

bool tow_is_cancelled(const tow_context *context)
{
    return context && atomic_load_explicit(&context->cancelled, memory_order_relaxed) != 0;
}
