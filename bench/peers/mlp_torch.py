"""One call of value and gradient of an MLP 8 -> 32 -> 32 -> 4 on a batch of 4 in PyTorch.

    mlp_torch.py [--batch 4] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=4, compile=False)
CALLS = 200
torch = start_torch(args)
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
x = torch.randn(args.batch, 8)


def loss(x):
    return model(x).square().sum()


run = torch.compile(loss) if args.compile else loss
parameters = list(model.parameters())


def step():
    for _ in range(CALLS):
        for p in parameters:
            p.grad = None
        run(x).backward()


before = resident("VmRSS")
report("mlp", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args, CALLS))
