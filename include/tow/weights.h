/* Weights that other programs trained, under their names and in their shapes.
 *
 * A mapping says which tensors of another program's files are which parameters of a model here. It is a text, of one
 * rule a line; tables of that kind for GPT-2, Llama, BERT, Qwen 3, Gemma, Gemma 2 and Phi 3, as Hugging Face's
 * transformers names their tensors, and for GPT-2, Llama, Qwen 2, Qwen 3, Gemma and Gemma 2 as llama.cpp does, are part
 * of the library, and in share/tow/mappings to be read and changed:
 *
 *     # GPT-2
 *     prefix  transformer.
 *     ignore  h.{i}.attn.bias
 *     tied    lm_head.weight = transformer.wte.weight
 *     transformer.wte.weight                              -> tokens/embedding
 *     transformer.h.{i}.attn.c_attn.weight [d (* h k)]    -> blocks/{i}/attn/{query,key,value}/kernel [d h k]
 *
 * On the left of "->" is the name of a tensor, on the right the path of a parameter as it is on disk ("blocks/3/...").
 *
 *   {i}        on both sides: a number, the same on both. There may be several, with different names.
 *   {a,b,c}    on the right: the tensor is made of several parameters, in this order, as of query, key and value.
 *   a | b      on the left: two names that there are for one tensor. Files are written with the first one.
 *   [..]       behind a name: its axes, each with a name of its own, or several in parentheses where one axis of the
 *              shape is several axes of the other side, the first one outermost. The same names on both sides; so a
 *              transpose is [o i] -> [i o], and a reshape [d (h k)] -> [d h k]. A 1 is an axis of size 1. On the left,
 *              "*" is the axis along which parameters of equal sizes alternate, and "+" before an axis means that those
 *              of different sizes follow one another along it: [+(h k) d]. Without brackets the shapes are equal.
 *              "x=2" on the left is an axis of size 2: [(h p x=2) d] -> [d h (x p)] takes rows in pairs apart.
 *   plus 1     behind the axes: elements of the tensor are those of the parameter plus 1 (or another number).
 *   optional   at the end of the line: neither the parameter nor the tensor need be there.
 *
 *   prefix P           names that begin with P in this text are also found without it.
 *   ignore NAME        tensors that are no parameters, as masks that are stored. "*" in it stands for any text.
 *   tied NAME = OTHER  a second copy of another tensor: left out on writing. If it is there, it must be equal. NAME may
 *                      also be a tensor of a rule: then it is a copy where the model does not have the rule's
 *                      parameters.
 *
 * Text behind "#" is a comment. For a name, the first rule of the text that fits decides. */
#ifndef TOW_WEIGHTS_H
#define TOW_WEIGHTS_H

#include "tow/gguf.h"
#include "tow/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tow_weight_mapping tow_weight_mapping;

/* Reads the rules in `text`. name: of the text, for messages. Errors: TOW_BAD_FORMAT with "NAME:LINE: ...". */
TOW_API tow_status tow_weight_mapping_parse(tow_context *context, const char *name, const char *text,
                                            tow_weight_mapping **mapping);
/* Reads a file of rules, or the table of that name in the library: "bert", "gemma", "gemma2", "gpt2", "llama" (also for
 * Qwen 2), "phi3", "qwen3", and for GGUF files "gguf-gemma", "gguf-gemma2", "gguf-gpt2", "gguf-llama", "gguf-qwen2",
 * "gguf-qwen3". A name with a '/' or a '.' is a file. Errors: TOW_NOT_FOUND for a name that is no table, TOW_IO_ERROR,
 * TOW_BAD_FORMAT. */
TOW_API tow_status tow_weight_mapping_read(tow_context *context, const char *path, tow_weight_mapping **mapping);
/* NULL is accepted. */
TOW_API void tow_weight_mapping_free(tow_weight_mapping *mapping);
/* Name and text of table `index` of the library; NULL behind the last one. */
TOW_API const char *tow_weight_mapping_table_name(size_t index);
TOW_API const char *tow_weight_mapping_table_text(size_t index);

/* The size of an axis of rules: {"h", 12}. */
typedef struct tow_weight_mapping_axis {
    const char *name;
    int64_t size;
} tow_weight_mapping_axis;

