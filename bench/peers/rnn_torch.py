"""A recurrent layer over a sequence, sum of the squares of all its outputs: value and gradients of its parameters in PyTorch,
whose LSTM and GRU are fused in its library.

    rnn_torch.py --cell lstm|gru --length 128 --batch 32 --width 256 [--batch-first]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(cell="lstm", length=128, batch=32, width=256, batch_first=False)
torch = start_torch(args)
layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[args.cell]
model = layer(args.width, args.width, batch_first=args.batch_first)
shape = (args.batch, args.length) if args.batch_first else (args.length, args.batch)
xs = torch.randn(*shape, args.width)


def step():
    for p in model.parameters():
        p.grad = None
    model(xs)[0].square().sum().backward()


before = resident("VmRSS")
report("rnn", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
