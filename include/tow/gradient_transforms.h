/* Schedules and gradient transforms, of which optimizers are made (tow/optimizer.h), recorded with Tow's own operations
 * in the manner of Optax.
 *
 * A gradient transform takes the gradients of some parameters and gives what is to be added to the parameters, or what
 * the next transform of a chain takes. It may keep slots (moments, for instance) from step to step. An optimizer is a
 * chain whose last transform multiplies by minus the learning rate:
 *
 *     tow_clip_by_global_norm clip = TOW_CLIP_BY_GLOBAL_NORM(.max_norm = 1.0);
 *     tow_scale_by_adam adam = TOW_SCALE_BY_ADAM();
 *     tow_add_decayed_weights decay = TOW_ADD_DECAYED_WEIGHTS(.weight_decay = 0.1);
 *     tow_scale_by_learning_rate rate = TOW_SCALE_BY_LEARNING_RATE(.schedule = tow_schedule_constant(1e-3));
 *     tow_chain optimizer = TOW_CHAIN(TOW_GRADIENT_TRANSFORM(&clip), TOW_GRADIENT_TRANSFORM(&adam),
 *                                     TOW_GRADIENT_TRANSFORM(&decay), TOW_GRADIENT_TRANSFORM(&rate));
 *
 * The whole of it is one compiled program, in which a parameter, its slots and its gradient are read and written once.
 *
 * A transform of one's own is a struct and a function:
 *
 *     typedef struct lion { tow_gradient_transform base; double b1, b2; } lion;
 *     static tow_value lion_each(tow_update *u, const tow_gradient_transform *self, tow_value g, tow_value p)
 *     {
 *         const lion *o = (const lion *)self;
 *         tow_value m = tow_slot(u, "mu");
 *         tow_set_slot(u, "mu", tow_add(tow_mul_scalar(m, o->b2), tow_mul_scalar(g, 1 - o->b2)));
 *         return tow_sign(tow_add(tow_mul_scalar(m, o->b1), tow_mul_scalar(g, 1 - o->b1)));
 *     }
 *     static const tow_gradient_transform_class lion_class = {.name = "lion", .each = lion_each};
 *     lion mine = {{&lion_class}, .b1 = 0.9, .b2 = 0.99};
 */
#ifndef TOW_GRADIENT_TRANSFORMS_H
#define TOW_GRADIENT_TRANSFORMS_H

#include "tow/module.h"
#include "tow/ops.h"
#include "tow/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- schedules --------------------------------------------------------------------------------------------------- */

typedef enum tow_schedule_kind {
    TOW_SCHEDULE_CONSTANT,      /* peak_value */
    TOW_SCHEDULE_WARMUP_COSINE, /* linear from init_value to peak_value, then half a cosine down to end_value */
    TOW_SCHEDULE_FUNCTION,      /* function(step, user) */
    TOW_SCHEDULE_POLYNOMIAL,
    TOW_SCHEDULE_EXPONENTIAL,
    TOW_SCHEDULE_COSINE,
    TOW_SCHEDULE_PIECEWISE_CONSTANT,
    TOW_SCHEDULE_ONECYCLE,
    TOW_SCHEDULE_JOINED
} tow_schedule_kind;

/* A number that depends on the step. The formulas are those of optax; decay_steps includes the warm-up, and from step
 * decay_steps on the value is end_value. The functions below say what other kinds read. Arrays live as long as what
 * uses the schedule. */
typedef struct tow_schedule {
    tow_schedule_kind kind;
    double init_value, peak_value, end_value;
    int64_t warmup_steps, decay_steps;
    double exponent; /* of the cosine; 0: 1 */
    double (*function)(int64_t step, const void *user);
    const void *user;
    bool staircase, cosine;
    size_t n;
    const int64_t *boundaries;
    const double *scales;
    const struct tow_schedule *schedules;
} tow_schedule;

TOW_API tow_schedule tow_schedule_constant(double value);
/* With exponent 1. */
TOW_API tow_schedule tow_schedule_warmup_cosine(double init_value, double peak_value, int64_t warmup_steps,
                                                int64_t decay_steps, double end_value);
/* A function of one's own. `user` lives as long as what uses the schedule. */
TOW_API tow_schedule tow_schedule_function(double (*function)(int64_t step, const void *user), const void *user);
/* (init - end) (1 - c/steps)^power + end, with c the steps since `begin` (negative: 0), from 0 to `steps`; linear:
 * power 1. Without steps init, always. */
TOW_API tow_schedule tow_schedule_linear(double init_value, double end_value, int64_t steps, int64_t begin);
TOW_API tow_schedule tow_schedule_polynomial(double init_value, double end_value, double power, int64_t steps,
                                             int64_t begin);
/* init rate^(c/steps), with c the steps since `begin` (negative: 0); staircase: c/steps without what is behind its
 * point. */
