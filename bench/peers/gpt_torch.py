"""A GPT training step in PyTorch: scaled_dot_product_attention, fused AdamW.

    gpt_torch.py --mode eager | checkpoint | compile | compile_checkpoint [--only-compile] [--dtype f32 | mixed | bf16]
                 [sizes as for bench/gpt]

--dtype mixed: autocast to bf16 with parameters of f32; bf16: parameters, too.
--only-compile: nothing is taken from the compiler's caches; of two steps the first one's excess is the time to compile.
"""

import os
import time

from common import arguments, measure, report, resident, start_torch

args = arguments(layers=6, width=384, heads=6, context=256, batch=8, vocabulary=65, mode="eager", dtype="f32", only_compile=False)
if args.only_compile:
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
torch = start_torch(args)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

modes = ("eager", "checkpoint", "compile", "compile_checkpoint")
if args.mode not in modes:
    raise SystemExit(f"gpt_torch: unknown --mode '{args.mode}': expected one of {', '.join(modes)}")
if args.dtype not in ("f32", "mixed", "bf16"):
    raise SystemExit(f"gpt_torch: unknown --dtype '{args.dtype}': expected f32, mixed or bf16")


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
        for table in (self.tokens, self.positions):  # as Flax and Tow: logits near 1, so that no probability is subnormal
            nn.init.normal_(table.weight, std=args.width**-0.5)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(args.layers)), nn.LayerNorm(args.width)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in args.mode else block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.float().view(-1, args.vocabulary), labels.view(-1))


model = GPT().to(torch.bfloat16) if args.dtype == "bf16" else GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=True)
tokens, labels = (torch.randint(0, args.vocabulary, (args.batch, args.context)) for _ in range(2))
run = torch.compile(model) if args.mode.startswith("compile") else model


def step():
    global value
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "mixed"):
        value = run(tokens, labels)
    value.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


before, figures = resident("VmRSS"), {}
if args.only_compile:
    torch.compile(lambda x: x + 1)(torch.zeros(8))  # imports the compiler
    first, second = seconds(step), seconds(step)
    figures["compile_seconds"] = max(0.0, first - second)
else:
    figures = measure(step, args)
report("gpt", "torch", args, rss_before=before, loss=value.item(), version=torch.__version__, **figures)
