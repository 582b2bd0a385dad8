"""Writes golden/attention_bias.txt: gradients of sum(attention(q, k, v, bias) * weights) with respect to biases of every shape that
broadcasts to the logits, by jax.grad of attention written out. One line each: causal, the shape, the gradient. Arrays are fractions
from number 100 K on: q, k, v, bias, weights. Run: python tests/oracle/attention_bias.py
"""

import itertools
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from flax_recurrent import fractions

B, T, S, H, G, D = 2, 3, 4, 4, 2, 3


def attention(q, k, v, bias, causal):
    k, v = (jnp.repeat(x, H // G, axis=2) for x in (k, v))
    logits = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(D) + bias
    if causal:
        logits = jnp.where(jnp.tril(jnp.ones((T, S), bool), S - T), logits, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(logits), v)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "attention_bias.txt")
    q, k, v = (fractions(s, 100 * i, jnp.float64) for i, s in enumerate([(B, T, H, D), (B, S, G, D), (B, S, G, D)]))
    weights = fractions((B, T, H, D), 400, jnp.float64)
    loss = jax.jit(lambda bias, causal: jnp.sum(attention(q, k, v, bias, causal) * weights), static_argnums=1)
    with open(path, "w", encoding="utf-8") as file:
        for causal, shape in itertools.product((0, 1), itertools.product((1, B), (1, H), (1, T), (1, S))):
            bias = fractions(shape, 300, jnp.float64)
            gradient = jax.grad(loss)(bias, bool(causal))
            assert gradient.shape == shape
            numbers = " ".join(f"{x:.17g}" for x in np.asarray(gradient).reshape(-1))
            file.write(f"{causal} {'x'.join(map(str, shape))} {numbers}\n")


if __name__ == "__main__":
    main()
