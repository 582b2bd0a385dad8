"""The programs of jax_programs.py: CASES[name] = (function, arguments or a function that makes them, options of write)."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

CASES = {}


def f32(*shape):
    return np.zeros(shape, np.float32)


def bf16(*shape):
    return np.zeros(shape, jnp.bfloat16)


def case(name, f, *args, both=False, **options):
    """both: a second program in double precision."""
    CASES[name] = (f, args, options)
    if both:
        wide = jax.tree_util.tree_map(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, args)
        CASES[name + "_f64"] = (f, wide, options)


# ---- jax.nn, function by function ---------------------------------------------------------------------------------------

ACTIVATIONS = """celu elu gelu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu relu6 selu sigmoid
    silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh""".split()
for name in ACTIVATIONS:
    function = getattr(jax.nn, name)
    case(f"nn_{name}", (lambda function: lambda x: function(x))(function), f32(3, 5), low=-4, high=4, both=name in ("gelu", "elu", "softplus"))
case("nn_gelu_erf", lambda x: jax.nn.gelu(x, approximate=False), f32(3, 5), low=-4, high=4)
case("nn_glu", lambda x: jax.nn.glu(x, axis=1), f32(3, 6))
case("nn_softmax", lambda x: jax.nn.softmax(x, axis=0), f32(4, 5), low=-4, high=4, both=True)
case("nn_softmax_where", lambda x: jax.nn.softmax(x, where=jnp.arange(5) < 3), f32(4, 5))
case("nn_log_softmax", lambda x: jax.nn.log_softmax(x, axis=-1), f32(2, 3, 4), low=-4, high=4)
case("nn_logsumexp", lambda x: jax.nn.logsumexp(x, axis=(0, 2)), f32(2, 3, 4), low=-4, high=4)
case("nn_logmeanexp", lambda x: jax.nn.logmeanexp(x, axis=1), f32(2, 3), low=-4, high=4)
case("nn_standardize", lambda x: jax.nn.standardize(x, axis=-1), f32(3, 7), both=True)
case("nn_one_hot", lambda i, w: jax.nn.one_hot(i, 5) @ w, np.arange(6, dtype=np.int32) - 1, f32(5, 2))
case("nn_log1mexp", lambda x: jax.nn.log1mexp(x), f32(3, 5), low=0.1, high=4)
case("nn_dot_product_attention", lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
     f32(2, 4, 2, 3), f32(2, 4, 2, 3), f32(2, 4, 2, 3))
case("nn_dot_product_attention_grouped", lambda q, k, v, bias: jax.nn.dot_product_attention(q, k, v, bias=bias),
     f32(1, 4, 4, 3), f32(1, 5, 2, 3), f32(1, 5, 2, 3), f32(1, 4, 4, 5))

# ---- control flow, remat, random numbers --------------------------------------------------------------------------------


def rk4(w, y):
    """The classical Runge-Kutta method in a scan"""
    def f(y):
        return jnp.tanh(w @ y)

    def step(y, t):
        h = 0.1 + 0.01 * t
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y
    return lax.scan(step, y, jnp.arange(5, dtype=y.dtype))


def adaptive(w, y):
    """Heun's method with an adaptive step, in a while loop: steps are accepted or refused by cond"""
    def f(y):
        return jnp.sin(w @ y) - 0.5 * y

    def go_on(state):
        return (state[0] < 1) & (state[3] < 20)

    def step(state):
        t, h, y, n = state
        h = jnp.minimum(h, 1 - t)
        k1 = f(y)
        k2 = f(y + h * k1)
        error = jnp.max(jnp.abs(h / 2 * (k2 - k1)))
        t, y = lax.cond(error < 5e-2, lambda: (t + h, y + h / 2 * (k1 + k2)), lambda: (t, y))
        return t, h * jnp.where(error < 5e-2, 1.5, 0.5).astype(y.dtype), y, n + 1
    zero = jnp.zeros((), y.dtype)
    return lax.while_loop(go_on, step, (zero, zero + 0.3, y, 0))[2]


