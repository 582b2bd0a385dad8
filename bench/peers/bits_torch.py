#!/usr/bin/env python3
"""Eight ways to train one small GPT with PyTorch on CPUs, with the same batches and the same AdamW, and how many
different sets of parameters they give (docs/many-machines.md). Tow's are one: tests/unit/train/test_group_product.c.

    bits_torch.py [--steps 6]

One process with one thread and with two; gradients accumulated over 2 and 4 micro-batches; DistributedDataParallel and
FSDP2 (fully_shard) over 2 and 4 processes with gloo."""
import argparse
import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, CONTEXT, TOKENS, BATCH = 64, 2, 2, 32, 65, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.proj(F.gelu(self.fc(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, x):
        y = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


def batches(steps):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(TOKENS, (BATCH, CONTEXT + 1), generator=generator) for _ in range(steps)]


def loss_of(model, rows):
    return F.cross_entropy(model(rows[:, :-1]).reshape(-1, TOKENS), rows[:, 1:].reshape(-1))


def train(model, steps, rank=0, count=1, micro=1):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False, fused=False)
    for rows in batches(steps):
        rows = rows.chunk(count)[rank]
        optimizer.zero_grad()
        for part in rows.chunk(micro):
            (loss_of(model, part) / micro).backward()
        optimizer.step()


def digest(parameters):
    h = hashlib.sha256()
    for x in parameters:
        h.update(x.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def make():
    torch.manual_seed(0)
    return GPT()


def run_rank(rank, count, sharded, steps, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count)
    model = make()
    if sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (count,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model, steps, rank, count)
        whole = [x.full_tensor() for x in model.parameters()]
    else:
        parallel = nn.parallel.DistributedDataParallel(model)
        train(parallel, steps, rank, count)
        whole = list(model.parameters())
    if rank == 0:
        with open(f"{folder}/digest", "w", encoding="utf-8") as f:
            f.write(digest(whole))
    dist.destroy_process_group()


def many(count, sharded, steps):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, args=(count, sharded, steps, folder), nprocs=count)
        with open(f"{folder}/digest", encoding="utf-8") as f:
            return f.read()


def alone(threads, micro, steps):
    torch.set_num_threads(threads)
    model = make()
    train(model, steps, micro=micro)
    return digest(model.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6)
    steps = parser.parse_args().steps
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    ways = [
        ("one process, one thread", lambda: alone(1, 1, steps)),
        ("one process, two threads", lambda: alone(2, 1, steps)),
        ("one process, two micro-batches", lambda: alone(1, 2, steps)),
        ("one process, four micro-batches", lambda: alone(1, 4, steps)),
        ("DistributedDataParallel, two processes", lambda: many(2, False, steps)),
        ("DistributedDataParallel, four processes", lambda: many(4, False, steps)),
        ("FSDP2, two processes", lambda: many(2, True, steps)),
        ("FSDP2, four processes", lambda: many(4, True, steps)),
    ]
    found = {}
    for name, way in ways:
        try:
            found[name] = way()
        except Exception as error:  # a way that this PyTorch does not have on CPUs
            found[name] = f"left out: {str(error).splitlines()[0][:80]}"
        print(f"{name:42} {found[name]}", flush=True)
    digests = {x for x in found.values() if not x.startswith("left out")}
    print(f"torch {torch.__version__}: {len(digests)} different sets of parameters after {steps} steps")


if __name__ == "__main__":
    main()
