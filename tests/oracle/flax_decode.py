"""Writes golden/flax_decode.txt: attention with a cache as Flax decodes, one position per call, past the end of the cache as well.

    case step what shape values...

what: output, cached_key, cached_value, cache_index after the call. Parameters are those of PRNGKey(3), inputs those of flax_models.py.
Run: python tests/oracle/flax_decode.py
"""

import os

import flax.linen as nn
import jax
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")
LENGTH, STEPS = 4, 6
CASES = {
    "decode": {},
    "decode_qk_norm": {"normalize_qk": True},
    "decode_mask": {},
}


class Model(nn.Module):
    options: dict
    masked: bool

    @nn.compact
    def __call__(self, x):
        mask = (np.arange(2 * LENGTH).reshape(2, 1, 1, LENGTH) % 3 != 1) if self.masked else None
        return nn.MultiHeadDotProductAttention(2, decode=True, name="layer", **self.options)(x, mask=mask)


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_decode.txt")
    with open(path, "w", encoding="utf-8") as file:
        for name, options in CASES.items():
            model = Model(options, name == "decode_mask")
            x = inputs(2, STEPS, 8)
            state = model.init(jax.random.PRNGKey(3), x[:, :LENGTH])
            params, cache = state["params"], state["cache"]
            for step in range(STEPS):
                y, new = model.apply({"params": params, "cache": cache}, x[:, step : step + 1], mutable=["cache"])
                cache = new["cache"]
                results = {"output": y, **cache["layer"]}
                for what, value in results.items():
                    value = np.asarray(value)
                    text = " ".join(f"{v:.9g}" for v in value.reshape(-1))
                    file.write(f"{name} {step} {what} {shape_text(value)} {text}\n")


if __name__ == "__main__":
    main()