case("ode_rk4", rk4, f32(3, 3), f32(3), both=True)
case("ode_adaptive", adaptive, f32(3, 3), f32(3), both=True, max_iterations=20)
case("newton_while", lambda a: lax.while_loop(lambda s: jnp.abs(s[0] * s[0] - s[1]) > 1e-4, lambda s: (0.5 * (s[0] + s[1] / s[0]), s[1]), (a, a))[0],
     f32(), low=1, high=5, max_iterations=12)
case("fori_static", lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) * (i + 1), x), f32(3))
case("fori_dynamic", lambda n, x: lax.fori_loop(0, n[0], lambda i, c: jnp.sin(c) + 0.1 * i.astype(c.dtype), x), np.arange(3, dtype=np.int32) + 2, f32(3),
     max_iterations=6)
case("switch", lambda i, x: lax.switch(i[0], [jnp.sin, lambda v: v * v * v, lambda v: jnp.exp(v) * jnp.tanh(v)], x), np.arange(-1, 4, dtype=np.int32), f32(4))
case("associative_scan", lambda a, b: lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b)), f32(7), f32(7))
case("vmap_of_while", lambda x: jax.vmap(lambda x: lax.while_loop(lambda s: s < 3, lambda s: s * 1.5 + 0.1, x))(x), f32(5), low=0.5, high=2, max_iterations=9)
case("map", lambda x: lax.map(lambda r: jnp.sort(r) * jnp.cumsum(r), x), f32(3, 4))


def remat_block(w, v, x):
    """Blocks under remat with policies, nested, with names"""
    policies = jax.checkpoint_policies

    def block(x, w, v):
        h = checkpoint_name(jnp.sin(x @ w), "hidden")
        return x + checkpoint_name(jnp.tanh(h) @ v, "out")
    named = jax.checkpoint(block, policy=policies.save_only_these_names("hidden"))
    dots = jax.checkpoint(block, policy=policies.save_from_both_policies(policies.dots_saveable, policies.save_only_these_names("out")))
    return jax.checkpoint(lambda x, w, v: dots(named(x, w, v), w, v))(block(x, w, v), w, v)


case("remat_policies", remat_block, f32(3, 4), f32(4, 3), f32(2, 3), both=True)
case("scan_of_remat", lambda ws, x: lax.scan(jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None)), x, ws)[0], f32(4, 3, 3), f32(2, 3))
case("random_draws", lambda key, x: (x * jax.random.normal(key.astype(jnp.uint32), (4,)),
                                     jnp.where(jax.random.bernoulli(jax.random.split(key.astype(jnp.uint32), 3)[1], 0.6, (4,)), x, 0),
                                     jax.random.uniform(jax.random.fold_in(key.astype(jnp.uint32), 7), (3,), minval=-1, maxval=2),
                                     jax.random.randint(key.astype(jnp.uint32), (5,), 0, 10)),
     np.array([3, 11], np.int32), f32(4))
case("random_typed_keys", lambda seed, x: sum(x * jax.random.uniform(k, (3,)) for k in jax.random.split(jax.random.key(seed[0]), 2)), np.arange(4, dtype=np.int32),
     f32(3))
case("categorical", lambda key, x: x[jax.random.categorical(key.astype(jnp.uint32), jnp.log(jnp.arange(1., 5.)), shape=(6,))],
     np.array([5, 6], np.int32), f32(4))

# ---- element types ----------------------------------------------------------------------------------------------------------


