/* einsum: sums of products by NumPy's notation, as products of two operands (dot_general), multiplications, sums over
 * axes and transposes.
 *
 * Every operand is a value with one label per axis. Labels that neither the result nor another operand has are summed
 * first. Then two operands at a time become one, until one is left; its axes are put in the order of the result. */
#include <stdio.h>
#include <string.h>

#include "src/ops/rules.h"
#include "tow/numpy.h"

enum {
    MOST = 32,    /* operands */
    LETTERS = 52, /* labels A..Z a..z, then the axes of "...", numbered from the last */
    LABELS = LETTERS + TOW_MAX_RANK,
    EXHAUSTIVE = 6 /* operands up to which all orders are tried */
};

typedef uint64_t labels; /* a set of them */

typedef struct term {
    tow_value value;
    int rank;
    int8_t axes[TOW_MAX_RANK]; /* label of each axis */
    labels set;
} term;

typedef struct einsum {
    const char *spec;
    tow_value first; /* for errors */
    size_t n;
    term terms[MOST];
    int64_t sizes[LABELS];
    int counts[LABELS]; /* axes of operands with this label */
    int n_dots;         /* axes of "...", at most */
    int result_rank;
    int8_t result[TOW_MAX_RANK];
    labels result_set;
} einsum;

#define FAIL(s, ...) (tow__op_fail((s)->first, "einsum", __VA_ARGS__), false)

static labels bit(int label) { return (labels)1 << label; }

static int label_of(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1; }

