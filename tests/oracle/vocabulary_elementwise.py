"""Elementwise functions on ordinary and on special numbers.

    python3 tests/oracle/vocabulary_elementwise.py        (needs jax; made with jax 0.10.2)
"""
import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

lax = jax.lax
INF, NAN = np.inf, np.nan
file = File("vocabulary_elementwise.txt", "vocabulary_elementwise.py")
plain = np.array([[-2.5, -0.75, 0.3], [0.5, 1.5, 3.25]])
unit = np.array([[-0.9, -0.5, -0.125], [0.25, 0.625, 0.97]])
above = np.array([1.0625, 1.5, 2.5, 40.0])
special = np.array([0.0, -0.0, INF, -INF, NAN])

# XLA's own approximations are off by more than a few units in the last place, in f64 too.
for name in "tan atan sinh cosh asinh erfc cbrt exp2 lgamma digamma".split():
    f = getattr(lax, name)
    file.case(name, f, plain, loose=20)
for name in "asin acos atanh".split():
    file.case(name, getattr(lax, name), unit, loose=20)
file.case("acosh", lax.acosh, above, loose=20)
for name in "tan atan sinh cosh asinh erfc cbrt exp2".split():
    file.case(name, getattr(lax, name), special)
file.case("asin", lax.asin, np.array([1.0, -1.0, 0.0, 2.0, NAN]))
file.case("acos", lax.acos, np.array([1.0, -1.0, 0.0, 2.0, NAN]))
file.case("acosh", lax.acosh, np.array([1.0, INF, NAN, -2.0]))
file.case("atanh", lax.atanh, np.array([1.0, -1.0, 0.0, 2.0, NAN]))
file.case("lgamma", lax.lgamma, np.array([0.0, -1.0, -2.0, 1.0, 2.0, INF, NAN]))
file.case("digamma", lax.digamma, np.array([-1.0, -2.0, NAN]))
# At infinity JAX has nan for polygamma 1 (and so for the slope of digamma), where Tow has the limit 0: not compared.
file.case("polygamma1", lambda x: lax.polygamma(jnp.full_like(x, 1), x), np.array([0.25, 1.5, 7.0, 0.0, -1.0]),
          loose=20)
file.case("polygamma4", lambda x: lax.polygamma(jnp.full_like(x, 4), x), np.array([0.25, 1.5, 7.0, -0.5]), loose=20)
file.case("atan2", lax.atan2, np.array([0.5, -1.5, 2.0, -0.25]), np.array([1.5, 0.5, -1.0, -2.0]))
file.case("atan2", lax.atan2, np.array([0.0, 0.0, -0.0, INF, -INF, NAN, 1.0]),
          np.array([0.0, -0.0, -1.0, INF, 1.0, 1.0, -INF]), loose=2)
file.case("nextafter", lax.nextafter, np.array([1.0, -1.0, 2.0, 1.0, NAN, INF, 1.0]),
          np.array([2.0, 0.0, -INF, 1.0, 1.0, 0.0, NAN]), tolerance=0, gradient=False)
file.case("is_finite", lax.is_finite, np.concatenate([plain.reshape(-1), special]), tolerance=0, gradient=False)
wide = np.array([1.0, -1.1, 3.14159265, 65504.0, 65519.0, 65520.0, 1e-5, -6.1e-5, 1e-8, 3.3895314e38, 0.0, -0.0,
                 INF, -INF, NAN, 1.0009765625, 1.00048828125, 1.00146484375])
file.case("to_f16", lambda x: lax.reduce_precision(x, 5, 10), wide, tolerance=0)
file.case("to_bf16", lambda x: lax.reduce_precision(x, 8, 7), wide, tolerance=0)
file.case("to_1_0", lambda x: lax.reduce_precision(x, 1, 0), wide, tolerance=0)

ints = np.array([0, 1, -1, 2, 7, -8, 255, 2**31 - 1, -2**31, 1 << 20], np.int32)
amounts = np.array([0, 31, 1, 32, 33, 1, -1, 4, 31, 5], np.int32)
for dtype in (np.int32, np.uint32):
    x, y = ints.astype(dtype), amounts.astype(dtype)
    file.case("population_count", lax.population_count, x, tolerance=0)
    file.case("clz", lax.clz, x, tolerance=0)
    file.case("shift_right_arithmetic", lax.shift_right_arithmetic, x, y, tolerance=0)
    file.case("shift_right", lax.shift_right_logical, x, y, tolerance=0)
    file.case("shift_left", lax.shift_left, x, y, tolerance=0)
    by = np.array([1, 0, -1, 3, 2, 3, 16, -1, -1, 7], np.int32).astype(dtype)
    file.case("div", lax.div, x, by, tolerance=0)
    file.case("rem", lax.rem, x, by, tolerance=0)
    if dtype == np.int32:
        file.case("abs", lax.abs, x, tolerance=0)
    file.case("square", lax.square, x, tolerance=0)
    file.case("cube", lambda x: lax.integer_pow(x, 3), x, tolerance=0)
file.case("square", lax.square, plain)

a, b, c = plain, plain * 2 + 1, 3 - plain
which = np.array([[-1, 0, 1], [2, 3, 5]], np.int32)
file.case("select_n3", lambda w, *xs: lax.select_n(jnp.clip(w, 0, 2), *xs), which, a, b, c, tolerance=0)
file.case("select_n3", lambda w, *xs: lax.select_n(w, *xs), np.int32(1), a, b, c, tolerance=0)
file.case("select_n2", lambda w, *xs: lax.select_n(w, *xs), which > 1, a, b, tolerance=0)
file.write()
