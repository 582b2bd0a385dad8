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
from models_torch import GPT

modes = ("eager", "checkpoint", "compile", "compile_checkpoint")
if args.mode not in modes:
    raise SystemExit(f"gpt_torch: unknown --mode '{args.mode}': expected one of {', '.join(modes)}")
if args.dtype not in ("f32", "mixed", "bf16"):
    raise SystemExit(f"gpt_torch: unknown --dtype '{args.dtype}': expected f32, mixed or bf16")


model = GPT(args.layers, args.width, args.heads, args.context, args.vocabulary, checkpointed="checkpoint" in args.mode)
if args.dtype == "bf16":
    model = model.to(torch.bfloat16)
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
