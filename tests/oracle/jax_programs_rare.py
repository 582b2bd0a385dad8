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

# ---- jax.numpy, jax.scipy, jax.random, jax.lax: what is left --------------------------------------------------------------

scipy, stats = jax.scipy, jax.scipy.stats
INDICES = np.array([0, 3, 1, 2, 5, 4], np.int32)
case("np_signals", lambda x, w: (jnp.convolve(x, w), jnp.convolve(x, w, mode="same"), jnp.correlate(x, w, mode="full"), jnp.trapezoid(x),
     jnp.gradient(x), jnp.unwrap(3 * x), jnp.ediff1d(x), jnp.diff(x, n=2)), f32(7), f32(3))
case("np_interp", lambda x, y: (jnp.interp(x, jnp.linspace(0.0, 1.0, 6), y), jnp.interp(x, jnp.linspace(0.0, 1.0, 6), y, left=-1.0, right=2.0),
     jnp.interp(x, jnp.linspace(0.0, 1.0, 6), y, period=2.0)), f32(5), f32(6), low=-0.5, high=1.5)
case("np_polynomials", lambda p, x: (jnp.polyval(p, x), jnp.polyder(p), jnp.polyint(p), jnp.polymul(p, p), jnp.polyadd(p, p[1:]), jnp.vander(x, 4)),
     f32(4), f32(3))
case("np_products", lambda a, b: (jnp.kron(a, b), jnp.cross(a, b), jnp.inner(a, a), jnp.vdot(a, a), jnp.linalg.multi_dot([a, b, a]),
     jnp.einsum("ij,jk,ki->", a, b, a), jnp.tensordot(a, b, axes=2)), f32(3, 3), f32(3, 3))
case("np_statistics", lambda x: (jnp.cov(x), jnp.corrcoef(x), jnp.percentile(x, 30.0), jnp.quantile(x, jnp.array([0.2, 0.7]), axis=1), jnp.median(x,
     axis=0), jnp.average(x, axis=1, weights=jnp.arange(1.0, 6)), jnp.ptp(x, axis=1)), f32(3, 5))
case("np_quantile_methods", lambda x: tuple((jnp.quantile(x, 0.37, method=m) for m in ("linear", "lower", "higher", "midpoint", "nearest"))), f32(9))


def nans(x):
    """Reductions that leave NaN out"""
    y = jnp.where(x > 0.5, jnp.nan, x)
    return (jnp.nansum(y), jnp.nanmean(y, axis=1), jnp.nanmax(y, axis=0), jnp.nanmin(y), jnp.nanvar(y), jnp.nanprod(y), jnp.nancumsum(y, axis=1),
            jnp.nan_to_num(y), jnp.nanargmax(y, axis=1))


case("np_nans", nans, f32(3, 5))
case("np_nanmedian", lambda x: jnp.nanmedian(jnp.where(x > 0.5, jnp.nan, x), axis=1), f32(3, 5))
case("np_floats", lambda x: (jnp.copysign(x, -x[::-1]), jnp.heaviside(x, 0.5), jnp.float_power(jnp.abs(x), 1.7), jnp.logaddexp2(x, 2 * x),
     jnp.hypot(x, x[::-1] + 2), jnp.deg2rad(x), jnp.fmod(x, 0.3), jnp.remainder(x, 0.3), jnp.fmax(x, 0.1), jnp.signbit(x), jnp.floor(3 * x),
     jnp.trunc(4 * x), jnp.rint(5 * x)), f32(6))
case("np_ldexp", lambda x, i: (jnp.ldexp(x, i), jnp.frexp(x)[1], jnp.modf(3 * x)[1]), f32(6), INDICES)
case("np_integers", lambda x, i: (x, jnp.gcd(i * 6, i + 9), jnp.lcm(i + 1, 4), i // 4, i % 4, jnp.divmod(i - 3, 2)[0], jnp.bitwise_count(i),
     jnp.left_shift(i, 2), jnp.invert(i), jnp.packbits(i > 2), jnp.unpackbits(i.astype(jnp.uint8))), f32(2), INDICES)
case("np_search", lambda x, i: (jnp.digitize(x, jnp.array([-0.5, 0.0, 0.5])), jnp.searchsorted(jnp.sort(x), x[:2], side="right"), jnp.bincount(i,
     length=7), jnp.bincount(i, weights=x, length=7), jnp.histogram(x, bins=4, range=(-1.0, 1.0))[0]), f32(6), INDICES)
