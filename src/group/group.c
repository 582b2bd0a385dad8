/* Groups: making and freeing them, facts in which all ranks must agree, and collectives of arrays, run at once. */
#include "src/group/group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/arithmetic.h"
#include "src/base/hash.h"
#include "src/base/options.h"

/* ---- members ----------------------------------------------------------------------------------------------------- */

int tow_group_rank(const tow_group *group) { return group ? group->carrier.rank : 0; }
int tow_group_count(const tow_group *group) { return group ? group->carrier.count : 1; }
const char *tow_group_name(const tow_group *group) { return group ? group->name : "data"; }
tow_group_bytes tow_group_get_bytes(const tow_group *group) { return group ? group->bytes : (tow_group_bytes){0, 0}; }

void tow_group_set_where(tow_group *group, tow_group_where where, void *user)
{
    if (!group) return;
    group->where = where;
    group->where_user = user;
}

tow_status tow_group_fail(tow_context *context, tow_status status, const char *format, ...)
{
    va_list args;
    if (!context) return status ? status : TOW_INVALID_ARGUMENT;
    va_start(args, format);
    status = tow__fail_of_caller(context, status, format, args);
    va_end(args);
    return status;
}

void tow_group_abort(tow_group *group, int exit_status, const char *format, ...)
{
    char text[2048] = "";
    va_list args;
    va_start(args, format);
    if (format && vsnprintf(text, sizeof text, format, args) < 0) text[0] = '\0';
    va_end(args);
    if (group)
        fprintf(stderr, "tow: rank %d (%s): %s\n", group->carrier.rank, group->hosts[group->carrier.rank], text);
    else
        fprintf(stderr, "tow: %s\n", text);
    fflush(NULL);
    if ((exit_status & 0xff) == 0) exit_status = 1;
    if (group) group->carrier.abort(exit_status, group->carrier.user);
    _Exit(exit_status);
}

/* ---- making and freeing ------------------------------------------------------------------------------------------ */

static tow_status check_functions(tow_context *ctx, const tow_group_functions *f)
{
    if (f->count < 1 || f->rank < 0 || f->rank >= f->count)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT,
                         "tow_group_create: expected a rank from 0 to below the count, found rank %d of %d", f->rank,
                         f->count);
    if (f->count > TOW__MOST_ROW_GROUPS)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_group_create: expected at most %d processes, found %d",
                         TOW__MOST_ROW_GROUPS, f->count);
    if (!f->exchange || !f->test || !f->abort)
        return tow__fail(ctx, TOW_INVALID_ARGUMENT, "tow_group_create: expected functions .%s, found NULL",
                         !f->exchange ? "exchange"
                         : !f->test   ? "test"
                                      : "abort");
    return TOW_OK;
}

/* Every rank learns what the others are, so that messages can name them. */
static tow_status exchange_hosts(tow_group *group)
{
    const size_t count = (size_t)group->carrier.count;
    char name[40] = "";
    tow__range_of *shares = tow__alloc(group->ctx, count, sizeof *shares);
    group->hosts = tow__alloc(group->ctx, count, sizeof *group->hosts);
    tow__collective *gather = NULL;
    tow_status status = TOW_OUT_OF_MEMORY;
    if (!shares || !group->hosts) goto done;
    if (group->plan_only) {
        for (size_t r = 0; r < count; r++) snprintf(group->hosts[r], sizeof *group->hosts, "not there");
        status = TOW_OK;
        goto done;
    }
    if (gethostname(name, sizeof name - 1) != 0) name[0] = '\0';
    snprintf(group->hosts[group->carrier.rank], sizeof *group->hosts, "%s%sprocess %lld", name, *name ? ", " : "",
             (long long)getpid());
    for (size_t r = 0; r < count; r++)
        shares[r] = (tow__range_of){(int64_t)(r * sizeof *group->hosts), sizeof *group->hosts};
    TRY(tow__collective_create(group->ctx, group,
                               &(tow__collective_options){.kind = TOW__ALL_GATHER,
                                                          .dtype = TOW_U8,
                                                          .n = (int64_t)(count * sizeof *group->hosts),
                                                          .shares = shares,
                                                          .what = "names of all ranks"},
                               &gather));
    TRY(tow__collective_run(gather, (void *[]){group->hosts}, NULL));
    for (size_t r = 0; r < count; r++) group->hosts[r][sizeof *group->hosts - 1] = '\0';
done:
    tow__collective_free(gather);
    if (shares) tow__free(group->ctx, shares, count, sizeof *shares);
    return status;
}

