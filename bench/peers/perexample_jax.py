"""Gradients for each example of an MLP of three layers of one width, without biases, in JAX.

    perexample_jax.py [--batch 32] [--width 512]
"""

from common import arguments, compile_jax, measure, report

args = arguments(batch=32, width=512)

import jax
import jax.numpy as jnp


def loss(weights, x):
    for i, w in enumerate(weights):
        x = x @ w
        if i < len(weights) - 1:
            x = jax.nn.relu(x)
    return jnp.sum(x ** 2)


keys = jax.random.split(jax.random.PRNGKey(0), 4)
weights = [jax.random.uniform(k, (args.width, args.width), minval=-0.08, maxval=0.08) for k in keys[:3]]
x = jax.random.uniform(keys[3], (args.batch, args.width), minval=-1)
gradients, figures = compile_jax(jax.vmap(jax.grad(loss), (None, 0)), weights, x)


def step():
    jax.block_until_ready(gradients(weights, x))


report("perexample", "jax", args, **figures, **measure(step, args))
