/* Agreement of processes about a status: has a step worked in all of them? And a chain, along which each process hands
 * bytes to the next one. */
#ifndef TOW_SRC_GROUP_AGREEMENT_H
#define TOW_SRC_GROUP_AGREEMENT_H

#include "src/group/group.h"

/* Each process brings its status: TOW_OK if all have that. Otherwise all get the status and the message of the lowest
 * rank that failed, which the others hear with its rank and host; ctx has the messages. Collective; NULL is the group
 * of one. */
tow_status tow__group_agree(tow_context *ctx, tow_group *group, tow_status status);
/* Each process brings what it has: *any becomes true if it is that in one of them. Collective; NULL is the group of
 * one. */
tow_status tow__group_any(tow_context *ctx, tow_group *group, bool *any);
/* Does this process choose for all? Rank 0 does, and each that is there alone. */
bool tow__group_leads(const tow_group *group);
/* Bytes of rank `root` to all. */
tow_status tow__group_send_to_all(tow_group *group, int root, void *data, size_t bytes, const char *what);

/* The ranks in the order of their shares (tow_group_share), in which elements of every array pass from the first to
 * the last. */
typedef struct tow__share_chain {
    tow_group *group;
    int first, last, previous, next; /* ranks; -1: there is none */
    unsigned sent, received;         /* messages */
    tow__collective *text;           /* says what a rank waits for; never run */
} tow__share_chain;
tow_status tow__share_chain_create(tow_context *ctx, tow_group *group, const char *what, tow__share_chain *chain);
void tow__share_chain_free(tow__share_chain *chain);
/* Bytes from the previous rank, unless this one is the first: at most TOW_MESSAGE_BYTES. Waits for them. */
tow_status tow__share_chain_receive(tow__share_chain *chain, void *data, size_t bytes);
/* Bytes to the next rank, unless this one is the last. Waits until they have left. */
tow_status tow__share_chain_send(tow__share_chain *chain, void *data, size_t bytes);

#endif
