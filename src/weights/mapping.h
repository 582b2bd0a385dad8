/* Rules of a mapping as its text says them, and what links tensors with parameters by them.
 *
 * "Theirs" is the other program's side, the left one; "ours" is the side of parameters. */
#ifndef TOW_SRC_WEIGHTS_MAPPING_H
#define TOW_SRC_WEIGHTS_MAPPING_H

#include "src/io/tensors.h"
#include "tow/weights.h"

enum {
    TOW__MAX_ALIASES = 4,  /* names of one tensor */
    TOW__MAX_PARTS = 8,    /* parameters of one tensor */
    TOW__MAX_NUMBERS = 4,  /* {i} of one rule */
    TOW__MAX_FACTORS = 16, /* named axes of one rule */
    TOW__PART_FACTOR = -1, /* "*" in place of a factor */
};

/* One axis of a shape as a product of factors, outermost first; without factors it has size 1. */
typedef struct tow__axis {
    int8_t n;
    int8_t factors[TOW__MAX_FACTORS]; /* indices into names of tow__axes, or TOW__PART_FACTOR */
} tow__axis;

typedef struct tow__axes {
    int8_t n_factors, n_theirs, n_ours;
    int8_t joined;                  /* axis of theirs along which parts of different sizes follow one another, or -1 */
    bool alternates;                /* there is a "*" */
    const int32_t *fixed;           /* [n_factors] sizes that the rule says, 0: none; NULL: it says none */
    const char *const *names;       /* [n_factors] */
    const tow__axis *theirs, *ours; /* [n_theirs], [n_ours] */
} tow__axes;

typedef enum tow__rule_kind {
    TOW__RULE_MAP,
    TOW__RULE_IGNORE,
    TOW__RULE_TIED
} tow__rule_kind;

/* Rules and what they point to take a few times the bytes of their lines. */
typedef struct tow__tensor_rule {
    uint8_t kind; /* tow__rule_kind */
    bool optional;
    int8_t n_theirs, n_ours;
    int line;
    const char *const *theirs; /* [n_theirs] patterns of names */
    const char *const *ours;   /* [n_ours] patterns of paths; of TOW__RULE_TIED, ours[0] is the other tensor's name */
    const tow__axes *axes;     /* NULL: the shapes are equal */
    double plus;               /* elements of the tensor are those of the parameter plus this */
} tow__tensor_rule;

struct tow_weight_mapping {
    tow_context *ctx;
    tow__arena memory;
    const char *name; /* of the text */
    tow__tensor_rule *rules;
    size_t n_rules, capacity;
    const char **prefixes;
    size_t n_prefixes, prefixes_capacity;
};

/* ---- names (names.c) --------------------------------------------------------------------------------------------- */

/* The numbers that {i} stand for, in the order of a pattern: texts of digits. */
typedef struct tow__numbers {
    int n;
    const char *names[TOW__MAX_NUMBERS]; /* in the pattern, up to '}' */
    const char *digits[TOW__MAX_NUMBERS];
    int lengths[TOW__MAX_NUMBERS];
} tow__numbers;

/* True if the pattern fits the whole name. "*" is any text if `stars`. */
bool tow__pattern_matches(const char *pattern, const char *name, bool stars, tow__numbers *numbers);
/* Adds the pattern with its {i} replaced. */
void tow__pattern_expand(const char *pattern, const tow__numbers *numbers, tow__string *name);
/* The rule that decides about a tensor's name, or NULL. */
const tow__tensor_rule *tow__mapping_rule(const tow_weight_mapping *mapping, const char *name, tow__numbers *numbers);
/* The first rule "tied" of a tensor, which may have another rule before it, or NULL. */
const tow__tensor_rule *tow__mapping_tied(const tow_weight_mapping *mapping, const char *name, tow__numbers *numbers);
/* The first rule with a part of this path, or NULL. */
const tow__tensor_rule *tow__mapping_rule_of_path(const tow_weight_mapping *mapping, const char *path, int *part,
                                                  tow__numbers *numbers);

/* ---- shapes (axes.c) --------------------------------------------------------------------------------------------- */

/* The place of one parameter in a tensor: element (i0, i1, ...) of the loops is at `offset` + sum i * theirs of the
 * tensor, and in order in the parameter. */
typedef struct tow__layout {
    int n;
    int64_t sizes[TOW__MAX_FACTORS], strides[TOW__MAX_FACTORS];
    int64_t offset;
    double plus; /* that the tensor has more than the parameter */
    bool blocks; /* an element is a block of 32 numbers */
    bool whole;  /* parameter and tensor have the same elements in the same order */
} tow__layout;