static tow_status create_group(tow_context *ctx, const tow_group_functions *functions, const tow_group_options *o,
                               bool plan_only, tow_group **group)
{
    const char *name = o->name && *o->name ? o->name : "data";
    tow_status status = check_functions(ctx, functions);
    tow_group *g = status ? NULL : tow__alloc(ctx, 1, sizeof *g);
    if (!g) {
        if (functions->free) functions->free(functions->user);
        return status ? status : TOW_OUT_OF_MEMORY;
    }
    *g = (tow_group){.ctx = ctx, .carrier = *functions, .plan_only = plan_only};
    tow__context_hold(ctx);
    TRY(tow__watch_init(g, o->watchdog));
    status = TOW_OUT_OF_MEMORY;
    if (!(g->name = tow__alloc(ctx, strlen(name) + 1, 1))) goto done;
    memcpy(g->name, name, strlen(name) + 1);
    status = exchange_hosts(g);
    g->next = ctx->groups;
    ctx->groups = g;
done:
    if (status)
        tow_group_free(g);
    else
        *group = g;
    return status;
}

tow_status tow_group_create(tow_context *context, const tow_group_functions *functions,
                            const tow_group_options *options, tow_group **group)
{
    tow_group_functions own_functions;
    tow_group_options own = {.name = NULL};
    if (group) *group = NULL;
    if (!context || !functions || !group)
        return tow__missing(context, __func__, "a context, functions and a place for the group");
    if (!TOW__OPTIONS_TAKE(context, tow_group_functions, functions, &own_functions)) return TOW_INVALID_ARGUMENT;
    if (!TOW__OPTIONS_TAKE(context, tow_group_options, options, &own)) {
        if (functions->free) functions->free(functions->user);
        return TOW_INVALID_ARGUMENT;
    }
    return create_group(context, functions, &own, false, group);
}

/* ---- plans alone ------------------------------------------------------------------------------------------------- */

static tow_status exchange_with_nobody(tow_message *messages, size_t n, int tag, void **request, void *user)
{
    (void)messages, (void)n, (void)tag, (void)request;
    return tow__fail(user, TOW_UNSUPPORTED,
                     "the group of processes was made for plans alone (tow_group_plan_only): there is nobody to "
                     "exchange with; start the program by mpirun or tow_processes_run");
}

static tow_status test_nothing(void *request, double seconds, size_t *left, void *user)
{
    (void)request, (void)seconds, (void)user;
    *left = 0;
    return TOW_OK;
}

static void end_alone(int exit_status, void *user)
{
    (void)user;
    _Exit(exit_status);
}

tow_status tow_group_plan_only(tow_context *context, int rank, int count, const char *name, tow_group **group)
{
    if (group) *group = NULL;
    if (!context || !group) return tow__missing(context, __func__, "a context and a place for the group");
    const tow_group_functions nobody =
        TOW_GROUP_FUNCTIONS(.rank = rank, .count = count, .exchange = exchange_with_nobody, .test = test_nothing,
                            .abort = end_alone, .user = context);
    return create_group(context, &nobody, &TOW_GROUP_OPTIONS(.name = name), true, group);
}

/* ---- groups of a context ----------------------------------------------------------------------------------------- */

tow_group *tow__group_find(const tow_context *ctx, const char *name)
{
    tow_group *group = ctx->groups;
    while (group && strcmp(group->name, name) != 0) group = group->next;
    return group;
}