static const char *name_of(int label, char text[4])
{
    if (label >= LETTERS) return "...";
    snprintf(text, 4, "%c", label < 26 ? 'A' + label : 'a' + label - 26);
    return text;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Labels up to ',', '-' or the end, with n_dots axes for "...". */
static bool read_labels(einsum *s, const char **at, int n_dots, int8_t *axes, int *rank)
{
    bool dots = false;
    *rank = 0;
    for (; **at != '\0' && **at != ',' && **at != '-'; ++*at) {
        int n = 1, label = label_of(**at);
        if (**at == ' ') continue;
        if (strncmp(*at, "...", 3) == 0 && !dots) {
            dots = true;
            *at += 2;
            n = n_dots;
            label = LETTERS + n_dots - 1;
        } else if (label < 0) {
            return FAIL(s, TOW_INVALID_ARGUMENT,
                        "in \"%s\": expected letters, one \"...\" per operand, ',' and \"->\", found '%c'", s->spec,
                        **at);
        }
        if (*rank + n > TOW_MAX_RANK)
            return FAIL(s, TOW_INVALID_ARGUMENT, "in \"%s\": more than %d axes in one place", s->spec, TOW_MAX_RANK);
        for (int i = 0; i < n; i++) axes[(*rank)++] = (int8_t)(label - i);
    }
    return true;
}

/* The number of axes that "..." stands for in an operand of this rank; -1: it has too few axes. */
static int dots_of(const char *at, int rank)
{
    int letters = 0;
    bool dots = false;
    for (; *at != '\0' && *at != ',' && *at != '-'; at++) {
        letters += label_of(*at) >= 0;
        dots = dots || *at == '.';
    }
    return dots ? rank - letters : 0;
}

static bool read_operand(einsum *s, size_t i, const char **at, tow_value x)
{
    term *t = &s->terms[i];
    tow_type type = tow_value_type(x);
    int n_dots = dots_of(*at, type.rank), rank;
    char text[4];
    if (n_dots < 0 || n_dots > TOW_MAX_RANK || !read_labels(s, at, n_dots, t->axes, &rank))
        return n_dots < 0 || n_dots > TOW_MAX_RANK
                   ? FAIL(s, TOW_SHAPE_MISMATCH, "in \"%s\": operand %zu is %s, which has fewer axes than labels",
                          s->spec, i, tow__type_name(type).text)
                   : false;
    if (rank != type.rank)
        return FAIL(s, TOW_SHAPE_MISMATCH, "in \"%s\": operand %zu has %d labels for its %d axes, %s", s->spec, i, rank,
                    type.rank, tow__type_name(type).text);
    t->value = x;
    t->rank = rank;
    if (n_dots > s->n_dots) s->n_dots = n_dots;
    for (int d = 0; d < rank; d++) {
        int label = t->axes[d];
        int64_t *size = &s->sizes[label], here = type.dims[d];
        bool stretches = label >= LETTERS && (*size == 1 || here == 1);
        if (s->counts[label]++ > 0 && *size != here && !stretches)
            return FAIL(s, TOW_SHAPE_MISMATCH, "in \"%s\": label %s has size %lld and, in operand %zu, %s, size %lld",
                        s->spec, name_of(label, text), (long long)*size, i, tow__type_name(type).text, (long long)here);
        if (s->counts[label] == 1 || *size == 1) *size = here;
    }
    return true;
}

/* Behind "->", or what NumPy infers: "...", then the labels that occur once. */
static bool read_result(einsum *s, const char *at)
{
    char text[4];
    if (strncmp(at, "->", 2) == 0) {
        at += 2;
        if (!read_labels(s, &at, s->n_dots, s->result, &s->result_rank)) return false;
        if (*at != '\0')
            return FAIL(s, TOW_INVALID_ARGUMENT,
                        "in \"%s\": expected the end behind the labels of the result, found "
                        "'%s'",
                        s->spec, at);
    } else if (*at == '\0') {
        for (int i = s->n_dots - 1; i >= 0; i--) s->result[s->result_rank++] = (int8_t)(LETTERS + i);
        for (int l = 0; l < LETTERS; l++) {
            if (s->counts[l] != 1) continue;
            if (s->result_rank == TOW_MAX_RANK)
                return FAIL(s, TOW_SHAPE_MISMATCH, "in \"%s\": the result would have more than %d axes", s->spec,
                            TOW_MAX_RANK);
            s->result[s->result_rank++] = (int8_t)l;
        }
    } else {
        return FAIL(s, TOW_INVALID_ARGUMENT, "in \"%s\": expected \"->\", found '%s'", s->spec, at);
    }
    for (int d = 0; d < s->result_rank; d++) {
        int label = s->result[d];
        if (s->counts[label] == 0 || (s->result_set & bit(label)))
            return FAIL(s, TOW_INVALID_ARGUMENT, "in \"%s\": label %s of the result is %s", s->spec,
                        name_of(label, text), s->counts[label] == 0 ? "in no operand" : "there twice");
        s->result_set |= bit(label);
    }
    return true;
}

static bool read_spec(einsum *s, size_t n, const tow_value *x)
{
    const char *at = s->spec;
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        if (!read_operand(s, i, &at, x[i])) return false;
        if (tow__dtype(x[i]) != tow__dtype(x[0]))
            return FAIL(s, TOW_TYPE_MISMATCH,
                        "operands must have one element type, found %s and %s; convert one with "
                        "tow_convert",
                        tow__type_name(tow_value_type(x[0])).text, tow__type_name(tow_value_type(x[i])).text);
        if (i + 1 < n && *at++ != ',')
            return FAIL(s, TOW_INVALID_ARGUMENT, "\"%s\" has labels for %zu operands, found %zu", s->spec, i + 1, n);
    }
    if (*at == ',')
        return FAIL(s, TOW_INVALID_ARGUMENT, "\"%s\" has labels for more than the %zu operands that are given", s->spec,
                    n);
    return read_result(s, at);
}

/* ---- single operands --------------------------------------------------------------------------------------------- */

static void drop_axis(term *t, int axis)
{
    for (int d = axis; d + 1 < t->rank; d++) t->axes[d] = t->axes[d + 1];
    t->rank--;
}

/* Keeps the elements whose places along both axes are equal, and the first of the axes. */
static void take_diagonal(term *t, int first, int second)
{
    tow_value same = tow_eq(tow_iota_like(t->value, first), tow_iota_like(t->value, second));
    t->value = tow__sum_axis(tow_where(same, t->value, tow_zeros_like(t->value)), second);
    drop_axis(t, second);
}

