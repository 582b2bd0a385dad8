"""Choices and loops that the data decide: values and gradients. Where JAX cannot differentiate a while in reverse mode, the
function is the same iterations as a scan over a cond.

    python3 tests/oracle/control.py        (needs jax; made with jax 0.10.2)
"""
import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

lax = jax.lax
file = File("control.txt", "control.py")
rng = np.random.default_rng(7)


def draw(*shape):
    return np.round(rng.uniform(-1, 1, shape) * 64) / 64


def bounded(condition, body, init, n):
    """while_loop with at most n iterations, which reverse mode can differentiate."""
    def step(carry, _):
        return lax.cond(condition(carry), body, lambda c: c, carry), None
    return lax.scan(step, init, length=n)[0]


def switch3(i, x, w):
    return lax.switch(i, [lambda: jnp.sin(x @ w), lambda: 2 * jnp.exp(x), lambda: jnp.cos(x) @ w])


def cond_number(p, x, y):
    return lax.cond(p, lambda: (x * y, x), lambda: (jnp.tanh(x) / y, y))


def nested(p, i, x, w):
    def inner(x):
        return lax.switch(i, [lambda x: jnp.sin(x) @ w, lambda x: x * 3, lambda x: jnp.exp(x @ w) * x], x)
    return lax.cond(p, lambda x: inner(jnp.cos(x)), lambda x: jnp.tanh(x @ w) * x, x)


def cond_in_scan(w, h, xs):
    def step(h, x):
        y = lax.cond(jnp.sum(h) > 0, lambda: jnp.tanh(w * h + x), lambda: jnp.sin(h) * jnp.exp(x) - h)
        return y, y * h
    h, ys = lax.scan(step, h, xs)
    return h, jnp.sum(ys, axis=0)


def scan_in_cond(p, w, h):
    def loop(h):
        return lax.scan(lambda h, _: (jnp.sin(w * h), None), h, length=3)[0]
    return lax.cond(p, loop, lambda h: h * w, h)


def while_sum(w, x, bound):
    return bounded(lambda c: jnp.sum(c) > bound, lambda c: jnp.sin(w * c), x, 9)


def while_mixed(x, w, n):
    """integer and bool carries; the condition depends on them alone"""
    def body(c):
        i, flag, x, s = c
        x = lax.cond(flag, lambda x: jnp.tanh(x @ w), lambda x: x * 1.5, x)
        return i + 1, ~flag, x, s + x * i.astype(x.dtype)
    i, flag, x, s = bounded(lambda c: c[0] < n, body, (jnp.int32(0), jnp.bool_(True), x, jnp.zeros_like(x)), 6)
    return i, flag, x, s


def while_in_scan(w, h, xs):
    def step(h, x):
        h = bounded(lambda c: jnp.max(jnp.abs(c)) > 0.5, lambda c: w * jnp.sin(c), h + x, 7)
        return h, h
    h, ys = lax.scan(step, h, xs)
    return h, ys


def newton(a):
    """the root of each of a by a while: the derivative flows through all iterations"""
    def body(c):
        return 0.5 * (c + a / c), c
    x, _ = bounded(lambda c: jnp.max(jnp.abs(c[0] - c[1])) > 1e-3, lambda c: body(c[0]), (a, jnp.zeros_like(a)), 20)
    return x


def ode(y, k, t):
    """Euler's method with steps that become smaller, until t is reached"""
    def body(c):
        y, s, h = c
        return y + h * (jnp.sin(y) - k * y), s + h, h * 0.9
    y, s, _ = bounded(lambda c: c[1] < t, body, (y, jnp.zeros((), y.dtype), jnp.asarray(0.2, y.dtype)), 12)
    return y, s


def fori_static(x, w):
    return lax.fori_loop(2, 7, lambda i, c: jnp.sin(w * c) + i.astype(c.dtype) * x, x)


def fori_none(x, w):
    return lax.fori_loop(3, 0, lambda i, c: jnp.sin(w * c), x)


def fori_dynamic(n, x, w):
    return lax.fori_loop(1, int(n), lambda i, c: jnp.sin(w * c) + i.astype(c.dtype) * x, x)


def gcd(a, b):
    return lax.while_loop(lambda c: c[1] != 0, lambda c: (c[1], lax.rem(c[0], c[1])), (a, b))[0]


def rows_of_cond(p, x):
    """a choice for each row; the derivative of the branch that a row does not take is infinite at 0"""
    return jax.vmap(lambda p, x: lax.cond(p, lambda: jnp.sqrt(x), lambda: 3 * x))(p, x)


def rows_of_switch(i, x, w):
    return jax.vmap(lambda i, x: lax.switch(i, [lambda: jnp.sin(x * w), lambda: x, lambda: jnp.exp(w)]))(i, x)


def rows_of_while(n, x, w):
    def one(n, x):
        return bounded(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(w * c[1])), (jnp.int32(0), x), 6)[1]
    return jax.vmap(one)(n, x)


x, w = draw(2, 4), draw(4, 4)
for i in (-5, 0, 1, 2, 7):
    file.case("switch3", switch3, np.int32(i), x, w, loose=4)
for p in (True, False):
    file.case("cond_number", cond_number, np.bool_(p), draw(3), draw(3) + 2, loose=4)
    file.case("scan_in_cond", scan_in_cond, np.bool_(p), draw(3), draw(3), loose=8)
    for i in (0, 1, 2):
        file.case("nested", nested, np.bool_(p), np.int32(i), x, w, loose=8)
for p in (0.0, -0.0, 2.5, np.nan):
    file.case("cond_number", lambda p, x, y: cond_number(p != 0, x, y), p, draw(3), draw(3) + 2, loose=4,
              gradient=False)
file.case("cond_in_scan", cond_in_scan, draw(3), draw(3), draw(6, 3), loose=20)
for bound in (0.9, -9.0, 9.0):
    file.case("while_sum", while_sum, np.array([1.5, 0.75]), np.array([2.0, 1.0]), bound, loose=20)
for n in (0, 1, 4, 11):
    file.case("while_mixed", while_mixed, x, w, np.int32(n), loose=20)
file.case("while_in_scan", while_in_scan, np.array([0.75, 1.25]), draw(2), draw(5, 2), loose=20)
file.case("newton", newton, np.array([0.5, 2.0, 9.0]), loose=20)
for t in (1.0, 0.0, 1e3):
    file.case("ode", ode, draw(3), np.array([0.5]), t, loose=20)
file.case("fori_static", fori_static, draw(3), draw(3), loose=20)
file.case("fori_none", fori_none, draw(3), draw(3))
for n in (-2, 1, 2, 6):
    file.case("fori_dynamic", fori_dynamic, np.int32(n), draw(3), draw(3), loose=20)
for a, b in ((48, 36), (7, 0), (0, 5), (-12, 18)):
    file.case("gcd", gcd, np.int32(a), np.int32(b), tolerance=0)
file.case("rows_of_cond", rows_of_cond, np.array([True, False, True, False]), np.array([4.0, 0.0, 0.25, -1.0]), loose=4)
file.case("rows_of_switch", rows_of_switch, np.array([-1, 0, 1, 2, 9], np.int32), draw(5, 3), draw(3), loose=4)
file.case("rows_of_while", rows_of_while, np.array([0, 3, 9, 1], np.int32), draw(4, 2), draw(2), loose=20)
file.write()
