"""Writes golden/flax_views.txt: layers that see their variables through functions (flax.linen.map_variables) and layers that are tied,
one line each:

    case what shape values...

what: as in flax_lift.py, of which the file has the same lines: param/PATH and, of the second of two calls, output, the gradients
input and grad/PATH, state/PATH. Flax maps what `init` makes back and forth; where the two functions are no inverses the mapping stands
still while the model is initialised, as in Flax's own example of a causal layer.
Inputs and weights are exact fractions. Run: python tests/oracle/flax_views.py
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


def tree(function, *names):
    """The function on the variables that are called so; without names on all."""
    return lambda variables: jax.tree_util.tree_map_with_path(lambda p, v: function(v) if not names or p[-1].key in names else v, variables)


def signs(w):
    return w + jax.lax.stop_gradient(jnp.where(w >= 0, 1.0, -1.0) - w)


def standardized(w):
    mean = jnp.mean(w, 0, keepdims=True)
    return (w - mean) * jax.lax.rsqrt(jnp.mean((w - mean) ** 2, 0, keepdims=True) + 1e-4)


class Mapped(nn.Module):
    """A layer "stack", seen through trans_in; without an inverse it is initialised as it is."""

    layer: object
    trans_in: object
    trans_out: object = None
    collections: object = "params"

    @nn.compact
    def __call__(self, x):
        still = self.trans_out is None and self.is_initializing()
        layer = nn.map_variables(
            self.layer,
            self.collections,
            (lambda v: v) if still else self.trans_in,
            self.trans_out or (lambda v: v),
            init=self.is_initializing(),
            mutable=self.trans_out is not None,
        )
        return layer(name="stack")(x)


class DenseOf(nn.Dense):
    """Its bias is drawn."""

    features: int = 3
    bias_init: object = nn.initializers.normal(0.5)


class SquareOf(DenseOf):
    features: int = 4


class Step(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        return jnp.tanh(SquareOf(name="dense")(x)), None


class Average(nn.Module):
    """Subtracts a running mean, drawn at first."""

    @nn.compact
    def __call__(self, x):
        mean = self.variable("batch_stats", "mean", lambda: nn.initializers.normal(0.5)(self.make_rng("params"), x.shape[-1:]))
        count = self.variable("batch_stats", "count", jnp.zeros, (), jnp.int32)
        y = SquareOf(name="dense")(x) - mean.value
        if not self.is_initializing():
            mean.value = 0.75 * mean.value + 0.25 * jnp.mean(x, 0)
            count.value += 1
        return jnp.tanh(y)


class Autoencoder(nn.Module):
    """The example of Flax's documentation: the decoder has the transposed kernel of the encoder."""

    def code(self, x, decode):
        def f(module):
            return nn.Dense(4 if decode else 3, use_bias=False, name="stack")(x)

        transposed = lambda v: jax.tree.map(lambda w: w.T, v) if decode else v
        return nn.map_variables(f, "params", transposed, transposed, mutable=True)(self)

    @nn.compact
    def __call__(self, x):
        return self.code(jnp.tanh(self.code(x, False)), True)


class Tied(nn.Module):
    """An output projection with the table of an embedding."""

    @nn.compact
    def __call__(self, x):
        table = nn.Embed(4, 3, name="embed")
        return jnp.tanh(x @ table.embedding) @ table.embedding.T


class LowRank(nn.Module):
    """The kernel of a layer "stack" is a product of two."""

    @nn.compact
    def __call__(self, x):
        return Factors(name="stack")(x)


class Factors(nn.Module):
    @nn.compact
    def __call__(self, x):
        a = self.param("left", nn.initializers.lecun_normal(), (x.shape[-1], 2))
        b = self.param("right", nn.initializers.normal(0.25), (2, 3))
        return x @ (a @ b) + self.param("bias", nn.initializers.normal(0.5), (3,))