/* Axes of "..." of size 1 that others stretch, and diagonals. */
static void simplify(einsum *s, term *t)
{
    for (int d = 0; d < t->rank; d++) {
        int label = t->axes[d];
        if (label >= LETTERS && s->sizes[label] != 1 && tow_value_type(t->value).dims[d] == 1) {
            t->value = tow_squeeze(t->value, d);
            drop_axis(t, d--);
            continue;
        }
        for (int e = d + 1; e < t->rank; e++)
            if (t->axes[e] == label) take_diagonal(t, d, e--);
    }
    for (int d = 0; d < t->rank; d++) t->set |= bit(t->axes[d]);
}

/* Sums the axes whose labels are not in `kept`. */
static void sum_rest(term *t, labels kept)
{
    int axes[TOW_MAX_RANK], n = 0;
    for (int d = 0; d < t->rank; d++)
        if (!(kept & bit(t->axes[d]))) axes[n++] = d;
    if (n == 0) return;
    t->value = tow_reduce_sum(t->value, n, axes);
    for (int i = n - 1; i >= 0; i--) drop_axis(t, axes[i]);
    t->set &= kept;
}

/* ---- two operands ------------------------------------------------------------------------------------------------ */

static int axis_of(const term *t, int label)
{
    for (int d = 0; d < t->rank; d++)
        if (t->axes[d] == label) return d;
    return -1;
}

/* t with the axes `order`, which has all of its own, and size 1 for those that it lacks. */
static tow_value spread(const term *t, const int8_t *order, int n)
{
    int permutation[TOW_MAX_RANK] = {0}, k = 0;
    int64_t shape[TOW_MAX_RANK];
    tow_type type = tow_value_type(t->value);
    for (int i = 0; i < n; i++) {
        int axis = axis_of(t, order[i]);
        shape[i] = axis < 0 ? 1 : type.dims[axis];
        if (axis >= 0) permutation[k++] = axis;
    }
    tow_value x = t->rank > 0 ? tow_transpose(t->value, t->rank, permutation) : t->value;
    return tow_reshape(x, n, shape);
}

/* No label is summed: a multiplication with broadcasting. */
static tow_value multiply(const term *a, const term *b, term *y)
{
    for (int d = 0; d < a->rank; d++) y->axes[y->rank++] = a->axes[d];
    for (int d = 0; d < b->rank; d++)
        if (!(a->set & bit(b->axes[d])) && y->rank < TOW_MAX_RANK) y->axes[y->rank++] = b->axes[d];
    return tow_mul(spread(a, y->axes, y->rank), spread(b, y->axes, y->rank));
}

static tow_value contract(const term *a, const term *b, labels kept, term *y)
{
    tow_dot_dims dims = {0};
    for (int d = 0; d < a->rank; d++) {
        int e = axis_of(b, a->axes[d]);
        if (e < 0) continue;
        bool batch = (kept & bit(a->axes[d])) != 0;
        (batch ? dims.lhs_batch : dims.lhs_contract)[batch ? dims.n_batch : dims.n_contract] = d;
        (batch ? dims.rhs_batch : dims.rhs_contract)[batch ? dims.n_batch : dims.n_contract] = e;
        *(batch ? &dims.n_batch : &dims.n_contract) += 1;
        if (batch) y->axes[y->rank++] = a->axes[d];
    }
    for (int d = 0; d < a->rank; d++)
        if (!(b->set & bit(a->axes[d]))) y->axes[y->rank++] = a->axes[d];
    for (int d = 0; d < b->rank; d++)
        if (!(a->set & bit(b->axes[d])) && y->rank < TOW_MAX_RANK) y->axes[y->rank++] = b->axes[d];
    return tow_dot_general(a->value, b->value, dims);
}

