"""Writes golden/flax_forward.txt: outputs of Flax layers and gradients of sum(output * weights), one line each:

    case what shape values...        what: output, input (its gradient) or the path of a parameter (its gradient)

Parameters are those of PRNGKey(3); inputs and weights are exact fractions. Run: python tests/oracle/flax_forward.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import MLP, Block, inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")


class Masked(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = (jnp.arange(4)[None, :] + jnp.arange(3)[:, None]) % 3 != 0
        kv = inputs(2, 4, 6)
        return nn.MultiHeadDotProductAttention(2, name="attn")(x, kv, mask=mask[None, None])


CASES = {
    "dense": (nn.Dense(6), (3, 5)),
    "general": (nn.DenseGeneral((3, 2), axis=(-1,), batch_dims=(0,)), (2, 4, 5)),
    "general_order": (nn.DenseGeneral((3, 2), axis=(-1, 1)), (2, 4, 4)),
    "general_batch_order": (nn.DenseGeneral(5, axis=(-1, 2), batch_dims=(0,)), (2, 3, 4, 4)),
    "mlp": (MLP((7, 6, 4)), (3, 5)),
    "layer_norm": (nn.LayerNorm(use_fast_variance=False), (3, 9)),
    "rms_norm": (nn.RMSNorm(), (3, 9)),
    "attention": (nn.MultiHeadDotProductAttention(2), (2, 5, 8)),
    "cross": (Masked(), (2, 3, 8)),
    "block": (Block(2, 16), (2, 5, 8)),
    "block_open": (Block(4, 12, causal=False), (1, 4, 8)),
}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_forward.txt")
    with open(path, "w", encoding="utf-8") as file:

        def write(case, what, value):
            value = np.asarray(value, np.float32)
            file.write(f"{case} {what} {shape_text(value)} " + " ".join(f"{v:.8g}" for v in value.reshape(-1)) + "\n")

        for name, (model, shape) in CASES.items():
            x = inputs(*shape)
            params = model.init(jax.random.PRNGKey(3), x)
            y = model.apply(params, x)
            weights = inputs(*y.shape)
            loss = lambda p, x: jnp.sum(model.apply(p, x) * weights)
            dp, dx = jax.grad(loss, argnums=(0, 1))(params, x)
            write(name, "output", y)
            write(name, "input", dx)
            for key, value in flax.traverse_util.flatten_dict(dp["params"], sep="/").items():
                write(name, key, value)


if __name__ == "__main__":
    main()
