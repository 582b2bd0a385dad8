"""Writes golden/flax_collections.txt: a stack of layers with variables, as Flax runs it, one line each:

    case what shape values...

Cases: plain (one layer), scan (three layers, every collection stacked), carry (three layers, one counter for all of
them, carried). Every layer is recomputed (nn.remat). what: output0, output1 (of two calls, the second with the variables
that the first one left), gradient (of sum(output * weights) with respect to the kernel, in the second call), and the
variables after the second call by their path, the values that were sown in it among them. Parameters are those of
PRNGKey(3). Run: python tests/oracle/flax_collections.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")


class Running(nn.Module):
    """Subtracts a running mean of its inputs and counts its calls."""

    @nn.compact
    def __call__(self, x, _=None):
        mean = self.variable("batch_stats", "mean", jnp.zeros, x.shape[-1:])
        calls = self.variable("counters", "calls", jnp.zeros, (), jnp.int32)
        y = nn.tanh(nn.Dense(x.shape[-1], name="dense")(x) - mean.value + 0.125 * calls.value)
        self.sow("intermediates", "hidden", y)
        self.sow("intermediates", "hidden", 2 * y)
        if not self.is_initializing():
            mean.value = 0.75 * mean.value + 0.25 * jnp.mean(x, axis=0)
            calls.value += 1
        return y, None


def stacked(counters):
    axes = {"params": 0, "batch_stats": 0, "intermediates": 0}
    if counters == "axis":
        axes["counters"] = 0
    body = nn.remat(Running, prevent_cse=False)
    carry = "counters" if counters == "carry" else False
    return nn.scan(body, variable_axes=axes, variable_carry=carry, split_rngs={"params": True}, length=3)()


CASES = {"plain": nn.remat(Running)(), "scan": stacked("axis"), "carry": stacked("carry")}


def main():
    x = inputs(2, 4)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_collections.txt")
    with open(path, "w", encoding="utf-8") as file:

        def write(case, what, value):
            value = np.asarray(value, np.float32)
            file.write(f"{case} {what} {shape_text(value)} " + " ".join(f"{v:.8g}" for v in value.reshape(-1)) + "\n")

        for name, model in CASES.items():
            if name == "carry":  # a carried collection must be there before the loop: take the rest from the other stack
                state = CASES["scan"].init(jax.random.PRNGKey(3), x, None)
                state = {**state, "counters": {"calls": jnp.zeros((), jnp.int32)}}
            else:
                state = model.init(jax.random.PRNGKey(3), x, None)
            params = state.pop("params")

            def loss(p, s):
                (y, _), s = model.apply({"params": p, **s}, x, None, mutable=[*s, "intermediates"])
                return jnp.sum(y * inputs(*y.shape)), (y, s)

            for call in range(2):
                state.pop("intermediates", None)
                (_, (y, state)), gradient = jax.value_and_grad(loss, has_aux=True)(params, state)
                write(name, f"output{call}", y)
            write(name, "gradient", gradient["dense"]["kernel"])
            for key, value in flax.traverse_util.flatten_dict(state, sep="/").items():
                for i, v in enumerate(value if isinstance(value, tuple) else [value]):
                    write(name, f"{key}/{i}" if isinstance(value, tuple) else key, v)


if __name__ == "__main__":
    main()