def image_model(pixels, w1, w2, b):
    """A small network on pixels of 8 bits, computed in bf16 with parameters of f32"""
    x = (pixels.astype(jnp.bfloat16) - 128) / 64
    h = jax.nn.relu(lax.conv_general_dilated(x, w1.astype(jnp.bfloat16), (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    logits = jnp.dot(h.mean((1, 2)), w2.astype(jnp.bfloat16), preferred_element_type=jnp.float32) + b
    return jax.nn.log_softmax(logits), jnp.argmax(logits, -1).astype(jnp.uint8)


def wide_integers(a, b, x):
    """Arithmetic of 64 bits that 32 bits do not hold, a hash with it, and indices of 64 bits"""
    h = (a ^ (a >> 7)) * jnp.int64(0x9E3779B97F4A7C1)
    u = h.astype(jnp.uint64)
    u = (u ^ (u >> jnp.uint64(33))) * jnp.uint64(0xFF51AFD7ED558CCD)
    at = (u % jnp.uint64(x.shape[0])).astype(jnp.int64)
    return h, u, a // 3, a % 5, a * b, x[at] * 2, jnp.sum(a), jnp.cumsum(b), jnp.argsort(a), lax.clz(u), a.astype(jnp.float64) * 1e-18


def few_bits(a, b, x):
    """Integers of 8 bits, which wrap"""
    return a + b, a * b, a - b, b >> 1, lax.population_count(b), a.astype(jnp.int8).astype(jnp.float32) * x, jnp.max(a), jnp.sum(b, dtype=jnp.uint8)


case("image_uint8", image_model, np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3), f32(3, 3, 3, 4), f32(4, 5), f32(5))
case("wide_integers_f64", wide_integers, np.array([3, -7, 2**40 + 5, -(2**62), 2**63 - 1]), np.array([1, 2, -3, 2**33, 5]), np.zeros(5))
case("few_bits", few_bits, np.array([100, 200, 255, 0], np.uint8), np.array([100, 7, 1, 128], np.uint8), f32(4))
case("halves", lambda x, y: (jnp.exp(x) * y, x @ y.T, jnp.sum(x * y), jnp.where(x < y, x, y), jax.nn.softmax(x), x.astype(jnp.float32) / 3),
     np.zeros((3, 4), np.float16), np.zeros((3, 4), np.float16))
case("preferred_f32", lambda x, w, v: (jnp.einsum("bi,io->bo", x, w, preferred_element_type=jnp.float32), x @ w, jnp.tanh(x @ w) @ v),
     bf16(3, 4), bf16(4, 5), bf16(5, 2))
case("quantised", lambda x, w, scale: lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32).astype(jnp.float32) * scale,
     np.array([[1, -128, 127], [50, 3, -7]], np.int8), np.array([[127, 100], [-128, 5], [-3, 77]], np.int8), f32(2))
case("remat_bf16", lambda w, v, x: jax.checkpoint(lambda h: jnp.tanh(jnp.dot(h, w)) @ v, policy=jax.checkpoint_policies.dots_saveable)(x).astype(jnp.float32),
     bf16(4, 5), bf16(5, 4), bf16(3, 4))
case("scan_bf16", lambda w, h, xs: lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.astype(jnp.float32)), h, xs), bf16(3, 3), bf16(2, 3), bf16(4, 2, 3))
case("random_16_bits", lambda key, x: (jax.random.normal(key.astype(jnp.uint32), (64,), jnp.bfloat16), jax.random.normal(key.astype(jnp.uint32), (64,), jnp.float16),
                                       jax.random.bits(key.astype(jnp.uint32), (9,), jnp.uint8), jax.random.bits(key.astype(jnp.uint32), (9,), jnp.uint16) * 3,
                                       x * jax.random.uniform(key.astype(jnp.uint32), (4,), jnp.bfloat16)),
     np.array([3, 11], np.int32), bf16(4))
case("random_64_bits_f64", lambda key, x: (jax.random.bits(key.astype(jnp.uint32), (9,), jnp.uint64), jax.random.randint(key.astype(jnp.uint32), (5,), -2**40, 2**41),
                                           x * jax.random.normal(key.astype(jnp.uint32), (4,), jnp.float64)),
     np.array([3, 11], np.int32), np.zeros(4))

# ---- derivatives of one's own ---------------------------------------------------------------------------------------------
# Rules that are not the derivative of the value, so that leaving them out would show.


@jax.custom_jvp
def clipped(x):
    """sin x, with the derivative 3/2 cos x inside of [-1, 1] and 1/4 outside; the rule calls the function itself"""
    return jnp.sin(x)


@clipped.defjvp
def clipped_rule(primals, tangents):
    (x,), (dx,) = primals, tangents
    return clipped(x), dx * jnp.where(jnp.abs(x) < 1, 1.5 * jnp.cos(x), 0.25)


@jax.custom_vjp
def scaled(x, w):
    """tanh(x w), with gradients that are scaled; forward and backward call the function itself"""
    return jnp.tanh(x @ w)


def scaled_forward(x, w):
    y = scaled(x, w)
    return y, (x, w, y)