/* A pair of shapes, what is not known of them has rank -1. Fills in what is not known, and the layout of each part.
 * known, n_known: sizes of axes by name. Errors: TOW_SHAPE_MISMATCH, TOW_INVALID_ARGUMENT with a text that has no
 * names. */
tow_status tow__axes_solve(tow_context *ctx, const tow__tensor_rule *rule, size_t n_known,
                           const tow_weight_mapping_axis *known, tow_type *theirs, tow_type *ours,
                           tow__layout *layouts);

/* The same for parameters in blocks of few bits, [features, inputs / 32], of a tensor [features, inputs]. */
tow_status tow__axes_solve_blocks(tow_context *ctx, const tow__tensor_rule *rule, size_t n_known,
                                  const tow_weight_mapping_axis *known, tow_type theirs, const tow_type *ours,
                                  tow__layout *layouts);
/* The elements of the parameter are neighbors in the tensor, in their order. */
static inline bool tow__layout_contiguous(const tow__layout *l)
{
    return l->plus == 0 && (l->n == 0 || (l->n == 1 && l->strides[0] == 1));
}

/* ---- links (link.c) ---------------------------------------------------------------------------------------------- */

typedef struct tow__link {
    const tow__tensor_rule *rule;
    size_t theirs;
    size_t ours[TOW__MAX_PARTS];
    tow__layout layouts[TOW__MAX_PARTS];
} tow__link;

typedef struct tow__links {
    tow_context *ctx;
    const tow_weight_mapping *mapping;
    const tow_weight_mapping_options *options;
    tow_weight_mapping_options own_options; /* those that were given, as this library knows them */
    tow_tensors *theirs, *ours;
    const char *where; /* of which file messages are; NULL: none */
    size_t n_axes;
    const tow_weight_mapping_axis *axes;
    tow__link *links;
    size_t count, capacity;
    size_t *by_ours; /* [count of ours] link + 1 */
    size_t n_by_ours;
    tow_weight_mapping_report *report;
} tow__links;

/* Links tensors and parameters that are both there. Errors: as tow_weight_mapping_load. */
tow_status tow__links_match(tow__links *links);
/* Makes the set `ours`, without arrays, from `theirs`, or the other way, and links them. */
tow_status tow__links_make_ours(tow__links *links);
tow_status tow__links_make_theirs(tow__links *links);
void tow__links_free(tow__links *links);
/* "WHERE: NAME: text", of an error. */
__attribute__((format(printf, 4, 5))) tow_status tow__links_fail(const tow__links *links, tow_status status,
                                                                 const char *name, const char *format, ...);

/* ---- files (load_save.c) ----------------------------------------------------------------------------------------- */

/* Begins with options, which are checked, and an empty report. */
tow_status tow__links_begin(tow__links *l, tow_context *ctx, const tow_weight_mapping *mapping,
                            const tow_weight_mapping_options *options, tow_weight_mapping_report **report);
/* Gives the report away, also after an error of what is missing or unused. */
tow_status tow__links_end(tow__links *l, tow_status status, tow_weight_mapping_report **report);
/* Maps the files at a path. A directory stands for the model in it. */
tow_status tow__weights_open(tow_context *ctx, const char *path, tow_tensors **tensors);
/* The data of tensor `index` of ours out of theirs: those in place, or in `buffer`, which is large enough. */
tow_status tow__links_our_data(const tow__links *l, size_t index, void *buffer, const void **data);
/* The data of tensor `index` of theirs, which link `index` is of, out of ours. */
tow_status tow__links_their_data(const tow__links *l, size_t index, void *buffer, const void **data);
/* Writes a set with the metadata of the options, as its path says. */
tow_status tow__weights_write(const tow__links *l, const char *path, tow_tensors *set, tow__tensor_data data);
/* Bytes of the largest tensor of a set. */
size_t tow__largest_bytes(const tow_tensors *set);

/* ---- reports (report.c) ------------------------------------------------------------------------------------------ */

tow_status tow__report_create(tow_context *ctx, tow_weight_mapping_report **report);
tow_status tow__report_add(tow_weight_mapping_report *report, tow_weight_mapping_fate fate, const char *name);
/* TOW_NOT_FOUND with the names of what is missing or unused, if anything is. */
tow_status tow__report_strict(const tow_weight_mapping_report *report, tow_context *ctx, const char *where,
                              bool writing);

/* ---- data (copy.c) ----------------------------------------------------------------------------------------------- */

/* Copies the elements of a parameter out of a tensor, or into it, and converts them. False if an integer does not fit.
 * */
bool tow__layout_gather(const tow__layout *layout, int64_t count, tow_dtype to_dtype, void *to, tow_dtype from_dtype,
                        const void *from);
void tow__layout_scatter(const tow__layout *layout, int64_t count, tow_dtype to_dtype, void *to, tow_dtype from_dtype,
                         const void *from);

#endif
