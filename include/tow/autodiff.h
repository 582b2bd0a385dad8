/* Differentiation of graphs: jvp, linearize, vjp, grad; remat with policies; scan; vmap; derivatives of one's own; the
 * report of saved residuals. */
#ifndef TOW_AUTODIFF_H
#define TOW_AUTODIFF_H

#include "tow/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- policies --------------------------------------------------------------------------------------------------- */

/* The answer of a policy about a value. A policy permits saving and never forces it: a value that the backward pass
 * does not read is not kept. Two answers meet where a value is named (one for the equation that makes it, one for each
 * name): "must" beats "prefer", save beats recompute. */
typedef enum tow_verdict {
    TOW_MUST_RECOMPUTE,
    TOW_PREFER_RECOMPUTE,
    TOW_PREFER_SAVE,
    TOW_MUST_SAVE
} tow_verdict;

/* The question that a policy is asked: it is about one equation of the differentiated body that does not depend on a
 * tangent. */
typedef struct tow_policy_query {
    const char *primitive; /* "dot_general", "sin", "name", ... */
    const char *name;      /* for "name": the checkpoint name; else NULL */
    bool is_dot;           /* dot_general, or a composite that counts as one (attention) */
    bool has_batch_dims;   /* is_dot with batch dimensions; those that vmap added do not count */
    const char *scope;     /* where in the model, or NULL */
    size_t n_inputs, n_outputs;
    const tow_type *input_types, *output_types;
} tow_policy_query;

typedef enum tow_policy_kind {
    TOW_POLICY_NOTHING, /* the default: zero-initialized policies save nothing */
    TOW_POLICY_EVERYTHING,
    TOW_POLICY_DOTS,
    TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS,
    TOW_POLICY_ONLY_NAMES,            /* values with one of these names, nothing else */
    TOW_POLICY_ANY_NAMES_BUT,         /* named values except these, nothing else */
    TOW_POLICY_ANYTHING_EXCEPT_NAMES, /* everything, but never values with one of these names */
    TOW_POLICY_EITHER,                /* the more saving answer of a and b */
    TOW_POLICY_BOTH,                  /* the less saving answer of a and b */
    TOW_POLICY_NOT,                   /* the opposite of a */
    TOW_POLICY_EXCEPT_NAMES,          /* a, but never values with one of these names */
    TOW_POLICY_CUSTOM                 /* decide(query, user) */
} tow_policy_kind;

typedef struct tow_policy {
    tow_policy_kind kind;
    const char *const *names; /* NULL-terminated */
    const struct tow_policy *a, *b;
    tow_verdict (*decide)(const tow_policy_query *query, void *user);
    void *user;
} tow_policy;

/* The names of jax.checkpoint_policies. At least one name is given: tow_save_only_these_names("a", "b").
 * The macros make compound literals: they live as long as the enclosing block (as long as the program at file scope).
 * In C++, names are constants (string literals), and p and q are pointers to policies in variables. */
#ifndef __cplusplus
#define TOW_NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define TOW__POLICY(policy_kind, policy_names, p, q, function, data)                                                   \
    ((tow_policy){                                                                                                     \
        .kind = (policy_kind), .names = (policy_names), .a = (p), .b = (q), .decide = (function), .user = (data)})
#else
#define TOW_NAMES(...)                                                                                                 \
    ([] {                                                                                                              \
        static const char *const tow__names[] = {__VA_ARGS__, NULL};                                                   \
        return static_cast<const char *const *>(tow__names);                                                           \
    }())
#define TOW__POLICY tow__policy
static inline tow_policy tow__policy(tow_policy_kind kind, const char *const *names, const tow_policy *a,
                                     const tow_policy *b,
                                     tow_verdict (*decide)(const tow_policy_query *query, void *user), void *user)
{
    tow_policy policy = {kind, names, a, b, decide, user};
    return policy;
}
#endif
#define tow_nothing_saveable()    TOW__POLICY(TOW_POLICY_NOTHING, NULL, NULL, NULL, NULL, NULL)
#define tow_everything_saveable() TOW__POLICY(TOW_POLICY_EVERYTHING, NULL, NULL, NULL, NULL, NULL)
#define tow_dots_saveable()       TOW__POLICY(TOW_POLICY_DOTS, NULL, NULL, NULL, NULL, NULL)
#define tow_dots_with_no_batch_dims_saveable()                                                                         \
    TOW__POLICY(TOW_POLICY_DOTS_WITH_NO_BATCH_DIMS, NULL, NULL, NULL, NULL, NULL)
