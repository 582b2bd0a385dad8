"""The sum of the squares of a convolution, channels last: value and gradients of both operands in PyTorch.

    conv_torch.py --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=8, height=56, width=56, features=128, out=128, kernel=3, stride=1, depthwise=False, compile=False)
torch = start_torch(args)
from torch.nn import functional as F

images = args.height > 0
inputs = 1 if args.depthwise else args.features
groups = args.features if args.depthwise else 1


def ends(size):
    """Padding before and behind an axis, as "SAME" has it."""
    total = max(((size - 1) // args.stride) * args.stride + args.kernel - size, 0)
    return total // 2, total - total // 2


def loss(x, w):
    if not images:
        return F.conv1d(F.pad(x, (args.kernel - 1, 0)), w, groups=groups).square().sum()
    (left, right), (top, bottom) = ends(args.width), ends(args.height)
    if left == right and top == bottom:
        return F.conv2d(x, w, stride=args.stride, padding=(top, left), groups=groups).square().sum()
    return F.conv2d(F.pad(x, (left, right, top, bottom)), w, stride=args.stride, groups=groups).square().sum()


if images:
    x = torch.randn(args.batch, args.features, args.height, args.width).contiguous(memory_format=torch.channels_last)
    w = (0.05 * torch.randn(args.out, inputs, args.kernel, args.kernel)).contiguous(memory_format=torch.channels_last)
else:
    x = torch.randn(args.batch, args.features, args.width)
    w = 0.05 * torch.randn(args.out, inputs, args.kernel)
values = [x, w]
for value in values:
    value.requires_grad_()
run = torch.compile(loss) if args.compile else loss


def step():
    for value in values:
        value.grad = None
    run(*values).backward()


before = resident("VmRSS")
report("conv", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
