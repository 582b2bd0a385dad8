/* Who owns which row groups, and which elements. */
#include "src/group/group.h"

bool tow__row_groups_valid(int count, int row_groups)
{
    return count >= 1 && row_groups >= count && row_groups <= TOW__MOST_ROW_GROUPS &&
           (row_groups & (row_groups - 1)) == 0;
}

/* Half of the groups go to half of the ranks, the smaller one, so that every rank owns one subtree. */
static void split_groups(int first_rank, int count, int begin, int row_groups, int *first_group)
{
    if (count == 1) {
        first_group[first_rank] = begin;
        return;
    }
    split_groups(first_rank, count / 2, begin, row_groups / 2, first_group);
    split_groups(first_rank + count / 2, count - count / 2, begin + row_groups / 2, row_groups / 2, first_group);
}

void tow__row_groups(int count, int row_groups, int *first_group)
{
    split_groups(0, count, 0, row_groups, first_group);
    first_group[count] = row_groups;
}

tow_status tow_group_rows(int rank, int count, int row_groups, int *begin, int *end)
{
    if (!begin || !end || !tow__row_groups_valid(count, row_groups) || rank < 0 || rank >= count)
        return TOW_INVALID_ARGUMENT;
    int first = 0;
    while (count > 1) { /* as split_groups, along one path */
        const int left = count / 2;
        row_groups /= 2;
        if (rank >= left) {
            rank -= left;
            first += row_groups;
            count -= left;
        } else {
            count = left;
        }
    }
    *begin = first;
    *end = first + row_groups;
    return TOW_OK;
}

/* The place of a rank's share among all: those of the left and of the right half of the ranks alternate, so that what
 * two neighbours exchange at a node lies in one piece. The right half may be one longer. */
static int place_of(int rank, int count)
{
    if (count == 1) return 0;
    const int left = count / 2;
    if (rank < left) return 2 * place_of(rank, left);
    const int place = place_of(rank - left, count - left);
    return place < left ? 2 * place + 1 : 2 * left;
}

int64_t tow__share_unit(int64_t n)
{
    enum {
        LINE = 16, /* elements: a cache line of f32 */
        UNITS = 4096
    };
    int64_t unit = LINE;
    while (n / unit >= 2 * UNITS) unit *= 2;
    return unit;
}

int64_t tow__share_line(int64_t n)
{
    int64_t line = tow__share_unit(n);
    while (n % line != 0) line /= 2;
    return line;
}

tow__range_of tow__share_of(int rank, int count, int64_t n, int64_t unit)
{
    if (unit <= 0) unit = tow__share_unit(n);
    const int64_t units = (n + unit - 1) / unit;
    const int64_t place = place_of(rank, count), each = units / count, longer = units % count;
    const int64_t first = place * each + (place < longer ? place : longer);
    const int64_t begin = first * unit, end = (first + each + (place < longer)) * unit;
    return (tow__range_of){begin < n ? begin : n, (end < n ? end : n) - (begin < n ? begin : n)};
}

void tow__shares(int count, int64_t n, int64_t unit, tow__range_of *shares)
{
    for (int r = 0; r < count; r++) shares[r] = tow__share_of(r, count, n, unit);
}

tow__range_of tow__share_in_window(int rank, int count, int64_t n, int64_t unit, tow__window window)
{
    if (window.of == 0) return tow__share_of(rank, count, n, unit);
    const tow__range_of share = tow__share_of(rank, count, window.of, unit);
    const int64_t from = share.offset - window.first, to = from + share.count;
    const int64_t begin = from > 0 ? from : 0, end = to < n ? to : n;
    return begin < end ? (tow__range_of){begin, end - begin} : (tow__range_of){0, 0};
}

tow_status tow_group_share(int rank, int count, int64_t n, int64_t *offset, int64_t *length)
{
    if (!offset || !length || rank < 0 || rank >= count || n < 0 || n > INT64_MAX / 2) return TOW_INVALID_ARGUMENT;
    const tow__range_of share = tow__share_of(rank, count, n, 0);
    *offset = share.offset;
    *length = share.count;
    return TOW_OK;
}
