"""Writes golden/optax.txt: parameters after 20 steps of Optax's optimisers, a line each:

    name dtype parameter values...

Parameters w [4,6], b [7] and k [6,4] begin with ((7919 i + 31 j + 17000) mod 257 - 128) / 64, where i is the element and j the
number of the parameter; the gradient of step s is ((7919 i + 31 j + 17 s) mod 257 - 128) / 64. Lines "schedule name -" have the values of a schedule at steps 0 to 14.
Lines of f64 come from JAX with
64-bit types. Transforms that take the loss get ((7919 s + 13) mod 257) / 64. Run: python tests/oracle/optax_trajectories.py
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
    "adam_eps_root": optax.adam(RATE, eps_root=0.25),
    "adam_mu_dtype": optax.adam(RATE, mu_dtype=jnp.bfloat16),
    "nadam_mu_dtype": optax.nadam(RATE, mu_dtype=jnp.float32),
    "amsgrad_eps_root": optax.amsgrad(RATE, eps_root=0.25, mu_dtype=jnp.float32),
    "lion_mu_dtype": optax.lion(RATE, mu_dtype=jnp.bfloat16),
    "adabelief": optax.adabelief(RATE),
    "adabelief_nesterov": optax.adabelief(RATE, nesterov=True, eps=1e-3, eps_root=1e-4),
    "yogi": optax.yogi(RATE),
    "adamax": optax.adamax(RATE),
    "adamaxw": optax.adamaxw(RATE, weight_decay=0.1),
    "adadelta": optax.adadelta(1.0, weight_decay=0.1),
    "radam": optax.radam(RATE),
    "radam_nesterov": optax.radam(RATE, b2=0.9, threshold=4.5, eps_root=1e-3, nesterov=True),
    "sign_sgd": optax.sign_sgd(RATE),
    "centralize": optax.chain(optax.centralize(), optax.sgd(RATE)),
    "adaptive_grad_clip": optax.chain(optax.adaptive_grad_clip(0.5), optax.sgd(RATE)),
    "adaptive_grad_clip_axis": optax.chain(optax.adaptive_grad_clip(0.25, eps=2.0, axis=-1), optax.sgd(RATE)),
    "normalize": optax.chain(optax.contrib.normalize(), optax.sgd(RATE)),
    "injected_adamw": optax.inject_hyperparams(optax.adamw)(
        RATE, b1=optax.linear_schedule(0.5, 0.9, 10), b2=optax.linear_schedule(0.9, 0.999, 15), eps=1e-3,
        weight_decay=optax.exponential_decay(0.2, 4, 0.5)),
    "injected_momentum": optax.inject_hyperparams(optax.sgd)(
        optax.linear_schedule(0.02, 0.001, 20), momentum=optax.linear_schedule(0.5, 0.95, 12), nesterov=True),
    "sam": optax.contrib.sam(optax.adam(RATE), optax.chain(optax.contrib.normalize(), optax.sgd(0.5)), sync_period=2),
    "sam_long": optax.contrib.sam(
        optax.adamw(RATE, weight_decay=0.1), optax.chain(optax.contrib.normalize(), optax.sgd(0.5, momentum=0.5)),
        sync_period=3, reset_state=False),
    "polyak_sgd": optax.polyak_sgd(0.05, f_min=0.5),
    "polyak_sgd_plus": optax.polyak_sgd(10.0, f_min=2.0, eps=1e-2, variant="sps+"),
    "reduce_on_plateau": optax.chain(
        optax.adam(RATE), optax.contrib.reduce_on_plateau(factor=0.5, patience=2, cooldown=3, rtol=0.05)),
    "reduce_on_plateau_mean": optax.chain(
        optax.sgd(RATE), optax.contrib.reduce_on_plateau(factor=0.5, patience=1, accumulation_size=3, min_scale=0.2)),
    "schedule_free_sgd": optax.contrib.schedule_free_sgd(RATE, warmup_steps=5),
    "schedule_free_adamw": optax.contrib.schedule_free_adamw(
        RATE, warmup_steps=5, weight_decay=0.1, b1=0.8, weight_lr_power=1.0),
    "lookahead": optax.lookahead(optax.adam(RATE), 6, 0.25),
    "lookahead_reset": optax.lookahead(optax.adam(RATE), 5, 0.5, reset_state=True),
}


def loss(step):
    """What transforms that take the loss are given."""
    return ((7919 * step + 13) % 257) / 64


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
            if dtype == "f64" and name in ("adam_mu_dtype", "lion_mu_dtype"):
                continue  # XLA rounds f64 to bf16 twice, by way of f32
            kind = {"f32": jnp.float32, "f64": jnp.float64}[dtype]
            params = tree(1000, kind)
            if name.startswith("lookahead"):
                params = optax.LookaheadParams.init_synced(params)
            state = optimiser.init(params)
            with_loss = name.startswith(("polyak", "reduce"))
            for step in range(STEPS):
                extra = {"value": jnp.asarray(loss(step), kind)} if with_loss else {}
                updates, state = optimiser.update(tree(step, kind), state, params, **extra)
                params = optax.apply_updates(params, updates)
            results = {name: params}
            if name.startswith("lookahead"):
                results = {name: params.fast, name + "_slow": params.slow}
            if name.startswith("schedule_free"):
                results[name + "_x"] = optax.contrib.schedule_free_eval_params(state, params)
            for result, arrays in results.items():
                for parameter, array in arrays.items():
                    assert array.dtype == kind, (name, array.dtype)
                    lines.append(" ".join([result, dtype, parameter] + [repr(float(x)) for x in np.ravel(array)]))
    for name, schedule in SCHEDULES.items():
        lines.append(" ".join(["schedule", name, "-"] + [repr(float(schedule(step))) for step in range(15)]))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "optax.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
