"""ResNet-18 with batch normalization over the batch: value and gradients of all parameters in JAX.

    resnet_jax.py --batch 8 --size 64 --classes 1000
"""

from common import arguments, compile_jax, measure, report

args = arguments(batch=8, size=64, classes=1000)

import jax
import jax.numpy as jnp

keys = iter(jax.random.split(jax.random.PRNGKey(0), 100))
parameters = []


class Walk:
    """The network, walked once to make the parameters and again to use them."""

    def __init__(self, values=None):
        self.values = iter(values) if values is not None else None

    def parameter(self, shape, scale):
        if self.values is not None:
            return next(self.values)
        parameters.append(jax.random.uniform(next(keys), shape, minval=-scale, maxval=scale))
        return parameters[-1]

    def conv(self, x, features, window, stride):
        w = self.parameter((window, window, x.shape[-1], features), 0.05)
        pad = window // 2
        y = jax.lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
        scale, bias = self.parameter((features,), 1), self.parameter((features,), 1)
        centered = y - jnp.mean(y, (0, 1, 2))
        return centered * (jax.lax.rsqrt(jnp.mean(centered ** 2, (0, 1, 2)) + 1e-5) * scale) + bias

    def block(self, x, features, stride):
        y = jax.nn.relu(self.conv(x, features, 3, stride))
        y = self.conv(y, features, 3, 1)
        if stride > 1 or x.shape[-1] != features:
            x = self.conv(x, features, 1, stride)
        return jax.nn.relu(y + x)

    def loss(self, x, labels):
        x = jax.nn.relu(self.conv(x, 64, 7, 2))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
        for stage in range(4):
            for i in range(2):
                x = self.block(x, 64 << stage, 2 if stage and not i else 1)
        logits = jnp.mean(x, (1, 2)) @ self.parameter((x.shape[-1], args.classes), 0.05) + self.parameter((args.classes,), 0.05)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1))


x = jax.random.uniform(next(keys), (args.batch, args.size, args.size, 3), minval=-1.7, maxval=1.7)
labels = jax.random.randint(next(keys), (args.batch,), 0, args.classes)
Walk().loss(x, labels)
gradient = jax.value_and_grad(lambda values, x, labels: Walk(values).loss(x, labels))
# The gradients of a step are donated to the next one, as in common.compile_gradient.
compiled, figures = compile_jax(lambda last, *rest: gradient(*rest), parameters, parameters, x, labels, donate=(0,), keep=True)
last = jax.tree.map(jnp.zeros_like, parameters)


def step():
    global last
    value, last = compiled(last, parameters, x, labels)
    jax.block_until_ready((value, last))
    return value


report("resnet", "jax", args, **figures, **measure(step, args), loss=float(step()))
