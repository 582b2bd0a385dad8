"""A training step of the CNN of Flax's MNIST example in JAX + Flax: loss, gradients, SGD with momentum, donated buffers.

    mnist_jax.py [--batch 128] [--no-pooling]
"""

from common import arguments, measure_training, report

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
report("mnist", "jax", args, **measure_training(model, optimizer, keys[2], images, labels, args))