#define tow_save_only_these_names(...)                                                                                 \
    TOW__POLICY(TOW_POLICY_ONLY_NAMES, TOW_NAMES(__VA_ARGS__), NULL, NULL, NULL, NULL)
#define tow_save_any_names_but_these(...)                                                                              \
    TOW__POLICY(TOW_POLICY_ANY_NAMES_BUT, TOW_NAMES(__VA_ARGS__), NULL, NULL, NULL, NULL)
#define tow_save_anything_except_these_names(...)                                                                      \
    TOW__POLICY(TOW_POLICY_ANYTHING_EXCEPT_NAMES, TOW_NAMES(__VA_ARGS__), NULL, NULL, NULL, NULL)
#define tow_save_either(p, q) TOW__POLICY(TOW_POLICY_EITHER, NULL, (p), (q), NULL, NULL) /* save_from_both_policies */
#define tow_save_both(p, q)   TOW__POLICY(TOW_POLICY_BOTH, NULL, (p), (q), NULL, NULL)
#define tow_save_not(p)       TOW__POLICY(TOW_POLICY_NOT, NULL, (p), NULL, NULL, NULL)
#define tow_save_except_names(p, ...)                                                                                  \
    TOW__POLICY(TOW_POLICY_EXCEPT_NAMES, TOW_NAMES(__VA_ARGS__), (p), NULL, NULL, NULL)
#define tow_policy_custom(function, data) TOW__POLICY(TOW_POLICY_CUSTOM, NULL, NULL, NULL, (function), (data))

/* The answer of a policy (NULL: nothing_saveable). */
TOW_API tow_verdict tow_policy_decide(const tow_policy *policy, const tow_policy_query *query);
/* Textual form, written like snprintf: nothing | everything | dots | dots_with_no_batch_dims | names:a,b |
 * any_names_but:a,b | anything_except:a,b | either(P;Q) | both(P;Q) | not(P) | except(P;a,b) | custom. Any text can be
 * a name: an empty one, and one with blanks, control characters, quotes, backslashes or one of :,;() stands in quotes
 * (names:"a,b",c), with the escapes \" \\ \n \t \xHH. The spellings of JAX (dots_saveable, ...) are read as well.
 * Policies are nested at most 32 deep: a deeper one has no text (length 0), and neither has one of a kind that there is
 * not. Remat refuses both. */
TOW_API size_t tow_policy_text(const tow_policy *policy, char *text, size_t size);
/* Reads the textual form ("custom" excepted). Free the result with tow_policy_free. Errors: TOW_BAD_FORMAT,
 * TOW_UNSUPPORTED for policies nested more than 32 deep, with the column. */
TOW_API tow_status tow_policy_parse(tow_context *context, const char *text, tow_policy **policy);
TOW_API void tow_policy_free(tow_policy *policy);

/* ---- remat, names, scan: recorded while tracing ------------------------------------------------------------------ */

/* x, tagged with a name that policies refer to. The tag belongs to the value: every reader of x is served by the saved
 * copy. */
TOW_API tow_value(tow_checkpoint_name)(tow_value x, const char *name);

/* Calls `function` so that reverse mode keeps what `policy` permits and recomputes the rest from the inputs (and from
 * outer values that the function uses). Values are unchanged. policy NULL: nothing_saveable.
 * Layers may be called in it under a scope of the caller; they may read variables but not write or sow them, which the
 * layer TOW_REMAT allows.
 * One policy may stand around regions of different kinds, each of which has some of the names that it refers to.
 * Errors: a policy of a kind that there is not, or with fields that its kind does not read; when the trace ends, a
 * policy that refers to a checkpoint name which no value in any of its regions has; the message lists those there
 * are. */
