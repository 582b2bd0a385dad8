"""An LSTM over a sequence, sum of the squares of all hidden states: value and gradients of its parameters in PyTorch.

    lstm_torch.py --length 512 --batch 16 --width 128
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(length=512, batch=16, width=128)
torch = start_torch(args)
model = torch.nn.LSTM(args.width, args.width)
xs = torch.randn(args.length, args.batch, args.width)


def step():
    for p in model.parameters():
        p.grad = None
    model(xs)[0].square().sum().backward()


before = resident("VmRSS")
report("lstm", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
