"""x <- tanh(x W_i + b_i), sum of squares: value and gradients of all W and b in JAX.

    chain_jax.py --layers 4096 --width 128 --batch 128 --mode scan | remat | sqrt | unrolled [--only-compile]

unrolled: every layer with parameters of its own.
"""

from common import arguments, compile_gradient, compile_jax, measure, report

args = arguments(layers=4096, width=128, batch=128, mode="scan", only_compile=False)

import jax
import jax.numpy as jnp

group = max(i for i in range(1, int(args.layers**0.5) + 1) if args.layers % i == 0)


def layer(x, parameters):
    return jnp.tanh(x @ parameters[0] + parameters[1]), None


def forward(x, w, b):
    if args.mode == "unrolled":
        for parameters in zip(w, b):
            x, _ = layer(x, parameters)
        return x
    if args.mode == "sqrt":
        inner = jax.checkpoint(lambda x, parameters: jax.lax.scan(layer, x, parameters), prevent_cse=False)
        grouped = tuple(p.reshape(args.layers // group, group, *p.shape[1:]) for p in (w, b))
        return jax.lax.scan(inner, x, grouped)[0]
    if args.mode in ("scan", "remat"):
        return jax.lax.scan(jax.checkpoint(layer, prevent_cse=False) if args.mode == "remat" else layer, x, (w, b))[0]
    raise SystemExit(f"chain_jax: unknown --mode '{args.mode}': expected scan, remat, sqrt or unrolled")


keys = jax.random.split(jax.random.PRNGKey(0), 2)
x = jax.random.normal(keys[0], (args.batch, args.width))
w = jax.random.normal(keys[1], (args.layers, args.width, args.width)) / args.width**0.5
b = jnp.zeros((args.layers, args.width))
if args.mode == "unrolled":
    w, b = list(w), list(b)
gradient = jax.value_and_grad(lambda w, b: jnp.sum(forward(x, w, b) ** 2), argnums=(0, 1))
if args.only_compile:
    _, figures = compile_jax(gradient, w, b)
else:
    step, figures = compile_gradient(gradient, w, b)
    figures |= measure(step, args) | {"loss": float(step())}
report("chain", "jax", args, **figures)
