"""Writes examples/seeds/golden: inputs and expected results of the programs in examples/seeds, computed with JAX and Flax.

    pip install jax==0.10.2 flax==0.12.8; python tests/oracle/seeds_golden.py

Residual lists are JAX's own, in Tow's words: JAX pins a saved product with reduce_precision, Tow saves the dot_general
itself; the derivative of d**2 keeps 2*d in JAX (mul) and d in Tow (sub).
"""

import pathlib
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.ad_checkpoint import saved_residuals
from jax.ad_checkpoint import checkpoint_name

golden = pathlib.Path(__file__).parents[2] / "examples" / "seeds" / "golden"
policies = jax.checkpoint_policies
TYPES = {"float32": "f32"}
WORDS = {"reduce_precision": "dot_general", "mul": "sub"}


def residual_lines(title, f, *args):
    lines = []
    for aval, label in saved_residuals(f, *args):
        label = re.sub(r" from /.*", "", label)
        label = re.sub(r"output of (\w+)", lambda m: "output of " + WORDS.get(m[1], m[1]), label)
        lines.append(f"{TYPES[str(aval.dtype)]}[{','.join(map(str, aval.shape))}] {label}")
    return [f"# {title}", *lines]


def write(name, lines):
    (golden / name).write_text("\n".join(lines) + "\n")


def numbers(values):
    return [f"{float(v):.9g}" for v in np.asarray(values).ravel()]


# ---- nn_remat_policy ------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.features)(x))
        x = nn.relu(nn.Dense(self.features)(x))
        return nn.Dense(self.features)(x)


def nn_remat_policy(seed, x, features):
    model = nn.remat(MLP, policy=policies.dots_with_no_batch_dims_saveable)(features=features)
    return model.apply(model.init(jax.random.PRNGKey(seed), x), x).reshape(-1)


# ---- checkpoint_dot_policy -------------------------------------------------------------------------------------------


@jax.checkpoint
def pipeline(w1, w2, x):
    return jnp.sum((jax.nn.relu(x @ w1) @ w2) ** 2)


# ---- compute_block ---------------------------------------------------------------------------------------------------


def compute_block_loss(seed, batch, input_dim, hidden_dim, output_dim):
    _, kx, k1, k2, kt = jax.random.split(jax.random.PRNGKey(seed), 5)
    x = jax.random.normal(kx, (batch, input_dim))
    w1 = jax.random.normal(k1, (input_dim, hidden_dim)) * 0.02
    w2 = jax.random.normal(k2, (hidden_dim, output_dim)) * 0.02
    targets = jax.random.normal(kt, (batch, output_dim))
    return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - targets) ** 2)


# ---- checkpoint_notebook ---------------------------------------------------------------------------------------------


def g(W, x):
    return jnp.sin(jnp.dot(W, x))


def f(W1, W2, W3, x):
    return g(W3, g(W2, g(W1, x)))


def f2(W1, W2, W3, x):
    c = jax.checkpoint(g)
    return c(W3, c(W2, c(W1, x)))


def f_named(W1, W2, W3, x):
    x = checkpoint_name(g(W1, x), "a")
    x = checkpoint_name(g(W2, x), "b")
    return checkpoint_name(g(W3, x), "c")


def loss(params, x, y):
    for W in params[:-1]:
        x = jnp.sin(jnp.dot(W, x))
    return jnp.sum((jnp.dot(params[-1], x) - y) ** 2)


def loss_named(params, x, y):
    for i, W in enumerate(params[:-1]):
        x = checkpoint_name(jnp.sin(jnp.dot(W, x)), f"layer{i}_output")
    return jnp.sum((jnp.dot(params[-1], x) - y) ** 2)


def chain(n):
    def run(x):
        for _ in range(n):
            x = jnp.sin(x)
        return x

    return run


