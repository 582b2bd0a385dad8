/* test_mpi WHAT: a program for mpirun that knows the public headers alone. Tests mpi/tow_mpi.c. Status 0: all as
 * expected.
 *
 *   sums      sums, gathers, broadcasts have the bits of the tree over row groups
 *   saves     a file that all write is whole, and errors of one rank are errors of all
 *   own       the same over a communicator of the program's own, with MPI begun by the program
 *   differs   rank 1 has another seed: status 3, and a message at each rank
 *   aborts, killed, stops    rank 1 does so, or rank 0 is stopped, and the others wait */
#include <math.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <tow/mpi.h>
#include <unistd.h>

#include "tests/unit/support/shared_sets.h"

enum {
    GROUPS = 8
};

static tow_context *context;
static tow_group *group;

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) tow_group_abort(group, 2, "line %d: expected %s", __LINE__, #condition);                     \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != TOW_OK)                                                                                          \
            tow_group_abort(group, 2, "line %d: %s: %s", __LINE__, #call, tow_context_error(context));                 \
    } while (0)

/* ---- sums: f32 whose order shows, f64, and integers that wrap ---------------------------------------------------- */

static double number(int g, int64_t i)
{
    return (double)((g * 7919 + i * 104729) % 1001 - 500) / 7 * (g % 3 == 0 ? 4096 : 1);
}

#define TREE(T, name, leaf)                                                                                            \
    static T tree_##name(int begin, int end, int64_t i)                                                                \
    {                                                                                                                  \
        const int middle = begin + (end - begin) / 2;                                                                  \
        if (end - begin == 1) return leaf;                                                                             \
        return (T)(tree_##name(begin, middle, i) + tree_##name(middle, end, i));                                       \
    }                                                                                                                  \
    static void fill_##name(void *data, int begin, int end, int64_t n)                                                 \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) ((T *)data)[i] = tree_##name(begin, end, i);                                   \
    }
TREE(float, f32, (float)number(begin, i))
TREE(double, f64, number(begin, i))
TREE(uint32_t, u32, (uint32_t)(begin + 1) * 0x9E3779B9U + (uint32_t)i)

static void check_sums(tow_dtype dtype, void (*fill)(void *data, int begin, int end, int64_t n), int64_t n)
{
    const tow_type type = tow_make_type(dtype, 1, &n);
    const size_t bytes = tow_type_bytes(type), size = tow_dtype_size(dtype);
    const int rank = tow_group_rank(group), count = tow_group_count(group);
    tow_array *array = NULL, *expected = NULL;
    int begin = 0, end = 0;
    int64_t offset = 0, length = 0;
    OK(tow_array_create(context, type, &array));
    OK(tow_array_create(context, type, &expected));
    char *data = tow_array_data(array), *sum = tow_array_data(expected);
    OK(tow_group_rows(rank, count, GROUPS, &begin, &end));
    OK(tow_group_share(rank, count, n, &offset, &length));
    const size_t from = (size_t)offset * size, own = (size_t)length * size;
    fill(sum, 0, GROUPS, n);
    fill(data, begin, end, n);
    OK(tow_group_all_reduce(group, GROUPS, array));
    EXPECT(memcmp(data, sum, bytes) == 0);
    fill(data, begin, end, n);
    OK(tow_group_reduce_scatter(group, GROUPS, array));
    EXPECT(memcmp(data + from, sum + from, own) == 0);
    memset(data, 0, bytes);
    memcpy(data + from, sum + from, own);
    OK(tow_group_all_gather(group, array));
    EXPECT(memcmp(data, sum, bytes) == 0);
    if (rank != count - 1) memset(data, 0, bytes);
    OK(tow_group_broadcast(group, count - 1, array));
    EXPECT(memcmp(data, sum, bytes) == 0);
    OK(tow_group_barrier(group));
    tow_array_release(array);
    tow_array_release(expected);
}

static void sums(void)
{
    static const int64_t sizes[] = {0, 1, 17, 1000, 300000};
    char version[200];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        check_sums(TOW_F32, fill_f32, sizes[k]);
        check_sums(TOW_F64, fill_f64, sizes[k]);
        check_sums(TOW_U32, fill_u32, sizes[k]);
    }
    check_sums(TOW_F32, fill_f32, TOW_MESSAGE_BYTES / 4 * 3 + 5); /* messages in pieces */
    EXPECT(tow_mpi_version(version, sizeof version) == strlen(version) && strlen(version) > 3);
    if (tow_group_rank(group) == 0) printf("%d ranks: all sums are equal (%s)\n", tow_group_count(group), version);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

static int differs(void)
{
    const tow_group_fact facts[] = {{"model", "gpt"}, {"seed", tow_group_rank(group) == 1 ? "2" : "1"}};
    if (tow_group_check_same(group, 1, facts) != TOW_OK) return 1;
    if (tow_group_check_same(group, 2, facts) != TOW_INVALID_ARGUMENT) return 1;
    fprintf(stderr, "rank %d: %s\n", tow_group_rank(group), tow_context_error(context));
    return 3;
}

static void where(char *text, size_t size, void *user)
{
    (void)user;
    snprintf(text, size, "step 12, gpt.c:41");
}

static int fails(const char *how)
{
    tow_group_set_where(group, where, NULL);
    OK(tow_group_barrier(group));
    if (tow_group_rank(group) == 0 && strcmp(how, "stops") == 0) raise(SIGSTOP);
    if (tow_group_rank(group) == 1 && strcmp(how, "killed") == 0) raise(SIGKILL);
    if (tow_group_rank(group) == 1 && strcmp(how, "aborts") == 0) tow_group_abort(group, 7, "the file is not there");
    OK(tow_group_barrier(group));
    return 1;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void saves(void)
{
    char path[64];
    tow_array *number_of_rank_0 = NULL;
    const int64_t process = getpid();
    OK(tow_array_from_data(context, tow_make_type(TOW_I64, 0, NULL), &process, &number_of_rank_0));
    OK(tow_group_broadcast(group, 0, number_of_rank_0));
    snprintf(path, sizeof path, "/tmp/tow-test-mpi-%lld", (long long)*(int64_t *)tow_array_data(number_of_rank_0));
    for (int version = 1; version <= 3; version++) {
        OK(write_version(context, group, path, version));
        EXPECT(version_of(context, path) == version);
        OK(tow_group_barrier(group)); /* all have read it */
    }
    const int own_version = 4 + (tow_group_rank(group) == tow_group_count(group) - 1);
    const tow_status expected = tow_group_count(group) > 1 ? TOW_INVALID_ARGUMENT : TOW_OK;
    EXPECT(write_version(context, group, path, own_version) == expected);
    EXPECT(write_version(context, group, "/nowhere/at/all", 5) == TOW_IO_ERROR);
    EXPECT(strstr(tow_context_error(context), "/nowhere/at/all") != NULL);
    OK(tow_group_barrier(group));
    if (tow_group_rank(group) == 0) unlink(path);
    if (tow_group_rank(group) == 0) printf("%d ranks: all files are whole\n", tow_group_count(group));
    tow_array_release(number_of_rank_0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "sums";
    const bool own = strcmp(what, "own") == 0;
    MPI_Comm comm = MPI_COMM_NULL;
    int level = 0, result = 0;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (tow_context_create(&TOW_CONTEXT_OPTIONS(.threads = 1), &context) != TOW_OK) return 2;
    if (own) {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
        MPI_Comm_split(MPI_COMM_WORLD, 0, -argc, &comm);
    }
    if (tow_mpi_create(context, own ? &comm : NULL, &TOW_GROUP_OPTIONS(.watchdog = strcmp(what, "stops") ? 0 : 1),
                       &group) != TOW_OK) {
        fprintf(stderr, "%s\n", tow_context_error(context));
        return 2;
    }
    if (own || strcmp(what, "sums") == 0)
        sums();
    else if (strcmp(what, "saves") == 0)
        saves();
    else
        result = strcmp(what, "differs") == 0 ? differs() : fails(what);
    tow_group_free(group);
    if (own) {
        MPI_Comm_free(&comm);
        MPI_Finalize();
        group = NULL;
        if (tow_mpi_create(context, NULL, NULL, &group) != TOW_UNSUPPORTED) return 2; /* MPI has ended */
    }
    tow_context_free(context);
    return result;
}
