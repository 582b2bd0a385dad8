"""A while loop of small iterations: x = (x + tanh(x w)) / 2 until x has settled or the iterations are done, in PyTorch.

    while_torch.py --iterations 1000 --batch 8 --width 32 [--compile]

--compile: the body and the condition are compiled, the loop is Python's.
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(iterations=1000, batch=8, width=32, compile=False)
torch = start_torch(args)
x = 2 * torch.rand(args.batch, args.width) - 1
w = torch.rand(args.width, args.width) - 0.5


def body(x):
    x = (x + torch.tanh(x @ w)) * 0.5
    return x, x.abs().max() > 1e-30


run = torch.compile(body) if args.compile else body


@torch.inference_mode()
def step():
    y, i, goes_on = x, 0, True
    while i < args.iterations and goes_on:
        y, goes_on = run(y)
        i += 1
    return y.square().sum()


before = resident("VmRSS")
report("while", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
