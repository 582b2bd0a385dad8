/* Precision: a layer around another one, which sets the default element types of the layers in it. It is called in the
 * scope of the wrapper itself, so nothing about names changes. */
#include "src/scope/calls.h"
#include "src/scope/layer.h"
#include "src/scope/storage.h"
#include "src/scope/tree.h"
#include "tow/transforms.h"

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_precision *m = (const tow_precision *)module;
    tow_dtype output = TOW_F32;
    if (m->output_dtype && !tow__read_dtype(scope, "Precision", "output_dtype", m->output_dtype, &output)) return;
    tow_scope *here = tow__scope_with_dtypes(scope, "Precision", m->dtype, m->param_dtype);
    if (here) here = tow__scope_with_storage(here, m->param_dtypes);
    if (!here) return;
    tow__call_here(here, m->inner, n_in, in, n_out, out);
    if (m->param_dtypes) tow__check_storage_used(here);
    for (size_t i = 0; i < n_out && m->output_dtype; i++)
        if (tow_dtype_is_float(tow_value_type(out[i]).dtype)) out[i] = tow__as(out[i], output);
}

const tow_module_class tow_precision_class = {
    TOW__MADE_BY(TOW_PRECISION, tow_precision), .name = "Precision", .call = call,
    .layout = TOW__LAYOUT_OF(tow_precision, TOW_MEMBER(tow_precision, inner, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_precision, param_dtypes, TOW_MEMBER_DTYPES))};
