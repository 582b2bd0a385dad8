"""A convolution, channels last, in PyTorch: the sum of its squares, value and gradients of both operands; or one part of that.

    conv_torch.py --batch 8 --height 56 --width 56 --features 128 --out 128 [--kernel 3] [--stride 1] [--depthwise]
                  [--part all | forward | input | kernel] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=8, height=56, width=56, features=128, out=128, kernel=3, stride=1, depthwise=False, part="all",
                 compile=False)
torch = start_torch(args)
from torch.nn import functional as F

images = args.height > 0
inputs = 1 if args.depthwise else args.features
groups = args.features if args.depthwise else 1


def ends(size):
    """Padding before and behind an axis, as "SAME" has it."""
    total = max(((size - 1) // args.stride) * args.stride + args.kernel - size, 0)
    return total // 2, total - total // 2


def convolve(x, w):
    if not images:
        return F.conv1d(F.pad(x, (args.kernel - 1, 0)), w, groups=groups)
    (left, right), (top, bottom) = ends(args.width), ends(args.height)
    if left == right and top == bottom:
        return F.conv2d(x, w, stride=args.stride, padding=(top, left), groups=groups)
    return F.conv2d(F.pad(x, (left, right, top, bottom)), w, stride=args.stride, groups=groups)


if images:
    x = torch.randn(args.batch, args.features, args.height, args.width).contiguous(memory_format=torch.channels_last)
    w = (0.05 * torch.randn(args.out, inputs, args.kernel, args.kernel)).contiguous(memory_format=torch.channels_last)
else:
    x = torch.randn(args.batch, args.features, args.width)
    w = 0.05 * torch.randn(args.out, inputs, args.kernel)
values = [x, w]


def loss(x, w):
    return convolve(x, w).square().sum()


run = torch.compile(loss if args.part == "all" else convolve) if args.compile else loss


def both():
    for value in values:
        value.grad = None
    run(*values).backward()


def forward():
    with torch.no_grad():
        return (run if args.compile else convolve)(*values)


def gradient_of(which):
    """Of one operand, for the cotangents of results that are kept."""
    y = convolve(*values)
    ct = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, values[which], ct, retain_graph=True)


for i, value in enumerate(values):
    value.requires_grad_(args.part in ("all", ("input", "kernel")[i]))
steps = {"all": lambda: both, "forward": lambda: forward, "input": lambda: gradient_of(0), "kernel": lambda: gradient_of(1)}
before = resident("VmRSS")
report("conv", "torch", args, rss_before=before, version=torch.__version__, **measure(steps[args.part](), args))
