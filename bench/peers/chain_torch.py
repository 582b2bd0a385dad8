"""x <- tanh(x W_i + b_i), sum of squares: value and gradients of all W and b in PyTorch.

    chain_torch.py --layers 256 --width 64 --batch 64 [--mode eager | sqrt | compile | compile_sqrt]

sqrt: groups of sqrt(layers) layers under checkpoint. compile: one compiled function for all layers, and above 256 layers for
a group of sqrt(layers), called for each group, since the time to compile grows with the layers that a function has.
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(layers=4096, width=128, batch=128, mode="eager")
torch = start_torch(args)
from torch.utils.checkpoint import checkpoint

modes = ("eager", "sqrt", "compile", "compile_sqrt")
if args.mode not in modes:
    raise SystemExit(f"chain_torch: unknown --mode '{args.mode}': expected one of {', '.join(modes)}")
nested, compiled = args.mode.endswith("sqrt"), args.mode.startswith("compile")
x = torch.randn(args.batch, args.width)
w = [(torch.randn(args.width, args.width) / args.width**0.5).requires_grad_() for _ in range(args.layers)]
b = [torch.zeros(args.width, requires_grad=True) for _ in range(args.layers)]
group = max(i for i in range(1, int(args.layers**0.5) + 1) if args.layers % i == 0)
if not nested and not (compiled and args.layers > 256):
    group = args.layers
groups = [(w[i : i + group], b[i : i + group]) for i in range(0, args.layers, group)]


def layers(x, w, b):
    for kernel, bias in zip(w, b):
        x = torch.tanh(torch.addmm(bias, x, kernel))
    return x


run = torch.compile(layers) if compiled else layers


def step():
    for p in w + b:
        p.grad = None
    y = x
    for parameters in groups:
        y = checkpoint(run, y, *parameters, use_reentrant=False) if nested else run(y, *parameters)
    y.square().sum().backward()


before = resident("VmRSS")
report("chain", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
