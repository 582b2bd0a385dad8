"""Writes golden/flax_derivative.txt: lifted value_and_grad, vjp, jvp and custom_vjp as Flax runs them, in the form of flax_control.py.

Each is of a Cell with respect to its input, inside of a model whose outputs are made of the derivatives, so that gradients of
parameters are of second order. Run: python tests/oracle/flax_derivative.py
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from flax_control import scan, vmap, write_cases
from flax_lift import Cell
from flax_models import inputs


def energy(m, x):
    """A scalar, and what goes along with it."""
    y, (ys, key) = m.cell(x)
    return jnp.sum(y * y), (ys, key)


class Force(nn.Module):
    def setup(self):
        self.cell = Cell()

    def __call__(self, x):
        if self.is_initializing():
            y, (ys, key) = self.cell(x)
            return y, (ys, key)
        (value, (ys, key)), grads = nn.value_and_grad(energy, self, x, has_aux=True)
        return 0.25 * grads[0] + 0.125 * value, (ys, key)


class Pullback(nn.Module):
    def setup(self):
        self.cell = Cell()

    def __call__(self, x):
        def call(m, x):
            y, (ys, key) = m.cell(x)
            return (y, ys), key

        if self.is_initializing():
            return self.cell(x)
        (y, ys), back, key = nn.vjp(call, self, x, has_aux=True, vjp_variables=False)
        _, gx = back((inputs(*y.shape), x))
        return y + 0.125 * gx, (ys, key)


class Pushforward(nn.Module):
    def setup(self):
        self.cell = Cell()

    def __call__(self, x):
        if self.is_initializing():
            return self.cell(x)
        (y, (ys, key)), (dy, (dys, _)) = nn.jvp(lambda m, x: m.cell(x), self, (x,), (0.5 * x + 1,), {})
        return y + 0.25 * dy, (ys - dys, key)


class Changed(nn.Module):
    """A cell whose gradients are changed: those of its output doubled, of its input clipped, of kernels replaced by their signs."""

    def setup(self):
        self.cell = Cell()

    def __call__(self, x):
        call = lambda m, x: m.cell(x)[0]

        def backward(pull, ct):
            params, x = pull(2 * ct)
            params = jax.tree.map_with_path(lambda path, g: jnp.sign(g) if path[-1].key == "kernel" else g, params)
            return params, jnp.clip(x, -0.5, 0.5)

        if self.is_initializing():
            y = call(self, x)
        else:
            y = nn.custom_vjp(call, lambda m, x: nn.vjp(call, m, x), backward)(self, x)
        return y, (2 * y, self.make_rng("noise"))


def case(module, lift=lambda m: m):
    return lambda: lift(module)(name="stack")


CASES = {
    "value_and_grad": (case(Force), (2, 4)),
    "vjp": (case(Pullback), (2, 4)),
    "jvp": (case(Pushforward), (2, 4)),
    "value_and_grad_remat": (case(Force, nn.remat), (2, 4)),
    "value_and_grad_scan": (case(Force, scan(2)), (2, 4)),
    "vjp_scan": (case(Pullback, scan(2)), (2, 4)),
    "custom_vjp": (case(Changed), (2, 4)),
    "custom_vjp_vmap": (case(Changed, vmap), (3, 2, 4)),
    "jvp_vmap": (case(Pushforward, vmap), (3, 2, 4)),
    "value_and_grad_vmap": (case(Force, vmap), (3, 2, 4)),
}

if __name__ == "__main__":
    write_cases("flax_derivative.txt", CASES)
