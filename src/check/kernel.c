/* The kernel of a defined primitive, called by itself, between guards. It must give the same bits
 *
 *   on memory with other contents      it writes all of its results, and reads nothing else of them or of its scratch
 *                                      memory
 *   on operands with other strides     transposed with gaps, backwards, and repeated (stride 0)
 *   on a team of threads
 *
 * and write to its results and its scratch memory alone. */
#include "src/base/arithmetic.h"
#include "src/base/base.h"
#include "src/base/team.h"
#include "src/check/check.h"

enum {
    MOST = TOW__CHECK_IN + TOW__CHECK_OUT
};

typedef enum layout {
    ROW_MAJOR,
    TRANSPOSED, /* axes in the other order, every other element */
    BACKWARDS,
    REPEATED, /* axis 0 has the stride 0 */
    LAYOUTS
} layout;

static const char *const layout_names[LAYOUTS] = {
    [ROW_MAJOR] = "row-major operands",
    [TRANSPOSED] = "transposed operands with gaps",
    [BACKWARDS] = "operands with negative strides",
    [REPEATED] = "operands whose rows are one row with the stride 0",
};

/* A piece of memory with guards before and behind it, which are as large as itself: a kernel that takes one layout for
 * another stays within them. */
typedef struct piece {
    char *memory;
    size_t bytes;
    int fill; /* the byte that guards consist of */
} piece;

typedef struct calling {
    tow__check *k;
    const tow_primitive_definition *definition;
    size_t n_in, n_out;
    tow_type in[TOW__CHECK_IN], out[TOW__CHECK_OUT];
    char *elements[TOW__CHECK_IN]; /* row-major */
    const tow__team *team;
} calling;

/* Results of one call. */
typedef struct results {
    piece pieces[TOW__CHECK_OUT];
} results;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static size_t guard_of(size_t bytes) { return (bytes + 127) / 64 * 64; }
static size_t whole(const piece *p) { return p->bytes + 2 * guard_of(p->bytes); }
static char *inside(const piece *p) { return p->memory + guard_of(p->bytes); }

static bool make_piece(tow__check *k, size_t bytes, int fill, piece *p)
{
    *p = (piece){.bytes = bytes, .fill = fill};
    p->memory = tow__alloc_aligned(k->ctx, whole(p));
    if (p->memory)
        memset(p->memory, fill, whole(p));
    else
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    return p->memory;
}

static void free_piece(tow__check *k, piece *p)
{
    if (p->memory) tow__free_aligned(k->ctx, p->memory, whole(p));
    p->memory = NULL;
}

