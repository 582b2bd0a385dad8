/* Einsum: einsum(spec, x, kernel) + bias, where the bias has the axes of the kernel that the result has. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "src/scope/views.h"
#include "tow/layers.h"
#include "tow/numpy.h"

enum {
    LONGEST_SPEC = 64
};

/* The letters of the kernel and of the result, without blanks; NULL-terminated parts of `text`. */
typedef struct spec {
    char text[LONGEST_SPEC];
    const char *kernel, *result;
} spec;

static bool read_spec(tow_scope *scope, const char *from, spec *s)
{
    size_t length = 0;
    for (const char *c = from ? from : ""; *c && length + 1 < sizeof s->text; c++)
        if (*c != ' ') s->text[length++] = *c;
    s->text[length] = '\0';
    char *comma = strchr(s->text, ','), *arrow = strstr(s->text, "->");
    if (!from || length + 1 == sizeof s->text || !comma || !arrow || comma > arrow || strchr(comma + 1, ',')) {
        tow_scope_fail(scope, TOW_INVALID_ARGUMENT,
                       "Einsum: .spec = \"%s\"; expected two operands and a result, such as \"btd,dhk->bthk\"",
                       from ? from : "NULL");
        return false;
    }
    s->kernel = comma + 1;
    s->result = arrow + 2;
    *comma = *arrow = '\0';
    if (!strchr(s->kernel, '.')) return true;
    tow_scope_fail(scope, TOW_UNSUPPORTED, "Einsum: .spec = \"%s\": the kernel cannot have \"...\"; name its axes",
                   from);
    return false;
}

/* True if the axes of the kernel are shared, contracted and new ones in this order, each once. */
static bool is_product(const spec *s, tow_dtype compute, tow__product *p)
{
    *p = (tow__product){s->text, s->kernel, s->result, 0, 0, compute, NULL};
    int kind = 0; /* 0: shared, 1: contracted, 2: new */
    for (const char *c = s->kernel; *c; c++) {
        bool in_x = strchr(s->text, *c) != NULL, in_y = strchr(s->result, *c) != NULL;
        int own = in_x && in_y ? 0 : in_x ? 1 : 2;
        if (own < kind || (!in_x && !in_y) || strchr(c + 1, *c)) return false;
        kind = own;
        p->batch += own == 0;
        p->contracted += own == 1;
    }
    return true;
}

/* y + bias, whose axes are those of y that are letters of the kernel. */
static tow_value add_bias(tow_scope *scope, const tow_einsum_layer *m, const spec *s, const tow__dtypes *types,
                          tow_value y)
{
    tow_type type = tow_value_type(y);
    int64_t dims[TOW_MAX_RANK], spread[TOW_MAX_RANK];
    size_t letters = strlen(s->result) - (strchr(s->result, '.') ? 3 : 0);
    int n = 0, axis = 0;
    for (const char *c = s->result; *c; c++) {
        if (*c == '.') { /* stands for the axes without letters */
            for (size_t i = letters; i < (size_t)type.rank; i++) spread[axis++] = 1;
            c += 2;
            continue;
        }
        bool own = strchr(s->kernel, *c) != NULL;
        spread[axis] = own ? type.dims[axis] : 1;
        if (own) dims[n++] = type.dims[axis];
        axis++;
    }
    tow_initializer init = tow__init_or(m->bias_init, tow_initializer_zeros());
    return tow_add(y, tow_reshape(tow__param(scope, "bias", n, dims, init, types), type.rank, spread));
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_einsum_layer *m = (const tow_einsum_layer *)module;
    spec s;
    tow__dtypes types;
    if (!tow__check_counts(scope, "Einsum", n_in, 1, 1, n_out) || !tow__check_float(scope, "Einsum", 0, in[0], 0) ||
        !read_spec(scope, m->spec, &s) || !tow__read_dtypes(scope, "Einsum", m->dtype, m->param_dtype, 1, in, &types))
        return;
    int n = tow__count_sizes(scope, "Einsum", "shape", TOW_MAX_RANK, m->shape);
    if (n == 0) return;
    tow_variable_request kernel = {.collection = "params",
                                   .name = "kernel",
                                   .type = tow_make_type(types.params, n, m->shape),
                                   .init = tow__init_or(m->kernel_init, tow_initializer_lecun_normal())};
    tow__product product;
    tow_value x = tow__as(in[0], types.compute), y;
    if (is_product(&s, types.compute, &product))
        y = tow__request_product(scope, &kernel, &product, x);
    else
        y = tow_einsum(m->spec, 2, (tow_value[]){x, tow__as(tow__request(scope, &kernel), types.compute)});
    out[0] = m->no_bias || tow_is_null(y) ? y : add_bias(scope, m, &s, &types, y);
}

const tow_module_class tow_einsum_layer_class = {
    TOW__MADE_BY(TOW_EINSUM, tow_einsum_layer), .name = "Einsum", .call = call,
    .layout = TOW__LAYOUT_OF(tow_einsum_layer, TOW_MEMBER(tow_einsum_layer, spec, TOW_MEMBER_TEXT))};
