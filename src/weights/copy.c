/* Elements of a parameter, in its order, out of a tensor and into it. Pieces that are in the cache are gathered and
 * then converted, so that no second copy of the data is made. */
#include "src/base/dtypes.h"
#include "src/weights/mapping.h"

enum {
    PIECE = 2048 /* elements */
};

/* The place of an element: indices of all loops, and its offset. */
typedef struct walk {
    const tow__layout *layout;
    int64_t index[TOW__MAX_FACTORS], at;
} walk;

/* Goes to the next run of the innermost loop. */
static void next_run(walk *w)
{
    const tow__layout *l = w->layout;
    for (int i = l->n - 2; i >= 0; i--) {
        w->at += l->strides[i];
        if (++w->index[i] < l->sizes[i]) return;
        w->at -= l->sizes[i] * l->strides[i];
        w->index[i] = 0;
    }
}

#define MOVE(type)                                                                                                     \
    for (int64_t i = 0; i < n; i++) ((type *)to)[i * to_stride] = ((const type *)from)[i * from_stride]

/* n elements. */
static void move(size_t size, int64_t n, void *to, int64_t to_stride, const void *from, int64_t from_stride)
{
    if (to_stride == 1 && from_stride == 1)
        memcpy(to, from, (size_t)n * size);
    else if (size == 4)
        MOVE(uint32_t);
    else if (size == 2)
        MOVE(uint16_t);
    else if (size == 8)
        MOVE(uint64_t);
    else if (size == 1)
        MOVE(uint8_t);
    else /* blocks */
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)to + i * to_stride * (int64_t)size, (const char *)from + i * from_stride * (int64_t)size,
                   size);
}

/* The next n elements, at most to the end of the data: strided (theirs) to or from a piece in order. */
static void walk_piece(walk *w, size_t size, int64_t n, char *piece, char *strided, bool gather)
{
    const tow__layout *l = w->layout;
    const int64_t inner = l->n > 0 ? l->sizes[l->n - 1] : 1, stride = l->n > 0 ? l->strides[l->n - 1] : 1;
    int64_t *index = &w->index[l->n > 0 ? l->n - 1 : 0];
    while (n > 0) {
        const int64_t run = inner - *index < n ? inner - *index : n;
        char *there = strided + (size_t)(l->offset + w->at + *index * stride) * size;
        if (gather)
            move(size, run, piece, 1, there, stride);
        else
            move(size, run, there, stride, piece, 1);
        piece += (size_t)run * size;
        n -= run;
        *index += run;
        if (*index == inner) {
            *index = 0;
            next_run(w);
        }
    }
}

/* Elements plus a number, each rounded once. */
static void add(double plus, int64_t n, tow_dtype to_dtype, void *to, tow_dtype from_dtype, const void *from)
{
    for (int64_t i = 0; i < n; i++)
        tow__store_element(to_dtype, to, i, tow__load_element(from_dtype, from, i).f + plus);
}

/* Blocks of neighboring numbers. */
static void gather_blocks(const tow__layout *layout, int64_t count, tow_dtype to_dtype, void *to, tow_dtype from_dtype,
                          const void *from)
{
    walk w = {.layout = layout};
    const int numbers = tow_dtype_numbers(to_dtype);
    const size_t size = tow_dtype_size(from_dtype) * (size_t)numbers, to_size = tow_dtype_size(to_dtype);
    uint64_t piece[PIECE];
    for (int64_t first = 0; first < count; first += PIECE / numbers) {
        const int64_t n = count - first < PIECE / numbers ? count - first : PIECE / numbers;
        walk_piece(&w, size, n, (char *)piece, (char *)(uintptr_t)from, true);
        tow__convert_elements(to_dtype, (char *)to + (size_t)first * to_size, from_dtype, piece, n * numbers);
    }
}

bool tow__layout_gather(const tow__layout *layout, int64_t count, tow_dtype to_dtype, void *to, tow_dtype from_dtype,
                        const void *from)
{
    walk w = {.layout = layout};
    const size_t size = tow_dtype_size(from_dtype), to_size = tow_dtype_size(to_dtype);
    uint64_t piece[PIECE];
    char *source = (char *)(uintptr_t)from; /* only read */
    if (to_dtype == from_dtype && layout->plus == 0) {
        walk_piece(&w, size, count, to, source, true);
        return true;
    }
    if (layout->blocks) {
        gather_blocks(layout, count, to_dtype, to, from_dtype, from);
        return true;
    }
    for (int64_t first = 0; first < count; first += PIECE) {
        const int64_t n = count - first < PIECE ? count - first : PIECE;
        walk_piece(&w, size, n, (char *)piece, source, true);
        if (layout->plus != 0)
            add(-layout->plus, n, to_dtype, (char *)to + (size_t)first * to_size, from_dtype, piece);
        else if (tow__file_convert(to_dtype, (char *)to + (size_t)first * to_size, from_dtype, piece, n) >= 0)
            return false;
    }
    return true;
}

void tow__layout_scatter(const tow__layout *layout, int64_t count, tow_dtype to_dtype, void *to, tow_dtype from_dtype,
                         const void *from)
{
    walk w = {.layout = layout};
    const size_t size = tow_dtype_size(from_dtype), to_size = tow_dtype_size(to_dtype);
    uint64_t piece[PIECE];
    if (to_dtype == from_dtype && layout->plus == 0) {
        char *source = (char *)(uintptr_t)from; /* only read */
        walk_piece(&w, size, count, source, to, false);
        return;
    }
    for (int64_t first = 0; first < count; first += PIECE) {
        const int64_t n = count - first < PIECE ? count - first : PIECE;
        const char *next = (const char *)from + (size_t)first * size;
        if (layout->plus != 0)
            add(layout->plus, n, to_dtype, piece, from_dtype, next);
        else
            tow__file_convert(to_dtype, piece, from_dtype, next, n);
        walk_piece(&w, to_size, n, (char *)piece, to, false);
    }
}
