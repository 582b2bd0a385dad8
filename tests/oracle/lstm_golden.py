"""Writes tests/oracle/golden/lstm.txt: value and gradients of an LSTM over a sequence, for tests/unit/plan/test_hoist.c.

    pip install jax==0.10.2; python tests/oracle/lstm_golden.py

Inputs are ((7919 i) mod 257 - 128) / 64, weights a quarter of that. Lines: "NAME reverse numbers..." in double precision.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
STEPS, BATCH, IN, HIDDEN = 5, 3, 4, 6


def filled(shape, scale):
    i = np.arange(np.prod(shape))
    return jnp.array((7919 * i % 257 - 128) / 64 * scale).reshape(shape)


def loss(xs, w, u, b, reverse):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u + b, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((BATCH, HIDDEN))
    (_, c), hs = jax.lax.scan(step, (zero, zero), xs, reverse=reverse)
    return jnp.sum(hs**2) + jnp.sum(c)


def main():
    args = (filled((STEPS, BATCH, IN), 1), filled((IN, 4 * HIDDEN), 0.25), filled((HIDDEN, 4 * HIDDEN), 0.25),
            filled((4 * HIDDEN,), 0.25))
    lines = []
    for reverse in (False, True):
        value, grads = jax.value_and_grad(loss, argnums=(0, 1, 2, 3))(*args, reverse)
        for name, x in zip(("loss", "xs", "w", "u", "b"), (value, *grads)):
            lines.append(" ".join([name, str(int(reverse)), *(f"{v:.17g}" for v in np.ravel(x))]))
    path = pathlib.Path(__file__).parent / "golden" / "lstm.txt"
    path.write_text("\n".join(lines) + "\n")


main()
