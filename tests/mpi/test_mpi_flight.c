/* Collectives that are in flight at once, over MPI: a program for mpirun, with at least two processes. It is compiled
 * with the whole library, whose inside it calls. Tests mpi/tow_mpi.c. */
#include "tests/unit/support/group_flight.h"
#include "tow/mpi.h"

int main(void)
{
    tow_context *context = NULL;
    tow_group *group = NULL;
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context) != TOW_OK) return 2;
    if (tow_mpi_create(context, NULL, NULL, &group) != TOW_OK) {
        fprintf(stderr, "%s\n", tow_context_error(context));
        return 2;
    }
    if (flight_body(context, group, NULL) != 0) tow_group_abort(group, 1, "see above");
    if (tow_group_rank(group) == 0)
        printf("%d ranks: all sums are equal, %d collectives at once\n", tow_group_count(group), AT_ONCE);
    tow_group_free(group);
    tow_context_free(context);
    return 0;
}
