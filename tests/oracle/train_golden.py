"""Writes tests/oracle/golden/train.txt: schedules and optimiser trajectories of optax, for tests/unit/train/test_train.c.

    pip install jax==0.10.2 flax==0.12.8 optax==0.2.8; python tests/oracle/train_golden.py

Lines: "schedule NAME step value" and "optimizer NAME losses... kernel... bias..." after STEPS updates of a Dense layer
[3] -> [2] with the loss mean((y - target)^2). The learning rate, decay and clipping of each name are in CASES here and there.
"""

import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from flax_models import inputs

STEPS = 6
SCHEDULES = {
    "constant": optax.constant_schedule(0.25),
    "warmup": optax.warmup_cosine_decay_schedule(0.1, 1.0, 4, 12, 0.2),
    "no_warmup": optax.warmup_cosine_decay_schedule(0.0, 2.0, 0, 10, 0.0),
    "exponent": optax.warmup_cosine_decay_schedule(0.0, 1.0, 2, 12, 0.1, exponent=2.0),
}


def kernels_only(params):
    return jax.tree.map(lambda p: p.ndim >= 2, params)


def decayed(decay, tx):
    return optax.chain(optax.add_decayed_weights(decay, mask=kernels_only), tx)


OPTIMIZERS = {
    "adamw": optax.adamw(0.05, weight_decay=0.0),
    "adamw_decay": optax.adamw(0.05, b1=0.8, b2=0.95, eps=1e-6, weight_decay=0.5, mask=kernels_only),
    "adamw_decay_all": optax.adamw(0.05, weight_decay=0.5),
    "adamw_clip": optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 8, 0.01), weight_decay=0.1, mask=kernels_only)),
    "sgd": optax.sgd(0.1),
    "sgd_momentum": optax.sgd(0.1, momentum=0.9),
    "sgd_nesterov": optax.chain(optax.clip_by_global_norm(0.25), decayed(0.2, optax.sgd(0.1, momentum=0.9, nesterov=True))),
}


def trajectory(tx):
    model = nn.Dense(2)
    x, target = inputs(4, 3), inputs(4, 2)
    params = model.init(jax.random.PRNGKey(1), x)["params"]
    state = tx.init(params)

    def loss(p):
        return jnp.mean((model.apply({"params": p}, x) - target) ** 2)

    losses = []
    for _ in range(STEPS):
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(value)
    return [*losses, *np.asarray(params["kernel"]).ravel(), *np.asarray(params["bias"])]


def main():
    path = pathlib.Path(__file__).parent / "golden" / "train.txt"
    with open(path, "w") as file:
        for name, schedule in SCHEDULES.items():
            for step in (0, 1, 2, 3, 4, 5, 8, 11, 12, 100):
                print("schedule", name, step, f"{float(schedule(step)):.9g}", file=file)
        for name, tx in OPTIMIZERS.items():
            print("optimizer", name, *(f"{float(v):.9g}" for v in trajectory(tx)), file=file)


if __name__ == "__main__":
    main()