TOW_API void tow_remat_function(tow_trace *trace, tow_function function, void *user, const tow_policy *policy,
                                size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs);
/* Calls `function` as a named nested graph without changing how it is differentiated. */
TOW_API void tow_call_function(tow_trace *trace, tow_function function, void *user, const char *name, size_t n_inputs,
                               const tow_value *inputs, size_t n_outputs, tow_value *outputs);
/* Records all equations of `graph` here, its inputs replaced by `inputs`. */
TOW_API void tow_inline(tow_trace *trace, const tow_graph *graph, const tow_value *inputs, tow_value *outputs);
/* A call of `graph` inside a remat region. Errors: as tow_remat_function. */
TOW_API void tow_remat_graph(tow_trace *trace, const tow_graph *graph, const tow_policy *policy,
                             const tow_value *inputs, tow_value *outputs);

/* A loop: function gets carry[0..n_carry) and the element of each xs, and writes n_carry new carries and n_ys outputs.
 *   carry: init values; their types must not change.        xs: arrays [length, ...]; the body sees [...].
 *   results: carry_out[n_carry] final carries; ys[n_ys] arrays [length, ...].
 * Gradients have the bits of the same iterations written out (xs sliced as an iteration begins, ys stacked after the
 * last one), but for zeros: a final carry that nobody reads, or that the body does not need, has a cotangent of zeros,
 * whose sign can show, as an infinity times zero does; in gradients of xs, and in rows of a table that no iteration
 * gathers, zeros may be negative, where slices and gathers written out add up zeros to a positive one; and but for
 * carries that only change places, of which some start from one value or from an outer one; and but for carries that
 * are one value, or an outer one, only before or only after some of the first iterations, if those iterations, written
 * out, are estimated to have more than 2^16 equations (loops in them counted with iterations of their own written out,
 * so one wide loop can do it as well as many nested ones): what meets in both cases is added in another order.
 * options NULL, or length 0 or -1 without has_length: the length is that of xs. reverse: from the last element to the
 * first, ys in place. Outer values are constants of the loop.
 * The body is recorded once, whatever the length, and knows no iteration: a layer that it calls under a scope of the
 * caller has one set of parameters, which all iterations share, and draws the same random keys in each of them. Layers
 * may read variables but not write or sow them. TOW_SCAN gives every iteration parameters, keys and variables of its
 * own.
 * Errors: carry whose type changes, xs whose leading axes differ or contradict length, no xs and no length. */
/* A schedule says which states reverse mode keeps of a long loop, a state being the carries with which an iteration
 * begins. One field is set. Zeros leave the choice to the policy around the loop, which without a remat keeps
 * everything. All schedules give the same bits. Of n iterations, with residuals being what one of them keeps for its
 * derivative without a remat:
 *
 *                  keeps                                      runs forward, derivatives included
 *   .every = k     n/k states, residuals of k iterations      2 n
 *   .levels = l    l n^(1/l) states, or n^(1/l) residuals     l n, in nested blocks; 2: the square root
 *   .slots = s     s + 1 states, residuals of one iteration   n + t n - C(s + t, t - 1) + 1
 *
 * With .file_slots = f beside .slots, s + f states are kept, f of them in a file, and iterations run as with s + f
 * slots. In the file are states of the first slots, which are asked for last and least often. A thread writes and reads
 * them beside the work, the next one ahead. The file is in tow_context_options.scratch_folder and has no name; 4 states
 * of memory serve it. If it cannot be written or read, the run ends with TOW_IO_ERROR, and what a step would have
 * replaced is as it was. Value and gradient must be one program (tow_value_and_grad); derivatives of the gradient, and
 * tow_vmap of it, are TOW_UNSUPPORTED, and so is such a loop within a loop unless a remat region is around the inner
 * one: the file holds the states of one iteration of the outer loop.
 *
 * Loops whose gradients would have other bits in blocks (carries that change places or coincide, constants that are new
 * carries or results, an array that is more than one of constant, carry and xs) run with as many .slots as .every and
 * .levels keep states.
 *
 * t is the least number with C(s + t, t) >= n. No schedule with s states runs fewer iterations (binomial, Revolve:
 * Griewank and Walther, ACM TOMS 26, 2000). The one more is the last iteration, which runs before the loss is known
 * and beside its derivative. With n or more slots every state is kept. */
