"""A training step of the CNN of Flax's MNIST example in JAX + Flax: loss, gradients, SGD with momentum, donated buffers.

    mnist_jax.py [--batch 128] [--no-pooling]
"""

from common import arguments, compile_jax, measure, report

args = arguments(batch=128, no_pooling=False)

import flax.linen as nn
import jax
import optax

stride = 2 if args.no_pooling else 1


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        for features in (32, 64):
            x = nn.relu(nn.Conv(features, (3, 3), (stride, stride))(x))
            if not args.no_pooling:
                x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(256)(x.reshape((x.shape[0], -1))))
        return nn.Dense(10)(x)


model = CNN()
optimizer = optax.sgd(0.01, 0.9)
keys = jax.random.split(jax.random.PRNGKey(0), 3)
images = jax.random.uniform(keys[0], (args.batch, 28, 28, 1), minval=-1)
labels = jax.random.randint(keys[1], (args.batch,), 0, 10)


def loss(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, images), labels).mean()


def train(params, slots, images, labels):
    value, gradients = jax.value_and_grad(loss)(params, images, labels)
    updates, slots = optimizer.update(gradients, slots, params)
    return optax.apply_updates(params, updates), slots, value


params = jax.jit(model.init)(keys[2], images)
slots = optimizer.init(params)
compiled, figures = compile_jax(train, params, slots, images, labels, donate=(0, 1))


def step():
    global params, slots, value
    params, slots, value = compiled(params, slots, images, labels)
    value.block_until_ready()


figures |= measure(step, args)
report("mnist", "jax", args, **figures, loss=float(value))
