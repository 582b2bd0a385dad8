"""Sorting rows of numbers in PyTorch: the values, or with --gradient a sum over them and its gradient.

    sort_torch.py --rows 1 --length 1048576 [--gradient] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(rows=1, length=1 << 20, gradient=False, compile=False)
torch = start_torch(args)
x = (2 * torch.rand(args.rows, args.length) - 1).requires_grad_(args.gradient)
weights = torch.arange(args.length) / args.length


def sorted_values(x):
    return torch.sort(x, 1)[0]


def loss(x):
    return (sorted_values(x).square() * weights).sum()


function = loss if args.gradient else sorted_values
run = torch.compile(function) if args.compile else function


def step():
    x.grad = None
    y = run(x)
    if args.gradient:
        y.backward()


before = resident("VmRSS")
report("sort", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