def scaled_backward(residuals, ct):
    x, w, y = residuals
    ct = 0.5 * ct * (1 - y * scaled(x, w))
    return ct @ w.T, 3 * (x.T @ ct)


scaled.defvjp(scaled_forward, scaled_backward)


@jax.custom_jvp
def own_sine(x):
    return jnp.sin(x)


@jax.custom_jvp
def own_cosine(x):
    return jnp.cos(x)


own_sine.defjvp(lambda p, t: (own_sine(*p), 0.9 * own_cosine(*p) * t[0]))
own_cosine.defjvp(lambda p, t: (own_cosine(*p), -1.1 * own_sine(*p) * t[0]))


@jax.custom_jvp
def product(x, y, n):
    """x y n for an integer n; with symbolic zeros"""
    return x * y * n


def product_rule(primals, tangents):
    x, y, n = primals
    dx, dy, _ = tangents
    zero = jax.custom_derivatives.SymbolicZero
    terms = [2 * y * n * dx] if type(dx) is not zero else []
    terms += [x * n * dy] if type(dy) is not zero else []
    return product(x, y, n), sum(terms) if terms else dx


product.defjvp(product_rule, symbolic_zeros=True)


@jax.custom_vjp
def inside_out(x, y):
    """a custom_vjp whose forward function has a custom_jvp in it, and whose backward function another one"""
    return clipped(x) * y


inside_out.defvjp(lambda x, y: (clipped(x) * y, (x, y)), lambda r, ct: (ct * r[1] * clipped(r[0]), 2 * ct * clipped(r[0])))


@jax.custom_jvp
def outside_in(x, y):
    """a custom_jvp whose rule has a custom_vjp in it, on what is not differentiated"""
    return jnp.exp(x) * y


outside_in.defjvp(lambda p, t: (outside_in(*p), 1.25 * inside_out(p[0], p[1]) * t[0] + jnp.exp(p[0]) * t[1]))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def applied(f, x, n):
    """f with a rule that uses arguments that are not differentiated"""
    return f(x) * n


@applied.defjvp
def applied_rule(f, n, primals, tangents):
    return applied(f, primals[0], n), tangents[0] * (n + 1) * f(primals[0])


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def powered(x, n):
    return x**n


powered.defvjp(lambda x, n: (powered(x, n), (x, x > 0)), lambda n, r, ct: (jnp.where(r[1], n * ct * r[0] ** (n - 1), 7 * ct),))

TABLE = np.linspace(-1, 1, 70, dtype=np.float32)


@jax.custom_jvp
def looked_up(x):
    """arrays that are constants, of which the rule has one more than the function"""
    return jnp.interp(x, TABLE, TABLE**2)


@looked_up.defjvp
def looked_up_rule(primals, tangents):
    (x,), (dx,) = primals, tangents
    return looked_up(x), lax.cond(jnp.sum(x) > 0, lambda: dx * looked_up(x) * jnp.interp(x, TABLE, TABLE**3), lambda: 3 * dx)


@jax.custom_vjp
def counted(i, x):
    """an integer argument and an integer result"""
    return x[i], i + 1


counted.defvjp(lambda i, x: (counted(i, x), (i, x)), lambda r, ct: (None, 2 * jnp.zeros_like(r[1]).at[r[0]].add(ct[0])))



@jax.custom_vjp
def remat_inside(x, w):
    """rules with remat, a scan and a name in them"""
    return jnp.tanh(x @ w)


def remat_inside_forward(x, w):
    y = checkpoint_name(remat_inside(x, w), "y")
    return y, (x, w, jax.checkpoint(lambda y: 1 - y * y)(y))


def remat_inside_backward(residuals, ct):
    x, w, slope = residuals
    ct = lax.scan(lambda c, s: (c * s, None), ct, jnp.stack([slope, slope]))[0]
    return jax.checkpoint(lambda a, b: a @ b.T)(ct, w), x.T @ ct


remat_inside.defvjp(remat_inside_forward, remat_inside_backward)

