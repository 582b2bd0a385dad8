"""Writes golden/flax_draws.txt: parameters that Flax draws from seeds, by paths, shapes and initialisers, one line each:

    case seed path shape fnv1a64-of-the-bytes first-words-in-hexadecimal...

A shape is written 4x8. Cases scan_... draw inside of nn.scan, whose body XLA compiles.

Run: python tests/oracle/flax_draws.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import MLP, Block, Digits, Embedding, First, Lookups, Rematted, Scanned, inputs, shape_text

INIT = nn.initializers
INITIALIZERS = {
    "lecun_uniform": INIT.lecun_uniform(),
    "he_normal": INIT.he_normal(),
    "he_uniform": INIT.he_uniform(),
    "glorot_normal": INIT.glorot_normal(),
    "glorot_uniform": INIT.glorot_uniform(),
    "normal": INIT.normal(0.02),
    "uniform": INIT.uniform(0.3),
    "truncated_normal": INIT.truncated_normal(0.7),
    "constant": INIT.constant(0.1),
    "fan_out": INIT.variance_scaling(0.5, "fan_out", "normal"),
}
# In the body of a scan the two factors of normal draws are one.
SCANNED = INITIALIZERS | {f"normal_{stddev}": INIT.normal(stddev) for stddev in (1.0, 0.5, 0.3, 0.7, 3.7, 0.123456, 1e-3, 1e-8)}
SCANNED |= {f"truncated_{stddev}": INIT.truncated_normal(stddev) for stddev in (0.3, 1e-3)}
SCANNED |= {
    f"{distribution}_{scale}_{mode}": INIT.variance_scaling(scale, mode, distribution)
    for distribution in ("truncated_normal", "normal", "uniform")
    for scale in (1.0, 0.37, 1.7)
    for mode in ("fan_in", "fan_avg")
}
CASES = {
    "dense": (nn.Dense(32), inputs(4, 16)),
    "dense_odd": (nn.Dense(7, use_bias=False), inputs(3, 13)),
    "dense_large": (nn.Dense(513), inputs(2, 300)),
    "general_split": (nn.DenseGeneral((4, 8)), inputs(2, 12)),
    "general_join": (nn.DenseGeneral(10, axis=(-2, -1)), inputs(2, 4, 8)),
    "general_order": (nn.DenseGeneral((3, 2), axis=(-1, 1)), inputs(2, 4, 5, 6)),
    "general_equal": (nn.DenseGeneral((3, 2), axis=(-1, 1)), inputs(2, 4, 4)),
    "general_all": (nn.DenseGeneral(5, axis=(2, 0, -2)), inputs(4, 3, 2)),
    "general_batch_order": (nn.DenseGeneral((3,), axis=(-1, -3), batch_dims=(0,)), inputs(2, 3, 4, 5)),
    "general_batch": (nn.DenseGeneral((3, 2), axis=(-1,), batch_dims=(0,)), inputs(4, 5, 6)),
    "mlp": (MLP((24, 24, 5)), inputs(2, 9)),
    "embed": (Embedding(65, 48), jnp.zeros((2, 3), jnp.int32)),
    "embed_large": (Embedding(1000, 96), jnp.zeros((2, 3), jnp.int32)),
    "layer_norm": (nn.LayerNorm(), inputs(2, 10)),
    "rms_norm": (nn.RMSNorm(), inputs(2, 10)),
    "attention": (nn.MultiHeadDotProductAttention(4), inputs(2, 5, 32)),
    "attention_sizes": (nn.MultiHeadDotProductAttention(3, qkv_features=12, out_features=7, use_bias=False), inputs(2, 5, 10)),
    "block": (Block(2, 16), inputs(2, 5, 8)),
    "remat": (Rematted(2, 16), inputs(2, 5, 8)),
    "first": (First(), inputs(2, 6)),
    "scan_flax": (Scanned((4,)), inputs(2, 6)),
    "scan_flax_no_bias": (Scanned((3,), bias=False), inputs(2, 5)),
    "scan_flax_nested": (Scanned((2, 3)), inputs(2, 6)),
    "scan_flax_nested_no_bias": (Scanned((2, 1, 3), bias=False), inputs(2, 5)),
    "scan_flax_normal": (Scanned((2, 3), kernel_init=INIT.normal(0.02)), inputs(2, 6)),
    "scan_flax_embed": (Lookups(), inputs(2, 13)),
    "scan_flax_remat_embed": (Lookups(remat=True), inputs(2, 13)),
    "digits": (Digits(), inputs(2, 5)),
} | {"scan_init_" + name: (Scanned((2,), bias=False, kernel_init=init), inputs(2, 29)) for name, init in SCANNED.items()} | {"init_" + name: (nn.Dense(33, kernel_init=init, name="layer"), inputs(2, 17)) for name, init in INITIALIZERS.items()}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_draws.txt")
    with open(path, "w", encoding="utf-8") as file:
        for name, (model, x) in CASES.items():
            for seed in (0, 42, 123456789) if "init_" not in name else (7,):
                tree = model.init(jax.random.PRNGKey(seed), x)["params"]
                for key, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
                    value = np.asarray(value, np.float32)
                    words = " ".join(f"{w:08x}" for w in value.reshape(-1)[:8].view(np.uint32))
                    file.write(f"{name} {seed} {key} {shape_text(value)} {fnv1a(value.tobytes()):016x} {words}\n")


if __name__ == "__main__":
    main()
