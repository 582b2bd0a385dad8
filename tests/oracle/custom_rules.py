"""Functions with derivatives of their own: values, gradients, gradients of gradients. The rules are not the derivatives of the
values, so that a rule that is left out shows. JAX does not reverse a while: where there is one, the function here is the same
iterations as a scan over a cond.

    python3 tests/oracle/custom_rules.py        (needs jax; made with jax 0.10.2)
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from golden_cases import File

lax = jax.lax
file = File("custom_rules.txt", "custom_rules.py")
rng = np.random.default_rng(11)


def draw(*shape):
    return np.round(rng.uniform(-2, 2, shape) * 64) / 64


# ---- the functions ------------------------------------------------------------------------------------------------------


@jax.custom_jvp
def wave(x):
    return jnp.sin(x)


wave.defjvp(lambda p, t: (wave(*p), t[0] * 1.5 * p[0] * wave(*p)))


@jax.custom_jvp
def choosy(x):
    return jnp.sin(x)


@choosy.defjvp
def choosy_rule(p, t):
    (x,), (dx,) = p, t
    return choosy(x), lax.cond(jnp.sum(x) > 0, lambda: dx * choosy(x) * x, lambda: 3 * dx * choosy(2 * x))


@jax.custom_vjp
def gate(x, y):
    return jnp.tanh(x) * y


def gate_forward(x, y):
    return gate(x, y), (x, y)


def gate_backward(r, ct):
    x, y = r
    return ct * gate(x, y) * x, 2 * ct * jnp.tanh(x)


gate.defvjp(gate_forward, gate_backward)


@jax.custom_jvp
def sine(x):
    return jnp.sin(x)


@jax.custom_jvp
def cosine(x):
    return jnp.cos(x)


sine.defjvp(lambda p, t: (sine(*p), 0.75 * cosine(*p) * t[0]))
cosine.defjvp(lambda p, t: (cosine(*p), -1.25 * sine(*p) * t[0]))


@jax.custom_vjp
def outer_vjp(x):
    return wave(x) * x


outer_vjp.defvjp(lambda x: (wave(x) * x, (x, wave(x))), lambda r, ct: (ct * r[1] * wave(r[0]) + ct,))


@jax.custom_jvp
def outer_jvp(x):
    return jnp.cos(x)


outer_jvp.defjvp(lambda p, t: (outer_jvp(*p) + outer_vjp(*p), 2 * outer_vjp(*p) * t[0]))


@jax.custom_jvp
def two(x, y):
    return x * y, x + y


two.defjvp(lambda p, t: ((p[0] * p[1], p[0] + p[1]), (3 * t[0] * p[1] + p[0] * t[1], t[0] * two(*p)[0] - t[1])))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def fixed_second(x, y):
    return x * y


fixed_second.defjvp(lambda y, p, t: (fixed_second(p[0], y), t[0] * 5 * y * fixed_second(p[0], y)))


def derivative(f, n=0):
    """Of the sum of all results."""
    return jax.grad(lambda *x: sum(jnp.sum(y) for y in jax.tree_util.tree_leaves(f(*x))), argnums=n)


def bounded(condition, body, init, n):
    return lax.scan(lambda c, _: (lax.cond(condition(c), body, lambda c: c, c), None), init, length=n)[0]


def rows(f):
    """vmap. JAX cannot transpose what its own vmap makes of a choice in a rule."""
    return lambda x: jnp.stack([f(r) for r in x])


def unrolled(c, xs):
    """The scan below. JAX itself loses rules of custom calls where it differentiates a scan twice."""
    ys = []
    for x in xs:
        ys.append(wave(c))
        c = gate(c, x)
    return c, jnp.stack(ys)


def remat(x, y, policy):
    return jax.checkpoint(lambda x, y: jnp.sin(gate(wave(x), y)), policy=policy)(x, y)


def captured(x, w, v):
    """The rule uses an outer value that the function does not, and calls the function in a choice."""
    w, v = lax.stop_gradient(w), lax.stop_gradient(v)

    @jax.custom_jvp
    def f(x):
        return jnp.sin(x) * w
    f.defjvp(lambda p, t: (f(*p), lax.cond(jnp.sum(p[0]) > 0, lambda: t[0] * f(*p) * v, lambda: t[0] * v)))
    return derivative(f)(x)


# ---- cases --------------------------------------------------------------------------------------------------------------

file.case("wave", wave, draw(5))
file.case("wave1", derivative(wave), draw(5))
file.case("wave2", derivative(derivative(wave)), draw(5), loose=4)
file.case("choosy", choosy, draw(4))
file.case("choosy", choosy, np.array([0.25, -2, 0.5, -1]))
file.case("choosy1", derivative(choosy), draw(4))
file.case("choosy1", derivative(choosy), np.array([0.25, -2, 0.5, -1]))
file.case("gate", gate, draw(5), draw(5))
file.case("gate1", derivative(gate), draw(5), draw(5))
file.case("gate2", derivative(derivative(gate, 1)), draw(5), draw(5), loose=4)
file.case("sine", lambda x: sine(cosine(x)), draw(5))
file.case("sine1", derivative(lambda x: sine(cosine(x))), draw(5))
file.case("sine2", derivative(derivative(sine)), draw(5))
file.case("outer_vjp", outer_vjp, draw(4))
file.case("outer_vjp1", derivative(outer_vjp), draw(4))
file.case("outer_jvp", outer_jvp, draw(4))
file.case("outer_jvp1", derivative(outer_jvp), draw(4), loose=4)
file.case("forward_mode", lambda x, dx: jax.jvp(sine, (x,), (dx,)), draw(4), draw(4))
file.case("forward_of_forward", lambda x, dx: jax.jvp(lambda x: jax.jvp(wave, (x,), (dx,))[1], (x,), (dx,))[1], draw(4), draw(4), loose=4)
file.case("both_tangents", two, draw(4), draw(4))
file.case("one_tangent", lambda x: two(x, jnp.cos(lax.stop_gradient(x))), draw(4))
file.case("no_tangent", lambda x: x * two(lax.stop_gradient(x), lax.stop_gradient(x))[1], draw(4))
file.case("fixed", lambda x: fixed_second(x, x), draw(4))
for p in (False, True):
    file.case("cond", lambda p, x, y: lax.cond(p, lambda: gate(wave(x), y), lambda: choosy(y)), np.array(p), draw(4), draw(4))
for i in (-1, 1, 5):
    file.case("switch", lambda i, x, y: lax.switch(i, [lambda: wave(x), lambda: gate(x, y), lambda: two(x, y)[0]]), np.array(i), draw(4), draw(4))
file.case("while", lambda x: bounded(lambda c: jnp.max(c) < 4, lambda c: 1.25 * c + 0.25 * wave(c), x, 8), np.array([0.5, 1, -0.75]), loose=8)
file.case("while_grad", derivative(lambda x: bounded(lambda c: jnp.max(c) < 4, lambda c: 1.25 * c + 0.25 * wave(c), x, 8)), np.array([0.5, 1, -0.75]), loose=32)
file.case("fori", lambda x, y: lax.fori_loop(0, 3, lambda i, c: gate(c, y) + i * wave(c), x), draw(3), draw(3), loose=4)
file.case("scan", lambda c, xs: lax.scan(lambda c, x: (gate(c, x), wave(c)), c, xs), draw(3), draw(4, 3), loose=4)
file.case("scan1", derivative(unrolled), draw(3), draw(4, 3), loose=8)
for name, policy in (("nothing", None), ("everything", jax.checkpoint_policies.everything_saveable)):
    file.case(f"remat_{name}", lambda x, y, policy=policy: remat(x, y, policy), draw(4), draw(4))
file.case("remat1", derivative(lambda x, y: remat(x, y, None)), draw(4), draw(4), loose=4)
file.case("vmap", lambda x, y: rows(lambda x: gate(choosy(x), y) + wave(x))(x), draw(3, 4), draw(4))
file.case("vmap1", lambda x, y: rows(derivative(lambda x: gate(choosy(x), y)))(x.T), draw(4, 3), draw(4), loose=4)
file.case("grad_of_vmap", derivative(rows(choosy)), draw(3, 4), loose=4)
file.case("captured", lambda x, w, v: captured(x, w, v), draw(4), draw(4), draw(4), loose=4)
file.case("captured_rows", lambda x, w, v: jnp.stack([captured(a, b, v) for a, b in zip(x, w)]), draw(3, 4), draw(3, 4), draw(4), loose=4)
file.write()
