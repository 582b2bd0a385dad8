"""sum((gelu(x W1) W2)^2): value and gradients of x, W1 and W2 in JAX.

    ffn_jax.py --batch 64 [--checkpoint]
"""

from common import arguments, compile_gradient, measure, report

args = arguments(batch=64, width=512, hidden=8192, checkpoint=False)

import jax
import jax.numpy as jnp


def block(x, w1, w2):
    return jnp.sum(jnp.dot(jax.nn.gelu(jnp.dot(x, w1)), w2) ** 2)


keys = jax.random.split(jax.random.PRNGKey(0), 3)
values = (jax.random.normal(keys[0], (args.batch, args.width)), 0.05 * jax.random.normal(keys[1], (args.width, args.hidden)),
          0.01 * jax.random.normal(keys[2], (args.hidden, args.width)))
gradient = jax.value_and_grad(jax.checkpoint(block) if args.checkpoint else block, argnums=(0, 1, 2))
step, figures = compile_gradient(gradient, *values)
report("ffn", "jax", args, **figures, **measure(step, args), loss=float(step()))
