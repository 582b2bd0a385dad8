"""A GPT training step in PyTorch: scaled_dot_product_attention, fused AdamW.

    gpt_torch.py --mode eager | checkpoint | compile | compile_checkpoint [--only-compile] [--dtype f32 | mixed | bf16]
                 [--processes 2 [--sharded]] [sizes as for bench/gpt]

--dtype mixed: autocast to bf16 with parameters of f32; bf16: parameters, too.
--processes: DistributedDataParallel over gloo, each with its part of the batch and of the threads, --steps steps (10);
--sharded: FSDP2 (fully_shard of each block) in place of it.
--only-compile: nothing is taken from the compiler's caches; of two steps the first one's excess is the time to compile.
"""

import os
import tempfile
import time

from common import arguments, measure, report, resident, start_torch

args = arguments(layers=6, width=384, heads=6, context=256, batch=8, vocabulary=65, mode="eager", dtype="f32", only_compile=False,
                 processes=1, sharded=False)
rank, meeting = 0, ""
if args.processes > 1:  # the others begin before torch does
    meeting = tempfile.mkdtemp() + "/meet"
    args.steps = args.steps or 10
    args.threads = max(1, args.threads // args.processes)
    args.batch //= args.processes
    while rank + 1 < args.processes and (child := os.fork()) == 0:
        rank += 1
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
if args.processes > 1:
    import torch.distributed as dist

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=args.processes)
    if args.sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (args.processes,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
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
if args.processes > 1:
    dist.destroy_process_group()
if rank > 0:
    os._exit(0)
report("gpt", "torch", args, rss_before=before, loss=value.item(), version=torch.__version__, **figures)
