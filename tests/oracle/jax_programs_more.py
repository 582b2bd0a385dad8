"""More programs of jax_programs.py: options of jax.nn, initialisers, steps of optimisers in single precision, layers of Flax, and
models and solvers as users write them. Registers them in jax_programs_cases.CASES."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax_programs_cases import case, f32, flax

KEY = np.array([3, 8], np.int32)  # made u32 inside, so that its rows differ

# ---- jax.nn: options, and initialisers ------------------------------------------------------------------------------------

nn = jax.nn
case("nn_parameters", lambda x, a: (nn.leaky_relu(x, 0.3), nn.celu(x, 0.7), nn.elu(x, 1.3), nn.squareplus(x, 2.0), nn.leaky_relu(x, a), nn.celu(x, a)),
     f32(3, 5), f32(5), low=0.2, high=3)
case("nn_reductions", lambda x, b: (nn.logsumexp(x, axis=1, b=b), nn.logsumexp(x, axis=0, keepdims=True), nn.logsumexp(x, where=jnp.arange(4) < 3, axis=1),
                                    nn.softmax(x, where=jnp.arange(4) < 3, axis=1), nn.log_softmax(x, axis=0), nn.logmeanexp(x)),
     f32(3, 4), f32(3, 4), low=0.1, high=3)
case("nn_logsumexp_signed", lambda x, b: nn.logsumexp(x, axis=1, b=b - 0.5, return_sign=True), f32(3, 4), f32(3, 4), low=0, high=2)
case("nn_standardize_given", lambda x: (nn.standardize(x, axis=0, epsilon=1e-3), nn.standardize(x, mean=0.5, variance=2.0), nn.standardize(x, where=jnp.arange(7) < 5)),
     f32(3, 7))
case("nn_one_hot_axes", lambda i, w: (nn.one_hot(i, 4, axis=0) * w, nn.one_hot(i, 4, axis=-1).T * w), np.array([0, 3, 7, -1, 2], np.int32), f32(4, 5))
case("nn_glu_axis", lambda x: nn.glu(x, axis=0), f32(4, 3))
case("nn_attention_masked", lambda q, k, v, m: nn.dot_product_attention(q, k, v, mask=m[:, None] > 0.3, scale=0.4),
     f32(2, 4, 2, 3), f32(2, 5, 2, 3), f32(2, 5, 2, 3), f32(2, 4, 5), low=0)
case("nn_attention_lengths", lambda q, k, v: nn.dot_product_attention(q, k, v, query_seq_lengths=jnp.array([4, 2]), key_value_seq_lengths=jnp.array([3, 5])),
     f32(2, 4, 2, 3), f32(2, 5, 2, 3), f32(2, 5, 2, 3))
case("nn_attention_window", lambda q, k, v, b: nn.dot_product_attention(q, k, v, bias=b, local_window_size=(1, 0)),
     f32(1, 4, 2, 3), f32(1, 4, 2, 3), f32(1, 4, 2, 3), f32(1, 2, 4, 4))


def initialised(key, x):
    """The initialisers of jax.nn, times x"""
    key, draws = key.astype(jnp.uint32), {}
    for name in "glorot_normal glorot_uniform he_normal he_uniform lecun_normal lecun_uniform".split():
        draws[name] = getattr(nn.initializers, name)()(key, (3, 4))
    draws["normal"] = nn.initializers.normal(0.5)(key, (3, 4))
    draws["uniform"] = nn.initializers.uniform(0.5)(key, (3, 4))
    draws["truncated"] = nn.initializers.truncated_normal(0.5)(key, (3, 4))
    draws["scaled"] = nn.initializers.variance_scaling(2.0, "fan_avg", "truncated_normal", in_axis=0, out_axis=1)(key, (3, 4))
    draws["constant"] = nn.initializers.constant(0.3)(key, (3, 4))
    return [x * d for d in draws.values()]


case("nn_initializers", initialised, KEY, f32(3, 4))

# ---- Optax: one step in single precision, from a state that is an argument --------------------------------------------------
# Second moments are drawn away from zero, so that quotients and roots are well conditioned.


def optimisers():
    import optax
    params = {"w": f32(3, 2), "b": f32(2)}
    rate = 1e-2
    rules = {
        "sgd": optax.sgd(rate), "momentum": optax.sgd(rate, momentum=0.9), "nesterov": optax.sgd(rate, momentum=0.9, nesterov=True), "adam": optax.adam(rate),
        "adamw": optax.adamw(rate), "lamb": optax.lamb(rate), "lion": optax.lion(rate), "rmsprop": optax.rmsprop(rate, momentum=0.9), "adagrad": optax.adagrad(rate),
        "adadelta": optax.adadelta(rate), "adafactor": optax.adafactor(rate, min_dim_size_to_factor=2), "radam": optax.radam(rate), "nadam": optax.nadam(rate),
        "nadamw": optax.nadamw(rate), "adamax": optax.adamax(rate), "amsgrad": optax.amsgrad(rate), "yogi": optax.yogi(rate), "adabelief": optax.adabelief(rate),
        "novograd": optax.novograd(rate), "lars": optax.lars(rate), "fromage": optax.fromage(rate), "sm3": optax.sm3(rate), "rprop": optax.rprop(rate),
        "signum": optax.signum(rate), "adan": optax.adan(rate), "optimistic": optax.optimistic_gradient_descent(rate),
        "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.add_decayed_weights(1e-2), optax.adam(optax.cosine_decay_schedule(rate, 20))),
        "adaptive_clip": optax.chain(optax.adaptive_grad_clip(0.1), optax.clip(0.3), optax.centralize(), optax.sgd(rate)), "average": optax.ema(0.9),
    }
    for name, rule in rules.items():
        state = jax.tree_util.tree_map(lambda x: np.asarray(x) if np.asarray(x).dtype.kind == "f" else np.asarray(x) + 3, rule.init(params))

        def step(grads, state, params, rule=rule):
            """One step of an optimiser: new parameters and new state"""
            updates, state = rule.update(grads, state, params)
            return optax.apply_updates(params, updates), state
        case(f"optax_step_{name}", (lambda step: lambda grads, state, params: step(grads, state, params))(step), params, state, params, low=0.3, high=1)
    labels = np.arange(4, dtype=np.int32)
    case("optax_losses", lambda x, y: (optax.hinge_loss(x, y), optax.squared_error(x, y), optax.sigmoid_focal_loss(x, y), optax.convex_kl_divergence(x, y),
                                       optax.safe_softmax_cross_entropy(x, y), optax.smooth_labels(y, 0.1), optax.cosine_distance(x, y), optax.huber_loss(x, y, delta=0.2),
                                       optax.generalized_kl_divergence(x, y)), f32(3, 4), f32(3, 4), low=0.1)
    case("optax_ntxent", lambda x, labels: optax.ntxent(x, labels // 2), f32(4, 3), labels)


optimisers()

# ---- Flax: layers ---------------------------------------------------------------------------------------------------------


def layers():
    from flax import linen as fn
    flax("flax_lstm_layers", fn.Sequential([fn.RNN(fn.OptimizedLSTMCell(3)), fn.RNN(fn.OptimizedLSTMCell(4))]), f32(2, 4, 3))
    flax("flax_mgu", fn.RNN(fn.MGUCell(4)), f32(2, 4, 3))
    flax("flax_conv_lstm", fn.RNN(fn.ConvLSTMCell(3, (2, 2))), f32(1, 3, 4, 4, 2))
    flax("flax_dense_general", fn.Sequential([fn.DenseGeneral((2, 3), axis=-1), fn.DenseGeneral(4, axis=(-2, -1)), fn.PReLU()]), f32(2, 5, 4))
    flax("flax_einsum", fn.Einsum((4, 2, 3), "...d,dhk->...hk"), f32(2, 5, 4))
    flax("flax_conv_local", fn.ConvLocal(3, (2, 2)), f32(1, 4, 4, 2))
    flax("flax_instance_group_norm", fn.Sequential([fn.Conv(4, (3, 3), use_bias=False), fn.InstanceNorm(), fn.GroupNorm(2)]), f32(2, 4, 4, 3))
    flax("flax_pools", fn.Sequential([fn.Conv(4, (3,), padding="CIRCULAR"), lambda x: fn.max_pool(x, (2,), (2,)), lambda x: fn.avg_pool(x, (2,), (1,), padding="SAME"),
                                      fn.Conv(2, (3,), padding="CAUSAL", kernel_dilation=2)]), f32(2, 8, 3))
    flax("flax_weight_norm", fn.WeightNorm(fn.Dense(4)), f32(3, 5), low=0.2)

    class BatchNormInference(fn.Module):
        @fn.compact
        def __call__(self, x):
            return fn.BatchNorm(use_running_average=True)(fn.Dense(4)(x))
    flax("flax_batch_norm_inference", BatchNormInference(), f32(3, 5), collections=("batch_stats",), low=0.2)

    class BiasedAttention(fn.Module):  # only the values and outputs have a bias that the result depends on
        @fn.compact
        def __call__(self, x, bias):
            q, k = (fn.DenseGeneral((2, 3), use_bias=False, name=n)(x) for n in "qk")
            v = fn.DenseGeneral((2, 3), name="v")(x)
            y = fn.dot_product_attention(q, k, v, bias=bias)
            return fn.DenseGeneral(x.shape[-1], axis=(-2, -1), name="out")(y)
    flax("flax_attention_bias", BiasedAttention(), f32(2, 4, 6), f32(2, 2, 4, 4))

    class EncoderDecoder(fn.Module):
        @fn.compact
        def __call__(self, source, target):
            def block(x, y, mask=None):
                h = fn.LayerNorm()(x)
                x = x + fn.MultiHeadDotProductAttention(2, use_bias=False)(h, y if y is not None else h, mask=mask)
                return x + fn.Dense(x.shape[-1])(fn.gelu(fn.Dense(8)(fn.LayerNorm()(x))))
            memory = block(source, None)
            return block(block(target, None, fn.make_causal_mask(jnp.ones(target.shape[:2]))), memory)
    flax("flax_encoder_decoder", EncoderDecoder(), f32(1, 4, 6), f32(1, 3, 6))

    class LanguageModel(fn.Module):
        """A causal transformer with tied embeddings and scanned blocks under remat; its cross entropy"""
        @fn.compact
        def __call__(self, tokens):
            class Block(fn.Module):
                @fn.compact
                def __call__(self, x, _):
                    h = fn.LayerNorm(use_bias=False)(x)
                    x = x + fn.SelfAttention(2, use_bias=False)(h, mask=fn.make_causal_mask(jnp.ones(x.shape[:2])))
                    return x + fn.Dense(x.shape[-1])(fn.gelu(fn.Dense(12)(fn.LayerNorm(use_bias=False)(x)))), None
            embed = fn.Embed(7, 6)
            x = embed(tokens) + self.param("positions", fn.initializers.normal(), (tokens.shape[1], 6))
            block = fn.remat(Block, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable, prevent_cse=False)
            x, _ = fn.scan(block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)()(x, None)
            logits = embed.attend(fn.LayerNorm(use_bias=False)(x))
            targets = jnp.roll(tokens, -1, axis=1)
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    flax("flax_language_model", LanguageModel(), np.arange(8, dtype=np.int32).reshape(2, 4) % 7)

    class MlpMixer(fn.Module):
        @fn.compact
        def __call__(self, x):
            x = fn.Conv(6, (2, 2), (2, 2))(x)
            x = x.reshape(x.shape[0], -1, 6)
            y = jnp.swapaxes(fn.LayerNorm()(x), 1, 2)
            x = x + jnp.swapaxes(fn.Dense(x.shape[1])(fn.gelu(fn.Dense(5)(y))), 1, 2)
            x = x + fn.Dense(6)(fn.gelu(fn.Dense(8)(fn.LayerNorm()(x))))
            return fn.Dense(3)(x.mean(1))
    flax("flax_mlp_mixer", MlpMixer(), f32(2, 4, 4, 2))

    class UNet(fn.Module):
        @fn.compact
        def __call__(self, x):
            a = fn.silu(fn.Conv(3, (3, 3))(x))
            b = fn.silu(fn.Conv(4, (3, 3), (2, 2))(a))
            up = fn.ConvTranspose(3, (2, 2), (2, 2))(b)
            return fn.Conv(x.shape[-1], (3, 3))(jnp.concatenate([a, jax.image.resize(b, (*a.shape[:3], 4), "nearest"), up], -1))
    flax("flax_unet", UNet(), f32(1, 4, 4, 2))

    class Dropped(fn.Module):
        @fn.compact
        def __call__(self, x, key):
            return fn.Dense(3)(fn.Dropout(0.3, deterministic=False)(x, rng=key.astype(jnp.uint32)))
    flax("flax_dropout", Dropped(), f32(4, 5), KEY)


layers()

# ---- models and solvers ---------------------------------------------------------------------------------------------------


def rotary(x, w):
    """Attention with rotary embeddings and grouped heads"""
    t, d = x.shape
    angles = jnp.arange(t)[:, None] / 100.0 ** (jnp.arange(2) / 2)

    def rotate(y):
        a, b = jnp.split(y, 2, -1)
        c, s = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)
    q, k, v = (jnp.einsum("td,dhk->thk", x, u) for u in w)
    return nn.dot_product_attention(rotate(q), rotate(k[:, :1]), v[:, :1], is_causal=True)


@jax.custom_vjp
def streamed(q, k, v):
    """Attention over blocks of keys with a running maximum, whose gradient runs over the blocks again"""
    return streamed_forward(q, k, v)[0]


def streamed_forward(q, k, v):
    def block(carry, kv):
        m, z, y = carry
        s = q @ kv[0].T
        new = jnp.maximum(m, s.max(-1))
        p, scale = jnp.exp(s - new[:, None]), jnp.exp(m - new)
        return (new, z * scale + p.sum(-1), y * scale[:, None] + p @ kv[1]), None
    start = (jnp.full(q.shape[0], -jnp.inf), jnp.zeros(q.shape[0]), jnp.zeros((q.shape[0], v.shape[-1])))
    (m, z, y), _ = lax.scan(block, start, (k.reshape(3, 2, -1), v.reshape(3, 2, -1)))
    return y / z[:, None], (q, k, v, y / z[:, None], m + jnp.log(z))


def streamed_backward(residuals, ct):
    q, k, v, y, lse = residuals
    delta = jnp.sum(ct * y, -1)

    def block(dq, kv):
        p = jnp.exp(q @ kv[0].T - lse[:, None])
        ds = p * (ct @ kv[1].T - delta[:, None])
        return dq + ds @ kv[0], (ds.T @ q, p.T @ ct)
    dq, (dk, dv) = lax.scan(block, jnp.zeros_like(q), (k.reshape(3, 2, -1), v.reshape(3, 2, -1)))
    return dq, dk.reshape(k.shape), dv.reshape(v.shape)


streamed.defvjp(streamed_forward, streamed_backward)


def state_space(a, b, c, x):
    """A selective state space layer by an associative scan"""
    decay = jnp.exp(-nn.softplus(a + x[:, :1]))
    _, h = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (decay * jnp.ones_like(b), b * x))
    return jnp.sum(c * h, -1)


def experts(x, gate, w):
    """A mixture of two of three experts"""
    weights, chosen = lax.top_k(nn.softmax(x @ gate), 2)
    outputs = jnp.einsum("nd,edk->nek", x, w)
    return jnp.einsum("nj,njk->nk", weights, jnp.take_along_axis(jnp.tanh(outputs), chosen[..., None], axis=1))


def variational(params, x, key):
    """The evidence lower bound of a variational autoencoder"""
    mean, log_var = jnp.split(jnp.tanh(x @ params["encode"]), 2, -1)
    z = mean + jnp.exp(log_var / 2) * jax.random.normal(key.astype(jnp.uint32), mean.shape)
    logits = z @ params["decode"]
    return jnp.sum(x * nn.log_sigmoid(logits) + (1 - x) * nn.log_sigmoid(-logits), -1) + 0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), -1)


def flow(params, x):
    """The log density of a normalising flow of two coupling layers"""
    total = 0.0
    for w in params:
        a, b = jnp.split(x, 2, -1)
        s, t = jnp.split(jnp.tanh(a @ w), 2, -1)
        x, total = jnp.concatenate([b * jnp.exp(s) + t, a], -1), total + s.sum(-1)
    return total + jax.scipy.stats.norm.logpdf(x).sum(-1)


def sinkhorn(cost, a):
    """Optimal transport: Sinkhorn's iteration in the log domain"""
    def step(_, fg):
        f, g = fg
        f = 0.5 * (jnp.log(a) - nn.logsumexp((g[None] - cost) / 0.5, axis=1))
        return f, 0.5 * (jnp.log(a[::-1]) - nn.logsumexp((f[:, None] - cost) / 0.5, axis=0))
    f, g = lax.fori_loop(0, 4, step, (jnp.zeros(3), jnp.zeros(3)))
    return jnp.exp((f[:, None] + g[None] - cost) / 0.5)