case("np_sized", lambda x, i: (x * 2, jnp.nonzero(x > 0, size=4, fill_value=-1)[0], jnp.unique(i // 2, size=4), jnp.argwhere(x > 0, size=3),
     jnp.flatnonzero(i > 2, size=3)), f32(6), INDICES)
case("np_choices", lambda x, i: (jnp.select([x > 0.3, x < -0.3], [x * 2, x * 3], 0.0), jnp.choose(i % 2, [x, 2 * x], mode="wrap"), jnp.piecewise(x, [x
     < 0, x >= 0], [lambda t: t * 2, jnp.sin]), jnp.where(x > 0, x, 0)), f32(6), INDICES)
case("np_sorts", lambda x, i: (jnp.lexsort((x, i)), jnp.partition(x, 2), jnp.argpartition(x, 2), jnp.sort(x, descending=True), jnp.argsort(-x,
     stable=True)), f32(6), INDICES)
case("np_moves", lambda x: (jnp.roll(x, (1, 2), (0, 1)), jnp.rot90(x), jnp.fliplr(x), jnp.delete(x, 1, axis=0), jnp.insert(x, 1, 9.0, axis=0),
     jnp.append(x, x), jnp.resize(x, (2, 7)), jnp.block([[x, x], [x, x]]), jnp.pad(x, 1, mode="reflect"), jnp.pad(x, ((1, 2), (0, 1)), mode="edge"),
     jnp.pad(x, 2, mode="wrap"), jnp.pad(x, 1, mode="mean"), jnp.pad(x, 1, mode="linear_ramp")), f32(3, 4))
case("np_indices", lambda x: (x[jnp.triu_indices(3, 1)], x[jnp.diag_indices(3)], x[jnp.ix_(np.array([0, 2]), np.array([1, 3]))],
     jnp.take_along_axis(x, jnp.argsort(x, 1), 1), jnp.put_along_axis(x, jnp.array([[0], [1], [2]]), 9.0, 1, inplace=False), jnp.fill_diagonal(x[:,
     :3], 0.0, inplace=False), x.at[0].power(2.0), x.at[:, 1].divide(3.0)), f32(3, 4))
case("np_apply", lambda x: (jnp.apply_along_axis(lambda r: jnp.sum(r ** 2), 1, x), jnp.vectorize(lambda a, b: a * b, signature="(n),(n)->(n)")(x,
     x[0]), jnp.apply_over_axes(jnp.sum, x, [0])), f32(3, 4))
case("np_norms", lambda x: (jnp.linalg.norm(x, 1), jnp.linalg.norm(x, jnp.inf), jnp.linalg.norm(x, "fro"), jnp.linalg.norm(x[0], 3),
     jnp.linalg.vector_norm(x, axis=1), jnp.linalg.matrix_power(x[:, :3], 3), jnp.linalg.outer(x[0], x[1])), f32(3, 4))
case("np_windows", lambda x: (x * jnp.hanning(5), x * jnp.kaiser(5, 3.0), x * jnp.blackman(5), x * jnp.bartlett(5), x * jnp.hamming(5)), f32(5))
case("np_meshes", lambda x: (jnp.meshgrid(x, x[:2])[0], jnp.tri(3) * x[0], jnp.tril(jnp.outer(x, x), -1), jnp.logspace(0.0, x[0], 3),
     jnp.geomspace(1.0, x[1], 3), jnp.linspace(x[0], x[1], 4)), f32(4), low=0.2, high=2)
case("special_logs", lambda x: (special.xlogy(x, x + 1), special.xlog1py(x, x), special.entr(x), special.rel_entr(x, x + 0.5), special.kl_div(x, x +
     0.5), special.logit(x), special.expit(x), special.log_ndtr(x * 4 - 3), special.ndtr(x), special.ndtri(x)), f32(5), low=0.1, high=0.9)
case("special_gammas", lambda x: (special.gamma(x), special.gammasgn(x), special.betaln(x, x + 1), special.beta(x, 2.0), special.multigammaln(x + 2,
     2), special.factorial(x), special.poch(x, 1.5), special.digamma(x), special.polygamma(2, x)), f32(5), low=0.4, high=4)
# The exponential integrals are quotients of polynomials in f32, which XLA fuses.
case("special_integrals", lambda x: (special.spence(x), special.exp1(x), special.expi(x), special.expn(2, x), special.sici(x)[0], special.erfcx(x),
     special.fresnel(x)[0]), f32(4), low=0.3, high=3, tolerance=0.0001)
case("special_hyper", lambda x: (special.hyp1f1(1.0, 2.0, x),), f32(4), low=0.3, high=2, tolerance=0.0001)
case("stats_continuous", lambda x: (stats.norm.cdf(x), stats.norm.ppf(x), stats.norm.logsf(x), stats.t.logpdf(x, 3.0), stats.cauchy.cdf(x),
     stats.laplace.logpdf(x), stats.logistic.sf(x), stats.pareto.logpdf(x + 1, 2.0), stats.expon.logpdf(x), stats.uniform.logpdf(x),
     stats.truncnorm.logpdf(x, -1.0, 2.0), stats.gennorm.logpdf(x, 1.5), stats.wrapcauchy.logpdf(x, 0.3), stats.gumbel_r.logpdf(x)), f32(5), low=0.1,
     high=0.9)
case("stats_discrete", lambda x: (stats.bernoulli.logpmf(1, x), stats.binom.logpmf(2, 5, x), stats.nbinom.logpmf(2, 3.0, x), stats.geom.logpmf(2, x),
     stats.poisson.logpmf(3, x), stats.betabinom.logpmf(2, 5, x, x + 1), stats.multinomial.logpmf(jnp.array([1, 2, 1, 0, 1]), 5, x / x.sum()),
     stats.dirichlet.logpdf(x / x.sum(), x + 1)), f32(5), low=0.1, high=0.9)
case("stats_data", lambda x: (stats.rankdata(x), stats.sem(x), stats.mode(jnp.round(x * 2)).mode), f32(7))
case("signal", lambda x, w: (scipy.signal.convolve(x, w, mode="same"), scipy.signal.correlate(x, w), scipy.signal.convolve2d(jnp.outer(x, x),
     jnp.outer(w, w), mode="valid")), f32(6), f32(3))
case("ndimage", lambda x, c: (scipy.ndimage.map_coordinates(x, [c * 2, c[::-1] * 3], order=1), scipy.ndimage.map_coordinates(x, [c * 2, c * 3],
     order=0, mode="nearest")), f32(4, 5), f32(6), low=0.05, high=0.95)
case("image", lambda x: (jax.image.resize(x, (5, 7, 1), "bilinear"), jax.image.resize(x, (2, 3, 1), "cubic"), jax.image.resize(x, (6, 6, 1),
     "lanczos3"), jax.image.scale_and_translate(x, (5, 5, 1), (0, 1), jnp.array([1.2, 0.9]), jnp.array([0.1, 0.2]), "linear")), f32(3, 4, 1))


def drawn_by_others(x, k):
    """Distributions that few programs draw from"""
    ks = random.split(k.astype(jnp.uint32), 20)
    return (x, random.rayleigh(ks[0], x + 2), random.weibull_min(ks[1], 1.0, x + 2), random.pareto(ks[2], x + 2), random.cauchy(ks[3], (3,)),
            random.logistic(ks[4], (3,)), random.maxwell(ks[5], (3,)), random.triangular(ks[6], 0.0, x + 2, 4.0), random.wald(ks[7], x + 2),
            random.rademacher(ks[8], (4,)), random.double_sided_maxwell(ks[9], 0.0, 1.0, (3,)), random.lognormal(ks[10], 1.0, (3,)),
            random.generalized_normal(ks[11], 2.0, (3,)), random.ball(ks[12], 3), random.geometric(ks[13], 0.3, (4,)), random.f(ks[14], 3.0, 4.0,
            (2,)), random.t(ks[15], 3.0, (3,)))


case("random_more", drawn_by_others, f32(3), KEY)
case("random_poisson", lambda x, k: (x, random.poisson(k.astype(jnp.uint32), x + 3.0, (3,)), random.poisson(k.astype(jnp.uint32), 20.0, (2,))),
     f32(3), KEY)
case("random_binomial", lambda x, k: (x, random.binomial(k.astype(jnp.uint32), 10.0, 0.3, (3,)), random.multinomial(k.astype(jnp.uint32), 5.0,
     jnp.array([0.2, 0.3, 0.5]))), f32(3), KEY)
case("random_choice", lambda x, k: (random.choice(k.astype(jnp.uint32), x, (4,), p=jnp.arange(1.0, 7) / 21), random.choice(k.astype(jnp.uint32), x,
     (4,), replace=False, p=jnp.arange(1.0, 7) / 21), random.permutation(k.astype(jnp.uint32), jnp.outer(x, x), axis=1, independent=True),
     random.categorical(k.astype(jnp.uint32), x, shape=(3,))), f32(6), KEY)
case("segments", lambda x, i: (jax.ops.segment_max(x, i // 2, 3), jax.ops.segment_min(x, i // 2, 3), jax.ops.segment_prod(lax.stop_gradient(x), i // 2, 3),
     jax.ops.segment_sum(x, i // 2, 3, indices_are_sorted=False)), f32(6), INDICES)
case("lax_reduce_own", lambda x: (lax.reduce(x, np.float32(0), lambda a, b: jnp.maximum(a, b) + 0 * a, (1,)),), f32(3, 4))
case("lax_reduce_pair", lambda x: (x, *lax.reduce((lax.stop_gradient(x), lax.broadcasted_iota(jnp.int32, (3, 4), 1)), (np.float32(-np.inf),
     np.int32(0)), lambda a, b: (jnp.where(a[0] >= b[0], a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1])), (1,))), f32(3, 4))
case("lax_window_own", lambda x: (x, lax.reduce_window(lax.stop_gradient(x), np.float32(1), lax.mul, (2, 2), (1, 1), "VALID")), f32(3, 4))
case("lax_windows", lambda x: (lax.reduce_window(x, np.float32(-np.inf), lax.max, (2, 2), (1, 1), "SAME"), lax.reduce_window(x, np.float32(0),
     lax.add, (2, 2), (2, 1), ((0, 1), (1, 0))), lax.reduce_window(x > 0, False, lax.bitwise_or, (2, 2), (1, 1), "VALID")), f32(3, 4))
case("lax_scatter_apply", lambda x, i: (x, (y := lax.stop_gradient(x)).at[1].apply(jnp.sin), y.at[i].apply(jnp.exp, unique_indices=True),
                                        y.at[2:4, 1].apply(jnp.square)), f32(6, 2), INDICES)
case("lax_indexing", lambda x, i: (lax.dynamic_index_in_dim(x, i[1], 0), lax.dynamic_update_index_in_dim(x, x[0] * 2, i[2], 0), lax.index_take(x,
     (i[:2],), (0,)), lax.collapse(x, 0, 2), lax.slice_in_dim(x, 1, 5, 2), x.at[i].get(mode="fill", fill_value=7.0), x.at[i + 4].add(1.0,
     mode="drop"), x[i[0], i[1] % 2]), f32(6, 2), INDICES)
case("lax_conv_more", lambda x, w: (lax.conv_transpose(x, w, (2,), "SAME"), lax.conv_general_dilated_patches(x, (2,), (1,), "VALID",
     dimension_numbers=("NWC", "WIO", "NWC")), lax.conv_general_dilated_local(x, jnp.ones((5, 4, 2)), (1,), "VALID", (2,), dimension_numbers=("NWC",
     "WIO", "NWC"))), f32(1, 6, 2), f32(3, 2, 2))
case("lax_maps", lambda x: (lax.map(jnp.sin, x, batch_size=2), lax.associative_scan(jnp.matmul, x.reshape(3, 2, 2), reverse=True), lax.scan(lambda c,
     v: (c * v, c + v), x[0], x, unroll=2)[1]), f32(3, 4))
case("derivatives", lambda x: (jax.hessian(lambda v: jnp.prod(v) * jnp.sum(v ** 3))(x), jax.jacfwd(lambda v: v[:, None] * v)(x),
     jax.linearize(jnp.sin, x)[1](x), jax.vjp(jnp.prod, x)[1](1.0)[0], jax.jvp(jnp.tanh, (x,), (x,))[1]), f32(4))
case("ceil_floor_mods", lambda x: (lax.rem(x, np.float32(0.4)), lax.round(2 * x), lax.round(2 * x, lax.RoundingMethod.TO_NEAREST_EVEN),
     lax.reciprocal(x + 3), lax.clamp(-0.5, x, 0.5), lax.erf_inv(x), lax.nextafter(lax.stop_gradient(x), np.float32(9)), lax.reduce_precision(x, 5,
     4), lax.integer_pow(x, -3), lax.rsqrt(x + 2), lax.expm1(x), lax.tan(x), lax.asinh(x)), f32(6))
case("bits", lambda x, i: (x, lax.bitcast_convert_type(x, jnp.uint32), lax.clz(i), lax.population_count(i), lax.shift_right_logical(-i, 1),
     lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) ^ 1, jnp.float32), lax.bitwise_not(i)), f32(6), INDICES)
case("bitcast_sizes", lambda x, i: (x, lax.bitcast_convert_type(i, jnp.uint8), lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint8),
     jnp.float32)), f32(6), INDICES)
case("einops", lambda x: (jnp.einsum("bij,bjk->bik", x, x), jnp.einsum("ii->i", x[0]), jnp.einsum("bij->ji", x), jnp.einsum("b...,b...->...", x, x),
     jnp.matvec(x, x[:, 0]), jnp.vecdot(x, x), jnp.trace(x, axis1=1, axis2=2)), f32(2, 3, 3))
case("cumulative", lambda x: (jnp.cumulative_sum(x, axis=0, include_initial=True), jnp.cumulative_prod(x, axis=1), lax.cumlogsumexp(x, 1,
     reverse=True), lax.cummax(x, 0), jnp.maximum.accumulate(x, axis=1), jnp.add.reduceat(x, np.array([0, 2]), axis=1), jnp.multiply.outer(x[0],
     x[1]), jnp.add.at(x, 0, 1.0, inplace=False)), f32(3, 4))