static bool combine(einsum *s, const term *a, const term *b, labels kept, term *y)
{
    const bool sums = (a->set & b->set & ~kept) != 0, products = sums && tow_dtype_is_float(tow__dtype(a->value));
    term result = {.set = a->set | b->set};
    if (products) result.set &= kept;
    int rank = 0;
    for (int l = 0; l < LABELS; l++) rank += (result.set & bit(l)) != 0;
    if (rank > TOW_MAX_RANK)
        return FAIL(s, TOW_SHAPE_MISMATCH,
                    "in \"%s\": a product of two operands would have %d axes, at most %d are "
                    "possible; split the sum into several",
                    s->spec, rank, TOW_MAX_RANK);
    result.value = products ? contract(a, b, kept, &result) : multiply(a, b, &result);
    sum_rest(&result, kept); /* of integers, which have no dot_general */
    *y = result;
    return !tow_is_null(result.value);
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

static double elements(const einsum *s, labels set)
{
    double n = 1;
    for (int l = 0; l < LABELS; l++)
        if (set & bit(l)) n *= (double)s->sizes[l];
    return n;
}

/* The labels that must be left of the product of sets i and j: those of the result and of other operands. */
static labels kept_by_others(labels result, const labels *sets, size_t n, size_t i, size_t j)
{
    for (size_t k = 0; k < n; k++)
        if (k != i && k != j) result |= sets[k];
    return result;
}

/* The fewest multiplications of any order, and its first pair. */
static double best_order(const einsum *s, const labels *sets, size_t n, double limit, size_t pair[2])
{
    double best = limit;
    if (n <= 1) return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            labels left[MOST];
            size_t rest = 0, ignored[2];
            double cost = elements(s, sets[i] | sets[j]);
            if (cost >= best) continue;
            for (size_t k = 0; k < n; k++)
                if (k != i && k != j) left[rest++] = sets[k];
            left[rest++] = (sets[i] | sets[j]) & kept_by_others(s->result_set, sets, n, i, j);
            if (n <= EXHAUSTIVE) cost += best_order(s, left, rest, best - cost, ignored);
            if (cost >= best) continue;
            best = cost;
            pair[0] = i;
            pair[1] = j;
        }
    return best;
}

static bool multiply_all(einsum *s)
{
    while (s->n > 1) {
        labels sets[MOST];
        size_t pair[2] = {0, 1};
        for (size_t i = 0; i < s->n; i++) sets[i] = s->terms[i].set;
        best_order(s, sets, s->n, 1e300, pair);
        labels kept = kept_by_others(s->result_set, sets, s->n, pair[0], pair[1]);
        term product;
        if (!combine(s, &s->terms[pair[0]], &s->terms[pair[1]], kept, &product)) return false;
        s->terms[pair[0]] = product;
        s->terms[pair[1]] = s->terms[--s->n];
    }
    return true;
}

/* ---- public function --------------------------------------------------------------------------------------------- */

tow_value tow_einsum(const char *spec, size_t n, const tow_value *operands)
{
    if (n == 0 || !operands) return tow__null_because(TOW__NULL_EINSUM);
    if (tow__any_null(n, operands)) return tow__null_of("einsum", n, operands);
    einsum s = {.spec = spec, .first = operands[0]};
    if (!tow__given(s.first, "einsum", spec, "labels")) return tow__null();
    if (n > MOST)
        return tow__op_fail(s.first, "einsum", TOW_UNSUPPORTED, "%zu operands, at most %d are possible", n, MOST);
    if (!read_spec(&s, n, operands)) return tow__null();
    for (size_t i = 0; i < n; i++) simplify(&s, &s.terms[i]);
    for (size_t i = 0; i < n; i++) {
        labels kept = s.result_set;
        for (size_t k = 0; k < n; k++)
            if (k != i) kept |= s.terms[k].set;
        sum_rest(&s.terms[i], kept);
    }
    if (!multiply_all(&s)) return tow__null();
    tow_value y = s.terms[0].value;
    int permutation[TOW_MAX_RANK] = {0};
    for (int d = 0; d < s.result_rank; d++) permutation[d] = axis_of(&s.terms[0], s.result[d]);
    return s.result_rank > 0 ? tow_transpose(y, s.result_rank, permutation) : y;
}