TOW_API tow_schedule tow_schedule_exponential(double init_value, int64_t steps, double rate, int64_t begin,
                                              bool staircase);
/* init ((1-alpha) (0.5 (1 + cos(pi c/steps)))^exponent + alpha), with c at most `steps`; exponent 0: 1. */
TOW_API tow_schedule tow_schedule_cosine(double init_value, int64_t steps, double alpha, double exponent);
/* init, times scales[i] from step boundaries[i] on, for each of n. */
TOW_API tow_schedule tow_schedule_piecewise_constant(double init_value, size_t n, const int64_t *boundaries,
                                                     const double *scales);
/* From peak/25 up to peak until 0.3 of the steps, back until 0.85 of them, then down to peak/25e4, in straight lines or
 * in halves of cosines; the latter go down to peak/25e4 at once. (Smith and Topin, 2018) */
TOW_API tow_schedule tow_schedule_linear_onecycle(int64_t steps, double peak_value);
TOW_API tow_schedule tow_schedule_cosine_onecycle(int64_t steps, double peak_value);
/* schedules[0] before step boundaries[0], then schedules[1], which counts from there, and so on; boundaries has one
 * less. Of several whose boundaries have passed, the last one in the list counts, whatever the order of the boundaries.
 * With schedules of tow_schedule_warmup_cosine: cosine with restarts (SGDR). */
TOW_API tow_schedule tow_schedule_joined(size_t n, const tow_schedule *schedules, const int64_t *boundaries);
/* The value for the update that follows `step` finished updates: the first update takes the value at 0, as does a
 * negative step. NAN for what is no schedule: one of an unknown kind, or without the function or the arrays that it
 * needs. */
TOW_API double tow_schedule_at(const tow_schedule *schedule, int64_t step);

/* ---- gradient transforms ----------------------------------------------------------------------------------------- */

/* One update that is being recorded. */
typedef struct tow_update tow_update;
typedef struct tow_gradient_transform tow_gradient_transform;

/* The class of a transform: all transforms of one kind share it. Exactly one of `each` and `all` is there. */
typedef struct tow_gradient_transform_class {
    const char *name; /* "adam": begins the names of its slots in checkpoints, "adam/mu/..." */
    /* The transform of one parameter: its gradient (or what a transform before it made of that) and its value -> the
     * new gradient. Called for every parameter; where a scan stacks layers, the parameter is that of one layer. */
    tow_value (*each)(tow_update *update, const tow_gradient_transform *self, tow_value gradient, tow_value parameter);
    /* The transform of all parameters together, for what needs them all, such as the norm of all gradients; through
     * tow_update_gradient and tow_update_set_gradient. Stacks of layers are whole arrays here. */
    void (*all)(tow_update *update, const tow_gradient_transform *self);
    /* Slots and numbers of the transforms that `all` runs are called as if they stood in its place: for wrappers that
     * keep none of their own. */
    bool transparent;
    /* Of libraries whose transforms may get options later: the macro that makes them, "TOW_SCALE_BY_ADAM", and the size
     * of the struct. Transforms then have to say their size. NULL: it is not looked at. */
    const char *macro;
    size_t size;
} tow_gradient_transform_class;

/* First member of every transform. */
struct tow_gradient_transform {
    const tow_gradient_transform_class *cls;
    size_t size; /* of the whole struct, as the program was compiled; 0 where the class has no .macro */
};