typedef struct tow_scan_schedule {
    int64_t every, levels, slots, file_slots;
} tow_scan_schedule;

typedef struct tow_scan_options {
    size_t size TOW__SIZE(tow_scan_options); /* set by TOW_SCAN_OPTIONS */
    int64_t length;                          /* 0 or -1: that of xs, unless has_length */
    bool has_length;                         /* length 0 is meant: no iterations */
    bool reverse;
    /* iterations in one body of the loop, those left over behind it; 0: one. Outputs have the same bits; in gradients
     * the terms of one value may be added in another order */
    int64_t unroll;
    tow_scan_schedule schedule; /* zeros: the policy around the loop decides what it keeps */
} tow_scan_options;
#define TOW_SCAN_OPTIONS(...) TOW__OPTIONS(tow_scan_options, __VA_ARGS__)
TOW_API void tow_scan_function(tow_trace *trace, tow_function function, void *user, const tow_scan_options *options,
                               size_t n_carry, const tow_value *carry, size_t n_xs, const tow_value *xs, size_t n_ys,
                               tow_value *carry_out, tow_value *ys);

/* ---- batching (vmap) --------------------------------------------------------------------------------------------- */

enum {
    TOW_NOT_MAPPED = INT32_MIN /* in place of an axis: all rows share the input, or the output */
};

/* Axes over which a function of one row is mapped. An axis is one of the whole array, and may be negative: counted from
 * its end. in_axes: [n_inputs], out_axes: [n_outputs], or NULL: 0 for all. */
typedef struct tow_vmap_options {
    size_t size TOW__SIZE(tow_vmap_options); /* set by TOW_VMAP_OPTIONS */
    const int *in_axes;                      /* an axis, or TOW_NOT_MAPPED: every row sees the whole input */
    const int
        *out_axes;     /* where the rows of an output are stacked; TOW_NOT_MAPPED: it is the same for all, given once */
    int64_t axis_size; /* of the mapped axes; 0 or -1: that of the inputs, unless has_axis_size */
    bool has_axis_size; /* axis_size 0 is meant: no rows */
} tow_vmap_options;
#define TOW_VMAP_OPTIONS(...) TOW__OPTIONS(tow_vmap_options, __VA_ARGS__)

/* Calls `function` once for all rows: its inputs are `inputs` without the mapped axes, its outputs get one. Outer
 * values that it uses are shared by all rows. Calls may be nested, and may stand in the bodies of remat, scan and call.
 * The recorded equations compute all rows together: products stay single products, remat regions and checkpoint names
 * stay, and a policy answers as it would without vmap. An output that does not depend on a mapped input is repeated
 * along its axis.
 * options NULL: axis 0 of all inputs and outputs.
 * Layers may be called in it under a scope of the caller, whose variables all rows share; they may read variables but
 * not write or sow them.
 * Errors: mapped axes of different sizes, or of another size than options give; an axis that an input or output does
 * not have; no mapped input and no size; TOW_NOT_MAPPED for an output that depends on a mapped input; values that would
 * get more than 8 axes. */
TOW_API void tow_vmap_function(tow_trace *trace, tow_function function, void *user, const tow_vmap_options *options,
                               size_t n_inputs, const tow_value *inputs, size_t n_outputs, tow_value *outputs);

/* ---- transformations: graph in, graph out ----------------------------------------------------------------------- */

/* wrt[0..n_wrt) are the indices of the inputs to differentiate, in increasing order. n_wrt 0 means all float inputs, in
 * every function here. */

/* (x..., dx of wrt...) -> (y..., dy of the float outputs...). Recomputes nothing. */
TOW_API tow_status tow_jvp(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result);

