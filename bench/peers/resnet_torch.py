"""ResNet-18 with batch normalization over the batch, channels last: value and gradients of all parameters in PyTorch.

    resnet_torch.py --batch 8 --size 64 --classes 1000 [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=8, size=64, classes=1000, compile=False)
torch = start_torch(args)
from torch import nn
from torch.nn import functional as F


class Conv(nn.Module):
    """A convolution without bias, then normalization."""

    def __init__(self, inputs, features, window, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, features, window, stride, window // 2, bias=False)
        self.norm = nn.BatchNorm2d(features, track_running_stats=False)

    def forward(self, x):
        return self.norm(self.conv(x))


class Block(nn.Module):
    def __init__(self, inputs, features, stride):
        super().__init__()
        self.first, self.second = Conv(inputs, features, 3, stride), Conv(features, features, 3, 1)
        self.short = Conv(inputs, features, 1, stride) if stride > 1 or inputs != features else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = Conv(3, 64, 7, 2), nn.Linear(512, args.classes)
        blocks, inputs = [], 64
        for stage in range(4):
            for i in range(2):
                blocks.append(Block(inputs, 64 << stage, 2 if stage and not i else 1))
                inputs = 64 << stage
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


model = Net().to(memory_format=torch.channels_last)
x = torch.randn(args.batch, 3, args.size, args.size).contiguous(memory_format=torch.channels_last)
labels = torch.randint(args.classes, (args.batch,))


def loss(x, labels):
    return F.cross_entropy(model(x), labels)


run = torch.compile(loss) if args.compile else loss


def step():
    for p in model.parameters():
        p.grad = None
    run(x, labels).backward()


before = resident("VmRSS")
report("resnet", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
