"""Writes golden/training.txt: what wrappers of Optax do to optimisers in 20 calls, a line for each parameter:

    name dtype parameter values...

Parameters and gradients are those of optax_trajectories.py; names that begin with "if_finite" have NaN as element 0 of the
gradient of w in calls 3, 4, 5 and 9. Lines "ema ..." and "incremental ..." are averages of parameters that SGD with momentum
changes. Lines "early_stopping patience min_delta metric improved stop ..." are Flax's EarlyStopping, lines "metric ..." metrics of nnx and, of
classes, of numpy. Run: python
tests/oracle/training_golden.py
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.early_stopping import EarlyStopping

jax.config.update("jax_enable_x64", True)

SHAPES = {"b": (7,), "k": (6, 4), "w": (4, 6)}
CALLS = 20
BAD = (3, 4, 5, 9)
RATE = 0.01


def values(shape, parameter, step, dtype):
    i = np.arange(np.prod(shape, dtype=int))
    return jnp.asarray((((7919 * i + 31 * parameter + 17 * step) % 257 - 128) / 64).reshape(shape), dtype)


def tree(step, dtype):
    return {name: values(shape, j, step, dtype) for j, (name, shape) in enumerate(SHAPES.items())}


def lines_of(name, dtype, params):
    return [" ".join([name, dtype, parameter] + [repr(float(x)) for x in np.ravel(array)])
            for parameter, array in params.items()]


WRAPPERS = {
    "multi_steps": optax.MultiSteps(optax.adamw(RATE, weight_decay=0.1), 4),
    "multi_steps_odd": optax.MultiSteps(optax.adamw(RATE, weight_decay=0.1), 3),
    "multi_steps_sum": optax.MultiSteps(optax.sgd(RATE, momentum=0.9), 3, use_grad_mean=False),
    "if_finite": optax.apply_if_finite(optax.adamw(RATE, weight_decay=0.1), 3),
    "if_finite_applied": optax.apply_if_finite(optax.sgd(RATE), 2),
}


def metric_lines():
    """Metrics over scores ((7919 i) mod 257 - 128) / 64 [40, 5] and labels (i * i + i // 3) mod 5."""
    scores = jnp.asarray(((7919 * np.arange(200) % 257 - 128) / 64).reshape(40, 5), jnp.float32)
    labels = jnp.asarray([(i * i + i // 3) % 5 for i in range(40)], jnp.int32)
    accuracy = nnx.metrics.Accuracy()
    accuracy.update(logits=scores, labels=labels)
    binary = nnx.metrics.Accuracy(threshold=0.25)
    binary.update(logits=scores[:, 0], labels=(labels > 2).astype(jnp.int32))
    welford = nnx.metrics.Welford()
    for part in np.split(np.asarray(scores, np.float64), 8):
        welford.update(values=jnp.asarray(part))
    statistics = welford.compute()
    lines = ["metric accuracy - " + repr(float(accuracy.compute())), "metric binary - " + repr(float(binary.compute()))]
    for k in (1, 2, 3, 5):
        _, best = jax.lax.top_k(scores, k)
        lines.append(f"metric top{k} - " + repr(float(jnp.mean(jnp.any(best == labels[:, None], axis=1)))))
    lines.append("metric welford - " + " ".join(repr(float(x)) for x in (
        statistics.mean, statistics.standard_deviation, statistics.standard_error_of_mean)))
    predictions, n = np.argmax(scores, axis=1), 5
    labels = np.asarray(labels)
    tables = []
    for c in range(n):
        true = np.sum((predictions == c) & (labels == c))
        precision = true / np.sum(predictions == c) if np.any(predictions == c) else 0.0
        recall = true / np.sum(labels == c) if np.any(labels == c) else 0.0
        f1 = 2 * precision * recall / (precision + recall) if true else 0.0
        tables.append((precision, recall, f1, np.sum(labels == c)))
        lines.append(f"metric class{c} - " + " ".join(repr(float(x)) for x in tables[-1]))
    tables = np.asarray(tables, float)
    lines.append("metric macro - " + " ".join(repr(float(x)) for x in np.mean(tables[:, :3], axis=0)))
    lines.append("metric weighted - " + " ".join(
        repr(float(x)) for x in np.average(tables[:, :3], axis=0, weights=tables[:, 3])))
    return lines


def main():
    lines = []
    for name, wrapper in WRAPPERS.items():
        for dtype, kind in (("f32", jnp.float32), ("f64", jnp.float64)):
            params = tree(1000, kind)
            state = wrapper.init(params)
            for call in range(CALLS):
                gradients = tree(call, kind)
                if name.startswith("if_finite") and call in BAD:
                    gradients["w"] = gradients["w"].at[0, 0].set(jnp.nan)
                updates, state = wrapper.update(gradients, state, params)
                params = optax.apply_updates(params, updates)
            lines += lines_of(name, dtype, params)
    for dtype, kind in (("f32", jnp.float32), ("f64", jnp.float64)):
        params = tree(1000, kind)
        optimiser, ema = optax.sgd(RATE, momentum=0.9), optax.ema(0.9, debias=True)
        state, average, other = optimiser.init(params), ema.init(params), params
        for call in range(CALLS):
            updates, state = optimiser.update(tree(call, kind), state, params)
            params = optax.apply_updates(params, updates)
            averaged, average = ema.update(params, average)
            other = optax.incremental_update(params, other, 0.1)
        lines += lines_of("ema", dtype, averaged) + lines_of("incremental", dtype, other)
    metrics = [1.0, 0.8, 0.79, 0.81, 0.5, 0.5, 0.49, 0.6, 0.7, 0.4, 0.41, 0.42, 0.43, 0.44]
    for patience, delta in ((0, 0.0), (2, 0.0), (2, 0.05), (3, 0.2)):
        stopping = EarlyStopping(min_delta=delta, patience=patience)
        words = []
        for metric in metrics:
            stopping = stopping.update(metric)
            words += [repr(metric), str(int(stopping.has_improved)), str(int(stopping.should_stop))]
        lines.append(" ".join(["early_stopping", str(patience), repr(delta)] + words))
    lines += metric_lines()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "training.txt")
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


main()