/* forward: x... -> (y..., residuals...);  linear: (residuals..., dx of wrt...) -> dy of the float outputs.
 * A residual that is an input of the graph is handed through by the forward graph. */
TOW_API tow_status tow_linearize(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **forward,
                                 tow_graph **linear);
/* forward as above;  backward: (residuals..., ct of the float outputs...) -> ct of wrt. */
TOW_API tow_status tow_vjp(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **forward,
                           tow_graph **backward);
/* Output 0 must be a float scalar. grad: x... -> gradients of output 0 for wrt [, the other outputs if has_aux].
 * value_and_grad: x... -> (output 0 [, the others if has_aux], gradients). Without has_aux the graph must have one
 * output.
 * Errors: not a scalar, not a float, wrt out of range or not of float type, no float input at all. */
TOW_API tow_status tow_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux, tow_graph **result);
TOW_API tow_status tow_value_and_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux,
                                      tow_graph **result);
/* The graph of one row as a graph of `size` rows: inputs get a mapped axis, outputs likewise. in_axes and out_axes as
 * in tow_vmap_options, which say where; NULL: 0 for all. Dead code is left out.
 *
 *     tow_grad(loss, 0, NULL, false, &gradient);                      the gradient for one example
 *     tow_vmap(gradient, 32, in_axes, NULL, &gradients);              for each of 32: [32, ...]
 *
 * With portable bits (tow_context_options), row i of every output has the bits of the graph on row i.
 * Errors: as tow_vmap_function; TOW_INVALID_ARGUMENT for a negative size. */
TOW_API tow_status tow_vmap(const tow_graph *graph, int64_t size, const int *in_axes, const int *out_axes,
                            tow_graph **result);
/* Jacobians of all float outputs with respect to all of wrt: x... -> for each output y [o...] those for each input x
 * [i...], [o..., i...]. jacfwd makes a column for each element of an input, by forward mode; jacrev a row for each
 * element of an output, by reverse mode: take the one whose side is smaller. The function itself is computed once.
 * hessian: of a graph with one output, a float scalar: for each of wrt its second derivatives with each of wrt, forward
 * mode over reverse mode.
 * Errors: as tow_vjp and tow_grad; TOW_UNSUPPORTED for Jacobians of more than 8 axes. */
TOW_API tow_status tow_jacfwd(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result);
TOW_API tow_status tow_jacrev(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result);
TOW_API tow_status tow_hessian(const tow_graph *graph, size_t n_wrt, const size_t *wrt, tow_graph **result);
/* Gradients of output 0 for each of `size` examples, each [size, ...] [, the other outputs if has_aux]: tow_vmap of
 * tow_grad. in_axes: which inputs are examples, and along which axis; TOW_NOT_MAPPED for parameters that all share. */
TOW_API tow_status tow_per_example_grad(const tow_graph *graph, size_t n_wrt, const size_t *wrt, bool has_aux,
                                        int64_t size, const int *in_axes, tow_graph **result);