void tow_group_free(tow_group *group)
{
    if (!group) return;
    tow_context *ctx = group->ctx;
    tow_group **at = &ctx->groups;
    while (*at && *at != group) at = &(*at)->next;
    if (*at) *at = group->next;
    if (group->carrier.free) group->carrier.free(group->carrier.user);
    tow__watch_free(group);
    if (group->name) tow__free(ctx, group->name, strlen(group->name) + 1, 1);
    if (group->hosts) tow__free(ctx, group->hosts, (size_t)group->carrier.count, sizeof *group->hosts);
    tow__free(ctx, group, 1, sizeof *group);
    tow__context_drop(ctx);
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* Runs a collective of bytes. */
static tow_status run_bytes(tow_group *group, tow__collective_kind kind, size_t n, int root,
                            const tow__range_of *shares, void *data)
{
    tow__collective *c = NULL;
    tow_status status = tow__collective_create(group->ctx, group,
                                               &(tow__collective_options){.kind = kind,
                                                                          .dtype = TOW_U8,
                                                                          .n = (int64_t)n,
                                                                          .root = root,
                                                                          .shares = shares,
                                                                          .what = "comparison of the programs"},
                                               &c);
    if (!status) status = tow__collective_run(c, &data, NULL);
    tow__collective_free(c);
    return status;
}

typedef struct digest {
    uint64_t hash, bytes;
} digest;

/* Facts as text: names and values, each with its NUL. */
static tow_status facts_text(tow_context *ctx, size_t n, const tow_group_fact *facts, tow__string *text)
{
    for (size_t i = 0; i < n; i++) {
        if (!facts[i].name || !facts[i].value)
            return tow__missing(ctx, "tow_group_check_same", "a name and a value in fact %zu", i);
        tow__string_add(text, "%s%c%s%c", facts[i].name, 0, facts[i].value, 0);
    }
    tow__string_add(text, "version of Tow%c%s%c", 0, tow_version(), 0);
    return text->failed ? TOW_OUT_OF_MEMORY : TOW_OK;
}

/* The next text behind this one, or "" at the end. */
static const char *next_text(const char *at, const char *end) { return at < end ? at + strlen(at) + 1 : end; }

/* Names the first fact that is not the same in the texts of rank 0 and of another one. */
static tow_status fail_with_difference(tow_group *group, const tow__string *first, const tow__string *second, int rank)
{
    const char *a = first->text, *b = second->text, *a_end = a + first->length, *b_end = b + second->length;
    while (a < a_end && b < b_end) {
        const char *a_value = next_text(a, a_end), *b_value = next_text(b, b_end);
        if (strcmp(a, b) != 0)
            return tow__fail(group->ctx, TOW_INVALID_ARGUMENT,
                             "the programs of a group must be the same: rank 0 (%s) has '%s' where rank %d (%s) has "
                             "'%s'; start the same program everywhere",
                             group->hosts[0], a, rank, group->hosts[rank], b);
        if (strcmp(a_value, b_value) != 0)
            return tow__fail(group->ctx, TOW_INVALID_ARGUMENT,
                             "the programs of a group must be the same: %s is %s at rank 0 (%s), and %s at rank %d "
                             "(%s); start the same program everywhere",
                             a, a_value, group->hosts[0], b_value, rank, group->hosts[rank]);
        a = next_text(a_value, a_end);
        b = next_text(b_value, b_end);
    }
    return tow__fail(group->ctx, TOW_INVALID_ARGUMENT,
                     "the programs of a group must be the same: rank 0 (%s) and rank %d (%s) state different numbers "
                     "of facts; start the same program everywhere",
                     group->hosts[0], rank, group->hosts[rank]);
}

/* Everybody gets the texts of rank 0 and of the first rank that has another one. */
static tow_status find_difference(tow_group *group, const tow__string *own, const digest *digests, int rank)
{
    tow__string texts[2];
    const int ranks[2] = {0, rank};
    tow_status status = TOW_OK;
    for (int i = 0; i < 2; i++) tow__string_init(&texts[i], group->ctx);
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)digests[ranks[i]].bytes;
        texts[i].text = tow__alloc(group->ctx, bytes + 1, 1);
        if (!texts[i].text) status = TOW_OUT_OF_MEMORY;
        if (status) goto done;
        texts[i].length = bytes;
        texts[i].capacity = bytes + 1;
        if (ranks[i] == group->carrier.rank) memcpy(texts[i].text, own->text, bytes);
        TRY(run_bytes(group, TOW__BROADCAST, bytes, ranks[i], NULL, texts[i].text));
    }
    status = fail_with_difference(group, &texts[0], &texts[1], rank);
