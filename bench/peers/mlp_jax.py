"""One call of value and gradient of an MLP 8 -> 32 -> 32 -> 4 on a batch of 4 in JAX + Flax.

    mlp_jax.py [--batch 4]
"""

from common import arguments, compile_jax, measure, report

args = arguments(batch=4)
CALLS = 200

import flax.linen as nn
import jax
import jax.numpy as jnp


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (32, 32):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(4)(x)


model = MLP()
x = jax.random.normal(jax.random.PRNGKey(1), (args.batch, 8))
params = model.init(jax.random.PRNGKey(0), x)
gradient = jax.value_and_grad(lambda params, x: jnp.sum(model.apply(params, x) ** 2))
_, figures = compile_jax(gradient, params, x)
jitted = jax.jit(gradient)  # dispatches faster than an object compiled ahead of time


def step():
    for _ in range(CALLS):
        jax.block_until_ready(jitted(params, x))


report("mlp", "jax", args, **figures, **measure(step, args, CALLS))