def hidden_markov(transitions, emissions, observed):
    """The log likelihood of a hidden Markov model, and the Viterbi score"""
    t, e = nn.log_softmax(transitions), nn.log_softmax(emissions)

    def forward(alpha, o):
        return nn.logsumexp(alpha[:, None] + t, axis=0) + e[:, o], None

    def best(score, o):
        return jnp.max(score[:, None] + t, axis=0) + e[:, o], None
    start = e[:, observed[0]]
    return nn.logsumexp(lax.scan(forward, start, observed[1:])[0]), jnp.max(lax.scan(best, start, observed[1:])[0])


def informed(params, x):
    """The residual of a differential equation: second derivatives of a network inside of a loss"""
    def u(x):
        return jnp.tanh(jnp.tanh(x[None] * params["a"]) @ params["b"]) @ params["c"]
    return jax.vmap(lambda x: jax.grad(jax.grad(u))(x) + u(x) ** 2)(x)


def adapted(w, x, y):
    """A loss after a step of gradient descent (MAML)"""
    def loss(w, x):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)
    return loss(w - 0.1 * jax.grad(loss)(w, x), x[::-1])


def sampled(params, x, key):
    """Three steps of sampling from a diffusion model, in a scan over keys"""
    def step(x, k):
        noise = jnp.tanh(x @ params["a"]) @ params["b"]
        return 1.1 * (x - 0.2 * noise) + 0.1 * jax.random.normal(k, x.shape), jnp.mean(x)
    return lax.scan(step, x, jax.random.split(key.astype(jnp.uint32), 3))