done:
    for (int i = 0; i < 2; i++) tow__string_free(&texts[i]);
    return status;
}

tow_status tow_group_check_same(tow_group *group, size_t n, const tow_group_fact *facts)
{
    if (!group || group->carrier.count == 1 || group->plan_only) return TOW_OK;
    if (n > 0 && !facts) return tow__missing(group->ctx, __func__, "%zu facts", n);
    const size_t count = (size_t)group->carrier.count;
    tow__string text;
    digest *digests = tow__alloc(group->ctx, count, sizeof *digests);
    tow__range_of *shares = tow__alloc(group->ctx, count, sizeof *shares);
    tow_status status = digests && shares ? TOW_OK : TOW_OUT_OF_MEMORY;
    tow__string_init(&text, group->ctx);
    if (status) goto done;
    TRY(facts_text(group->ctx, n, facts, &text));
    digests[group->carrier.rank] = (digest){tow__hash(0, text.text, text.length), text.length};
    for (size_t r = 0; r < count; r++) shares[r] = (tow__range_of){(int64_t)(r * sizeof *digests), sizeof *digests};
    TRY(run_bytes(group, TOW__ALL_GATHER, count * sizeof *digests, 0, shares, digests));
    for (int r = 1; r < group->carrier.count && !status; r++)
        if (memcmp(&digests[r], &digests[0], sizeof *digests) != 0) status = find_difference(group, &text, digests, r);
done:
    tow__string_free(&text);
    if (digests) tow__free(group->ctx, digests, count, sizeof *digests);
    if (shares) tow__free(group->ctx, shares, count, sizeof *shares);
    return status;
}

/* ---- collectives of arrays --------------------------------------------------------------------------------------- */

static tow_status run_array(tow_group *group, const char *function, tow__collective_kind kind, int row_groups, int root,
                            tow_array *array)
{
    if (!array) return tow__missing(group ? group->ctx : NULL, function, "an array");
    if (!group) return TOW_OK;
    TOW__ARITHMETIC(false);
    const tow_type type = tow_array_type(array);
    tow__collective *c = NULL;
    char *scratch = NULL;
    size_t bytes = 0;
    tow_status status;
    TRY(tow__collective_create(group->ctx, group,
                               &(tow__collective_options){.kind = kind,
                                                          .dtype = type.dtype,
                                                          .n = tow_type_element_count(type),
                                                          .row_groups = row_groups,
                                                          .root = root},
                               &c));
    bytes = tow__collective_scratch(c);
    if (bytes > 0 && !(scratch = tow__alloc_raw(group->ctx, bytes))) status = TOW_OUT_OF_MEMORY;
    if (!status) status = tow__collective_run(c, (void *[]){tow_array_data(array)}, scratch);
done:
    if (scratch) tow__free_aligned(group->ctx, scratch, bytes);
    tow__collective_free(c);
    return status;
}

tow_status tow_group_all_reduce(tow_group *group, int row_groups, tow_array *array)
{
    return run_array(group, __func__, TOW__ALL_REDUCE, row_groups, 0, array);
}

tow_status tow_group_reduce_scatter(tow_group *group, int row_groups, tow_array *array)
{
    return run_array(group, __func__, TOW__REDUCE_SCATTER, row_groups, 0, array);
}

tow_status tow_group_all_gather(tow_group *group, tow_array *array)
{
    return run_array(group, __func__, TOW__ALL_GATHER, 0, 0, array);
}

tow_status tow_group_broadcast(tow_group *group, int root, tow_array *array)
{
    return run_array(group, __func__, TOW__BROADCAST, 0, root, array);
}

tow_status tow_group_barrier(tow_group *group)
{
    return group ? run_bytes(group, TOW__BARRIER, 0, 0, NULL, NULL) : TOW_OK;
}
