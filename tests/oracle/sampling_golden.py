"""Writes golden/sampling.txt: tokens drawn from cut logits, by JAX with the rules of Hugging Face's LogitsProcessors.

    rows tokens seed temperature top_k top_p, then the tokens

Logits are flax_models.inputs(rows, V) with V = 23. Run: python tests/oracle/sampling_golden.py
"""

import os

import jax
import jax.numpy as jnp

from flax_models import inputs

V = 23
CASES = [(0, 0, 0), (1, 0, 0), (0.7, 0, 0), (1, 1, 0), (1, 4, 0), (2.5, 23, 0), (1, 100, 0), (1, 0, 0.5), (1, 0, 0.9), (3, 0, 0.05), (3, 0, 1), (2, 8, 0.8), (4, 15, 0.95)]


def sample(logits, key, temperature, k, p):
    if temperature == 0:
        return jnp.argmax(logits, -1)
    logits = logits / temperature
    if k:
        least = jax.lax.top_k(logits, min(k, V))[0][..., -1:]
        logits = jnp.where(logits < least, -jnp.inf, logits)
    if 0 < p < 1:  # TopPLogitsWarper: ascending, those whose sum is at most 1 - p go, the last one stays
        order = jnp.argsort(logits, -1)
        ordered = jnp.take_along_axis(logits, order, -1)
        gone = jnp.cumsum(jax.nn.softmax(ordered), -1) <= 1 - p
        gone = gone.at[..., -1].set(False)
        logits = jnp.where(jnp.take_along_axis(gone, jnp.argsort(order, -1), -1), -jnp.inf, logits)
    return jax.random.categorical(key, logits)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "sampling.txt")
    with open(path, "w", encoding="utf-8") as file:
        for rows in (1, 40):
            for seed, (temperature, k, p) in enumerate(CASES):
                tokens = sample(inputs(rows, V), jax.random.PRNGKey(seed), temperature, k, p)
                file.write(f"{rows} {seed} {temperature} {k} {p} " + " ".join(str(int(t)) for t in tokens) + "\n")


if __name__ == "__main__":
    main()