case("custom_jvp", lambda x: clipped(x), f32(3, 4), low=-2, high=2, both=True)
case("custom_vjp", lambda x, w: scaled(x, w), f32(3, 4), f32(4, 2), both=True)
case("custom_mutual", lambda x: own_sine(own_cosine(x)), f32(5), low=-2, high=2)
case("custom_symbolic_zeros", lambda x, y, n: product(x, 2.0, 3) + product(x, y, n), f32(4), f32(4), np.arange(4, dtype=np.int32))
case("custom_inside_out", lambda x, y: (inside_out(x, y), outside_in(x, y)), f32(4), f32(4), low=-2, high=2)
case("custom_nondiff", lambda x: (applied(jnp.cos, x, 3), powered(x, 3)), f32(4), low=-2, high=2)
case("custom_integers", lambda i, x: counted(i, x), np.array([2, 0, 2], np.int32), f32(4))
case("custom_constants", looked_up, f32(4))
case("custom_cond", lambda x, w: lax.cond(x[0, 0] > 0, lambda: scaled(clipped(x), w), lambda: clipped(x @ w)), f32(3, 4), f32(4, 2), low=-2, high=2)
case("custom_switch", lambda i, x: lax.switch(i[0], [clipped, own_sine, lambda x: inside_out(x, x)], x), np.arange(-1, 4, dtype=np.int32), f32(4), low=-2, high=2)
case("custom_scan", lambda x, w: lax.scan(lambda c, w: (scaled(c, w), clipped(c)), x, w), f32(2, 3), f32(4, 3, 3), both=True)
case("custom_fori", lambda x, w: lax.fori_loop(0, 3, lambda i, c: scaled(c, w) + clipped(c) * i, x), f32(2, 3), f32(3, 3))
case("custom_while", lambda x: lax.while_loop(lambda s: jnp.max(s) < 4, lambda s: 1.4 * s + 0.1 * clipped(s), x), f32(4), low=0.5, high=2, max_iterations=12)
case("custom_remat", lambda x, w: jax.checkpoint(lambda x, w: jnp.sin(scaled(clipped(x @ w), w)), policy=jax.checkpoint_policies.dots_saveable)(x, w), f32(3, 4),
     f32(4, 4), both=True)
case("custom_remat_in_rule", lambda x, w: remat_inside(x, w), f32(3, 4), f32(4, 2))
case("custom_vmap", lambda x, w: jax.vmap(lambda x: scaled(clipped(x), w) * product(x[0, 0], 2.0, 3))(x), f32(3, 2, 4), f32(4, 2))
case("custom_hessian", lambda x: jax.hessian(lambda x: jnp.sum(clipped(x) * own_sine(x[::-1])))(x), f32(4), both=True)
case("custom_grad_of_vjp", lambda x, w: jax.grad(lambda x: jnp.sum(scaled(x, w) ** 2))(x), f32(3, 4), f32(4, 2))

# ---- prints -----------------------------------------------------------------------------------------------------------------


def printing(c, w):
    """A print in a loop, in what is recomputed"""
    jax.debug.print("carry {}", c)
    return jnp.sin(c @ w), jnp.sum(c)


case("debug_print", lambda x, w: lax.scan(jax.checkpoint(printing), x, w), f32(2, 3), f32(3, 3, 3))

# ---- jax.numpy ------------------------------------------------------------------------------------------------------------

case("np_indexing", lambda i, x: (x[i], x[1:, ::2], x[::-1], x.at[i, 0].set(2.0), x.at[i].add(1.5), x.at[i, 1].max(0.1), jnp.take(x, i, axis=1, mode="clip")),
     np.array([0, 2, 2, -1], np.int32), f32(4, 3))
case("np_sorting", lambda x: (jnp.sort(x, axis=0), jnp.argsort(x), lax.top_k(x, 2), jnp.median(x, axis=1), jnp.argmin(x, axis=0)), f32(3, 5))
case("np_interpolation", lambda x, y: (jnp.searchsorted(jnp.sort(x), y), jnp.interp(y, jnp.sort(x), x * x)), f32(6), f32(5))
case("np_reductions", lambda x: (jnp.mean(x, 1), jnp.var(x, axis=0), jnp.std(x), jnp.prod(x, 0), jnp.max(x, 1), jnp.linalg.norm(x, axis=1), jnp.all(x > 0, 0)),
     f32(3, 4), both=True)
