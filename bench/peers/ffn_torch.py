"""sum((gelu(x W1) W2)^2): value and gradients of x, W1 and W2 in PyTorch.

    ffn_torch.py --batch 64 [--checkpoint] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=64, width=512, hidden=8192, checkpoint=False, compile=False)
torch = start_torch(args)
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def block(x, w1, w2):
    return (F.gelu(x @ w1, approximate="tanh") @ w2).square().sum()


def loss(x, w1, w2):
    return checkpoint(block, x, w1, w2, use_reentrant=False) if args.checkpoint else block(x, w1, w2)


values = [torch.randn(args.batch, args.width), 0.05 * torch.randn(args.width, args.hidden), 0.01 * torch.randn(args.hidden, args.width)]
for value in values:
    value.requires_grad_()
run = torch.compile(loss) if args.compile else loss


def step():
    for value in values:
        value.grad = None
    run(*values).backward()


before = resident("VmRSS")
report("ffn", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
