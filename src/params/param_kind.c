/* Kinds of parameters: kinds by name, and the kinds of entries of lists. A layer says the kind when it asks for a
 * parameter; lists keep it, and weight decay, LoRA, Muon, tables and patterns read it. */
#include "src/params/params.h"

/* decays: large values of it make a model steep, as those of a matrix do. */
static const struct {
    const char *name;
    bool decays;
} kinds[] = {[TOW_PARAM_DEFAULT] = {"default", false},    [TOW_PARAM_KERNEL] = {"kernel", true},
             [TOW_PARAM_EMBEDDING] = {"embedding", true}, [TOW_PARAM_BIAS] = {"bias", false},
             [TOW_PARAM_SCALE] = {"scale", false},        [TOW_PARAM_LOW_RANK] = {"low_rank", true},
             [TOW_PARAM_WEIGHT] = {"weight", true},       [TOW_PARAM_OTHER] = {"other", false}};

bool tow__is_param_kind(tow_param_kind kind)
{
    return (int)kind > TOW_PARAM_DEFAULT && (int)kind < (int)(sizeof kinds / sizeof *kinds);
}

const char *tow_param_kind_name(tow_param_kind kind)
{
    return kind == TOW_PARAM_DEFAULT || tow__is_param_kind(kind) ? kinds[kind].name : NULL;
}

bool tow__param_kind_decays(tow_param_kind kind) { return tow__is_param_kind(kind) && kinds[kind].decays; }

tow_param_kind tow__param_kind_of(const char *path, int rank)
{
    static const tow_param_kind named[] = {TOW_PARAM_KERNEL, TOW_PARAM_EMBEDDING, TOW_PARAM_BIAS, TOW_PARAM_SCALE};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(name, kinds[named[i]].name) == 0) return named[i];
    return rank >= 2 ? TOW_PARAM_WEIGHT : TOW_PARAM_OTHER;
}

tow_param_kind tow_params_kind(const tow_params *params, size_t index)
{
    return index < params->names.count ? params->kinds[index] : TOW_PARAM_OTHER;
}

tow_status tow_params_set_kind(tow_params *params, const char *const *patterns, tow_param_kind kind)
{
    if (!params) return tow__missing(NULL, __func__, "parameters");
    if (kind != TOW_PARAM_DEFAULT && !tow__is_param_kind(kind))
        return tow__fail(params->ctx, TOW_INVALID_ARGUMENT,
                         "tow_params_set_kind: %d is no kind of parameter; expected TOW_PARAM_BIAS or another "
                         "tow_param_kind",
                         (int)kind);
    tow_status status = tow__params_check_patterns(params, __func__, "pattern", patterns);
    for (uint32_t i = 0; i < params->names.count && !status; i++) {
        const char *path = params->names.names[i];
        if (!tow__entry_wanted(patterns, params, i)) continue;
        params->kinds[i] =
            kind == TOW_PARAM_DEFAULT ? tow__param_kind_of(path, params->types[i].rank - tow__path_levels(path)) : kind;
    }
    return status;
}