case("np_cumulative", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, axis=1), lax.cummin(x, axis=0, reverse=True), lax.cumlogsumexp(x, axis=1)), f32(3, 4))
case("np_einsum", lambda a, b, c: (jnp.einsum("bij,bjk,k->bi", a, b, c), jnp.einsum("bii->b", a)), f32(2, 3, 3), f32(2, 3, 4), f32(4))
case("np_functions", lambda x, y: (jnp.arctan2(x, y), jnp.hypot(x, y), jnp.logaddexp(x, y), jnp.sinc(x), jnp.clip(x, -0.5, 0.5), jnp.mod(x, y), jnp.floor_divide(x, y),
                                   jnp.cbrt(x), jnp.sign(x), jnp.round(x * 4), jnp.where(x > y, x, y), jnp.power(jnp.abs(x), y), jnp.expm1(x), jnp.log1p(x * x)),
     f32(3, 4), f32(3, 4), both=True)
case("np_shapes", lambda x, y: (jnp.concatenate([x, y], 1), jnp.stack([x, y]), jnp.pad(x, ((1, 2), (0, 1)), mode="edge"), jnp.tile(x, (2, 1)), jnp.roll(y, 1, 0),
                                jnp.tril(x @ y.T), jnp.swapaxes(x, 0, 1), jnp.split(y, 2, axis=1), jnp.flip(x, 1), jnp.kron(x, y[:1])), f32(3, 4), f32(3, 4))
case("scipy_special", lambda x: (jax.scipy.special.erf(x), jax.scipy.special.erfc(x), jax.scipy.special.gammaln(x), jax.scipy.special.digamma(x),
                                 jax.scipy.special.xlogy(x, x), jax.scipy.special.entr(x), jax.scipy.stats.norm.logpdf(x), jax.scipy.stats.norm.logcdf(x)),
     f32(2, 4), low=0.2, high=3)
case("gradient_of_jax", lambda w, x: jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 3))(w), f32(3, 2), f32(4, 3))
case("hessian_of_jax", lambda x: jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.exp(x[::-1])))(x), f32(4), both=True)
case("vmap_of_jax", lambda w, x: jax.vmap(lambda r: jnp.tanh(w @ r) / (1 + jnp.dot(r, r)))(x), f32(3, 3), f32(4, 3))
case("pools", lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"), lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 1, 1, 1), "VALID")),
     f32(2, 5, 4, 2))