static bool is_intact(const piece *p)
{
    const size_t guard = guard_of(p->bytes);
    for (size_t i = 0; i < guard; i++)
        if ((unsigned char)p->memory[i] != p->fill || (unsigned char)p->memory[guard + p->bytes + i] != p->fill)
            return false;
    return true;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* The strides of a layout, in elements. Returns how many elements of memory it takes; *first: where element 0 is. */
static int64_t choose_strides(tow_type type, layout how, int64_t *strides, int64_t *first)
{
    int64_t size = how == TRANSPOSED ? 2 : 1;
    *first = 0;
    for (int d = 0; d < type.rank; d++) {
        const int axis = how == TRANSPOSED ? d : type.rank - 1 - d;
        strides[axis] = how == REPEATED && axis == 0 ? 0 : size;
        if (strides[axis] != 0) size *= type.dims[axis];
    }
    if (how == BACKWARDS)
        for (int d = 0; d < type.rank; d++) {
            if (type.dims[d] > 0) *first += strides[d] * (type.dims[d] - 1);
            strides[d] = -strides[d];
        }
    return size;
}

/* Copies row-major elements to where the buffer has them. */
static void scatter(const char *elements, const tow_buffer *b, int64_t count)
{
    const size_t size = tow_dtype_size(b->dtype);
    int64_t index[TOW_MAX_RANK] = {0};
    for (int64_t e = 0; e < count; e++) {
        int64_t at = 0;
        for (int d = 0; d < b->rank; d++) at += index[d] * b->strides[d];
        memcpy((char *)b->data + at * (int64_t)size, elements + (size_t)e * size, size);
        for (int d = b->rank; d-- > 0;) {
            if (++index[d] < b->dims[d]) break;
            index[d] = 0;
        }
    }
}

static tow_buffer shape_of(tow_type type)
{
    tow_buffer b = {.dtype = type.dtype, .rank = type.rank};
    memcpy(b.dims, type.dims, sizeof b.dims);
    return b;
}

static bool make_operand(const calling *c, size_t i, layout how, piece *p, tow_buffer *b)
{
    int64_t first;
    *b = shape_of(c->in[i]);
    const int64_t size = choose_strides(c->in[i], how, b->strides, &first);
    if (!make_piece(c->k, (size_t)size * tow_dtype_size(b->dtype), 0xff, p)) return false;
    b->data = inside(p) + first * (int64_t)tow_dtype_size(b->dtype);
    scatter(c->elements[i], b, tow_type_element_count(c->in[i]));
    return true;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool run(const calling *c, tow_kernel_call *call, tow_buffer *buffers, piece *scratch, int fill)
{
    void *data[MOST];
    for (size_t i = 0; i < c->n_in + c->n_out; i++) data[i] = buffers[i].data, buffers[i].data = NULL;
    const size_t bytes = c->definition->kernel.scratch ? c->definition->kernel.scratch(call) : 0;
    for (size_t i = 0; i < c->n_in + c->n_out; i++) buffers[i].data = data[i];
    if (!make_piece(c->k, bytes, fill, scratch)) return false;
    call->scratch = bytes ? inside(scratch) : NULL;
    TOW__ARITHMETIC(false);
    c->definition->kernel.run(call);
    return true;
}

/* Finds bytes that the call wrote where nothing is to be written. operands: as they were, copied. */
static void check_guards(const calling *c, const piece *operands, const piece *copies, const results *r,
                         const piece *scratch, const char *what)
{
    for (size_t i = 0; i < c->n_in; i++)
        if (memcmp(operands[i].memory, copies[i].memory, whole(&operands[i])) != 0)
            tow__check_fail(c->k, "%s: it writes to operand %zu, or beside it", what, i);
    for (size_t i = 0; i < c->n_out; i++)
        if (!is_intact(&r->pieces[i])) tow__check_fail(c->k, "%s: it writes outside of result %zu", what, i);
    if (!is_intact(scratch))
        tow__check_fail(c->k, "%s: it writes outside of the %zu bytes of scratch memory that it asked for", what,
                        scratch->bytes);
}

static void free_results(const calling *c, results *r)
{
    for (size_t i = 0; i < c->n_out; i++) free_piece(c->k, &r->pieces[i]);
}

/* One call; what is in results and scratch memory before it: `fill`. False: reported. */
static bool call_kernel(const calling *c, layout how, int fill, const char *what, results *r)
{
    tow_buffer buffers[MOST];
    piece operands[TOW__CHECK_IN] = {{0}}, copies[TOW__CHECK_IN] = {{0}}, scratch = {0};
    bool good = true;
    *r = (results){0};
    for (size_t i = 0; i < c->n_in && good; i++) {
        good = make_operand(c, i, how, &operands[i], &buffers[i]) && make_piece(c->k, operands[i].bytes, 0, &copies[i]);
        if (good) memcpy(copies[i].memory, operands[i].memory, whole(&operands[i]));
    }
    for (size_t i = 0; i < c->n_out && good; i++) {
        tow_buffer *b = &buffers[c->n_in + i];
        int64_t first;
        *b = shape_of(c->out[i]);
        choose_strides(c->out[i], ROW_MAJOR, b->strides, &first);
        good = make_piece(c->k, tow_type_bytes(c->out[i]), fill, &r->pieces[i]);
        if (good) b->data = inside(&r->pieces[i]);
    }
    tow_kernel_call call = {.n_inputs = c->n_in,
                            .n_outputs = c->n_out,
                            .inputs = buffers,
                            .outputs = buffers + c->n_in,
                            .attributes = c->k->c->params,
                            .user = c->definition->user,
                            .team = c->team};
    good = good && run(c, &call, buffers, &scratch, fill);
    if (good) check_guards(c, operands, copies, r, &scratch, what);
    for (size_t i = 0; i < c->n_in; i++) free_piece(c->k, &operands[i]), free_piece(c->k, &copies[i]);
    free_piece(c->k, &scratch);
    if (!good) free_results(c, r);
    return good;
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

static void compare_result(const calling *c, size_t i, const piece *expected, const piece *found, const char *what)
{
    const size_t size = tow_dtype_size(c->out[i].dtype);
    const tow_type one = tow_make_type(c->out[i].dtype, 0, NULL);
    for (int64_t e = 0; e < tow_type_element_count(c->out[i]); e++) {
        const char *a = inside(expected) + (size_t)e * size, *b = inside(found) + (size_t)e * size;
        double x, y;
        if (memcmp(a, b, size) == 0) continue;
        tow__check_from_elements(a, one, &x);
        tow__check_from_elements(b, one, &y);
        if (x != x && y != y) continue; /* NaN has a sign and a payload that processors choose */
        tow__check_fail_at(c->k, i, e, x, y, "%s: result %zu, element %lld: expected %.17g, found %.17g", what, i,
                           (long long)e, x, y);
        return;
    }
}

/* Another call, compared with `expected`. */
static void compare_call(const calling *c, const results *expected, layout how, int fill, const char *what)
{
    results found;
    if (!call_kernel(c, how, fill, what, &found)) return;
    for (size_t i = 0; i < c->n_out && !c->definition->varies; i++)
        compare_result(c, i, &expected->pieces[i], &found.pieces[i], what);
    free_results(c, &found);
}

/* Rows of operands become copies of the first one; false: there are no operands with rows that may change. */
static bool repeat_rows(const calling *c)
{
    bool any = false;
    for (size_t i = 0; i < c->n_in; i++) {
        const tow_type type = c->in[i];
        if (type.rank == 0 || type.dims[0] < 2) continue;
        const size_t row = tow_type_bytes(type) / (size_t)type.dims[0];
        for (int64_t j = 1; j < type.dims[0]; j++) memcpy(c->elements[i] + (size_t)j * row, c->elements[i], row);
        any = true;
    }
    return any;
}

static void check_calls(calling *c)
{
    static const tow__team solo = {1};
    results expected;
    tow__team all;
    c->team = &solo;
    if (!call_kernel(c, ROW_MAJOR, 0xff, layout_names[ROW_MAJOR], &expected)) return;
    compare_call(c, &expected, ROW_MAJOR, 0x55, "over other contents of its results and scratch memory");
    compare_call(c, &expected, TRANSPOSED, 0xff, layout_names[TRANSPOSED]);
    compare_call(c, &expected, BACKWARDS, 0xff, layout_names[BACKWARDS]);
    if (tow__team_create(c->k->ctx, c->k->ctx->threads, &all) == TOW_OK && all.threads > 1) {
        c->team = &all;
        compare_call(c, &expected, ROW_MAJOR, 0xff, "on several threads");
        c->team = &solo;
    }
    free_results(c, &expected);
    if (c->k->c->fixed || !repeat_rows(c)) return;
    if (!call_kernel(c, ROW_MAJOR, 0xff, layout_names[ROW_MAJOR], &expected)) return;
    compare_call(c, &expected, REPEATED, 0xff, layout_names[REPEATED]);
    free_results(c, &expected);
}

/* Row-major elements of the drawn operands. */
static bool make_elements(calling *c, const tow__check_values *x)
{
    for (size_t i = 0; i < c->n_in; i++) {
        c->elements[i] = tow__alloc_aligned(c->k->ctx, tow_type_bytes(c->in[i]) + 1);
        if (!c->elements[i]) {
            tow__check_fail(c->k, "%s", tow_context_error(c->k->ctx));
            return false;
        }
        tow__check_to_elements(x->arrays[i], c->in[i], c->elements[i]);
    }
    return true;
}

void tow__check_kernel(tow__check *k, tow_dtype floats)
{
    const tow_primitive_definition *d = k->c->defined->definition;
    calling c = {.k = k, .definition = d, .n_in = k->c->n_in, .n_out = k->c->n_out ? k->c->n_out : 1};
    tow__check_values x = {0};
    k->kind = TOW_CHECK_KERNEL;
    if (!d->kernel.run) return;
    tow_graph *graph = tow__check_graph(k, k->c, floats);
    if (!graph) return;
    for (size_t i = 0; i < c.n_in; i++) c.in[i] = tow__check_input_type(k->c, i, floats);
    for (size_t i = 0; i < c.n_out; i++) c.out[i] = tow_graph_output_type(graph, i);
    tow_graph_release(graph);
    k->done |= 1u << TOW_CHECK_KERNEL;
    if (!tow__check_draw(k, k->c, 0, &x))
        tow__check_fail(k, "%s", tow_context_error(k->ctx));
    else if (make_elements(&c, &x))
        check_calls(&c);
    for (size_t i = 0; i < c.n_in; i++)
        if (c.elements[i]) tow__free_aligned(k->ctx, c.elements[i], tow_type_bytes(c.in[i]) + 1);
    tow__check_free(&x);
}
