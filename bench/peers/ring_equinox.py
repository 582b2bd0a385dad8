"""The gradient of a long loop of small iterations in f64, a ring of coupled oscillators, in Equinox: its checkpointed while
loop (Stumm and Walther's online schedule), which does not know how many iterations there will be.

    ring_equinox.py --iterations 40000 --width 256 --slots 398
"""

from common import arguments, compile_jax, measure, report

args = arguments(iterations=40000, width=256, slots=398)

import equinox.internal as eqxi
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
H = 0.01


def loss(k, w, x):
    def slope(x):
        return w + k * (jnp.sin(jnp.roll(x, 1) - x) + jnp.sin(jnp.roll(x, -1) - x))

    def iteration(carry):
        i, x = carry
        k1 = slope(x)
        return i + 1, x + (k1 + slope(x + H * k1)) * (H / 2)

    last = eqxi.while_loop(lambda carry: carry[0] < args.iterations, iteration, (jnp.int32(0), x), kind="checkpointed",
                           checkpoints=args.slots)[1]
    return jnp.sum(jnp.cos(last))


keys = jax.random.split(jax.random.PRNGKey(0), 3)
inputs = [jax.random.uniform(keys[0], (), "float64", -1), *(jax.random.uniform(key, (args.width,), "float64", -1) for key in keys[1:])]
run, figures = compile_jax(jax.value_and_grad(loss, (0, 1, 2)), *inputs)


def step():
    return jax.block_until_ready(run(*inputs))


report("ring", "equinox", args, **figures, **measure(step, args), loss=float(step()[0]))