case("convolutions", lambda x, w, d: (lax.conv_general_dilated(x, w, (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=("NCHW", "OIHW", "NCHW")),
                                      lax.conv_general_dilated(x, d, (1, 1), [(1, 0), (0, 2)], feature_group_count=2, dimension_numbers=("NCHW", "OIHW", "NCHW"))),
     f32(2, 2, 5, 6), f32(3, 2, 3, 2), f32(4, 1, 2, 3))
case("conv_transpose", lambda x, w: lax.conv_transpose(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")), f32(2, 4, 3), f32(3, 3, 2))

# ---- Flax -----------------------------------------------------------------------------------------------------------------


def flax(name, module, *inputs, both=False, low=-1.0, high=1.0, collections=(), tolerance=None, **arguments):
    """The module applied to the inputs; its parameters and other collections are arguments."""
    def shapes():
        keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
        return jax.eval_shape(lambda *x: module.init(keys, *x, **arguments), *inputs)
    variables = jax.tree_util.tree_map(lambda s: np.zeros(s.shape, s.dtype), shapes())
    others = {k: variables[k] for k in collections}

    def with_state(params, state, *x):
        return module.apply({"params": params, **state}, *x, mutable=list(collections), **arguments)

    def alone(params, x):
        return module.apply({"params": params}, x, **arguments)

    def several(params, x, y):
        return module.apply({"params": params}, x, y, **arguments)
    f = with_state if collections else alone if len(inputs) == 1 else several
    args = (variables["params"], *([others] if collections else []), *inputs)
    case(name, f, *args, both=both, low=low, high=high, tolerance=tolerance)


def flax_cases():
    from flax import linen as nn

    class CNN(nn.Module):  # examples/mnist of Flax, with fewer features
        @nn.compact
        def __call__(self, x):
            x = nn.Conv(features=4, kernel_size=(3, 3))(x)
            x = nn.relu(x)
            x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
            x = nn.Conv(features=6, kernel_size=(3, 3))(x)
            x = nn.relu(x)
            x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
            x = x.reshape((x.shape[0], -1))
            x = nn.Dense(features=8)(x)
            x = nn.relu(x)
            return nn.Dense(features=3)(x)

    class ResNetBlock(nn.Module):  # examples/imagenet of Flax
        filters: int
        strides: tuple = (2, 2)

        @nn.compact
        def __call__(self, x):
            def norm(**more):
                return nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5, **more)
            residual = x
            y = nn.Conv(self.filters, (3, 3), self.strides, use_bias=False)(x)
            y = nn.relu(norm()(y))
            y = nn.Conv(self.filters, (3, 3), use_bias=False)(y)
            y = norm(scale_init=nn.initializers.zeros_init())(y)
            if residual.shape != y.shape:
                residual = norm(name="norm_proj")(nn.Conv(self.filters, (1, 1), self.strides, use_bias=False, name="conv_proj")(residual))
            return nn.relu(residual + y)

    class Transformer(nn.Module):  # a pre-norm block
        rematerialise: bool = False
        dtype: object = None
        param_dtype: object = jnp.float32

        @nn.compact
        def __call__(self, x):
            kind = dict(dtype=self.dtype, param_dtype=self.param_dtype)
            attend = nn.remat(nn.MultiHeadDotProductAttention, policy=jax.checkpoint_policies.dots_saveable) if self.rematerialise else nn.MultiHeadDotProductAttention
            h = nn.LayerNorm(**kind)(x)
            x = x + attend(num_heads=2, qkv_features=8, use_bias=False, **kind)(h, h, mask=nn.make_causal_mask(jnp.ones(x.shape[:2])))
            h = nn.gelu(nn.Dense(16, **kind)(nn.LayerNorm(**kind)(x)))
            return x + nn.Dense(x.shape[-1], **kind)(h)

    class Stack(nn.Module):  # blocks in nn.scan under nn.remat
        @nn.compact
        def __call__(self, x):
            class Layer(nn.Module):
                @nn.compact
                def __call__(self, x, _):
                    return x + nn.Dense(x.shape[-1])(nn.swish(nn.Dense(6)(nn.RMSNorm()(x)))), None
            layers = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            return layers()(x, None)[0]

    class Denoiser(nn.Module):
        @nn.compact
        def __call__(self, x, t):
            angles = t[:, None] * jnp.exp(-jnp.arange(4) / 4.0 * jnp.log(100.0))
            time = nn.Dense(6)(nn.swish(nn.Dense(6)(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))))
            h = nn.GroupNorm(num_groups=2)(nn.Conv(6, (3, 3))(x)) + time[:, None, None, :]
            return nn.Conv(x.shape[-1], (3, 3))(nn.swish(h))

    flax("flax_cnn", CNN(), f32(2, 8, 8, 1))
    flax("flax_resnet_block", ResNetBlock(filters=4), f32(2, 6, 6, 3), collections=("batch_stats",), low=0.1)
    flax("flax_lstm", nn.RNN(nn.OptimizedLSTMCell(4)), f32(2, 5, 3))
    flax("flax_lstm_plain", nn.RNN(nn.LSTMCell(3), reverse=True, keep_order=True), f32(2, 4, 3))
    flax("flax_gru", nn.RNN(nn.GRUCell(4)), f32(2, 5, 3))
    flax("flax_bidirectional", nn.Bidirectional(nn.RNN(nn.SimpleCell(3)), nn.RNN(nn.GRUCell(3))), f32(2, 4, 2))
    # Without a bias of keys, on which the result does not depend: its gradient would be rounding errors alone.
    flax("flax_attention", nn.MultiHeadDotProductAttention(num_heads=2, use_bias=False), f32(2, 5, 6), f32(2, 4, 6))
    flax("flax_transformer_block", Transformer(), f32(2, 5, 8), both=True)
    flax("flax_transformer_remat", Transformer(rematerialise=True), f32(2, 5, 8))
    flax("flax_scanned_stack", Stack(), f32(2, 4))
    flax("flax_mlp_bf16", nn.Sequential([nn.Dense(6, dtype=jnp.bfloat16), nn.gelu, nn.Dense(3, dtype=jnp.bfloat16)]), f32(4, 5))
    # JAX's own gradients of the attention's projections are 3 % off from those in f64; two ways of rounding differ by twice that.
    flax("flax_transformer_bf16", Transformer(dtype=jnp.bfloat16), f32(2, 5, 8), tolerance=2**-4)
    flax("flax_transformer_bf16_remat", Transformer(rematerialise=True, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16), bf16(2, 5, 8),
         tolerance=2**-4)
    flax("flax_embed_norms", nn.Sequential([nn.Embed(7, 4), nn.LayerNorm(), nn.Dense(3), nn.RMSNorm()]), np.arange(6, dtype=np.int32).reshape(2, 3))
    flax("flax_separable", nn.Sequential([nn.Conv(6, (3, 3), feature_group_count=3), nn.ConvTranspose(2, (2, 2), strides=(2, 2))]), f32(1, 4, 5, 3))
    denoiser = Denoiser()
    shape = jax.eval_shape(lambda: denoiser.init(jax.random.key(0), jnp.zeros((2, 4, 4, 2)), jnp.zeros(2)))["params"]
    params = jax.tree_util.tree_map(lambda s: np.zeros(s.shape, s.dtype), shape)

    def diffusion(params, x, t, key):
        """One training loss of a denoising diffusion model: noise from a key, cosine schedule"""
        noise = jax.random.normal(key.astype(jnp.uint32), x.shape)
        a = jnp.cos(t * (jnp.pi / 2)) ** 2
        a = a[:, None, None, None]
        return jnp.mean((denoiser.apply({"params": params}, jnp.sqrt(a) * x + jnp.sqrt(1 - a) * noise, t) - noise) ** 2, axis=(1, 2, 3))
    case("diffusion_step", diffusion, params, f32(2, 4, 4, 2), f32(2), np.array([1, 2], np.int32), low=0.05, high=0.9)


flax_cases()

# ---- Optax ----------------------------------------------------------------------------------------------------------------


def optax_cases():
    import optax
    wide = {"w": np.zeros((3, 2)), "b": np.zeros(2)}
    rules = {"sgd": optax.sgd(0.1), "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True), "adam": optax.adam(1e-2), "adamw": optax.adamw(1e-2),
             "lamb": optax.lamb(1e-2), "lion": optax.lion(1e-2), "rmsprop": optax.rmsprop(1e-2), "adagrad": optax.adagrad(1e-2),
             "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=2), "radam": optax.radam(1e-2),
             "clipped_warmup": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 10)))}
    for name, rule in rules.items():
        def train(params, x, rule=rule):
            """Two steps of an optimiser from its first state, on a small regression"""
            state = rule.init(params)

            def loss(params):
                return jnp.mean((jnp.tanh(x @ params["w"]) + params["b"] - 0.5) ** 2)
            for _ in range(2):
                updates, state = rule.update(jax.grad(loss)(params), state, params)
                params = optax.apply_updates(params, updates)
            return params
        # The first steps of most optimisers divide g by |g|. The derivative of that is a difference of nearly equal numbers.
        case(f"optax_{name}_f64", (lambda train: lambda params, x: train(params, x))(train), wide, np.zeros((4, 3)), tolerance=1e-9)
    for name in ("softmax_cross_entropy", "sigmoid_binary_cross_entropy", "l2_loss", "huber_loss", "cosine_similarity", "log_cosh", "kl_divergence"):
        case(f"optax_{name}", (lambda f: lambda x, y: f(x, y))(getattr(optax, name)), f32(3, 4), f32(3, 4), low=0.1)
    case("optax_integer_labels", lambda x, labels: optax.softmax_cross_entropy_with_integer_labels(x, labels), f32(4, 5), np.arange(4, dtype=np.int32))
    case("optax_ctc_loss", lambda x, labels: optax.ctc_loss(x, jnp.zeros((2, 5)), labels, jnp.array([[0., 0, 1], [0, 0, 0]])), f32(2, 5, 4),
         np.array([[1, 2, 3], [3, 2, 1]], np.int32))


optax_cases()
import jax_programs_more  # noqa: E402,F401  registers further programs
