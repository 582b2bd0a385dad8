"""A GPT training step in PyTorch: scaled_dot_product_attention, fused AdamW.

    gpt_torch.py --mode eager | checkpoint | compile | compile_checkpoint [sizes as for bench/gpt]
"""

import time

from common import arguments, measure, report, resident, start_torch

args = arguments(layers=6, width=384, heads=6, context=256, batch=8, vocabulary=65, mode="eager")
torch = start_torch(args)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

modes = ("eager", "checkpoint", "compile", "compile_checkpoint")
if args.mode not in modes:
    raise SystemExit(f"gpt_torch: unknown --mode '{args.mode}': expected one of {', '.join(modes)}")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(args.width), nn.LayerNorm(args.width)
        self.qkv, self.out = nn.Linear(args.width, 3 * args.width), nn.Linear(args.width, args.width)
        self.up, self.down = nn.Linear(args.width, 4 * args.width), nn.Linear(4 * args.width, args.width)

    def forward(self, x):
        batch, context, width = x.shape
        heads = (part.view(batch, context, args.heads, width // args.heads).transpose(1, 2)
                 for part in self.qkv(self.ln1(x)).split(width, 2))
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(args.vocabulary, args.width), nn.Embedding(args.context, args.width)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(args.layers)), nn.LayerNorm(args.width)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in args.mode else block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.view(-1, args.vocabulary), labels.view(-1))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
tokens, labels = (torch.randint(0, args.vocabulary, (args.batch, args.context)) for _ in range(2))
run = torch.compile(model) if args.mode.startswith("compile") else model


def step():
    global value
    value = run(tokens, labels)
    value.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


before, start = resident("VmRSS"), time.perf_counter()
step()
first = time.perf_counter() - start
times = measure(step, args)
report("gpt", "torch", args, rss_before=before, first_seconds=first, compile_seconds=max(0.0, first - times["min_seconds"]),
       loss=value.item(), version=torch.__version__, **times)
