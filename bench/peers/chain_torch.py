"""x <- tanh(x W_i + b_i), sum of squares: value and gradients of all W and b in PyTorch.

    chain_torch.py --layers 256 --width 64 --batch 64 [--mode eager | sqrt]

sqrt: groups of sqrt(layers) layers under checkpoint.
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(layers=4096, width=128, batch=128, mode="eager")
torch = start_torch(args)
from torch.utils.checkpoint import checkpoint

x = torch.randn(args.batch, args.width)
w = [(torch.randn(args.width, args.width) / args.width**0.5).requires_grad_() for _ in range(args.layers)]
b = [torch.zeros(args.width, requires_grad=True) for _ in range(args.layers)]
group = max(i for i in range(1, int(args.layers**0.5) + 1) if args.layers % i == 0)


def layers(x, first, last):
    for i in range(first, last):
        x = torch.tanh(torch.addmm(b[i], x, w[i]))
    return x


def step():
    for p in w + b:
        p.grad = None
    if args.mode == "sqrt":
        y = x
        for first in range(0, args.layers, group):
            y = checkpoint(layers, y, first, first + group, use_reentrant=False)
    else:
        y = layers(x, 0, args.layers)
    y.square().sum().backward()


before = resident("VmRSS")
report("chain", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
