"""Writes golden/flax_combinators.txt: models of tests/unit/layers/test_combinators.c in Flax, one line each:

    case what shape values...        what: param/PATH (initial values of PRNGKey(3)), output, input and grad/PATH

with the gradients of sum(output * weights). Run: python tests/oracle/flax_combinators.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")


class Gated(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        gain = self.param("gain", nn.initializers.normal(0.5), (x.shape[-1],))
        x = x * gain
        return nn.Dense(self.features, name="value")(x) * nn.sigmoid(nn.Dense(self.features, name="gate")(x))


class Named(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(6, name="in")(x)
        x = nn.Dense(6, name="layers_1")(nn.relu(x))
        return Gated(4, name="out")(x)


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Dense(5, name="f")(x)
        return nn.Dense(5, name="projection")(x) + 0.5 * h


class Scaled(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Dense(3, name="f")(x)
        return x + self.param("scale", nn.initializers.constant(0.1), (3,)) * h


class Parallel(nn.Module):
    combine: str

    @nn.compact
    def __call__(self, x):
        a = nn.Dense(4, name="branches_0")(x)
        b = nn.Dense(4, name="gate", kernel_init=nn.initializers.normal(0.5))(x)
        c = Gated(4, name="branches_2")(x)
        if self.combine == "concatenate":
            return jnp.concatenate([a, b, c], axis=-1)
        if self.combine == "concatenate_first":
            return jnp.concatenate([a, b, c], axis=0)
        if self.combine == "stack":
            return jnp.stack([a, b, c], axis=1)
        if self.combine == "by":
            return a * jax.nn.sigmoid(b) - c
        return {"sum": a + b + c, "mean": (a + b + c) / 3, "product": a * b * c}[self.combine]


CASES = {
    "sequential": (nn.Sequential([nn.Dense(6), nn.relu, nn.Dense(2)]), (3, 5)),
    "named": (Named(), (3, 5)),
    "function": (Gated(4), (3, 5)),
    "residual": (Residual(), (2, 4)),
    "residual_scale": (Scaled(), (2, 3)),
}
CASES |= {f"parallel_{how}": (Parallel(how), (2, 3)) for how in ("sum", "mean", "product", "concatenate", "concatenate_first", "stack", "by")}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_combinators.txt")
    with open(path, "w", encoding="utf-8") as file:

        def write(case, what, value):
            value = np.asarray(value, np.float32)
            file.write(f"{case} {what} {shape_text(value)} " + " ".join(f"{v:.9g}" for v in value.reshape(-1)) + "\n")

        for name, (model, shape) in CASES.items():
            x = inputs(*shape)
            params = model.init(jax.random.PRNGKey(3), x)["params"]
            y = model.apply({"params": params}, x)
            loss = lambda p, x: jnp.sum(model.apply({"params": p}, x) * inputs(*y.shape))
            dp, dx = jax.grad(loss, argnums=(0, 1))(params, x)
            for key, value in flax.traverse_util.flatten_dict(params, sep="/").items():
                write(name, f"param/{key}", value)
            write(name, "output", y)
            write(name, "input", dx)
            for key, value in flax.traverse_util.flatten_dict(dp, sep="/").items():
                write(name, f"grad/{key}", value)


if __name__ == "__main__":
    main()
