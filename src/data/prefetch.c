/* The thread that makes batches ahead.
 *
 *     slots   | held by the caller | full ... full | being made |
 *     batch     held                 held + 1        next
 *
 * The thread makes batch `next` while next < held + n_slots, in slot next mod n_slots; the caller waits until that of
 * its position is full. A batch that failed, and the end of the data, is the last one that it makes: the caller joins
 * it then, and the next call begins anew. A loader whose thread cannot start makes its batches on the caller's, with
 * the same bits. */
#include <signal.h>

#include "src/data/loader.h"

tow_status tow__loader_begin(tow_loader *l)
{
    if (pthread_mutex_init(&l->mutex, NULL) != 0)
        return tow__fail(l->ctx, TOW_OUT_OF_MEMORY, "cannot make a mutex for a loader");
    if (pthread_cond_init(&l->changed, NULL) != 0) {
        pthread_mutex_destroy(&l->mutex);
        return tow__fail(l->ctx, TOW_OUT_OF_MEMORY, "cannot make a condition for a loader");
    }
    l->initialized = true;
    return TOW_OK;
}

void tow__loader_end(tow_loader *l)
{
    tow__loader_stop(l);
    if (!l->initialized) return;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
}

/* The number of the batch to make, once there is room for it. False: the thread is to end. */
static bool wait_for_room(tow_loader *l, uint64_t *position)
{
    pthread_mutex_lock(&l->mutex);
    while (!l->stop && l->next - l->held >= l->n_slots) pthread_cond_wait(&l->changed, &l->mutex);
    *position = l->next;
    const bool goes_on = !l->stop;
    pthread_mutex_unlock(&l->mutex);
    return goes_on;
}

static void *work(void *loader)
{
    tow_loader *l = loader;
    uint64_t position;
    for (bool goes_on = true; goes_on && wait_for_room(l, &position);) {
        tow__batch_slot *slot = &l->slots[position % l->n_slots];
        tow__loader_fill(l, position, slot);
        goes_on = !slot->end && slot->error.status == TOW_OK;
        pthread_mutex_lock(&l->mutex);
        slot->full = true;
        l->next++;
        pthread_cond_signal(&l->changed);
        pthread_mutex_unlock(&l->mutex);
    }
    return NULL;
}

/* Signals are for the threads of the application. */
static void start(tow_loader *l)
{
    sigset_t all, old;
    l->next = l->held = l->position;
    l->stop = false;
    for (size_t i = 0; i < l->n_slots; i++) l->slots[i].full = false;
    sigfillset(&all);
    const bool masked = pthread_sigmask(SIG_SETMASK, &all, &old) == 0;
    l->started = pthread_create(&l->thread, NULL, work, l) == 0;
    if (masked) pthread_sigmask(SIG_SETMASK, &old, NULL);
    l->synchronous = !l->started;
}

void tow__loader_stop(tow_loader *l)
{
    if (!l->started) return;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    l->started = false;
}

tow__batch_slot *tow__loader_take(tow_loader *l)
{
    tow__batch_slot *slot = &l->slots[l->position % l->n_slots];
    if (!l->synchronous && !l->started) start(l);
    if (l->synchronous) {
        tow__loader_fill(l, l->position, slot);
        return slot;
    }
    pthread_mutex_lock(&l->mutex);
    for (; l->held < l->position; l->held++) l->slots[l->held % l->n_slots].full = false;
    pthread_cond_signal(&l->changed);
    while (!slot->full) pthread_cond_wait(&l->changed, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
    if (slot->end || slot->error.status != TOW_OK) tow__loader_stop(l);
    return slot;
}
