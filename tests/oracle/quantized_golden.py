"""Writes tests/oracle/golden/quantized.txt: what the gguf package of llama.cpp makes of blocks of f32, for
tests/unit/quantized/test_blocks.c.

    pip install gguf==0.19.0 numpy; python tests/oracle/quantized_golden.py

Each line is one block: the 32 numbers as the bits of f32, then the bytes of q8_0, then those of q4_0, all in hexadecimal.
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, quants

random = np.random.default_rng(35)
rows = [random.standard_normal(32) * 10.0 ** e for e in (-6, -3, -1, 0, 0, 0, 0, 1, 3)]
rows += [random.uniform(-1, 1, 32) for _ in range(60)]
rows.append(np.zeros(32))
rows.append(np.where(np.arange(32) == 7, -3.0, 0.0))
rows.append(np.where(np.arange(32) % 2 == 0, 5.0, -5.0))  # equal magnitudes: the first one counts
rows.append((np.arange(32) - 16) / 2)  # halves
rows.append(np.arange(32) * 4.0 + 0.5 * (np.arange(32) % 3))
rows.append(np.append(np.arange(31) - 15.5, 127.0))  # q8_0: scale 1, all numbers between two
rows.append(np.append((np.arange(31) % 17) - 8.0 + 0.5, -8.0))  # q4_0: scale 1, all numbers between two
rows.append(random.standard_normal(32) * 2.0 ** -20)  # scales that f16 has as subnormal numbers
rows.append(random.standard_normal(32) * 1e6)
rows.append(random.standard_normal(32) * 3e7)  # the scale of q8_0 is beyond f16
numbers = np.array(rows, dtype=np.float32)
q8 = quants.quantize(numbers, GGMLQuantizationType.Q8_0)
q4 = quants.quantize(numbers, GGMLQuantizationType.Q4_0)
assert q8.shape == (len(rows), 34) and q4.shape == (len(rows), 18)
out = pathlib.Path(__file__).parent / "golden" / "quantized.txt"
with out.open("w") as f:
    for x, a, b in zip(numbers, q8, q4):
        f.write(x.astype("<f4").tobytes().hex() + " " + a.tobytes().hex() + " " + b.tobytes().hex() + "\n")