typedef struct tow_weight_mapping_options {
    size_t size TOW__SIZE(tow_weight_mapping_options); /* set by TOW_WEIGHT_MAPPING_OPTIONS */
    /* Only parameters whose paths begin with this, which rules do not mention: "encoder/" for a model that is a part of
     * another one. NULL: all. */
    const char *prefix;
    /* Parameters without a tensor keep their values, and tensors without a parameter are left alone: the report names
     * them. Otherwise both are errors, and nothing is loaded or written. */
    bool partial;
    /* Loading: tensors of other element types become the parameters' (tow_load_options). Writing: floats are written as
     * .dtype, whose default is f32. */
    bool convert;
    tow_dtype dtype;
    /* Writing: of the data of one file; 0: no limit (tow_safetensors_write_sharded). */
    uint64_t max_file_bytes;
    /* Sizes of axes that the shapes do not tell, n_axes of them: where a rule makes two axes of one and there is no
     * model, or writes what was one axis as two. */
    size_t n_axes;
    const tow_weight_mapping_axis *axes;
    /* Loading from a file: parameters whose elements the file has in their order and type get an array in the mapped
     * file in place of their own, so that no memory is taken for them; the others are copied, as all are otherwise.
     * Arrays of the list are replaced: functions and lists that were made of it before keep the old ones. A parameter
     * of a stack ("blocks/{}/...") is one array of all layers, which no file has. For the file what tow/io.h says of
     * mapped files holds: nobody may change or cut it off in place as long as one of these arrays lives, and writing
     * to one changes memory alone. */
    bool in_place;
    /* Writing, where the path ends with ".gguf", which makes the file one of GGUF: the type of its matrices
     * (tow_gguf_write_options). */
    tow_gguf_type gguf_type;
    /* Writing: the metadata of the file are those of this set, whose tensors are written behind those of the mapping.
     * NULL: "format": "pt", or in a GGUF file none. */
    const tow_tensors *metadata;
    /* Reading: tensors that are no parameters, as if the mapping ended with an `ignore` of each; a list that ends with
     * NULL, may be NULL. */
    const char *const *ignored;
} tow_weight_mapping_options;
#define TOW_WEIGHT_MAPPING_OPTIONS(...) TOW__OPTIONS(tow_weight_mapping_options, __VA_ARGS__)

/* The fates of tensors and of parameters. */
typedef enum tow_weight_mapping_fate {
    TOW_FATE_TENSOR,    /* loaded or written */
    TOW_FATE_PARAMETER, /* loaded or written */
    TOW_FATE_MISSING,   /* a parameter without a tensor; on writing, without a rule */
    TOW_FATE_UNUSED,    /* a tensor without a rule, or without a parameter */
    TOW_FATE_OPTIONAL,  /* a parameter or a tensor of an optional rule, without the other side */
    TOW_FATE_IGNORED,   /* a tensor that the mapping ignores */
    TOW_TIED,           /* a second copy of another tensor */
    TOW_FATE_COUNT
} tow_weight_mapping_fate;
typedef struct tow_weight_mapping_report tow_weight_mapping_report;
TOW_API void tow_weight_mapping_report_free(tow_weight_mapping_report *report);
TOW_API size_t tow_weight_mapping_report_count(const tow_weight_mapping_report *report, tow_weight_mapping_fate fate);
/* Names of tensors or paths of parameters; NULL behind the last one. */
TOW_API const char *tow_weight_mapping_report_name(const tow_weight_mapping_report *report,
                                                   tow_weight_mapping_fate fate, size_t index);
/* Counts of all fates, and the names of what is missing, unused and optional, like snprintf. */
TOW_API size_t tow_weight_mapping_report_text(const tow_weight_mapping_report *report, char *text, size_t size);

/* Copies the tensors of a set into the arrays of `params`, whoever shares them, as the mapping says. First checks
 * names, shapes, element types, tied tensors and, where tensors have any, checksums; if something is wrong, nothing is
 * copied. Tensors that no rule asks for are not read. options, report: may be NULL; a report is made also if something
 * is missing or unused. Errors: TOW_NOT_FOUND for what is missing and unused, TOW_SHAPE_MISMATCH, TOW_TYPE_MISMATCH,
 * TOW_INVALID_ARGUMENT. */
