"""The functions of tow/numpy.h.

    python3 tests/oracle/vocabulary_activations.py        (needs jax; made with jax 0.10.2)
"""
import jax.nn as nn
import numpy as np
from golden_cases import File

file = File("vocabulary_activations.txt", "vocabulary_activations.py")
# Corners, both sides of them, and numbers whose exponentials overflow or vanish.
x = np.array([0.0, -0.0, 0.25, -0.25, 0.75, -0.75, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0, 5.5, 6.0, 6.5, -6.0, 17.0,
              -17.0, 40.0, -40.0, 200.0, -200.0, 1000.0, -1000.0])
ACTIVATIONS = """relu6 leaky_relu elu selu celu softplus log_sigmoid mish squareplus soft_sign hard_tanh hard_sigmoid hard_silu
sparse_plus sparse_sigmoid""".split()
for name in ACTIVATIONS:
    file.case(name, getattr(nn, name), x, loose=4)
file.case("gelu_tanh", lambda x: nn.gelu(x, approximate=True), x[:18], loose=4)
file.case("gelu_erf", lambda x: nn.gelu(x, approximate=False), x[:18], loose=4)
infinite = np.array([np.inf, -np.inf, np.nan])
for name in ("softplus", "elu", "leaky_relu", "hard_tanh"):
    file.case(name + "_infinite", getattr(nn, name), infinite, gradient=False)
file.case("leaky_relu_of", lambda x: nn.leaky_relu(x, 0.3), x, loose=4)
file.case("elu_of", lambda x: nn.elu(x, 0.5), x, loose=4)
file.case("celu_of", lambda x: nn.celu(x, 1.5), x, loose=4)
file.case("squareplus_of", lambda x: nn.squareplus(x, 0.5), x, loose=4)
cube = np.arange(24).reshape(2, 3, 4) * 7 % 11 / 4 - 1.25
file.case("glu", nn.glu, cube, loose=4)
file.case("glu_first", lambda x: nn.glu(x, axis=0), cube, loose=4)
file.case("standardize", lambda x: nn.standardize(x, axis=-1, epsilon=1e-5, algorithm="stable"), cube, loose=16)
file.case("standardize_axes", lambda x: nn.standardize(x, axis=(0, 2), epsilon=0.1, algorithm="stable"), cube, loose=16)
file.case("standardize_all", lambda x: nn.standardize(x, axis=None, epsilon=1e-3, algorithm="stable"), cube, loose=16)
file.write()
