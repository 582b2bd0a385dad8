"""An LSTM over a sequence, sum of the squares of all hidden states: value and gradients of its parameters in PyTorch.

    lstm_torch.py --length 512 --batch 16 --width 128 [--compile]

--compile: the compiler leaves torch.nn.LSTM to the library, so the cell is written out; one product makes the inputs' part of
all gates, and one compiled function does 16 steps.
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(length=512, batch=16, width=128, compile=False)
torch = start_torch(args)
STEPS = 16
model = torch.nn.LSTM(args.width, args.width)
xs = torch.randn(args.length, args.batch, args.width)
zero = torch.zeros(args.batch, args.width, requires_grad=True)  # as the carry later, so that one version serves all calls
input_kernel, hidden_kernel, input_bias, hidden_bias = model.parameters()


def cells(gates, h, c, kernel):
    out = []
    for row in gates.unbind():
        i, f, g, o = torch.addmm(row, h, kernel).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out), h, c


run = torch.compile(cells, dynamic=False) if args.compile else cells


def hidden_states():
    if not args.compile:
        return model(xs)[0]
    gates = torch.nn.functional.linear(xs, input_kernel, input_bias + hidden_bias)
    h, c, out = zero, zero, []
    for rows in gates.split(STEPS):
        states, h, c = run(rows, h, c, hidden_kernel.T)
        out.append(states)
    return torch.cat(out)


def step():
    for p in model.parameters():
        p.grad = None
    hidden_states().square().sum().backward()


before = resident("VmRSS")
report("lstm", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
