"""A training step of the CNN of Flax's MNIST example in PyTorch, channels last: loss, gradients, SGD with momentum.

    mnist_torch.py [--batch 128] [--no-pooling] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=128, no_pooling=False, compile=False)
torch = start_torch(args)
from torch import nn
from torch.nn import functional as F

stride = 2 if args.no_pooling else 1


def layers(inputs, features):
    yield nn.Conv2d(inputs, features, 3, stride, 1)
    yield nn.ReLU()
    if not args.no_pooling:
        yield nn.AvgPool2d(2)


model = nn.Sequential(*layers(1, 32), *layers(32, 64), nn.Flatten(), nn.Linear(7 * 7 * 64, 256), nn.ReLU(), nn.Linear(256, 10))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = (2 * torch.rand(args.batch, 1, 28, 28) - 1).contiguous(memory_format=torch.channels_last)
labels = torch.randint(10, (args.batch,))
run = torch.compile(model) if args.compile else model


def step():
    global value
    optimizer.zero_grad(set_to_none=True)
    value = F.cross_entropy(run(images), labels)
    value.backward()
    optimizer.step()


before = resident("VmRSS")
report("mnist", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args), loss=value.item())
