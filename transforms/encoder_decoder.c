/* EncoderDecoder: memory = norm(encoder(source)), result = norm(decoder(target, memory)). Both stacks are scans, to
 * which masks and the memory are broadcast. */
#include "src/scope/layer.h"
#include "src/scope/tree.h"
#include "tow/attention.h"
#include "tow/transforms.h"

static const char layer[] = "EncoderDecoder";

/* bool [B, n] -> [B, 1, 1, n] */
static tow_value spread_mask(tow_value mask)
{
    tow_type type = tow_value_type(mask);
    return tow_reshape(mask, 4, (int64_t[]){type.dims[0], 1, 1, type.dims[1]});
}

static bool check_inputs(tow_scope *scope, size_t n_in, const tow_value *in)
{
    for (size_t i = 0; i < n_in; i++) {
        tow_type x = tow_value_type(in[i]), of = tow_value_type(in[i % 2]);
        bool fits = i < 2 ? tow_dtype_is_float(x.dtype) && x.rank == 3 && x.dims[0] == tow_value_type(in[0]).dims[0]
                          : x.dtype == TOW_BOOL && x.rank == 2 && x.dims[0] == of.dims[0] && x.dims[1] == of.dims[1];
        if (fits) continue;
        tow_scope_fail(
            scope, TOW_SHAPE_MISMATCH,
            "%s: input %zu: expected source [B,S,D], target [B,T,E], then bool masks [B,S] and [B,T], found %s", layer,
            i, tow__type_name(x).text);
        return false;
    }
    return true;
}

/* x through the blocks, which also see `further`. */
static tow_value apply_stack(tow_scope *scope, const tow_encoder_decoder *m, const char *name, const tow_module *block,
                             int64_t length, size_t n, const tow_value *in)
{
    tow_scan stack = {.module = {&tow_scan_class, sizeof(tow_scan)},
                      .inner = block,
                      .length = length,
                      .n_broadcast = n - 1,
                      .unrolled = m->unrolled};
    tow_value out = {0};
    tow_apply_n(scope, name, &stack, n, in, 1, &out);
    return out;
}

static tow_value normalize(tow_scope *scope, const tow_encoder_decoder *m, const char *name, tow_value x)
{
    tow_layer_norm layer_norm = TOW_LAYER_NORM(.epsilon = m->epsilon);
    tow_rms_norm rms_norm = TOW_RMS_NORM(.epsilon = m->epsilon);
    if (m->no_final_norms || tow__scope_failed(scope)) return x;
    return tow_apply_module(scope, name, m->rms_norm ? &rms_norm.module : &layer_norm.module, x);
}

static void call(tow_scope *scope, const tow_module *module, size_t n_in, const tow_value *in, size_t n_out,
                 tow_value *out)
{
    const tow_encoder_decoder *m = (const tow_encoder_decoder *)module;
    if (!tow__check_counts(scope, layer, n_in, 2, 4, n_out) || !check_inputs(scope, n_in, in) ||
        !tow__check_option(scope, layer, m->encoder_length > 0, "encoder_length", (double)m->encoder_length,
                           "a positive number") ||
        !tow__check_option(scope, layer, m->decoder_length > 0, "decoder_length", (double)m->decoder_length,
                           "a positive number"))
        return;
    bool masked = n_in > 2;
    tow_value source[2] = {in[0]}, target[4] = {in[1]};
    if (masked) {
        source[1] = target[3] = spread_mask(in[2]);
        target[2] = n_in > 3 ? spread_mask(in[3])
                             : tow_full(tow_scope_trace(scope), tow_make_type(TOW_BOOL, 4, (int64_t[]){1, 1, 1, 1}), 1);
    }
    tow_value memory = apply_stack(scope, m, "encoder", m->encoder, m->encoder_length, masked ? 2 : 1, source);
    target[1] = normalize(scope, m, "encoder_norm", memory);
    if (tow__scope_failed(scope)) return;
    tow_value y = apply_stack(scope, m, "decoder", m->decoder, m->decoder_length, masked ? 4 : 2, target);
    out[0] = normalize(scope, m, "decoder_norm", y);
}

const tow_module_class tow_encoder_decoder_class = {
    TOW__MADE_BY(TOW_ENCODER_DECODER, tow_encoder_decoder), .name = "EncoderDecoder", .call = call,
    .layout = TOW__LAYOUT_OF(tow_encoder_decoder, TOW_MEMBER(tow_encoder_decoder, encoder, TOW_MEMBER_LAYER),
                             TOW_MEMBER(tow_encoder_decoder, decoder, TOW_MEMBER_LAYER))};