#define TOW_GRADIENT_TRANSFORM(transform) (&(transform)->base)
#ifndef __cplusplus
#define TOW__TRANSFORM(type, ...) ((type){.base = {&type##_class, sizeof(type)}, __VA_ARGS__})
#else
#define TOW__TRANSFORM(type, ...)                                                                                      \
    ([](__VA_ARGS__) {                                                                                                 \
        type tow__transform = {};                                                                                      \
        tow__transform.base = {&type##_class, sizeof(type)};                                                           \
        return tow__transform;                                                                                         \
    }())
#endif

/* ---- inside a transform ------------------------------------------------------------------------------------------ */

/* The trace that is recorded in. */
TOW_API tow_trace *tow_update_trace(tow_update *update);
/* The value of slot `name` of this transform, which each parameter has for itself; in `all`, the transform has one. At
 * first zeros, of the parameter's type; or `value` everywhere, of another type. In one call of the transform the same
 * name is the same slot. Error: TOW_TYPE_MISMATCH if it was asked for with another type before. */
TOW_API tow_value tow_slot(tow_update *update, const char *name);
TOW_API tow_value tow_slot_with(tow_update *update, const char *name, tow_type type, double value);
/* Sets the value of the slot in the next step: of the same type. Errors: TOW_NOT_FOUND for a slot that was not asked
 * for, TOW_TYPE_MISMATCH. */
TOW_API void tow_set_slot(tow_update *update, const char *name, tow_value value);
/* A number that changes from step to step: computed by the schedule before the step runs, f64[], or of `dtype`. `name`
 * identifies it within the transform, and tow_optimizer_set_number can fix its value. */
TOW_API tow_value tow_update_number(tow_update *update, const char *name, const tow_schedule *schedule,
                                    tow_dtype dtype);
/* The same by a function of the transform and of the number of finished steps. */
TOW_API tow_value tow_update_function(tow_update *update, const char *name,
                                      double (*function)(int64_t step, const void *self), const void *self,
                                      tow_dtype dtype);
/* The option `name` of the transform, a scalar of `dtype`: `value`, or what the schedule of a TOW_INJECT_HYPERPARAMS
 * around the transform says. */
TOW_API tow_value tow_update_option(tow_update *update, const char *name, double value, tow_dtype dtype);
/* The loss of the step, f64[], which tow_optimizer_update_with was given; a train state gives it. In `all` only:
 * TOW_UNSUPPORTED elsewhere. */
TOW_API tow_value tow_update_loss(tow_update *update);
/* Hands a float scalar out of the step, to be asked for by tow_optimizer_reported. In `all` only. */
TOW_API void tow_update_report(tow_update *update, const char *name, tow_value value);
/* The path of the parameter ("blocks/{}/attn/kernel"); of the first one in `all`. */
TOW_API const char *tow_update_path(const tow_update *update, size_t index);
/* The kind of the parameter: its layer has said it, or the list that the optimizer was made of (tow_params_set_kind).
 * TOW_PARAM_OTHER for an index out of range. */
TOW_API tow_param_kind tow_update_kind(const tow_update *update, size_t index);
/* In `all`: how many parameters there are, their values and gradients, axes of layers in front. In `each` there is
 * one. */
TOW_API size_t tow_update_parameter_count(const tow_update *update);
TOW_API tow_value tow_update_parameter(tow_update *update, size_t index);
TOW_API tow_value tow_update_gradient(tow_update *update, size_t index);
TOW_API void tow_update_set_gradient(tow_update *update, size_t index, tow_value gradient);
/* In `all`: applies another transform to all of them, or to those of n given indices. */
TOW_API void tow_update_run(tow_update *update, const tow_gradient_transform *transform);
TOW_API void tow_update_run_with(tow_update *update, const tow_gradient_transform *transform, size_t n,
                                 const size_t *indices);

/* ---- the transforms that there are ------------------------------------------------------------------------------- */

/* An option whose 0 means a default (.b1, .eps, ...) is 0 itself by its name: Adam without momentum is
 *     tow_scheduled_option b1 = {"b1", tow_schedule_constant(0)};
 *     tow_inject_hyperparams rms = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = &b1); */

/* One after the other. */
typedef struct tow_chain {
    tow_gradient_transform base;
    const tow_gradient_transform *const *transforms;
    size_t n;
} tow_chain;
TOW_API extern const tow_gradient_transform_class tow_chain_class;
/* Of a list of pointers (TOW_GRADIENT_TRANSFORM), which lives as long as the block. */
#define TOW_CHAIN(...)                                                                                                 \
    ((tow_chain){.base = {&tow_chain_class, sizeof(tow_chain)},                                                        \
                 .transforms = (const tow_gradient_transform *const[]){__VA_ARGS__},                                   \
                 .n = sizeof((const tow_gradient_transform *const[]){__VA_ARGS__}) / sizeof(void *)})

/* Each parameter by the first rule whose pattern it matches: in a pattern, "*" stands for any text without "/", "**"
 * for any text, and "{}" is a component like others ("blocks" followed by "**" matches a whole stack). "//" and a kind
 * in front take the parameters of that kind alone: {"//bias", NULL} freezes all biases (tow_path_matches in
 * tow/params.h). Error: TOW_NOT_FOUND for a parameter that no rule matches, and for a rule that no parameter
 * matches. */
typedef struct tow_partition_rule {
    const char *pattern;
    const tow_gradient_transform *transform; /* NULL: such parameters are frozen */
} tow_partition_rule;
typedef struct tow_partition {
    tow_gradient_transform base;
    const tow_partition_rule *rules;
    size_t n;
} tow_partition;
TOW_API extern const tow_gradient_transform_class tow_partition_class;
#define TOW_PARTITION(...) TOW__TRANSFORM(tow_partition, __VA_ARGS__)

/* Zeros: parameters stay as they are. */
typedef struct tow_set_to_zero {
    tow_gradient_transform base;
} tow_set_to_zero;
TOW_API extern const tow_gradient_transform_class tow_set_to_zero_class;
#define TOW_SET_TO_ZERO() TOW__TRANSFORM(tow_set_to_zero, )

/* g * factor. */
typedef struct tow_scale {
    tow_gradient_transform base;
    double factor;
} tow_scale;
TOW_API extern const tow_gradient_transform_class tow_scale_class;
#define TOW_SCALE(...) TOW__TRANSFORM(tow_scale, __VA_ARGS__)

/* g * -schedule: the last one of an optimizer. Its number is "learning_rate/value". */
typedef struct tow_scale_by_learning_rate {
    tow_gradient_transform base;
    tow_schedule schedule;
} tow_scale_by_learning_rate;
TOW_API extern const tow_gradient_transform_class tow_scale_by_learning_rate_class;
#define TOW_SCALE_BY_LEARNING_RATE(...) TOW__TRANSFORM(tow_scale_by_learning_rate, __VA_ARGS__)

/* m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)   (Kingma and Ba, 2015) */
typedef struct tow_scale_by_adam {
    tow_gradient_transform base;
    double b1, b2, eps; /* 0: 0.9, 0.999, 1e-8 */
    double eps_root;    /* added to v / (1-b2^t) under the root, for derivatives of an update */
    tow_dtype mu_dtype; /* of m in memory, as .dtype of layers (tow/module.h); 0: that of the parameter */
    /* NAdam: b1 m / (1-b1^(t+1)) + (1-b1) g / (1-b1^t) in place of m / (1-b1^t) (Dozat, 2016) */
    bool nesterov;
} tow_scale_by_adam;
TOW_API extern const tow_gradient_transform_class tow_scale_by_adam_class;
#define TOW_SCALE_BY_ADAM(...) TOW__TRANSFORM(tow_scale_by_adam, __VA_ARGS__)

/* g rsqrt(nu + eps), with nu = decay nu + (1-decay) g^2 (Tieleman and Hinton, 2012); centered: of nu - mu^2, with mu
 * the same average of g; eps_outside: g / (sqrt(nu) + eps). */
typedef struct tow_scale_by_rms {
    tow_gradient_transform base;
    double decay, eps, initial_scale; /* 0: 0.9, 1e-8, 0 */
    bool eps_outside, centered, bias_correction;
} tow_scale_by_rms;
TOW_API extern const tow_gradient_transform_class tow_scale_by_rms_class;
#define TOW_SCALE_BY_RMS(...) TOW__TRANSFORM(tow_scale_by_rms, __VA_ARGS__)

/* Adagrad: g rsqrt(s + eps), with s the sum of all g^2 so far, at first initial_accumulator; 0 where s is 0. */
typedef struct tow_scale_by_rss {
    tow_gradient_transform base;
    double initial_accumulator, eps; /* 0: 0.1, 1e-7 */
} tow_scale_by_rss;
TOW_API extern const tow_gradient_transform_class tow_scale_by_rss_class;
#define TOW_SCALE_BY_RSS(...) TOW__TRANSFORM(tow_scale_by_rss, __VA_ARGS__)

/* Adam by the largest v / (1-b2^t) so far (Reddi and others, 2018). */
typedef struct tow_scale_by_amsgrad {
    tow_gradient_transform base;
    double b1, b2, eps, eps_root; /* 0: 0.9, 0.999, 1e-8, 0 */
    tow_dtype mu_dtype;           /* of m in memory; 0: that of the parameter */
} tow_scale_by_amsgrad;
TOW_API extern const tow_gradient_transform_class tow_scale_by_amsgrad_class;
#define TOW_SCALE_BY_AMSGRAD(...) TOW__TRANSFORM(tow_scale_by_amsgrad, __VA_ARGS__)

/* AdaBelief: as Adam with s = b2 s + (1-b2) (g - m)^2 + eps_root in place of v (Zhuang and others, 2020). */
typedef struct tow_scale_by_belief {
    tow_gradient_transform base;
    double b1, b2, eps, eps_root; /* 0: 0.9, 0.999, 1e-16, 1e-16 */
    bool nesterov;
} tow_scale_by_belief;
TOW_API extern const tow_gradient_transform_class tow_scale_by_belief_class;
#define TOW_SCALE_BY_BELIEF(...) TOW__TRANSFORM(tow_scale_by_belief, __VA_ARGS__)

/* Yogi: as Adam with v = v - (1-b2) sign(v - g^2) g^2; m and v are initial_accumulator at first (Zaheer and others,
 * 2018). */
typedef struct tow_scale_by_yogi {
    tow_gradient_transform base;
    double b1, b2, eps, eps_root, initial_accumulator; /* 0: 0.9, 0.999, 1e-3, 0, 1e-6 */
} tow_scale_by_yogi;
TOW_API extern const tow_gradient_transform_class tow_scale_by_yogi_class;
#define TOW_SCALE_BY_YOGI(...) TOW__TRANSFORM(tow_scale_by_yogi, __VA_ARGS__)

/* AdaMax: (m / (1-b1^t)) / u, with u = max(|g| + eps, b2 u) (Kingma and Ba, 2015). AdaMaxW: decayed weights behind
 * it. */
typedef struct tow_scale_by_adamax {
    tow_gradient_transform base;
    double b1, b2, eps; /* 0: 0.9, 0.999, 1e-8 */
} tow_scale_by_adamax;
TOW_API extern const tow_gradient_transform_class tow_scale_by_adamax_class;
#define TOW_SCALE_BY_ADAMAX(...) TOW__TRANSFORM(tow_scale_by_adamax, __VA_ARGS__)

/* Adadelta: e = rho e + (1-rho) g^2;  d = sqrt(x + eps) / sqrt(e + eps) g;  x = rho x + (1-rho) d^2;  d   (Zeiler,
 * 2012) */
typedef struct tow_scale_by_adadelta {
    tow_gradient_transform base;
    double rho, eps; /* 0: 0.9, 1e-6 */
} tow_scale_by_adadelta;
TOW_API extern const tow_gradient_transform_class tow_scale_by_adadelta_class;
#define TOW_SCALE_BY_ADADELTA(...) TOW__TRANSFORM(tow_scale_by_adadelta, __VA_ARGS__)

/* RAdam: Adam times a factor that grows with the number of steps whose variance is known; m / (1-b1^t) alone as long as
 * that is below `threshold` (Liu and others, 2020). */
typedef struct tow_scale_by_radam {
    tow_gradient_transform base;
    double b1, b2, eps, eps_root, threshold; /* 0: 0.9, 0.999, 1e-8, 0, 5 */
    bool nesterov;
} tow_scale_by_radam;
TOW_API extern const tow_gradient_transform_class tow_scale_by_radam_class;
#define TOW_SCALE_BY_RADAM(...) TOW__TRANSFORM(tow_scale_by_radam, __VA_ARGS__)

/* sign(g): signSGD. */
typedef struct tow_scale_by_sign {
    tow_gradient_transform base;
} tow_scale_by_sign;
TOW_API extern const tow_gradient_transform_class tow_scale_by_sign_class;
#define TOW_SCALE_BY_SIGN() TOW__TRANSFORM(tow_scale_by_sign, )

/* g less its mean over all axes but the first one; g with fewer than two axes (Yong and others, 2020). */
typedef struct tow_centralize {
    tow_gradient_transform base;
} tow_centralize;
TOW_API extern const tow_gradient_transform_class tow_centralize_class;
#define TOW_CENTRALIZE() TOW__TRANSFORM(tow_centralize, )

/* sign(b1 m + (1-b1) g), then m = b2 m + (1-b2) g (Chen and others, 2023). */
typedef struct tow_scale_by_lion {
    tow_gradient_transform base;
    double b1, b2;      /* 0: 0.9, 0.99 */
    tow_dtype mu_dtype; /* of m in memory; 0: that of the parameter */
} tow_scale_by_lion;
TOW_API extern const tow_gradient_transform_class tow_scale_by_lion_class;
#define TOW_SCALE_BY_LION(...) TOW__TRANSFORM(tow_scale_by_lion, __VA_ARGS__)

/* m = decay m + (1-decay) g;  m, or with debias m / (1 - decay^t), as Optax's ema does by default */
typedef struct tow_ema_gradients {
    tow_gradient_transform base;
    double decay;
    bool debias;
    tow_dtype accumulator_dtype; /* of m in memory; 0: that of the parameter. Optax's adafactor: f32 */
} tow_ema_gradients;
TOW_API extern const tow_gradient_transform_class tow_ema_gradients_class;
#define TOW_EMA_GRADIENTS(...) TOW__TRANSFORM(tow_ema_gradients, __VA_ARGS__)

/* g coefficient |p| / (|g| + eps), of LAMB and LARS; g where one of the norms is 0. Norms are those of one layer. */
typedef struct tow_scale_by_trust_ratio {
    tow_gradient_transform base;
    double coefficient, eps; /* 0: 1, 0 */
} tow_scale_by_trust_ratio;
TOW_API extern const tow_gradient_transform_class tow_scale_by_trust_ratio_class;
#define TOW_SCALE_BY_TRUST_RATIO(...) TOW__TRANSFORM(tow_scale_by_trust_ratio, __VA_ARGS__)

/* Of Adafactor (Shazeer and Stern, 2018), whose chain is factored_rms, block_clip, scale(rate), block_rms, scale(-1).
 * g / sqrt(v), where v is made of averages over rows and over columns if the two largest axes have at least
 * min_dim_size_to_factor elements and not `whole`; the averages have a decay of 1 - t^-decay_rate. */
typedef struct tow_scale_by_factored_rms {
    tow_gradient_transform base;
    double decay_rate, eps;         /* 0: 0.8, 1e-30 */
    int64_t min_dim_size_to_factor; /* 0: 128 */
    bool whole;
} tow_scale_by_factored_rms;
TOW_API extern const tow_gradient_transform_class tow_scale_by_factored_rms_class;
#define TOW_SCALE_BY_FACTORED_RMS(...) TOW__TRANSFORM(tow_scale_by_factored_rms, __VA_ARGS__)

/* g / max(1, rms(g) / threshold) */
typedef struct tow_clip_by_block_rms {
    tow_gradient_transform base;
    double threshold; /* 0: 1 */
} tow_clip_by_block_rms;
TOW_API extern const tow_gradient_transform_class tow_clip_by_block_rms_class;
#define TOW_CLIP_BY_BLOCK_RMS(...) TOW__TRANSFORM(tow_clip_by_block_rms, __VA_ARGS__)

/* g max(rms(p), min_scale) */
typedef struct tow_scale_by_param_block_rms {
    tow_gradient_transform base;
    double min_scale; /* 0: 1e-3 */
} tow_scale_by_param_block_rms;
TOW_API extern const tow_gradient_transform_class tow_scale_by_param_block_rms_class;
#define TOW_SCALE_BY_PARAM_BLOCK_RMS(...) TOW__TRANSFORM(tow_scale_by_param_block_rms, __VA_ARGS__)

/* Of matrices: the momentum (Nesterov's, unless plain_momentum), made nearly orthogonal by steps of a Newton-Schulz
 * iteration, times sqrt(max(1, columns / rows)) (Jordan, 2024). Other parameters take another transform, by
 * TOW_PARTITION (the rule {"//kernel", TOW_GRADIENT_TRANSFORM(&muon)} stands for the kernels); biases and scales are
 * refused, whatever their rank. A parameter of more axes is one matrix, too, if row_axes says how many of them, from
 * the first one on, are its rows: 1 for the kernels of query, key and value [d, heads, k], 2 for that of the output
 * [heads, k, d]. */
typedef struct tow_scale_by_muon {
    tow_gradient_transform base;
    double beta, eps; /* 0: 0.95, 1e-8 */
    int steps;        /* 0: 5 */
    bool plain_momentum;
    int row_axes; /* 0: parameters are matrices */
} tow_scale_by_muon;
TOW_API extern const tow_gradient_transform_class tow_scale_by_muon_class;
#define TOW_SCALE_BY_MUON(...) TOW__TRANSFORM(tow_scale_by_muon, __VA_ARGS__)

/* Momentum: m = g + decay m;  m, or g + decay m with nesterov. */
typedef struct tow_trace_gradients {
    tow_gradient_transform base;
    double decay;
    bool nesterov;
    tow_dtype accumulator_dtype; /* of m in memory; 0: that of the parameter */
} tow_trace_gradients;
TOW_API extern const tow_gradient_transform_class tow_trace_gradients_class;
#define TOW_TRACE_GRADIENTS(...) TOW__TRANSFORM(tow_trace_gradients, __VA_ARGS__)

/* g + weight_decay p, where p is a kernel, an embedding, a factor of LoRA or another weight, and not a bias, a scale or
 * another parameter of fewer than two axes (tow_param_kind in tow/params.h); with decay_all, all. */
typedef struct tow_add_decayed_weights {
    tow_gradient_transform base;
    double weight_decay;
    bool decay_all;
} tow_add_decayed_weights;
TOW_API extern const tow_gradient_transform_class tow_add_decayed_weights_class;
#define TOW_ADD_DECAYED_WEIGHTS(...) TOW__TRANSFORM(tow_add_decayed_weights, __VA_ARGS__)

/* With n the root of the sum of the squares of all gradients: g where n < max_norm, else g * (max_norm / n). Reports n
 * as "clip/norm". Norms here and below are f64, and right for all numbers that the element types hold, also where
 * squares are not; products with them are rounded once. */
typedef struct tow_clip_by_global_norm {
    tow_gradient_transform base;
    double max_norm;
} tow_clip_by_global_norm;
TOW_API extern const tow_gradient_transform_class tow_clip_by_global_norm_class;
#define TOW_CLIP_BY_GLOBAL_NORM(...) TOW__TRANSFORM(tow_clip_by_global_norm, __VA_ARGS__)

/* Adaptive gradient clipping: with norms |g| and |p| of each unit, g where |g| < c = clipping max(|p|, eps), else g c /
 * max(|g|, 1e-6) (Brock and others, 2021). Units are along the last axis of kernels of convolutions [sizes..., in,
 * out], along all axes but the first one of parameters with two or three axes; a vector is one unit. n_axes and axes:
 * over which axes norms are taken instead. Error: TOW_INVALID_ARGUMENT for parameters with more than five axes, or
 * without these. */
typedef struct tow_adaptive_grad_clip {
    tow_gradient_transform base;
    double clipping, eps; /* positive; 0: 1e-3 */
    int n_axes;
    int axes[TOW_MAX_RANK];
} tow_adaptive_grad_clip;
TOW_API extern const tow_gradient_transform_class tow_adaptive_grad_clip_class;
#define TOW_ADAPTIVE_GRAD_CLIP(...) TOW__TRANSFORM(tow_adaptive_grad_clip, __VA_ARGS__)

/* g / n, with n the root of the sum of the squares of all gradients. */
typedef struct tow_normalize {
    tow_gradient_transform base;
} tow_normalize;
TOW_API extern const tow_gradient_transform_class tow_normalize_class;
#define TOW_NORMALIZE() TOW__TRANSFORM(tow_normalize, )

/* Every element clipped to [-max_delta, max_delta]. */
typedef struct tow_clip_elements {
    tow_gradient_transform base;
    double max_delta;
} tow_clip_elements;
TOW_API extern const tow_gradient_transform_class tow_clip_elements_class;
#define TOW_CLIP_ELEMENTS(...) TOW__TRANSFORM(tow_clip_elements, __VA_ARGS__)

/* ---- transforms around others, and by the loss ------------------------------------------------------------------- */

/* A transform whose options follow schedules; Optax: inject_hyperparams. Options are called as in the struct of the
 * transform ("b1", "eps", "weight_decay"), those of the transforms of a chain with their class's name in front
 * ("adam/b1"). They are numbers of the optimizer of that name ("adam/b1"), which tow_optimizer_set_number can fix: a
 * constant schedule makes an option that can be changed.
 *
 *     tow_schedule warm = tow_schedule_linear(0.5, 0.9, 100, 0);
 *     tow_scheduled_option b1 = {"b1", warm};
 *     tow_inject_hyperparams scheduled = TOW_INJECT_HYPERPARAMS(&adam, .n = 1, .options = &b1);
 *
 * Error: TOW_NOT_FOUND for a name that no transform in it reads. */
typedef struct tow_scheduled_option {
    const char *name;
    tow_schedule schedule;
} tow_scheduled_option;
typedef struct tow_inject_hyperparams {
    tow_gradient_transform base;
    const tow_gradient_transform *inner;
    size_t n;
    const tow_scheduled_option *options;
} tow_inject_hyperparams;
TOW_API extern const tow_gradient_transform_class tow_inject_hyperparams_class;
/* Of a transform and what TOW_GRADIENT_TRANSFORM takes, with options; in C++ without them. */
#ifndef __cplusplus
#define TOW__AROUND(type, ...)             TOW__AROUND2(type, __VA_ARGS__, .base = {&type##_class, sizeof(type)})
#define TOW__AROUND2(type, transform, ...) ((type){.inner = &(transform)->base, __VA_ARGS__})
#else
#define TOW__AROUND(type, transform)                                                                                   \
    ([](const tow_gradient_transform *tow__inner) {                                                                    \
        type tow__transform = {};                                                                                      \
        tow__transform.base = {&type##_class, sizeof(type)};                                                           \
        tow__transform.inner = tow__inner;                                                                             \
        return tow__transform;                                                                                         \
    }(&(transform)->base))
#endif
#define TOW_INJECT_HYPERPARAMS(...) TOW__AROUND(tow_inject_hyperparams, __VA_ARGS__)

/* Lookahead: every sync_period-th update moves the slow parameters by slow_step_size of the way to the fast ones, and
 * sets these to the slow ones (Zhang and others, 2019). The parameters are the fast ones;
 * tow_optimizer_find_slot(state, "lookahead/slow/") has the slow ones, which evaluations use. They begin with what the
 * parameters are before the first update. */
typedef struct tow_lookahead {
    tow_gradient_transform base;
    const tow_gradient_transform *inner; /* the whole optimizer of the fast parameters */
    int64_t sync_period;                 /* positive */
    double slow_step_size;               /* 0: 0.5 */
    bool reset_state;                    /* slots of the inner optimizer begin again after it */
} tow_lookahead;
TOW_API extern const tow_gradient_transform_class tow_lookahead_class;
#define TOW_LOOKAHEAD(...) TOW__AROUND(tow_lookahead, __VA_ARGS__)

/* Schedule-free (Defazio and others, 2024): with z <- z + the update of the inner optimizer, x <- (1-c) x + c z, the
 * parameters are b1 x + (1-b1) z; c = w / sum of all w so far, w = (the largest rate so far)^weight_power. The rate is
 * that of the inner optimizer, which has no momentum of its own: SGD, or scale_by_rms(.decay = 0.999, .eps_outside =
 * true, .bias_correction = true). Optax reads the schedule one step ahead here, and so does this. Evaluate with x:
 * tow_schedule_free_params. */
typedef struct tow_schedule_free {
    tow_gradient_transform base;
    const tow_gradient_transform *inner;
    tow_schedule learning_rate;
    double b1, weight_power; /* 0: 0.9, 2 */
} tow_schedule_free;
TOW_API extern const tow_gradient_transform_class tow_schedule_free_class;
#define TOW_SCHEDULE_FREE(...) TOW__AROUND(tow_schedule_free, __VA_ARGS__)

/* Sharpness-aware minimization (Foret and others, 2021), one gradient for each update: sync_period - 1 updates climb by
 * minus what `ascent` makes of the gradients (as a rule TOW_NORMALIZE and a rate rho), from where the next gradient is
 * taken; the last update goes back to where they began and makes the step of `inner` with that gradient. inner and
 * ascent count their own updates. */
typedef struct tow_sam {
    tow_gradient_transform base;
    const tow_gradient_transform *inner, *ascent;
    int64_t sync_period;    /* 0: 2; at least 2 */
    bool keep_ascent_state; /* slots of `ascent` go on from one climb to the next */
} tow_sam;
TOW_API extern const tow_gradient_transform_class tow_sam_class;
#define TOW_SAM(...) TOW__AROUND(tow_sam, __VA_ARGS__)

/* The step size of Polyak: g min(max_learning_rate, (loss - f_min) / (|g|^2 + eps)); 0 where |g|^2 + eps <= 2.2e-16.
 * plus: a negative difference counts as 0 (Loizou and others, 2021). Behind TOW_SCALE(.factor = -1): Optax's
 * polyak_sgd. Takes the loss. */
typedef struct tow_scale_by_polyak {
    tow_gradient_transform base;
    double f_min, max_learning_rate, eps; /* 0: 0, 1, 0 */
    bool plus;
} tow_scale_by_polyak;
TOW_API extern const tow_gradient_transform_class tow_scale_by_polyak_class;
#define TOW_SCALE_BY_POLYAK(...) TOW__TRANSFORM(tow_scale_by_polyak, __VA_ARGS__)

/* Multiplies by a scale, 1 at first, which is multiplied by `factor` when the mean of the loss over `accumulation`
 * updates has not been below (1 - rtol) best - atol for `patience` times in a row; after that, `cooldown` means are not
 * counted. Reports the scale as "reduce_on_plateau/scale". Behind the learning rate. Takes the loss. */
typedef struct tow_reduce_on_plateau {
    tow_gradient_transform base;
    double factor;        /* 0: 0.1; below 1 */
    int64_t patience;     /* 0: 10 */
    double rtol, atol;    /* 0: 1e-4, 0 */
    int64_t cooldown;     /* 0: none */
    int64_t accumulation; /* 0: 1 */
    double min_scale;
} tow_reduce_on_plateau;
TOW_API extern const tow_gradient_transform_class tow_reduce_on_plateau_class;
#define TOW_REDUCE_ON_PLATEAU(...) TOW__TRANSFORM(tow_reduce_on_plateau, __VA_ARGS__)

/* L-BFGS: the gradient times an approximation of the inverse Hessian, which the last memory_size differences of
 * parameters and of gradients make (Liu and Nocedal, 1989); 2 memory_size + 2 slots of each parameter. In front of
 * TOW_SCALE(.factor = -1) and tow_optimizer_line_search, as Optax's lbfgs, or of a learning rate. */
typedef struct tow_scale_by_lbfgs {
    tow_gradient_transform base;
    int memory_size;        /* 0: 10; at most 100 */
    bool no_scaled_precond; /* it begins with 1, not with y.s / y.y (in the first update min(1, 1 / |g|)) */
} tow_scale_by_lbfgs;
TOW_API extern const tow_gradient_transform_class tow_scale_by_lbfgs_class;
#define TOW_SCALE_BY_LBFGS(...) TOW__TRANSFORM(tow_scale_by_lbfgs, __VA_ARGS__)

/* Of gradients of single examples (tow_optimizer_options.examples): each example's gradient times min(1, l2_norm_clip /
 * its norm over all parameters), their sum with normal noise of standard deviation l2_norm_clip noise_multiplier, over
 * the number of examples (Abadi and others, 2016). The first transform of a chain. Keys are those of Optax for
 * PRNGKey(seed) and parameters in the order of the list; the slot "differentially_private/key/" has the next one. */
typedef struct tow_differentially_private_aggregate {
    tow_gradient_transform base;
    double l2_norm_clip, noise_multiplier; /* positive; 0: no noise */
    uint64_t seed;
} tow_differentially_private_aggregate;
TOW_API extern const tow_gradient_transform_class tow_differentially_private_aggregate_class;
#define TOW_DIFFERENTIALLY_PRIVATE_AGGREGATE(...) TOW__TRANSFORM(tow_differentially_private_aggregate, __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
