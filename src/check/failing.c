/* Allocations failing in turn, the first forty and then ever fewer, while a case is differentiated, batched,
 * compiled and printed. A call that ran out of memory says so, leaves nothing behind, and works the next time. */
#include "src/check/check.h"

#include "src/base/base.h"
#include "tow/autodiff.h"
#include "tow/program.h"

/* Stands between the context and its allocator. */
typedef struct failing {
    tow_allocator inner;
    long calls;   /* allocations and resizes asked for */
    long fail_at; /* the call with this number (from 0) fails; -1: none */
    long blocks;  /* allocated and not freed since it stands there */
} failing;

static void *resize(void *pointer, size_t old_size, size_t size, void *user)
{
    failing *f = user;
    if (size > 0 && f->calls++ == f->fail_at) return NULL;
    void *result = f->inner.resize(pointer, old_size, size, f->inner.user);
    f->blocks += (!pointer && result) - (pointer && size == 0);
    return result;
}

static tow_status differentiate_and_compile(tow__check *k, const tow_graph *graph, bool differentiable)
{
    tow_graph *jvp = NULL, *forward = NULL, *backward = NULL, *batched = NULL;
    tow_program *program = NULL;
    const bool forward_mode = !k->c->reverse_only;
    tow_status status = TOW_OK;
    if (differentiable && forward_mode) status = tow_jvp(graph, k->n_wrt, k->wrt, &jvp);
    if (status == TOW_OK && differentiable) status = tow_vjp(graph, k->n_wrt, k->wrt, &forward, &backward);
    if (status == TOW_OK && tow_graph_input_count(graph) > 0) status = tow_vmap(graph, 2, NULL, NULL, &batched);
    if (status == TOW_OK) status = tow_compile(k->ctx, graph, &TOW_COMPILE_OPTIONS(.plan_only = true), &program);
    if (status == TOW_OK && differentiable && k->nowhere)
        status = tow_print_forward_backward(graph, k->n_wrt, k->wrt, k->nowhere);
    tow_program_free(program);
    tow_graph_release(jvp);
    tow_graph_release(forward);
    tow_graph_release(backward);
    tow_graph_release(batched);
    return status;
}

/* The allocation with number n, which fails, was reported and left nothing behind. */
static bool survives(tow__check *k, failing *f, const tow_graph *graph, bool differentiable, long n)
{
    const long blocks = f->blocks;
    tow_context_clear_error(k->ctx);
    f->calls = 0;
    f->fail_at = n;
    const tow_status status = differentiate_and_compile(k, graph, differentiable);
    f->fail_at = -1;
    if (status == TOW_OUT_OF_MEMORY && f->blocks == blocks && tow_context_error(k->ctx)[0] != '\0') return true;
    tow__check_fail(k,
                    "allocation %ld fails: expected the status \"%s\", found \"%s\", with the message \"%s\" and %ld "
                    "blocks that leak",
                    n, tow_status_text(TOW_OUT_OF_MEMORY), tow_status_text(status), tow_context_error(k->ctx),
                    f->blocks - blocks);
    return false;
}

/* Differentiation may be an error of the primitive, or of one of its operands: then it stays that. */
static void fail_in_turn(tow__check *k, failing *f, const tow_graph *graph, bool differentiable)
{
    tow_status expected = differentiate_and_compile(k, graph, differentiable); /* memory that the context keeps */
    f->calls = 0;
    expected = differentiate_and_compile(k, graph, differentiable);
    const long calls = f->calls;
    bool good = true;
    for (long n = 0; n < calls && good; n += 1 + n / 40) /* every one at first, then a growing sample */
        good = survives(k, f, graph, differentiable, n);
    tow_context_clear_error(k->ctx);
    if (differentiate_and_compile(k, graph, differentiable) != expected)
        tow__check_fail(k, "after allocations that failed: %s", tow_context_error(k->ctx));
}

void tow__check_failing(tow__check *k)
{
    const tow_dtype floats = tow__check_widest(k->c);
    k->kind = TOW_CHECK_MEMORY;
    tow_graph *graph = tow__check_graph(k, k->c, floats);
    if (!graph) return;
    bool differentiable = false;
    for (size_t i = 0; i < tow_graph_input_count(graph); i++)
        differentiable |= tow_dtype_is_float(tow_graph_input_type(graph, i).dtype);
    if (k->c->defined) { /* only by what it is differentiable by; without rules, not at all */
        k->n_wrt = tow__check_differentiable(k->c, k->wrt);
        differentiable = !k->c->no_derivative && k->n_wrt > 0;
    }
    failing f = {.inner = k->ctx->allocator, .fail_at = -1};
    k->ctx->allocator = (tow_allocator){.resize = resize, .user = &f};
    k->done |= 1u << TOW_CHECK_MEMORY;
    fail_in_turn(k, &f, graph, differentiable);
    k->ctx->allocator = f.inner;
    tow_graph_release(graph);
}
