"""The sum of the squares of a convolution, channels last: value and gradients of both operands in JAX.

    conv_jax.py --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise]
"""

from common import arguments, compile_gradient, measure, report

args = arguments(batch=8, height=56, width=56, features=128, out=128, kernel=3, stride=1, depthwise=False)

import jax
import jax.numpy as jnp

images = args.height > 0
inputs = 1 if args.depthwise else args.features
sizes = (args.batch, args.height, args.width, args.features) if images else (args.batch, args.width, args.features)
window = (args.kernel, args.kernel) if images else (args.kernel,)


def loss(x, w):
    y = jax.lax.conv_general_dilated(
        x, w, (args.stride,) * len(window), "SAME" if images else [(args.kernel - 1, 0)],
        dimension_numbers=("NHWC", "HWIO", "NHWC") if images else ("NWC", "WIO", "NWC"),
        feature_group_count=args.features if args.depthwise else 1)
    return jnp.sum(y ** 2)


keys = jax.random.split(jax.random.PRNGKey(0), 2)
values = (jax.random.normal(keys[0], sizes), 0.05 * jax.random.normal(keys[1], window + (inputs, args.out)))
step, figures = compile_gradient(jax.value_and_grad(loss, argnums=(0, 1)), *values)
report("conv", "jax", args, **figures, **measure(step, args), loss=float(step()))
