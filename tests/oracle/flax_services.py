"""Writes golden/flax_services.txt: what modules of Flax do inside of themselves, one line each:

    case what shape values...

what: param/PATH (of PRNGKey(5)), output/I, grad/PATH (of the sum of all outputs times exact fractions), and collection/PATH for what
is sown, captured and perturbed, or gradients of it. Run: python tests/oracle/flax_services.py
"""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from flax_models import inputs, shape_text

jax.config.update("jax_default_matmul_precision", "highest")


class Choice(nn.Module):
    """A choice and a loop in the module's own scope: they add no level to paths."""

    chosen: bool

    @nn.compact
    def __call__(self, x):
        deep = lambda m, x: jnp.tanh(nn.Dense(4, name="deep", bias_init=nn.initializers.normal(0.5))(x))
        flat = lambda m, x: nn.Dense(4, name="flat")(x)
        step = lambda m, c: (c[0] + 1, jnp.tanh(nn.Dense(4, name="step")(c[1])))
        if self.is_initializing():
            deep(self, x)
            flat(self, x)
            return step(self, (0, x))[1]
        y = nn.cond(self.chosen, deep, flat, self, x)
        index = jnp.int32(1) if self.chosen else jnp.int32(0)
        y = y + nn.switch(index, [flat, deep], self, x)
        return nn.while_loop(lambda m, c: c[0] < 3, step, self, (0, y))[1]


class Losses(nn.Module):
    """Sown values that one reduction makes together, in a remat as well."""

    @nn.compact
    def __call__(self, x):
        def add(m, h):
            m.sow("losses", "square", jnp.sum(h * h), init_fn=lambda: 1.0, reduce_fn=lambda a, b: a + 0.5 * b)
            return jnp.tanh(nn.Dense(4, name="dense")(h))

        y = add(self, x)
        y = nn.remat(add)(self, y)
        self.sow("losses", "largest", jnp.max(y), init_fn=lambda: -1.0, reduce_fn=jnp.maximum)
        self.sow("losses", "largest", jnp.max(x), init_fn=lambda: -1.0, reduce_fn=jnp.maximum)
        return y


class Perturbed(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = self.perturb("hidden", nn.Dense(3, name="first")(x))
        return self.perturb("result", nn.Dense(2, name="second")(jnp.tanh(h)))


class Inner(nn.Module):
    @nn.compact
    def __call__(self, x):
        return jnp.tanh(nn.Dense(4, name="dense", bias_init=nn.initializers.normal(0.5))(x))


class Pullback(nn.Module):
    """Cotangents of parameters inside of a module."""

    def setup(self):
        self.inner = Inner()

    def __call__(self, x):
        if self.is_initializing():
            return self.inner(x)
        y, back = nn.vjp(lambda m, x: m.inner(x), self, x)
        params, dx = back(inputs(*y.shape))
        dense = params["params"]["inner"]["dense"]
        return y, dx, dense["kernel"], dense["bias"]


class Energy(nn.Module):
    """value_and_grad with respect to parameters: as the pullback of 1."""

    def setup(self):
        self.inner = Inner()

    def __call__(self, x):
        if self.is_initializing():
            return self.inner(x)
        y, back = nn.vjp(lambda m, x: jnp.sum(m.inner(x) ** 2), self, x)
        params, dx = back(jnp.float32(1))
        dense = params["params"]["inner"]["dense"]
        return y, dx, dense["bias"], dense["kernel"]


class Pushforward(nn.Module):
    def setup(self):
        self.inner = Inner()

    def __call__(self, x):
        if self.is_initializing():
            return self.inner(x)
        zero = jnp.zeros(4)
        tangents = {"params": {"inner": {"dense": {"kernel": inputs(4, 4), "bias": zero}}}}
        return nn.jvp(lambda m, x: m.inner(x), self, (x,), (0.5 * x,), tangents)


class Coder(nn.Module):
    def setup(self):
        self.dense = nn.Dense(4)

    def encode(self, x):
        return jnp.tanh(self.dense(x))

    def __call__(self, x):
        return self.encode(x) + x


class Outer(nn.Module):
    @nn.compact
    def __call__(self, x):
        coder = Coder(name="coder")
        return coder.encode(coder(x))


def loss(outputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return sum(jnp.sum(y * inputs(*y.shape)) for y in outputs), outputs


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "flax_services.txt")
    key, x = jax.random.PRNGKey(5), inputs(2, 4)
    with open(path, "w", encoding="utf-8") as file:

        def write(case, what, value):
            value = np.asarray(value, np.float32)
            text = " ".join(f"{float(v):.9g}" for v in value.reshape(-1))
            file.write(f"{case} {what} {shape_text(value)} {text}\n")

        def write_tree(case, prefix, tree):
            for name, value in flax.traverse_util.flatten_dict(tree, sep="/").items():
                for i, v in enumerate(value if isinstance(value, tuple) else (value,)):
                    write(case, f"{prefix}/{name}" + (f"/{i}" if isinstance(value, tuple) else ""), v)

        def differentiated(case, module, params):
            grads, outputs = jax.grad(lambda p: loss(module.apply({"params": p}, x)), has_aux=True)(params)
            write_tree(case, "param", params)
            for i, y in enumerate(outputs):
                write(case, f"output/{i}", y)
            write_tree(case, "grad", grads)

        params = Choice(True).init(key, x)["params"]
        for chosen in (True, False):
            module = Choice(chosen)
            case = "deep" if chosen else "flat"
            write_tree(case, "param", params)
            write(case, "output/0", module.apply({"params": params}, x))
        for case, module in {"vjp": Pullback(), "value_and_grad": Energy(), "jvp": Pushforward()}.items():
            differentiated(case, module, module.init(key, x)["params"])

        params = Losses().init(key, x)["params"]
        y, sown = Losses().apply({"params": params}, x, mutable=["losses"])
        write("sow", "output/0", y)
        write_tree("sow", "losses", sown["losses"])

        variables = Perturbed().init(key, x)
        variables = {"params": variables["params"], "perturbations": jax.tree.map(lambda v: v + 0.25, variables["perturbations"])}
        grads, outputs = jax.grad(lambda v: loss(Perturbed().apply(v, x)), has_aux=True)(variables)
        write("perturb", "output/0", outputs[0])
        write_tree("perturb", "perturbations", grads["perturbations"])
        write("perturb_absent", "output/0", Perturbed().apply({"params": variables["params"]}, x))

        params = Outer().init(key, x)["params"]
        _, captured = Outer().apply({"params": params}, x, capture_intermediates=lambda m, name: m.name == "coder" and name == "encode")
        write_tree("capture", "intermediates", captured["intermediates"])


if __name__ == "__main__":
    main()
