"""Normalization of images, channels last, as in training, in JAX: the results, or with --gradient the gradients as well.

    norm_images_jax.py --batch 32 --height 56 --width 56 --features 256 [--kind batch] [--groups 32] [--gradient]
"""

from common import arguments, measure_results, report

args = arguments(batch=32, height=56, width=56, features=256, groups=32, kind="batch", gradient=False)

import jax

axes = (0, 1, 2) if args.kind == "batch" else (1, 2, 4)
groups = (args.groups, args.features // args.groups)


def normalize(x, scale, bias):
    sizes = x.shape
    if args.kind == "group":
        x, scale, bias = x.reshape(*sizes[:-1], *groups), scale.reshape(groups), bias.reshape(groups)
    centered = x - x.mean(axes, keepdims=True)
    variance = (centered**2).mean(axes, keepdims=True)
    return (centered * (jax.lax.rsqrt(variance + 1e-5) * scale) + bias).reshape(sizes)


def pulled_back(x, scale, bias, ct):
    y, pull = jax.vjp(normalize, x, scale, bias)
    return y, *pull(ct)


keys = jax.random.split(jax.random.PRNGKey(0), 4)
sizes = (args.batch, args.height, args.width, args.features)
values = [jax.random.normal(key, size) for key, size in zip(keys, (sizes, sizes[-1:], sizes[-1:], sizes))]
values = values if args.gradient else values[:3]
function = pulled_back if args.gradient else normalize
report("norm_images", "jax", args, **measure_results(function, args, *values))
