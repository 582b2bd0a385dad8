/* Ctrl-C: the first one during an answer cancels what the context computes; another one, or one between answers, ends
 * the program. */
#include <signal.h>
#include <unistd.h>

#include "chat.h"

static tow_context *volatile cancelled_context;
static volatile sig_atomic_t answering, seen;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (!answering || seen) _exit(INTERRUPTED);
    seen = 1;
    tow_context_cancel(cancelled_context);
}

void chat_catch_interrupts(tow_context *context)
{
    cancelled_context = context;
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void chat_answer_begins(void)
{
    seen = 0;
    answering = 1;
}

bool chat_answer_ends(void)
{
    const bool was = seen;
    answering = 0;
    if (was) {
        tow_context_cancel_reset(cancelled_context);
        tow_context_clear_error(cancelled_context);
    }
    return was;
}
