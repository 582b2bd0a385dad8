"""A convolution, channels last, in JAX: the sum of its squares, value and gradients of both operands; or one part of that.

    conv_jax.py --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise]
                [--part all | forward | input | kernel]
"""

from common import arguments, compile_gradient, compile_jax, measure, report

args = arguments(batch=8, height=56, width=56, features=128, out=128, kernel=3, stride=1, depthwise=False, part="all")

import jax
import jax.numpy as jnp

images = args.height > 0
inputs = 1 if args.depthwise else args.features
sizes = (args.batch, args.height, args.width, args.features) if images else (args.batch, args.width, args.features)
window = (args.kernel, args.kernel) if images else (args.kernel,)


def convolve(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (args.stride,) * len(window), "SAME" if images else [(args.kernel - 1, 0)],
        dimension_numbers=("NHWC", "HWIO", "NHWC") if images else ("NWC", "WIO", "NWC"),
        feature_group_count=args.features if args.depthwise else 1)


keys = jax.random.split(jax.random.PRNGKey(0), 3)
values = (jax.random.normal(keys[0], sizes), 0.05 * jax.random.normal(keys[1], window + (inputs, args.out)))
if args.part == "all":
    step, figures = compile_gradient(
        jax.value_and_grad(lambda x, w: jnp.sum(convolve(x, w) ** 2), argnums=(0, 1)), *values)
    report("conv", "jax", args, **figures, **measure(step, args), loss=float(step()))
else:
    ct = jax.random.normal(keys[2], jax.eval_shape(convolve, *values).shape)
    parts = {"forward": lambda x, w, ct: convolve(x, w),
             "input": lambda x, w, ct: jax.vjp(lambda x: convolve(x, w), x)[1](ct)[0],
             "kernel": lambda x, w, ct: jax.vjp(lambda w: convolve(x, w), w)[1](ct)[0]}
    part = parts[args.part]
    # A result is donated to the next step, as in common.compile_gradient.
    last = jnp.zeros(jax.eval_shape(part, *values, ct).shape)
    compiled, figures = compile_jax(lambda last, *rest: part(*rest), last, *values, ct, donate=(0,), keep=True)

    def step():
        global last
        last = jax.block_until_ready(compiled(last, *values, ct))

    report("conv", "jax", args, **figures, **measure(step, args))
