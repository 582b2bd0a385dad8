"""The gradient of a long loop of small iterations in f64, a ring of coupled oscillators, in JAX: two nested scans of
jax.checkpoint of about the square root of the iterations each.

    ring_jax.py --iterations 40000 --width 256
"""

import math

from common import arguments, compile_jax, measure, report

args = arguments(iterations=40000, width=256)

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
BLOCK = math.isqrt(args.iterations)
assert BLOCK * BLOCK == args.iterations, "--iterations: expected a square"
H = 0.01


def loss(k, w, x):
    def slope(x):
        return w + k * (jnp.sin(jnp.roll(x, 1) - x) + jnp.sin(jnp.roll(x, -1) - x))

    @jax.checkpoint
    def iteration(x, _):
        k1 = slope(x)
        return x + (k1 + slope(x + H * k1)) * (H / 2), None

    @jax.checkpoint
    def block(x, _):
        return jax.lax.scan(iteration, x, None, length=BLOCK)

    return jnp.sum(jnp.cos(jax.lax.scan(block, x, None, length=BLOCK)[0]))


keys = jax.random.split(jax.random.PRNGKey(0), 3)
inputs = [jax.random.uniform(keys[0], (), "float64", -1), *(jax.random.uniform(key, (args.width,), "float64", -1) for key in keys[1:])]
run, figures = compile_jax(jax.value_and_grad(loss, (0, 1, 2)), *inputs)


def step():
    return jax.block_until_ready(run(*inputs))


report("ring", "jax", args, **figures, **measure(step, args), loss=float(step()[0]))
