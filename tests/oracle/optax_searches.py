"""Writes golden/optax_searches.txt: parameters after some steps of Optax's L-BFGS and of private gradients, a line each:

    name dtype parameter values...

Parameters are those of optax_trajectories.py. L-BFGS minimises the sum of a_i x_i^2 / 2 + x_i^4 / 4, a_i = 1 + i mod 4 with i the element
of each parameter, and 0.05 (sum of all x)^2. Lines "calls" have the calls of the function in each step behind the first one. The
gradients of EXAMPLES examples at step s are ((7919 i + 31 j + 17 s) mod 257 - 128) / 64, where i counts the elements of all examples.
Run: python tests/oracle/optax_searches.py
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

SHAPES = {"b": (7,), "k": (6, 4), "w": (4, 6)}
EXAMPLES = 5


def values(shape, parameter, step, dtype):
    i = np.arange(np.prod(shape, dtype=int))
    return jnp.asarray((((7919 * i + 31 * parameter + 17 * step) % 257 - 128) / 64).reshape(shape), dtype)


def tree(step, dtype, front=()):
    return {name: values(front + shape, j, step, dtype) for j, (name, shape) in enumerate(SHAPES.items())}


def function(params):
    total, everything = 0, 0
    for x in params.values():
        a = (1 + np.arange(x.size) % 4).reshape(x.shape).astype(x.dtype)
        total = total + jnp.sum(a * x**2 / 2 + x**4 / 4)
        everything = everything + jnp.sum(x)
    return total + 0.05 * everything**2


def search(**options):
    return optax.scale_by_zoom_linesearch(max_linesearch_steps=20, **options)


SEARCHES = {
    "lbfgs": (optax.lbfgs(), 6),
    "lbfgs_short": (optax.lbfgs(memory_size=2, scale_init_precond=False, linesearch=search(
        initial_guess_strategy="keep", curv_rtol=0.05)), 6),
    "lbfgs_most": (optax.lbfgs(linesearch=search(max_learning_rate=0.3, approx_dec_rtol=None)), 5),
    "gradient_search": (optax.chain(optax.scale(-1.0), search(curv_rtol=0.02)), 5),
}
FIXED = {"lbfgs_fixed": (optax.lbfgs(0.3, memory_size=3, linesearch=None), 20)}
PRIVATE = {
    "private": optax.chain(optax.contrib.differentially_private_aggregate(2.0, 0.5, 42), optax.sgd(0.1, momentum=0.9)),
    "private_clip": optax.chain(optax.contrib.differentially_private_aggregate(3.0, 0.0, 1), optax.sgd(0.1)),
}


def emit(lines, name, dtype, params):
    for parameter, array in params.items():
        assert array.dtype == {"f32": jnp.float32, "f64": jnp.float64}[dtype]
        lines.append(" ".join([name, dtype, parameter] + [repr(float(x)) for x in np.ravel(array)]))


def main():
    lines = []
    for dtype, kind in (("f32", jnp.float32), ("f64", jnp.float64)):
        for name, (optimiser, steps) in {**SEARCHES, **FIXED}.items():
            params, calls = tree(1000, kind), []
            state = optimiser.init(params)
            gradient = jax.jit(jax.value_and_grad(function))
            update = jax.jit(lambda g, s, p, v: optimiser.update(g, s, p, value=v, grad=g, value_fn=function))
            if name in FIXED:
                update = jax.jit(lambda g, s, p, v: optimiser.update(g, s, p))
            for _ in range(steps):
                value, grad = gradient(params)
                updates, state = update(grad, state, params, value)
                params = optax.apply_updates(params, updates)
                if name not in FIXED:
                    calls.append(int(state[-1].info.num_linesearch_steps))
            emit(lines, name, dtype, params)
            if calls:
                lines.append(" ".join(["calls_" + name, dtype, "-"] + [str(n) for n in calls]))
        for name, optimiser in PRIVATE.items():
            params = tree(1000, kind)
            state = optimiser.init(params)
            for step in range(4):
                updates, state = optimiser.update(tree(step, kind, (EXAMPLES,)), state, params)
                params = optax.apply_updates(params, updates)
            emit(lines, name, dtype, params)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "optax_searches.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
