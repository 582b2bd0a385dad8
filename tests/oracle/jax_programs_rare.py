"""More programs of jax_programs.py: functions of lax, jax.numpy and jax.scipy that few programs call. Registers them in
jax_programs_cases.CASES."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax_programs_cases import case, f32

# ---- moves ----------------------------------------------------------------------------------------------------------------

case("reshape_order", lambda x: (x.reshape((2, 6), order="F"), lax.reshape(x, (3, 4), dimensions=(1, 0)),
                                 jnp.ravel(x, order="F") * jnp.arange(12)), f32(3, 4), both=True)
case("diagonals", lambda x: (jnp.diagonal(x), jnp.diagonal(x, offset=1), jnp.trace(x), jnp.diagflat(x[0]), jnp.diag(x)), f32(4, 4))
case("diagonal_axes", lambda x: (jnp.diagonal(x, axis1=0, axis2=2), jnp.trace(x, axis1=1, axis2=2, offset=1)), f32(3, 2, 3))
case("tile_many_axes", lambda x: (jnp.tile(x, (1, 2, 1, 3, 1)), jnp.tile(x[0, 0, 0], (2, 1, 2, 2))), f32(2, 1, 2, 2, 2))


# ---- names in the rules of custom calls -----------------------------------------------------------------------------------

@jax.custom_vjp
def gated(x, w):
    """A gate as libraries of transformers write theirs: the names stand in the forward rule"""
    return jnp.tanh(x) * w


def gated_forward(x, w):
    t = checkpoint_name(jnp.tanh(x), "gate")
    return t * w, (t, w)


def gated_backward(residuals, ct):
    t, w = residuals
    return ct * w * (1 - t * t), ct * t


gated.defvjp(gated_forward, gated_backward)


@jax.custom_jvp
def scaled(x):
    """A custom_jvp whose rule has a name"""
    return jnp.exp(x)


@scaled.defjvp
def scaled_jvp(primals, tangents):
    y = checkpoint_name(jnp.exp(primals[0]), "slope")
    return y, y * tangents[0]


def named_in_rules(x, w):
    policy = jax.checkpoint_policies.save_only_these_names("gate", "slope")
    return jax.checkpoint(lambda x, w: scaled(gated(jnp.sin(x), w)), policy=policy)(x, w)


case("names_in_rules", named_in_rules, f32(3, 4), f32(3, 4), both=True)

# ---- choosing -------------------------------------------------------------------------------------------------------------

case("approx_top_k", lambda x: (*lax.approx_max_k(x, 3), *lax.approx_min_k(x, 2, reduction_dimension=0)), f32(4, 6))

# ---- reductions -----------------------------------------------------------------------------------------------------------

ints = np.array([[1, -7, 255, 0], [12, 3, -1, 9], [5, 5, 2**31 - 1, -2**31]], np.int32)
case("reduce_bits", lambda x, i: (x, lax.reduce_xor(i, (0,)), lax.reduce_and(i, (1,)), lax.reduce_or(i, (0, 1)), lax.reduce_xor(i.astype(jnp.uint8), (1,)),
                               lax.reduce_xor(i > 3, (0,)), lax.reduce_or(i[:0], (0,)), lax.reduce_and(i[:, :0], (1,)), jnp.bitwise_xor.reduce(i, axis=1)), f32(2), ints)


def of_nothing(x, i):
    """Extremes of empty axes, which are infinite or the ends of the type, as those of lax"""
    types = (jnp.int8, jnp.uint8, jnp.uint16, jnp.int32, jnp.uint32)
    ends = [f(i[:0].astype(t), (0,)) for t in types for f in (lax.reduce_max, lax.reduce_min)]
    least, most = lax.reduce_max(x[:0], (0,)), lax.reduce_min(x[:0], (0,))
    halves = lax.reduce_max(x[:0].astype(jnp.bfloat16), (0,)).astype(jnp.float32)
    return (x * 1, *ends, jnp.isneginf(least), jnp.maximum(least, x[0]), jnp.minimum(most, x[1]), jnp.maximum(halves, x[2]), jnp.max(x[:0], axis=0, initial=-2.0),
            jnp.min(x[:, :0], axis=1, initial=3.0))


case("reductions_of_nothing", of_nothing, f32(3, 4), ints, tolerance=1e-5)

# ---- special functions ----------------------------------------------------------------------------------------------------

special = jax.scipy.special
KEY = np.array([3, 8], np.int32)  # made u32 inside, so that its rows differ
case("bessel", lambda x: (special.i0(x), special.i0e(x), special.i1(x), special.i1e(x), jnp.i0(x)), f32(3, 5), low=-5, high=12, both=True)
case("incomplete_gamma", lambda a, x: (special.gammainc(a, x), special.gammaincc(a, x), special.gammainc(0.5, x), special.gammaincc(a, 2.0)),
     f32(3, 4), f32(3, 4), low=0.3, high=6, tolerance=5e-5)
case("incomplete_gamma_f64", lambda a, x: (special.gammainc(a, x), special.gammaincc(a, x), special.gammainc(0.5, x), special.gammaincc(a, 2.0)),
     np.zeros((3, 4)), np.zeros((3, 4)), low=0.3, high=6, tolerance=1e-12)
case("incomplete_beta", lambda x: (special.betainc(2.0, 0.7, x), special.betainc(jnp.arange(1.0, 5), 3.5, x), jax.scipy.stats.beta.cdf(x, 2.0, 3.0)),
     f32(3, 4), low=0.05, high=0.95, tolerance=5e-5)
case("incomplete_beta_f64", lambda x: (special.betainc(2.0, 0.7, x), special.betainc(jnp.arange(1.0, 5), 3.5, x), jax.scipy.stats.beta.cdf(x, 2.0, 3.0)),
     np.zeros((3, 4)), low=0.05, high=0.95)
case("distributions", lambda x: (jax.scipy.stats.gamma.cdf(x, 2.5), jax.scipy.stats.chi2.cdf(x, 3), jax.scipy.stats.gamma.logpdf(x, 1.5), jax.scipy.stats.poisson.cdf(2.0, x),
                                 jax.scipy.stats.chi2.sf(x, 2), jax.scipy.stats.vonmises.logpdf(x / 3, 1.5), jax.scipy.stats.gamma.sf(x, 0.7)), f32(3, 4), low=0.2, high=5,
     tolerance=5e-5)
case("zeta", lambda x: (x, special.zeta(jax.lax.stop_gradient(x) + 1.5, 2.0)), f32(7), low=0, high=5)

# ---- samples --------------------------------------------------------------------------------------------------------------

random = jax.random


def gamma_samples(a, key):
    """Samples of the gamma distribution and of those that are made of it, with the derivatives by their shapes"""
    keys = random.split(key.astype(jnp.uint32), 5)
    return (random.gamma(keys[0], a), random.loggamma(keys[1], a), random.dirichlet(keys[2], a), random.beta(keys[3], a, 2.0), random.chisquare(keys[4], 2 * a),
            random.gamma(keys[0], a[0], (3,)))


case("gamma_samples", gamma_samples, f32(4), KEY, low=0.4, high=4, tolerance=1e-4)
case("gamma_samples_f64", gamma_samples, np.zeros(4), KEY, low=0.4, high=4, tolerance=1e-10)

# ---- products of groups ---------------------------------------------------------------------------------------------------


def experts(x, w, v, sizes):
    """A mixture of experts whose tokens are sorted by expert: two ragged products with a gelu between them"""
    h = jax.nn.gelu(lax.ragged_dot(x, w, sizes))
    return lax.ragged_dot(h, v, sizes), lax.ragged_dot(h, v, sizes[::-1] + 3)


case("ragged_dot", experts, f32(9, 3), f32(4, 3, 5), f32(4, 5, 2), np.array([2, 0, 4, 1], np.int32), both=True)
case("ragged_dot_bf16", lambda x, w, sizes: lax.ragged_dot(x, w, sizes, preferred_element_type=jnp.float32), np.zeros((6, 3), jnp.bfloat16), np.zeros((2, 3, 4), jnp.bfloat16),
     np.array([2, 3], np.int32))
