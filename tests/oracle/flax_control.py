"""Writes golden/flax_control.txt: lifted cond, switch and while_loop as Flax runs them, one line each, in the form of flax_lift.py:

    case what shape values...

The second of two calls, keys of PRNGKey(3) and noise of PRNGKey(5). The index of a choice is a counter of calls plus a number, or the
sign of an input. Gradients of loops are those of forward mode, as JAX does not reverse a while_loop. While parameters are initialised,
every branch, or the body, is called once, as Flax's documentation says.
Run: python tests/oracle/flax_control.py
"""

import os

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_lift import Cell, SEED
from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")
ALL = {"params": 0, "batch_stats": 0, "counters": 0, "steps": 0}
SPLIT = {"params": True, "noise": True}


# ---- choices


class Named(nn.Module):
    """One of n cells, each with parameters of its own."""

    n: int = 2

    def setup(self):
        self.a, self.b, self.c = Cell(), Cell(), Cell()

    def __call__(self, index, x):
        branches = [lambda m, x: m.a(x), lambda m, x: m.b(x), lambda m, x: m.c(x)][: self.n]
        if self.is_initializing():
            return [branch(self, x) for branch in branches][0]
        return nn.cond(index, *branches, self, x) if self.n == 2 else nn.switch(index, branches, self, x)


class Shared(nn.Module):
    """One cell, called in two ways: parameters, variables and the counter of its keys are one."""

    def setup(self):
        self.a = Cell()

    def __call__(self, index, x):
        plain, negated = lambda m, x: m.a(x), lambda m, x: m.a(-x)
        if self.is_initializing():
            return [plain(self, x), negated(self, x)][0]
        return nn.cond(index, plain, negated, self, x)


class Own(nn.Module):
    """Branches with parameters in the scope of the choice."""

    @nn.compact
    def __call__(self, index, x):
        def kernel(m, x, name="kernel"):
            w = m.param(name, nn.initializers.lecun_normal(), (x.shape[-1], x.shape[-1]))
            y = jnp.tanh(x @ w)
            return y, (2 * y, m.make_rng("noise"))

        def gain(m, x):
            g = m.param("gain", nn.initializers.normal(0.5), x.shape[-1:])
            y, (ys, key) = kernel(m, x * g, "other")
            return y, (ys, m.make_rng("noise"))

        if self.is_initializing():
            return [kernel(self, x), gain(self, x)][0]
        return nn.cond(index, kernel, gain, self, x)


class Norm(nn.Module):
    """A BatchNorm or a Dropout."""

    def setup(self):
        self.norm = nn.BatchNorm(use_running_average=False)
        self.drop = nn.Dropout(0.5, deterministic=False, rng_collection="noise")

    def __call__(self, index, x):
        norm, drop = lambda m, x: m.norm(x), lambda m, x: m.drop(x)
        if self.is_initializing():
            return [norm(self, x), drop(self, x)][0]
        return nn.cond(index, norm, drop, self, x)


class Chooser(nn.Module):
    """Calls "choice" with an index: steps + first, or whether the first element of x is positive."""

    choice: type
    options: dict
    first: int = 0
    by_sign: bool = False

    @nn.compact
    def __call__(self, x):
        step = self.variable("steps", "step", jnp.zeros, (), jnp.int32)
        index = (x[0, 0] > 0).astype(jnp.int32) if self.by_sign else step.value + self.first
        if not self.is_initializing():
            step.value += 1
        return self.choice(name="choice", **self.options)(index, x)


# ---- loops


class Loop(nn.Module):
    """Calls a cell while the counter i is below a limit, and adds noise to what it gives."""

    carried: object = ("counters", "batch_stats")
    split: bool = True
    limit: str = "counter"

    def setup(self):
        self.cell = Cell() if self.carried else nn.Dense(4)

    def __call__(self, x):
        def body(m, carry):
            x, ys, _, i = carry
            if self.carried:
                y, (ys, key) = m.cell(x)
            else:
                y = jnp.tanh(m.cell(x))
                ys, key = 2 * y, m.make_rng("noise")
            return y + (key[0] >> 24).astype(jnp.float32) / 256, ys, key, i + 1

        def condition(m, carry):
            x, ys, key, i = carry
            if self.limit == "counter":  # what the body wrote
                return (i < 6) & (m.get_variable("counters", "n")[0] < 10)
            if self.limit == "key":
                return i < 2 + (m.make_rng("noise")[0] & 3).astype(jnp.int32)
            if self.limit == "sign":
                return i < 2 + 2 * (x[0, 0] > 0.5).astype(jnp.int32)
            return i < (0 if self.limit == "none" else 4)

        def counting(m, carry):
            if self.limit == "counter" and not m.is_initializing():
                m.put_variable("counters", "n", m.get_variable("counters", "n") + 1)
            return body(m, carry)

        carry = (x, jnp.zeros_like(x), jnp.zeros((2,), jnp.uint32), jnp.zeros((), jnp.int32))
        if self.is_initializing():
            if self.limit == "counter":
                self.put_variable("counters", "n", jnp.zeros((1,), jnp.int32))
            y, ys, key, i = counting(self, carry)
        else:
            y, ys, key, i = nn.while_loop(
                condition, counting, self, carry, carry_variables=self.carried, split_rngs={"noise": self.split}
            )
        return y, (ys, key)