TOW_API tow_status tow_weight_mapping_load(const tow_weight_mapping *mapping, tow_params *params,
                                           const tow_tensors *tensors, const tow_weight_mapping_options *options,
                                           tow_weight_mapping_report **report);
/* The same from a safetensors file, the files of an index, or a GGUF file. path: also a directory with
 * model.safetensors or model.safetensors.index.json. The data are mapped, and pages that were copied are given back: no
 * second copy of more than one tensor is in memory.
 * Parameters in blocks (TOW_Q4_K), [features, blocks of inputs], get those that a GGUF file has, untouched, by rules
 * whose tensor is [features, inputs]; with .convert, blocks are made of other floats. Their shapes do not tell
 * the size of a head, which rules need that put features in another order, as those of gguf-llama: .axes has it, {"p",
 * half of a head's features}. Errors: also those of tow_safetensors_read and tow_gguf_read. */
TOW_API tow_status tow_weight_mapping_load_file(const tow_weight_mapping *mapping, tow_params *params, const char *path,
                                                const tow_weight_mapping_options *options,
                                                tow_weight_mapping_report **report);
/* The types in which a file has the tensors of parameters, as rules for .param_dtypes of tow_precision: floats and
 * blocks (q8_0, q4_0, q4_k, q6_k) as they are, f32 for what is decoded. Layers "blocks/0/...", "blocks/1/..." that have
 * one type have one rule, with a star in place of the number, which is for scans, too; where a parameter's types differ
 * from layer to layer, each layer has its own rules, and a model that reads them has its layers one by one.
 * options: .prefix alone; may be NULL. path: as above. The rules live until tow_weight_dtypes_free, which accepts NULL.
 *     tow_weight_mapping_dtypes(mapping, "model.gguf", NULL, &dtypes);
 *     tow_precision model = TOW_PRECISION(&decoder, .param_dtypes = tow_weight_dtypes_rules(dtypes)); */
typedef struct tow_weight_dtypes tow_weight_dtypes;
TOW_API tow_status tow_weight_mapping_dtypes(const tow_weight_mapping *mapping, const char *path,
                                             const tow_weight_mapping_options *options, tow_weight_dtypes **dtypes);
TOW_API const tow_dtype_rule *tow_weight_dtypes_rules(const tow_weight_dtypes *dtypes);
/* True if rules name single layers. */
TOW_API bool tow_weight_dtypes_by_layer(const tow_weight_dtypes *dtypes);
TOW_API void tow_weight_dtypes_free(tow_weight_dtypes *dtypes);

/* Writes parameters as the tensors of the other program, with its names and shapes, in one file or several
 * (.max_file_bytes), of GGUF if the path ends with ".gguf". At most one tensor is in memory twice. Errors:
 * TOW_NOT_FOUND for parameters that no rule mentions, TOW_SHAPE_MISMATCH, TOW_INVALID_ARGUMENT, and those of
 * tow_safetensors_write_sharded and tow_gguf_write. */
TOW_API tow_status tow_weight_mapping_save_file(const tow_weight_mapping *mapping, const tow_params *params,
                                                const char *path, const tow_weight_mapping_options *options,
                                                tow_weight_mapping_report **report);

/* Rewrites a file without a model: tensors of the other program become tensors named as parameters here, or, `reverse`,
 * the other way. Errors: those of both directions above; TOW_INVALID_ARGUMENT for an axis whose size is not known, with
 * its name (.axes). */
TOW_API tow_status tow_weight_mapping_convert_file(tow_context *context, const tow_weight_mapping *mapping,
                                                   const char *from, const char *to, bool reverse,
                                                   const tow_weight_mapping_options *options,
                                                   tow_weight_mapping_report **report);
/* Rewrites a file of one program as one of another: `from` as `from_mapping` says becomes `to` as `to_mapping` does, by
 * the parameters that both have here. So "llama" and "gguf-llama" make a GGUF file of safetensors, and the other way.
 * At most one tensor is in memory as a whole. The report is that of reading `from`. Errors: those of
 * tow_weight_mapping_convert_file. */
TOW_API tow_status tow_weight_mapping_translate_file(tow_context *context, const tow_weight_mapping *from_mapping,
                                                     const char *from, const tow_weight_mapping *to_mapping,
                                                     const char *to, const tow_weight_mapping_options *options,
                                                     tow_weight_mapping_report **report);

#ifdef __cplusplus
}
#endif
#endif
