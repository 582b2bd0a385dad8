"""Writes golden/flax_tabulate.txt: what Flax says of layers of a model, one line each.

    layer MODEL PATH CLASS PARAMETERS FLOPS VJP_FLOPS     a row of nn.tabulate(compute_flops=True, compute_vjp_flops=True)
    capture MODEL PATH SHAPE VALUES...                    an entry of capture_intermediates=True

PATH is "." for the model itself. Flops are those of XLA's cost analysis before it optimises, of each module lowered alone;
PARAMETERS are the module's own. Parameters are those of PRNGKey(3). Run: python tests/oracle/flax_tabulate.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")


class Block(nn.Module):
    """Dense, tanh, Dense with a residual."""

    @nn.compact
    def __call__(self, x, _=None):
        h = nn.tanh(nn.Dense(6, name="up")(x))
        return x + nn.Dense(x.shape[-1], name="down")(h), None


class Plain(nn.Module):
    @nn.compact
    def __call__(self, x):
        x, _ = Block(name="first")(x)
        shared = Block(name="second")
        x, _ = shared(x)
        x, _ = shared(x)
        return nn.Dense(3, name="head")(nn.LayerNorm(name="norm")(x))


class Stacked(nn.Module):
    @nn.compact
    def __call__(self, x):
        scan = nn.scan(nn.remat(Block, prevent_cse=False), variable_axes={"params": 0, "intermediates": 0}, split_rngs={"params": True}, length=3)
        x, _ = scan(name="blocks")(x)
        return nn.Dense(3, name="head")(x)


MODELS = {
    "dense": (nn.Dense(4), (1, 9)),
    "dense_batch": (nn.Dense(8), (32, 16)),
    "dense_no_bias": (nn.Dense(8, use_bias=False), (32, 16)),
    "conv": (nn.Conv(5, (3, 3), padding="VALID"), (2, 8, 7, 4)),
    "layer_norm": (nn.LayerNorm(), (4, 16)),
    "attention": (nn.MultiHeadDotProductAttention(num_heads=2), (2, 6, 8)),
    "plain": (Plain(), (2, 4)),
}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_tabulate.txt")
    with open(path, "w", encoding="utf-8") as file:
        for name, (module, shape) in MODELS.items():
            table = nn.summary._get_module_table(module, None, False, True, True)(
                jax.random.PRNGKey(3), jnp.zeros(shape))
            for row in table:
                own = sum(int(np.prod(v.shape)) for v in jax.tree_util.tree_leaves(row.module_variables.get("params", {})))
                file.write(f"layer {name} {'/'.join(row.path) or '.'} {type(row.module_copy).__name__} {own} {row.flops} {row.vjp_flops}\n")
        for name, module in {"plain": Plain(), "stacked": Stacked()}.items():
            x = inputs(2, 4)
            params = module.init(jax.random.PRNGKey(3), x)
            if name == "stacked":  # Flax's stacks draw other values: those of the unrolled layers are written here
                params = {"params": {"head": params["params"]["head"], "blocks": stack_of_unrolled(x)}}
            _, state = module.apply(params, x, capture_intermediates=True)
            for key, value in flax.traverse_util.flatten_dict(state["intermediates"], sep="/").items():
                for call, output in enumerate(value):
                    output = output[0] if isinstance(output, tuple) else output
                    output = np.asarray(output, np.float32)
                    where = key.removesuffix("__call__") + f"__call__/{call}"
                    file.write(f"capture {name} {where} {shape_text(output)} " + " ".join(f"{v:.8g}" for v in output.reshape(-1)) + "\n")


def stack_of_unrolled(x):
    """Layer i of Tow's stack draws as a module with the path ("blocks", "i")."""

    class Blocks(nn.Module):
        @nn.compact
        def __call__(self, x):
            for i in range(3):
                x, _ = Block(name=str(i))(x)
            return x

    class Whole(nn.Module):
        @nn.compact
        def __call__(self, x):
            return Blocks(name="blocks")(x)

    layers = Whole().init(jax.random.PRNGKey(3), x)["params"]["blocks"]
    return jax.tree.map(lambda *a: jnp.stack(a), *[layers[str(i)] for i in range(3)])


if __name__ == "__main__":
    main()