def implicit(w, y):
    """Implicit Euler steps, each solved by a fixed-point iteration in a while loop"""
    def step(y, _):
        def going(s):
            return (jnp.max(jnp.abs(s[0] - s[1])) > 1e-3) & (s[2] < 8)

        def iterate(s):
            return y + 0.1 * jnp.sin(w @ s[0]), s[0], s[2] + 1
        return lax.while_loop(going, iterate, (y + 0.1 * jnp.sin(w @ y), y, 0))[0], None
    return lax.scan(step, y, None, length=3)[0]


case("rotary_attention", rotary, f32(4, 6), [f32(6, 2, 4), f32(6, 1, 4), f32(6, 1, 4)])
case("streamed_attention", lambda q, k, v: streamed(q, k, v), f32(4, 3), f32(6, 3), f32(6, 2))
case("state_space", state_space, f32(5, 1), f32(5, 3), f32(5, 3), f32(5, 1))
case("mixture_of_experts", experts, f32(4, 3), f32(3, 3), f32(3, 3, 2))
case("variational_autoencoder", variational, {"encode": f32(4, 6), "decode": f32(3, 4)}, f32(2, 4), KEY, low=0.05, high=0.95)
case("normalising_flow", flow, [f32(2, 4), f32(2, 4)], f32(3, 4), both=True)
case("sinkhorn", sinkhorn, f32(3, 3), f32(3), low=0.2)
case("hidden_markov", hidden_markov, f32(3, 3), f32(3, 4), np.array([0, 3, 1, 2, 2], np.int32))
case("physics_informed", informed, {"a": f32(4), "b": f32(4, 3), "c": f32(3)}, f32(3), both=True)
case("adapted_loss", adapted, f32(3, 2), f32(4, 3), f32(4, 2))
case("diffusion_sampling", sampled, {"a": f32(3, 4), "b": f32(4, 3)}, f32(2, 3), KEY)
case("ode_implicit", implicit, f32(3, 3), f32(3), max_iterations=8)


def integrated(w, y):
    """odeint of jax.experimental: Dormand and Prince with an adaptive step, a custom_vjp whose rules hold another one"""
    from jax.experimental.ode import odeint
    return odeint(lambda y, t, w: jnp.sin(w @ y), y, jnp.linspace(0.0, 1.0, 3), w)


case("ode_odeint_f64", integrated, np.zeros((2, 2)), np.zeros(2), max_iterations=60, reverse=True)
import jax_programs_rare  # noqa: E402,F401  registers further programs