def recursive(n):
    if n <= 2:
        return chain(n)
    f1, f2 = recursive(n // 2), recursive(n - n // 2)
    return lambda x: f1(jax.checkpoint(f2)(x))


def notebook():
    four = (jnp.ones((5, 4)), jnp.ones((6, 5)), jnp.ones((7, 6)), jnp.ones(4))
    args = ([jnp.ones((4, 4))] * 3, jnp.ones(4), jnp.ones(4))
    dots = policies.dots_with_no_batch_dims_saveable
    lists = [
        ("f", f, four),
        ("f2: each layer checkpointed", f2, four),
        ("f3: dots_with_no_batch_dims_saveable", jax.checkpoint(f, policy=dots), four),
        ("f4: save_only_these_names a", jax.checkpoint(f_named, policy=policies.save_only_these_names("a")), four),
        ("loss", loss, args),
        ("loss, dots_with_no_batch_dims_saveable", jax.checkpoint(loss, policy=dots), args),
        ("loss with names", loss_named, args),
        ("loss with names, save_any_names_but_these layer1_output",
         jax.checkpoint(loss_named, policy=policies.save_any_names_but_these("layer1_output")), args),
        ("chain of 8", chain(8), (3.0,)),
        ("chain of 16", chain(16), (3.0,)),
        ("recursive checkpoints of 8", recursive(8), (3.0,)),
        ("recursive checkpoints of 16", recursive(16), (3.0,)),
    ]
    return [line for title, function, a in lists for line in residual_lines(title, function, *a)]


# ---- remat_changes ---------------------------------------------------------------------------------------------------


def predict(W1, W2, W3, x):
    return jnp.dot(W3, g(W2, g(W1, x)))


def scaled_constant(n):
    return lambda x: jnp.sum(jnp.cos(jnp.arange(n, dtype=jnp.float32)) * x)


def remat_changes(n):
    args = (jnp.ones((4, 4)), jnp.ones((4, 4)), jnp.ones((4, 4)), jnp.ones(4))
    two = jnp.float32(2)
    remat = jax.checkpoint(scaled_constant(n))
    lines = residual_lines("predict", predict, *args)
    lines += residual_lines("predict, checkpoint_dots", jax.checkpoint(predict, policy=policies.checkpoint_dots), *args)
    lines += residual_lines("a constant", scaled_constant(n), two)
    lines += residual_lines("a constant, checkpointed", remat, two)
    lines += [f"gradient {numbers(jax.grad(scaled_constant(n))(two))[0]}"]
    lines += [f"gradient, checkpointed {numbers(jax.grad(remat)(two))[0]}"]
    for is_training, foo in (("false", jnp.tanh), ("true", lambda x: x * jnp.tanh(x))):
        lines += [f"foo(x, is_training={is_training}): gradient at 2 is {numbers(jax.grad(jax.checkpoint(foo))(two))[0]}"]
    return lines


def main():
    golden.mkdir(exist_ok=True)
    keys = jax.random.split(jax.random.PRNGKey(5), 4)
    vector = jax.random.normal(keys[0], (12,))
    w1, w2, x = (jax.random.normal(k, s) for k, s in zip(keys[1:], ((6, 6), (6, 6), (9, 6))))
    for name, array in (("vector", vector), ("w1", w1), ("w2", w2), ("x", x)):
        np.save(golden / f"{name}.npy", np.asarray(array))
    write("nn_remat_policy.txt", numbers(nn_remat_policy(7, vector, 16)))
    write("checkpoint_dot_policy.txt", numbers(pipeline(w1, w2, x)))
    write("compute_block.txt", [f"{kind} Loss: {numbers(compute_block_loss(42, 8, 32, 64, 16))[0]}" for kind in ("Standard", "Checkpointed")]
          + [f"Max absolute difference W{i}: 0" for i in (1, 2)])
    write("checkpoint_notebook.txt", notebook())
    write("remat_changes.txt", remat_changes(1000))


if __name__ == "__main__":
    main()
