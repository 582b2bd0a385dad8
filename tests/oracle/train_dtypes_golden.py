"""Writes golden/train_dtypes.txt: losses of 20 steps of training with parameters or computation of 16 bits, one line each:

    setting optimiser type-of-the-moments losses...

Model: Dense(8), LayerNorm, tanh, Dense(3), inputs [4,5], mean squared error in f32 against [4,3]; parameters of PRNGKey(3). Optax keeps
moments in the type of the parameters. Run: python tests/oracle/train_dtypes_golden.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from flax_models import inputs

NAMES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
SETTINGS = {
    "plain": (jnp.float32, jnp.float32),
    "mixed": (jnp.bfloat16, jnp.float32),
    "mixed_f16": (jnp.float16, jnp.float32),
    "stored": (jnp.bfloat16, jnp.bfloat16),
    "stored_f16": (jnp.float16, jnp.float16),
}
OPTIMISERS = {"adamw": optax.adamw(0.01, weight_decay=0), "sgd": optax.sgd(0.05, momentum=0.9)}


class Model(nn.Module):
    types: dict

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(8, name="in", **self.types)(x)
        x = nn.LayerNorm(name="norm", use_fast_variance=False, **self.types)(x)
        return nn.Dense(3, name="out", **self.types)(jnp.tanh(x)).astype(jnp.float32)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "train_dtypes.txt")
    with open(path, "w", encoding="utf-8") as file:
        for setting, (dtype, param_dtype) in SETTINGS.items():
            for name, optimiser in OPTIMISERS.items():
                if (setting, name) == ("stored_f16", "adamw"):
                    continue  # its eps is 0 in f16: NaN at the second step
                model = Model({"dtype": dtype, "param_dtype": param_dtype})
                x, y = inputs(4, 5), inputs(4, 3)
                params = model.init(jax.random.PRNGKey(3), x)
                state = optimiser.init(params)
                loss = lambda p: jnp.mean(jnp.square(model.apply(p, x) - y))
                losses = []
                for _ in range(20):
                    value, gradient = jax.value_and_grad(loss)(params)
                    losses.append(f"{float(value):.9g}")
                    updates, state = optimiser.update(gradient, state, params)
                    params = optax.apply_updates(params, updates)
                moments = jax.tree.leaves(state[0].mu if name == "adamw" else state[0].trace)
                file.write(f"{setting} {name} {NAMES[str(moments[0].dtype)]} " + " ".join(losses) + "\n")


if __name__ == "__main__":
    main()
