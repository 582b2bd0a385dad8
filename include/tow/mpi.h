/* Groups of processes that MPI has started, on any number of machines; tow/group.h says what groups do.
 *
 *     tow_group *group = NULL;
 *     status = tow_mpi_create(context, NULL, NULL, &group);
 *     ...
 *     if (status) tow_group_abort(group, 1, "%s", tow_context_error(context));
 *     tow_group_free(group);
 *
 *     mpirun -n 8 ./program
 *
 * These functions are in a library of their own, libtow_mpi (find_package(tow COMPONENTS mpi), tow::mpi; pkg-config
 * tow_mpi). It belongs to the MPI that it was built with: programs for Open MPI and for MPICH do not run with each
 * other's libraries. For another MPI its one source file, share/tow/src/tow_mpi.c, is compiled together with the
 * program:
 *
 *     mpicc program.c /usr/share/tow/src/tow_mpi.c $(pkg-config --cflags --libs tow) */
#ifndef TOW_MPI_H
#define TOW_MPI_H

#include "tow/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A group of all processes of a communicator; all of them call it. communicator: the address of an MPI_Comm, of which a
 * duplicate is taken; NULL: MPI_COMM_WORLD. `options` may be NULL. Begins MPI (MPI_Init_thread with
 * MPI_THREAD_FUNNELED) if the program has not; then tow_group_free ends it, and waits until all processes do so. The
 * group is used by the thread that began MPI. A program that mpirun did not start is a group of one. Errors: those of
 * tow_group_create; TOW_UNSUPPORTED where MPI has ended already or knows no threads; TOW_IO_ERROR with the text of MPI.
 * */
TOW_API tow_status tow_mpi_create(tow_context *context, const void *communicator, const tow_group_options *options,
                                  tow_group **group);
/* Writes the name and version of the MPI at hand, for instance "Open MPI v4.1.4, ...", like snprintf. */
TOW_API size_t tow_mpi_version(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
