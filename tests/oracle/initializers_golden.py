"""Writes golden/initializers.txt: what jax.nn.initializers draw from PRNGKey(11), one line each:

    bits case dtype shape fnv1a64-of-the-bytes first-words-in-hexadecimal...
    near case dtype shape values...        orthogonal ones, whose bits depend on LAPACK

A shape is written 4x8. Run: python tests/oracle/initializers_golden.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
INIT = jax.nn.initializers
INF = float("inf")
LARGE, KERNEL, CONV = (37, 1001), (8, 16, 32), (3, 3, 5, 7)
CASES = {
    "constant": (INIT.constant(0.1), (5,)),
    "normal": (INIT.normal(0.02), LARGE),
    "uniform": (INIT.uniform(0.3), LARGE),
    "truncated": (INIT.truncated_normal(0.7), LARGE),
    "truncated_scalar": (INIT.truncated_normal(0.7), ()),
    "truncated_upper": (INIT.truncated_normal(0.5, lower=0.25, upper=3.0), LARGE),
    "truncated_narrow": (INIT.truncated_normal(1.0, lower=-0.1, upper=0.05), LARGE),
    "truncated_tail": (INIT.truncated_normal(1.0, lower=2.0, upper=2.5), LARGE),
    "truncated_far": (INIT.truncated_normal(1.0, lower=-5.35, upper=5.2), LARGE),
    "truncated_farther": (INIT.truncated_normal(1.0, lower=-5.0, upper=5.45), LARGE),
    "truncated_below": (INIT.truncated_normal(2.0, lower=-INF, upper=-1.0), LARGE),
    "truncated_open": (INIT.truncated_normal(0.1, lower=-INF, upper=INF), LARGE),
    "lecun_normal": (INIT.lecun_normal(), LARGE),
    "lecun_conv": (INIT.lecun_normal(), CONV),
    "he_uniform": (INIT.he_uniform(), CONV),
    "glorot_normal": (INIT.glorot_normal(), CONV),
    "geo": (INIT.variance_scaling(0.7, "fan_geo_avg", "normal"), CONV),
    "fan_out_uniform": (INIT.variance_scaling(0.5, "fan_out", "uniform"), LARGE),
    "axes_in_0": (INIT.lecun_normal(in_axis=0, out_axis=1), KERNEL),
    "axes_in_01": (INIT.lecun_uniform(in_axis=(0, 1), out_axis=2), KERNEL),
    "axes_batch": (INIT.variance_scaling(1.0, "fan_in", "normal", batch_axis=0), KERNEL),
    "axes_batches": (INIT.variance_scaling(1.0, "fan_out", "normal", in_axis=-1, out_axis=(-2,), batch_axis=(0, 1)), CONV),
    "axes_all": (INIT.glorot_uniform(in_axis=(2,), out_axis=(0, -1), batch_axis=(1,)), CONV),
    "axes_vector": (INIT.lecun_normal(in_axis=0), (33,)),
}
NEAR = {
    "orthogonal": (INIT.orthogonal(), (7, 7)),
    "orthogonal_tall": (INIT.orthogonal(2.5), (9, 4)),
    "orthogonal_wide": (INIT.orthogonal(), (3, 8)),
    "orthogonal_one": (INIT.orthogonal(-0.5), (1, 1)),
    "orthogonal_row": (INIT.orthogonal(), (1, 6)),
    "orthogonal_column": (INIT.orthogonal(), (6, 1)),
    "orthogonal_conv": (INIT.orthogonal(), (3, 2, 4, 5)),
    "orthogonal_axis_0": (INIT.orthogonal(1.5, column_axis=0), (5, 3, 4)),
    "orthogonal_axis_1": (INIT.orthogonal(column_axis=-2), (2, 9, 3)),
    "orthogonal_large": (INIT.orthogonal(), (40, 33)),
    "delta_3": (INIT.delta_orthogonal(), (4, 3, 5)),
    "delta_4": (INIT.delta_orthogonal(2.0), (3, 2, 4, 4)),
    "delta_5": (INIT.delta_orthogonal(column_axis=-2), (1, 2, 3, 2, 3)),
}
DTYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "initializers.txt")
    key = jax.random.PRNGKey(11)
    with open(path, "w", encoding="utf-8") as file:
        for dtype, jax_dtype in DTYPES.items():
            for name, (init, shape) in CASES.items():
                value = np.asarray(init(key, shape, jax_dtype))
                text = "x".join(map(str, shape)) or "scalar"
                words = value.reshape(-1)[:4].view({2: np.uint16, 4: np.uint32, 8: np.uint64}[value.itemsize])
                words = " ".join(f"{w:0{2 * value.itemsize}x}" for w in words)
                file.write(f"bits {name} {dtype} {text} {fnv1a(value.tobytes()):016x} {words}\n")
            for name, (init, shape) in NEAR.items() if dtype in ("f32", "f64") else ():
                value = np.asarray(init(key, shape, jax_dtype)).reshape(-1)
                file.write(f"near {name} {dtype} {'x'.join(map(str, shape))} " + " ".join(f"{v:.{9 if dtype == 'f32' else 17}g}" for v in value) + "\n")


if __name__ == "__main__":
    main()
