"""Writes golden/optax.txt: parameters after 20 steps of Optax's optimisers, a line each:

    name dtype parameter values...

Parameters w [4,6], b [7] and k [6,4] begin with ((7919 i + 31 j + 17000) mod 257 - 128) / 64, where i is the element and j the
number of the parameter; the gradient of step s is ((7919 i + 31 j + 17 s) mod 257 - 128) / 64. Lines "schedule name -" have the values of a schedule at steps 0 to 14.
Lines of f64 come from JAX with
64-bit types. Run: python tests/oracle/optax_trajectories.py
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")

SHAPES = {"b": (7,), "k": (6, 4), "w": (4, 6)}
STEPS = 20
RATE = 0.01


def values(shape, parameter, step, dtype):
    i = np.arange(np.prod(shape, dtype=int))
    return jnp.asarray((((7919 * i + 31 * parameter + 17 * step) % 257 - 128) / 64).reshape(shape), dtype)


def tree(step, dtype):
    return {name: values(shape, j, step, dtype) for j, (name, shape) in enumerate(SHAPES.items())}


OPTIMISERS = {
    "sgd": optax.sgd(RATE),
    "momentum": optax.sgd(RATE, momentum=0.9),
    "nesterov": optax.sgd(RATE, momentum=0.9, nesterov=True),
    "adagrad": optax.adagrad(RATE),
    "rmsprop": optax.rmsprop(RATE),
    "rmsprop_outside": optax.rmsprop(RATE, eps_in_sqrt=False, initial_scale=1.0),
    "rmsprop_centered": optax.rmsprop(RATE, centered=True, initial_scale=1.0),
    "rmsprop_corrected": optax.rmsprop(RATE, bias_correction=True),
    "rmsprop_momentum": optax.rmsprop(RATE, momentum=0.9),
    "adam": optax.adam(RATE),
    "nadam": optax.nadam(RATE),
    "adamw": optax.adamw(RATE, weight_decay=0.1),
    "amsgrad": optax.amsgrad(RATE),
    "lion": optax.lion(RATE, weight_decay=0.1),
    "lamb": optax.lamb(RATE, weight_decay=0.1),
    "adafactor": optax.adafactor(RATE, min_dim_size_to_factor=4, momentum=0.9, weight_decay_rate=0.01),
    "adafactor_whole": optax.adafactor(RATE, factored=False),
    "muon": optax.contrib.muon(RATE, weight_decay=0.1),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.clip(0.25), optax.sgd(RATE)),
    "ema": optax.chain(optax.ema(0.9, debias=False), optax.scale(-RATE)),
    "ema_debiased": optax.chain(optax.ema(0.9), optax.scale(-RATE)),
    "adam_no_momentum": optax.adam(RATE, b1=0.0),
}


SCHEDULES = {
    "linear": optax.linear_schedule(1.0, 0.1, 6, 3),
    "polynomial": optax.polynomial_schedule(1.0, 0.1, 2.5, 9, 2),
    "exponential": optax.exponential_decay(0.5, 4, 0.3, 2),
    "staircase": optax.exponential_decay(0.5, 4, 0.3, 2, staircase=True),
    "cosine": optax.cosine_decay_schedule(0.5, 9, 0.1, 1.5),
    "piecewise": optax.piecewise_constant_schedule(2.0, {3: 0.5, 4: 0.1, 9: 3.0}),
    "linear_onecycle": optax.linear_onecycle_schedule(11, 0.7),
    "cosine_onecycle": optax.cosine_onecycle_schedule(11, 0.7),
    "restarts": optax.sgdr_schedule(
        [dict(init_value=0.1, peak_value=1.0, decay_steps=6, warmup_steps=2, end_value=0.2),
         dict(init_value=0.2, peak_value=0.6, decay_steps=5, warmup_steps=1, end_value=0.0)]),
    "joined_backwards": optax.join_schedules(
        [optax.linear_schedule(0.0, 1.0, 3), optax.constant_schedule(7.0),
         optax.exponential_decay(1.0, 2, 0.5, staircase=True)], [9, 4]),
}


def main():
    lines = []
    for name, optimiser in OPTIMISERS.items():
        for dtype in ("f32", "f64"):
            kind = {"f32": jnp.float32, "f64": jnp.float64}[dtype]
            params = tree(1000, kind)
            state = optimiser.init(params)
            for step in range(STEPS):
                updates, state = optimiser.update(tree(step, kind), state, params)
                params = optax.apply_updates(params, updates)
            for parameter, array in params.items():
                assert array.dtype == kind
                lines.append(" ".join([name, dtype, parameter] + [repr(float(x)) for x in np.ravel(array)]))
    for name, schedule in SCHEDULES.items():
        lines.append(" ".join(["schedule", name, "-"] + [repr(float(schedule(step))) for step in range(15)]))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "optax.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
