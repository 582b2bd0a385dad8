"""An LSTM over a sequence, sum of the squares of all hidden states: value and gradients of its parameters in JAX + Flax.

    lstm_jax.py --length 512 --batch 16 --width 128
"""

from common import arguments, compile_gradient, measure, report

args = arguments(length=512, batch=16, width=128)

import flax.linen as nn
import jax
import jax.numpy as jnp

model = nn.RNN(nn.OptimizedLSTMCell(args.width))
xs = jax.random.normal(jax.random.PRNGKey(1), (args.batch, args.length, args.width))
params = model.init(jax.random.PRNGKey(0), xs)
gradient = jax.value_and_grad(lambda params: jnp.sum(model.apply(params, xs) ** 2), argnums=(0,))
step, figures = compile_gradient(gradient, params)
report("lstm", "jax", args, **figures, **measure(step, args), loss=float(step()))
