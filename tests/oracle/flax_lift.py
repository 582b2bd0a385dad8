"""Writes golden/flax_lift.txt: lifted transforms with their options, as Flax runs them, one line each:

    case what shape values...

The layer is Cell: a Dense, a running mean, a counter of calls, and a random key that it hands out. what: param/PATH (initial values
of PRNGKey(3), words in hexadecimal), and of the second of two calls: output, ys0 (and keys, in hexadecimal) and the gradients of
sum(output * weights) + sum(ys0 * weights): input, grad/PATH; then the variables after it, state/PATH.
Inputs and weights are exact fractions. Run: python tests/oracle/flax_lift.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")
SEED = 3
COLLECTIONS = ("batch_stats", "counters")


class Cell(nn.Module):
    noise: bool = True
    start: bool = False

    @nn.compact
    def __call__(self, x, u=None):
        features = x.shape[-1]
        mean = self.variable("batch_stats", "mean", jnp.zeros, (features,))
        calls = self.variable("counters", "calls", jnp.zeros, (), jnp.int32)
        h = nn.Dense(features, name="dense", bias_init=nn.initializers.normal(0.5))(x)
        if u is not None:
            h = h + u
        key = self.make_rng("noise")
        y = jnp.tanh(h - mean.value + 0.125 * calls.value)
        if not self.is_initializing():
            mean.value = 0.75 * mean.value + 0.25 * jnp.mean(x, axis=tuple(range(x.ndim - 1)))
            calls.value += 1
        return y, (2 * y, key)


class Layer(Cell):
    """A Cell without ys."""

    @nn.compact
    def __call__(self, x):
        return Cell.__call__(self, x)[0]


class Once(nn.Module):
    """Hands out what does not depend on the iteration."""

    @nn.compact
    def __call__(self, x):
        gain = self.param("gain", nn.initializers.normal(0.5), x.shape[-1:])
        return jnp.tanh(x + gain), (2 * gain, self.make_rng("noise"))


ALL = {"params": 0, "batch_stats": 0, "counters": 0}
SPLIT = {"params": True, "noise": True}


def scan(cell=Cell, **options):
    options = {"variable_axes": ALL, "split_rngs": SPLIT, "length": 3} | options
    return nn.scan(cell, **options)(name="stack")


def vmap(cell=Cell, **options):
    options = {"variable_axes": ALL, "split_rngs": SPLIT} | options
    return nn.vmap(cell, **options)(name="stack")


class Stack(nn.Module):
    """A lifted Cell under the name "stack"."""

    make: object

    @nn.compact
    def __call__(self, x, *u):
        return self.make()(x, *u)


def case(make, u=None, start=None, x=(2, 4)):
    return make, u, start or make, x


WITHOUT = lambda *names: {k: v for k, v in ALL.items() if k not in names}
X3 = (3, 2, 4)
CASES = {
    "stacked": case(lambda: scan()),
    "xs": case(lambda: scan(), u=X3),
    # One set of parameters for all iterations.
    "shared_params": case(
        lambda: scan(variable_axes=WITHOUT("params"), variable_broadcast="params", split_rngs={"params": False, "noise": True}), u=X3
    ),
    # Everything is shared or carried.
    "carried": case(
        lambda: scan(variable_axes=WITHOUT("counters"), variable_carry="counters"),
        u=X3,
        start=lambda: scan(variable_axes=ALL),
    ),
    # All draw the same keys.
    "shared_noise": case(lambda: scan(split_rngs={"params": True, "noise": False}), u=X3),
    "shared_keys": case(lambda: scan(split_rngs={"params": False, "noise": False}), u=X3),
    "reverse": case(lambda: scan(reverse=True), u=X3),
    "axes": case(lambda: scan(in_axes=1, out_axes=(2, 1)), u=(2, 3, 4)),
    "negative_axes": case(lambda: scan(in_axes=-1, out_axes=(-2, -1)), u=(2, 4, 3)),
    "whole": case(lambda: scan(in_axes=nn.broadcast), u=(2, 4)),
    "once": case(
        lambda: scan(Once, variable_axes={}, variable_broadcast="params", split_rngs={"params": False, "noise": True}, out_axes=(nn.broadcast, 0))
    ),
    "unroll": case(lambda: scan(length=5, unroll=2), u=(5, 2, 4)),
    "unroll_reverse": case(lambda: scan(length=5, unroll=3, reverse=True), u=(5, 2, 4)),
    "unroll_all": case(lambda: scan(unroll=7), u=X3),
    "remat_scan": case(lambda: nn.remat_scan(Layer, lengths=(2, 3))(name="stack")),
    "remat_scan_flat": case(lambda: nn.remat_scan(Layer, lengths=(3,))(name="stack")),
    "remat_scan_deep": case(lambda: nn.remat_scan(Layer, lengths=(2, 1, 2), policy=jax.checkpoint_policies.dots_saveable)(name="stack")),
    # Rows at once: an ensemble, one layer over a batch axis, and other axes.
    "vmap": case(lambda: vmap(), x=X3),
    "vmap_ensemble": case(lambda: vmap(in_axes=None, axis_size=3)),
    "vmap_shared": case(lambda: vmap(variable_axes=ALL | {"params": None}, split_rngs={"params": False, "noise": True}), x=X3),
    "vmap_same_noise": case(lambda: vmap(split_rngs={"params": True, "noise": False}), x=X3),
    "vmap_axes": case(lambda: vmap(in_axes=(1, -1), out_axes=(1, (-1, 1))), x=(2, 3, 4), u=(2, 4, 3)),
    "vmap_remat": case(lambda: vmap(nn.remat(Cell)), x=X3),
    "vmap_of_scan": case(
        lambda: nn.vmap(nn.scan(Cell, variable_axes=ALL, split_rngs=SPLIT, length=2), variable_axes=ALL, split_rngs=SPLIT)(name="stack"), x=X3
    ),
    "scan_of_vmap": case(
        lambda: nn.scan(nn.vmap(Cell, variable_axes=ALL, split_rngs=SPLIT), variable_axes=ALL, split_rngs=SPLIT, length=2)(name="stack"), x=X3
    ),
}


def main(name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", name)
    with open(path, "w", encoding="utf-8") as file:

        def write(name, what, value):
            value = np.asarray(value)
            bits = value.dtype == np.uint32
            text = (f"{v:08x}" if bits else f"{v:.8g}" for v in value.reshape(-1))
            file.write(f"{name} {what} {shape_text(value)} " + " ".join(text) + "\n")

        def write_tree(name, what, tree, words=False):
            for key, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
                value = np.asarray(value, np.float32)
                write(name, f"{what}/{key}", value.view(np.uint32) if words else value)

        for name, (make, u_shape, start, x_shape) in CASES.items():
            x = inputs(*x_shape)
            u = () if u_shape is None else (inputs(*u_shape),)
            keys = {"params": jax.random.PRNGKey(SEED), "noise": jax.random.PRNGKey(5)}
            model = Stack(make)
            state = Stack(start).init(keys, x, *u)
            params = state.pop("params")
            for line in ("counters",):
                if start is not make:
                    state[line] = jax.tree.map(lambda v: v[0], state[line])
            write_tree(name, "param", params, words=True)

            def loss(p, s, x):
                out, s = model.apply({"params": p, **s}, x, *u, rngs={"noise": keys["noise"]}, mutable=list(s))
                y, (ys, key) = out if isinstance(out, tuple) else (out, (None, None))
                more = 0 if ys is None else jnp.sum(ys * inputs(*ys.shape))
                return jnp.sum(y * inputs(*y.shape)) + more, (y, ys, key, s)

            for _ in range(2):
                (_, (y, ys, key, state)), grads = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)(params, state, x)
            write(name, "output", y)
            if ys is not None:
                write(name, "ys0", ys)
                write(name, "keys", key)
            write(name, "input", grads[1])
            write_tree(name, "grad", grads[0])
            write_tree(name, "state", state)


if __name__ == "__main__":
    main("flax_lift.txt")