/* The options of tow_row_groups. */
typedef struct tow_row_groups_options {
    size_t size TOW__SIZE(tow_row_groups_options); /* set by TOW_ROW_GROUPS_OPTIONS */
    int64_t groups;                                /* blocks of rows, a power of two; 0: 1 */
    int64_t micro_batches; /* parts of the batch that run one after the other, a power of two up to groups; 0: 1 */
    const int *in_axes; /* [inputs] the axis with the rows, negative: from the end; TOW_NOT_MAPPED: not of the batch, a
                           parameter for instance; NULL: 0 for all */
    struct tow_group *group; /* processes that share the rows (tow/group.h); NULL: this one has all */
    /* [inputs], [outputs]: those of which each process of .group takes, or gives, its share alone: the number of layers
     * of one size that they consist of, each of which the processes share (tow_group_share). Such a value is [layers,
     * n / N]. 0: the whole value; NULL: 0 for all. */
    const int64_t *in_layers, *out_layers;
} tow_row_groups_options;
#define TOW_ROW_GROUPS_OPTIONS(...) TOW__OPTIONS(tow_row_groups_options, __VA_ARGS__)
/* The graph with sums over the rows of a batch made as binary trees over blocks of rows of one size: products that
 * contract the batch axis, reductions over it, gradients of biases, norms, embeddings and convolution kernels. Each
 * block is summed by itself, and two neighbors are added as soon as both are there, so besides the sum itself at most
 * log2(groups) sums of blocks are alive. Other operations stay as they are. Whoever sums the blocks of a subtree alone
 * gets the bits of that subtree: the number of groups, and nothing else, says what the bits of a sum are. In loops
 * whose iterations add to one value (weights that time steps share), each block has a sum of its own over all
 * iterations, and the tree is over these.
 * micro_batches: the batch is cut into so many parts, which go through the graph one after the other and own subtrees:
 * the same bits. A run takes the memory of one part, and log2(micro_batches) + 1 of each sum. Random numbers of
 * the whole batch (dropout) are drawn as without parts. Outputs are those of the whole batch.
 * group: the graph of one of several processes. It is made of that of the whole batch, and takes and gives the rows of
 * this process's groups alone (tow_group_rows): of f32[B, ...] f32[B / groups * those, ...]. Sums are those over
 * the rows of all processes, the same in all of them, bit for bit: instructions of the program start to exchange them
 * where they are made, and wait for them where they are read, so all processes run their programs together. Random
 * numbers are those of the whole batch, batch statistics those of all rows. Micro-batches are still parts of the whole
 * batch; a process with fewer groups than a part has runs them at once. Programs are to be freed before the group.
 * in_layers, out_layers: parameters and gradients as shares. The share of an input is gathered where it is read, rows
 * of a stack in the iteration that reads them, and once more in the backward pass; a sum over the rows of all processes
 * of which only the share is given is scattered. All processes run equally many micro-batches then, since they gather
 * in each: one with fewer groups than others cuts them into smaller parts, or all run as many as that process has
 * groups.
 * Errors: TOW_INVALID_ARGUMENT for numbers that are no powers of two, for an axis that an input does not have or that
 * `groups` does not divide, or for layers that do not divide a value or are of one with rows; TOW_UNSUPPORTED, with
 * operation, layer and source line, for what mixes rows in another way (a slice or a reversal of the batch, a
 * comparison of each row with each, a loop over rows), and with micro-batches for rows that need a sum over all rows
 * before they go on (batch statistics). */
TOW_API tow_status tow_row_groups(const tow_graph *graph, const tow_row_groups_options *options, tow_graph **result);
/* The graph with everything inside one remat region. Errors: as tow_remat_function. */
TOW_API tow_status tow_remat_whole(const tow_graph *graph, const tow_policy *policy, tow_graph **result);

/* ---- what reverse mode keeps ------------------------------------------------------------------------------------- */

typedef enum tow_residual_kind {
    TOW_RESIDUAL_ARGUMENT, /* an input of the graph */
    TOW_RESIDUAL_CONSTANT, /* an array constant */
    TOW_RESIDUAL_NAMED,    /* tagged by checkpoint_name */
    TOW_RESIDUAL_OUTPUT    /* output of a primitive */
} tow_residual_kind;

/* An operation of the backward pass that reads a residual. */
typedef struct tow_residual_reader {
    const char *what;  /* the primitive */
    const char *rule;  /* the primitive whose derivative rule recorded it; NULL: none did */
    const char *here;  /* "file.c:12", or NULL */
    const char *scope; /* "blocks/attn", or NULL */
    uint32_t line;     /* of the text from which the graph was read; 0: it was not */
    bool again;        /* it makes a value of the forward pass again, which is not kept */
} tow_residual_reader;

/* The place of a residual in the plan of its gradient; instructions are counted as tow_program_text prints them, in the
 * function that has the array: the program, or one micro-batch of it. */
