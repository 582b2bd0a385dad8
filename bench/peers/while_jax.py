"""A while loop of small iterations: x = (x + tanh(x w)) / 2 until x has settled or the iterations are done, in JAX.

    while_jax.py --iterations 1000 --batch 8 --width 32
"""

from common import arguments, compile_jax, measure, report

args = arguments(iterations=1000, batch=8, width=32)

import jax
import jax.numpy as jnp


def loop(x, w):
    goes_on = lambda carry: (carry[0] < args.iterations) & (jnp.max(jnp.abs(carry[1])) > 1e-30)
    body = lambda carry: (carry[0] + 1, (carry[1] + jnp.tanh(carry[1] @ w)) * 0.5)
    return jnp.sum(jax.lax.while_loop(goes_on, body, (0, x))[1] ** 2)


keys = jax.random.split(jax.random.PRNGKey(0), 2)
x = jax.random.uniform(keys[0], (args.batch, args.width), minval=-1)
w = jax.random.uniform(keys[1], (args.width, args.width), minval=-0.5, maxval=0.5)
run, figures = compile_jax(loop, x, w)


def step():
    return jax.block_until_ready(run(x, w))


report("while", "jax", args, **figures, **measure(step, args), loss=float(step()))