# ---- cases


class Stack(nn.Module):
    make: object

    @nn.compact
    def __call__(self, x):
        return self.make()(x)


def choose(choice, first=0, lift=lambda m: m, by_sign=False, **options):
    return lambda: lift(Chooser)(choice, options, first, by_sign, name="stack")


def loop(lift=lambda m: m, **options):
    return lambda: lift(Loop)(name="stack", **options)


def scan(length, **options):
    return lambda m: nn.scan(m, **({"variable_axes": ALL, "split_rngs": SPLIT, "length": length} | options))


def vmap(m):
    return nn.vmap(m, variable_axes=ALL, split_rngs=SPLIT)


X3 = (3, 2, 4)
CASES = {
    "cond_yes": (choose(Named), (2, 4)),  # no, then yes
    "cond_no": (choose(Named, -1), (2, 4)),
    "switch": (choose(Named, n=3), (2, 4)),
    "switch_last": (choose(Named, 1, n=3), (2, 4)),
    "switch_above": (choose(Named, 2, n=3), (2, 4)),
    "switch_below": (choose(Named, -2, n=3), (2, 4)),
    "switch_one": (choose(Named, n=1), (2, 4)),
    "shared_yes": (choose(Shared), (2, 4)),
    "shared_no": (choose(Shared, -1), (2, 4)),
    "own_yes": (choose(Own), (2, 4)),
    "own_no": (choose(Own, -1), (2, 4)),
    "norm": (choose(Norm), (2, 4)),
    "drop": (choose(Norm, -1), (2, 4)),
    "cond_remat": (choose(Named, lift=nn.remat), (2, 4)),
    "switch_scan": (choose(Named, n=3, lift=scan(3, variable_axes={k: 0 for k in ALL if k != "steps"}, variable_carry="steps")), (2, 4)),
    "cond_vmap": (choose(Named, lift=vmap, by_sign=True), X3),
    "while": (loop(), (2, 4)),
    "while_same_noise": (loop(split=False), (2, 4)),
    "while_broadcast": (loop(carried=False, limit="number"), (2, 4)),
    "while_none": (loop(limit="none"), (2, 4)),
    "while_key": (loop(limit="key"), (2, 4)),
    "while_key_same": (loop(limit="key", split=False), (2, 4)),
    "while_remat": (loop(nn.remat), (2, 4)),
    "while_scan": (loop(scan(2), limit="key"), (2, 4)),
    "while_vmap": (loop(vmap, limit="sign"), X3),
}


def write_cases(golden, cases):
    """What two calls of each model give."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", golden)
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

        for name, (make, x_shape) in cases.items():
            x = inputs(*x_shape)
            keys = {"params": jax.random.PRNGKey(SEED), "noise": jax.random.PRNGKey(5)}
            start = choose(Named, n=3, lift=scan(3)) if name == "switch_scan" else make
            state = Stack(start).init(keys, x)
            params = state.pop("params")
            if name == "switch_scan":
                state["steps"] = jax.tree.map(lambda v: v[0], state["steps"])
            write_tree(name, "param", params, words=True)

            def loss(p, x, s):
                out, s = Stack(make).apply({"params": p, **s}, x, rngs={"noise": keys["noise"]}, mutable=list(s))
                y, (ys, key) = out if isinstance(out, tuple) else (out, (None, None))
                more = 0 if ys is None else jnp.sum(ys * inputs(*ys.shape))
                return jnp.sum(y * inputs(*y.shape)) + more, (y, ys, key, s)

            differentiate = jax.jacfwd if name.startswith("while") else jax.grad
            for _ in range(2):
                grads, (y, ys, key, state) = differentiate(loss, argnums=(0, 1), has_aux=True)(params, x, state)
            write(name, "output", y)
            if ys is not None:
                write(name, "ys0", ys)
                write(name, "keys", key)
            write(name, "input", grads[1])
            write_tree(name, "grad", grads[0])
            write_tree(name, "state", state)


if __name__ == "__main__":
    write_cases("flax_control.txt", CASES)