typedef struct tow_residual_plan {
    bool planned;     /* false: there is no plan (tow_saved_residuals), and all else is 0 */
    bool stored;      /* in the arena, in an array of its own; false: `held` says where else */
    const char *held; /* "in the caller's array", "in a constant", "in no array of its own", ...; NULL if stored */
    uint32_t storage; /* number of the array: 7 of "#7" */
    size_t offset, bytes;
    uint32_t first, last; /* instructions that write it first and read it last */
    bool tried;           /* a plan was made that does not keep it, and makes it again where it is read */
    const char *instead;  /* what that plan keeps in its place, "tanh from line 3"; NULL: nothing */
    int64_t bytes_more;   /* arena of that plan minus that of this one; negative: it would be smaller */
    double seconds_more;  /* by the model; positive: it would be slower */
} tow_residual_plan;

typedef struct tow_residual {
    tow_type type;
    tow_residual_kind kind;
    const char *what; /* argument name or index text, checkpoint name, or primitive */
    /* Of a primitive that only moves elements (slice, reshape, ...), where they come from: "the argument x",
     * "tanh (file.c:10)"; of a scan, which value of its body the residual is a stack of; else NULL. */
    const char *of;
    const char *here;  /* "file.c:12" of the operation, or NULL */
    const char *scope; /* "blocks/attn", or NULL */
    size_t bytes;
    uint32_t line;       /* of the text from which the graph was read; 0: it was not */
    int64_t iterations;  /* of the loops that stack it, whose iterations add bytes / iterations each; 1: no loop does */
    const char *rule;    /* the primitive whose derivative rule asked for it; NULL: none did by itself */
    const char *policy;  /* the one that was asked, as text, or "the memory limit"; NULL: there was none */
    tow_verdict verdict; /* its answer; without a policy everything that is read is kept */
    size_t n_readers;
    const tow_residual_reader *readers; /* in the order of the backward pass */
    double
        seconds; /* to make it again from the operands of its operation, by the model; 0: not known, or an argument */
    tow_residual_plan plan;
} tow_residual;

typedef struct tow_residuals {
    size_t count;
    tow_residual *items;   /* arguments in order, then the rest in forward order */
    size_t bytes;          /* total */
    size_t argument_bytes; /* of these, arguments: alive anyway */
    size_t again_count;
    tow_residual *again; /* values of the forward pass that the backward pass makes again, in its order; of these
                                `plan.tried` is a plan that keeps the value, `bytes` what it would take to keep it */
    void *memory;
    /* Sentences about policies of regions that have no effect, each with its reason: nothing in the region is of the
     * kind that it saves, or has its names (and which other region has them); what it saves is kept anyway, or the
     * backward pass does without it; nothing in the region is differentiated. */
    size_t n_notes;
    const char *const *notes;
} tow_residuals;

/* Values that cross from forward to backward when `graph` is differentiated with respect to wrt (n_wrt 0: all float
 * inputs). Errors: those of tow_vjp. */
TOW_API tow_status tow_saved_residuals(const tow_graph *graph, size_t n_wrt, const size_t *wrt,
                                       tow_residuals *residuals);
/* One line per residual in the manner of jax.ad_checkpoint.print_saved_residuals, with bytes, then notes and a total;
 * like snprintf. In names, quotes and backslashes stand behind a backslash, control characters are \xNN. */
TOW_API size_t tow_residuals_text(const tow_residuals *residuals, char *text, size_t size);
/* The same with all that is known about each: line of the text, rule that asked for it, policy and answer, readers,
 * iterations; of tow_program_explain also its place in the plan, seconds, and what would change. Behind the total the
 * values that the backward pass makes again. */
TOW_API size_t tow_residuals_reasons(const tow_residuals *residuals, char *text, size_t size);
TOW_API void tow_residuals_free(tow_residuals *residuals);
/* Prints forward and backward graphs side by side with what crosses between them, so that recomputation can be seen.
 * Errors: as tow_vjp; TOW_IO_ERROR if the file cannot be written. */
TOW_API tow_status tow_print_forward_backward(const tow_graph *graph, size_t n_wrt, const size_t *wrt, FILE *file);

/* ==== functions with a derivative of one's own ==================================================================== */

