"""Sorting rows of numbers in JAX: the values, or with --gradient a sum over them and its gradient.

    sort_jax.py --rows 1 --length 1048576 [--gradient]
"""

from common import arguments, compile_gradient, compile_jax, measure, report

args = arguments(rows=1, length=1 << 20, gradient=False)

import jax
import jax.numpy as jnp

x = jax.random.uniform(jax.random.PRNGKey(0), (args.rows, args.length), minval=-1)
if args.gradient:
    weights = jnp.arange(args.length) / args.length
    step, figures = compile_gradient(
        jax.value_and_grad(lambda x: jnp.sum(jnp.sort(x, 1) ** 2 * weights), argnums=(0,)), x)
else:
    run, figures = compile_jax(lambda last, x: jnp.sort(x, 1), x, x, donate=(0,), keep=True)
    last = jnp.zeros_like(x)

    def step():
        global last
        last = jax.block_until_ready(run(last, x))


report("sort", "jax", args, **figures, **measure(step, args))
