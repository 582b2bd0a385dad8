"""Pooling of images, channels last, in JAX: the results, or with --gradient the results and the gradient of x.

    pooling_jax.py --batch 64 --height 28 --width 28 --features 32 [--kind max] [--window 2] [--stride 2] [--type f32] [--gradient]

--window 0: over the whole image.
"""

from common import arguments, measure_results, report

args = arguments(batch=64, height=28, width=28, features=32, window=2, stride=2, kind="max", type="f32", gradient=False)

import jax
import numpy as np

dtype = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}[args.type]
window = (1, args.window or args.height, args.window or args.width, 1)


def pool(x):
    if args.window == 0:
        return x.mean((1, 2), keepdims=True) if args.kind == "avg" else x.max((1, 2), keepdims=True)
    least = -np.inf if dtype == np.float32 else np.iinfo(dtype).min
    sums = args.kind == "avg"
    first, combine = (dtype(0), jax.lax.add) if sums else (dtype(least), jax.lax.max)
    y = jax.lax.reduce_window(x, first, combine, window, (1, args.stride, args.stride, 1), "VALID")
    return y / (args.window * args.window) if sums else y


def pulled_back(x, ct):
    y, pull = jax.vjp(pool, x)
    return y, *pull(ct)


keys = jax.random.split(jax.random.PRNGKey(0), 2)
sizes = (args.batch, args.height, args.width, args.features)
x = jax.random.normal(keys[0], sizes) if args.type == "f32" else jax.random.randint(keys[0], sizes, 0, 250).astype(dtype)
values = (x, jax.random.normal(keys[1], jax.eval_shape(pool, x).shape)) if args.gradient else (x,)
function = pulled_back if args.gradient else pool
report("pooling", "jax", args, **measure_results(function, args, *values))