/* Functions with a derivative of one's own, traced from C as the function itself is.
 *
 * A rule replaces what differentiation would make of the function: for numerical stability, for a gradient that is not
 * the derivative, or for one that is cheaper. Calls may stand in remat, scan, call and vmap, and rules may contain all
 * of them.
 * The equations that a rule records are ordinary: they are differentiated again for second derivatives, and policies,
 * checkpoint names and reports see their values. Functions and rules may use values of the trace from outside, as long
 * as those are not differentiated themselves.
 *
 * A rule may call its own function with its rule, as rules in JAX do: with the same functions, the same `user` and
 * operands of the same types. Such a call is a custom_self in the printed graph, and every further derivative goes
 * through the rule again. Two functions whose rules call each other work likewise. docs/custom-rules.md has
 * examples. */

/* Options of a call; all may be left out. */
typedef struct tow_custom_options {
    size_t size TOW__SIZE(tow_custom_options); /* set by TOW_CUSTOM_OPTIONS */
    const char *name;                          /* for messages and the printed graph; copied */
    const bool *fixed; /* [n_inputs] inputs that are not differentiated: nothing flows back through them; NULL: none */
} tow_custom_options;
#define TOW_CUSTOM_OPTIONS(...) TOW__OPTIONS(tow_custom_options, __VA_ARGS__)

/* outputs = function(inputs), with the derivative that `rule` gives in forward and in reverse mode.
 *   function: reads x[n_inputs], writes y[n_outputs].
 *   rule:     reads x[n_inputs], then the tangents dx[n_inputs]; writes y[n_outputs], then the tangents dy[n_outputs].
 *             dx[i] is the null value for inputs that are fixed or not floats. If an input turns out to have no
 *             tangent, dx[i] is zero, and products of the rule with it are neither computed nor kept.
 *             dy[j] may be left null: zero. It must be so for outputs that are not floats.
 * Under differentiation the values are those that the rule writes. Reverse mode transposes the rule, which must be
 * linear in the tangents, and so do linearize and lists of residuals; their error names the operation that is not.
 * Both functions are traced here; where a rule calls tow_custom_jvp_function again, `function` is traced there, too,
 * and all are traced once more if only a rule uses some outer value. options may be NULL.
 * Errors: a function (not its rule) that calls itself; results of the rule whose types are not those of the function's
 * results; an outer value that has a tangent when the call is differentiated. */
TOW_API void tow_custom_jvp_function(tow_trace *trace, tow_function function, tow_function rule, void *user,
                                     const tow_custom_options *options, size_t n_inputs, const tow_value *inputs,
                                     size_t n_outputs, tow_value *outputs);

/* outputs = function(inputs), with the gradient that `backward` gives in reverse mode.
 *   function: reads x[n_inputs], writes y[n_outputs].
 *   forward:  reads x[n_inputs], writes y[n_outputs], then residuals[n_residuals] for the backward function.
 *   backward: reads residuals[n_residuals], then cotangents of y[n_outputs]; writes cotangents of x[n_inputs].
 *             The cotangent of an output that is not a float is the null value; that of an output without a reader is
 *             zeros.
 *             Cotangents of inputs may be left null: zero. They must be so for inputs that are fixed or not floats.
 * Under differentiation the values are those that `forward` writes, and the function itself is not run. Residuals are
 * kept or made again as policies say about the operations of `forward`; a residual that is an input takes no memory of
 * its own. Second derivatives differentiate `forward` and `backward` as ordinary code. Forward mode (jvp, linearize,
 * jacfwd) of the call itself is an error. options may be NULL.
 * Errors: as above; results of `forward` or `backward` of the wrong type, forward mode. */
TOW_API void tow_custom_vjp_function(tow_trace *trace, tow_function function, tow_function forward,
                                     tow_function backward, void *user, const tow_custom_options *options,
                                     size_t n_inputs, const tow_value *inputs, size_t n_residuals, size_t n_outputs,
                                     tow_value *outputs);

#ifdef __cplusplus
}
#endif
#endif
