"""Writes examples/ode/golden.txt: what SciPy's minimiser finds for the fit of examples/ode, with gradients of JAX.

    pip install jax==0.10.2 scipy; python tests/oracle/ode_golden.py

Lines: "loss NUMBER", "first NUMBER" (the loss before the first update), then "NAME NUMBER" in the order in which the program prints them.
"""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

jax.config.update("jax_enable_x64", True)
ROOT = pathlib.Path(__file__).parents[2]
STEPS = 500  # in a year
NAMES = ["hares born a year", "lynxes that die", "hares eaten, for each lynx", "lynxes born, for each hare",
         "hares in 1900", "lynxes in 1900"]


def measured(name):
    text = re.search(name + r"\[.*?\{(.*?)\}", (ROOT / "examples/ode/hares.h").read_text(), re.S)[1]
    return np.array([float(number) for number in text.split(",")])


def loss(theta, seen):
    a, c, b, d = jnp.exp(theta[:4])

    def slope(x):
        u, v = jnp.exp(x)
        return jnp.stack([a - b * v, -c + d * u])

    def step(x, _):
        h = 1 / STEPS
        k1 = slope(x)
        k2 = slope(x + h / 2 * k1)
        k3 = slope(x + h / 2 * k2)
        k4 = slope(x + h * k3)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def year(x, _):
        x, _ = jax.lax.scan(step, x, None, length=STEPS)
        return x, x

    _, years = jax.lax.scan(year, theta[4:], None, length=len(seen) - 1)
    return jnp.mean((jnp.concatenate([theta[None, 4:], years]) - seen) ** 2)


def main():
    hares, lynxes = measured("hares"), measured("lynxes")
    seen = jnp.log(jnp.stack([hares, lynxes], axis=1))
    both = jax.jit(jax.value_and_grad(loss))
    first = jnp.log(jnp.array([0.4, 1.0, 0.02, 0.03, hares[0], lynxes[0]]))
    found = scipy.optimize.minimize(lambda t: tuple(np.asarray(x, dtype=float) for x in both(t, seen)), np.asarray(first),
                                    jac=True, method="BFGS", options={"gtol": 1e-9})
    lines = [f"loss {found.fun:.8f}", f"first {float(loss(first, seen)):.8f}"]
    lines += [f"{name} {number:.6f}" for name, number in zip(NAMES, np.exp(found.x))]
    (ROOT / "examples/ode/golden.txt").write_text("\n".join(lines) + "\n")


main()