class Lifted(nn.Module):
    """A layer with transposed kernels lifted, and a lifted layer mapped: the function then sees stacked kernels."""

    transform: str
    inside: bool

    @nn.compact
    def __call__(self, x):
        transposed = tree(lambda w: jnp.swapaxes(w, -1, -2), "kernel")
        mapped = lambda layer: nn.map_variables(layer, "params", transposed, transposed, init=self.is_initializing(), mutable=True)
        lifted = lambda layer: getattr(nn, self.transform)(layer, variable_axes={"params": 0}, split_rngs={"params": True}, **self.options())
        layer = (lifted(mapped(Step)) if self.inside else mapped(lifted(Step)))(name="stack")
        return layer(x, None)[0] if self.transform == "scan" else layer(jnp.stack([x, x + 1, 2 * x]))[0]

    def options(self):
        return {"length": 3} if self.transform == "scan" else {}


# map_variables in map_variables applies the inner function to initial values twice: here one map that is both makes them.
INIT = {"nested": lambda: Mapped(DenseOf, tree(lambda w: 2 * w + 1, "kernel"), tree(lambda w: (w - 1) / 2, "kernel"))}
CASES = {
    "upper": lambda: Mapped(DenseOf, tree(jnp.triu, "kernel")),
    "transposed": lambda: Mapped(DenseOf, tree(jnp.transpose, "kernel"), tree(jnp.transpose, "kernel")),
    "signs": lambda: Mapped(DenseOf, tree(signs)),
    "standardized": lambda: Mapped(DenseOf, tree(standardized, "kernel")),
    "flat": lambda: Mapped(DenseOf, tree(lambda w: w.reshape(4, 3), "kernel"), tree(lambda w: w.reshape(-1), "kernel")),
    "halved_state": lambda: Mapped(Average, tree(lambda v: 2 * v, "mean"), tree(lambda v: v / 2, "mean"), ["params", "batch_stats"]),
    "everything": lambda: Mapped(Average, tree(lambda v: 2 * v), tree(lambda v: v // 2 if v.dtype == jnp.int32 else v / 2), ["params", "batch_stats"]),
    "nested": lambda: Mapped(
        nn.map_variables(DenseOf, "params", tree(lambda w: w + 1, "kernel"), tree(lambda w: w - 1, "kernel"), mutable=True),
        tree(lambda w: 2 * w, "kernel"),
        tree(lambda w: w / 2, "kernel"),
    ),
    "autoencoder": Autoencoder,
    "tied": Tied,
    "low_rank": LowRank,
    "scan_of_mapped": lambda: Lifted("scan", True),
    "mapped_scan": lambda: Lifted("scan", False),
    "vmap_of_mapped": lambda: Lifted("vmap", True),
    "mapped_vmap": lambda: Lifted("vmap", False),
}


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_views.txt")
    with open(path, "w", encoding="utf-8") as file:

        def write(name, what, value):
            value = np.asarray(value)
            text = (f"{v:08x}" if value.dtype == np.uint32 else f"{v:.8g}" for v in value.reshape(-1))
            file.write(f"{name} {what} {shape_text(value)} " + " ".join(text) + "\n")

        def write_tree(name, what, tree, words=False):
            for key, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
                value = np.asarray(value, np.float32)
                write(name, f"{what}/{key}", value.view(np.uint32) if words else value)

        for name, make in CASES.items():
            x = inputs(2, 4)
            model = make()
            state = INIT.get(name, make)().init({"params": jax.random.PRNGKey(SEED)}, x)
            params = state.pop("params")
            write_tree(name, "param", params, words=True)

            def loss(p, s, x):
                y, s = model.apply({"params": p, **s}, x, mutable=list(s))
                return jnp.sum(y * inputs(*y.shape)), (y, s)

            for _ in range(2):
                (_, (y, state)), grads = jax.value_and_grad(loss, argnums=(0, 2), has_aux=True)(params, state, x)
            write(name, "output", y)
            write(name, "input", grads[1])
            write_tree(name, "grad", grads[0])
            write_tree(name, "state", state)


if __name__ == "__main__":
    main()
