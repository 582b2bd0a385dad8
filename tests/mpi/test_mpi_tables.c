/* Training with a table of tokens that is gathered by blocks of rows, over MPI: a program for mpirun. Losses and
 * parameters have the bits of this process alone. Tests mpi/tow_mpi.c, autodiff/sharding/blocks.c. */
#include "tests/unit/support/table_training.h"
#include "tow/mpi.h"

static void train_by_blocks(tow_context *context, tow_group *group)
{
    job alone = {.s = plain, .stage = TOW_SHARD_PARAMETERS}, found = alone;
    if (work(context, NULL, &alone) != TOW_OK || work(context, group, &found) != TOW_OK)
        tow_group_abort(group, 1, "%s", tow_context_error(context));
    if (memcmp(found.losses, alone.losses, sizeof found.losses) != 0 || found.numbers != alone.numbers)
        tow_group_abort(group, 1, "losses or parameters differ from those of one process");
}

int main(void)
{
    tow_context *context = NULL;
    tow_group *group = NULL;
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context) != TOW_OK) return 2;
    if (tow_mpi_create(context, NULL, NULL, &group) != TOW_OK) {
        fprintf(stderr, "%s\n", tow_context_error(context));
        return 2;
    }
    train_by_blocks(context, group);
    if (tow_group_rank(group) == 0)
        printf("%d ranks: all sums are equal, of blocks of a table\n", tow_group_count(group));
    tow_group_free(group);
    tow_context_free(context);
    return 0;
}
