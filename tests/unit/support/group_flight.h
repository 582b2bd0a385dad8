/* Collectives that are in flight at once, between the processes of any group. */
#ifndef TOW_TESTS_GROUP_FLIGHT_H
#define TOW_TESTS_GROUP_FLIGHT_H

#include <stdio.h>

#include "src/group/group.h"

/* In the processes: what does not hold ends them with a message. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d of %d, line %d: expected %s\n", tow_group_rank(group), tow_group_count(group),    \
                    __LINE__, #condition);                                                                             \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK) {                                                                                        \
            fprintf(stderr, "rank %d of %d, line %d: %s: %s\n", tow_group_rank(group), tow_group_count(group),         \
                    __LINE__, #call, tow_context_error(context));                                                      \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

enum {
    AT_ONCE = 10, /* more than fly at once */
    ELEMENTS = 5000,
    ROUNDS = 20
};

/* Collectives of all kinds in flight, waited for in another order by each rank, some of them without a wait of their
 * own; each is run often, and its memory stays. */
static inline int flight_body(tow_context *context, tow_group *group, void *user)
{
    static const tow__collective_kind kinds[AT_ONCE] = {
        TOW__ALL_REDUCE, TOW__ALL_GATHER, TOW__REDUCE_SCATTER, TOW__BROADCAST,  TOW__REDUCE_SCATTER,
        TOW__ALL_REDUCE, TOW__ALL_REDUCE, TOW__BROADCAST,      TOW__ALL_GATHER, TOW__ALL_REDUCE};
    static float data[AT_ONCE][ELEMENTS], scratch[AT_ONCE][ELEMENTS];
    tow__collective *c[AT_ONCE];
    const int rank = tow_group_rank(group), count = tow_group_count(group);
    int begin = 0, end = 0;
    int64_t offset = 0, length = 0;
    (void)user;
    EXPECT(tow_group_rows(rank, count, 8, &begin, &end) == TOW_OK);
    EXPECT(tow_group_share(rank, count, ELEMENTS, &offset, &length) == TOW_OK);
    for (int k = 0; k < AT_ONCE; k++) {
        OK(tow__collective_create(
            context, group,
            &(tow__collective_options){.kind = kinds[k], .dtype = TOW_F32, .n = ELEMENTS, .row_groups = 8, .root = 1},
            &c[k]));
        EXPECT(tow__collective_scratch(c[k]) <= sizeof scratch[k]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < AT_ONCE; k++)
            for (int64_t i = 0; i < ELEMENTS; i++)
                data[k][i] =
                    (float)(i % 100 + k + round) *
                    (float)(kinds[k] == TOW__ALL_GATHER || kinds[k] == TOW__BROADCAST ? rank + 1 : end - begin);
        for (int k = 0; k < AT_ONCE; k++) {
            OK(tow__collective_start(c[k], (void *[]){data[k]}, scratch[k]));
            OK(tow__group_progress(group));
        }
        for (int k = 0; k < AT_ONCE; k++) OK(tow__collective_wait(c[(k * 7 + rank + round) % AT_ONCE]));
        for (int k = 0; k < AT_ONCE; k++)
            for (int64_t i = 0; i < ELEMENTS; i++) {
                const float unit = (float)(i % 100 + k + round);
                if (kinds[k] == TOW__BROADCAST) EXPECT(data[k][i] == unit * 2);
                if (kinds[k] == TOW__ALL_REDUCE) EXPECT(data[k][i] == unit * 8);
                if (kinds[k] == TOW__REDUCE_SCATTER && i >= offset && i < offset + length)
                    EXPECT(data[k][i] == unit * 8);
                for (int r = 0; kinds[k] == TOW__ALL_GATHER && r < count; r++) {
                    int64_t from = 0, n = 0;
                    EXPECT(tow_group_share(r, count, ELEMENTS, &from, &n) == TOW_OK);
                    if (i >= from && i < from + n) EXPECT(data[k][i] == unit * (float)(r + 1));
                }
            }
    }
    for (int k = 0; k < AT_ONCE; k++) tow__collective_free(c[k]);
    return 0;
}

#endif
