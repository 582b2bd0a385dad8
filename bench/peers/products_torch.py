"""Matrix products in PyTorch, on one thread: the peer of bench/kernels/products.c, which starts it with --peer.

    bench_products --peer "python3 bench/peers/products_torch.py"
    bench_products --dtype bf16 --peer "python3 bench/peers/products_torch.py bf16"

Reads lines "m k n kind times" and answers each with the seconds of one product, the mean of so many: fwd is X W, dX is
dY W^T and dW is X^T dY for X [m, k] and W [k, n].
"""

import sys
import time

import torch

torch.set_num_threads(1)
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[sys.argv[1] if len(sys.argv) > 1 else "f32"]
seen = None

for line in sys.stdin:
    *sizes, kind, times = line.split()
    m, k, n = map(int, sizes)
    if seen != (m, k, n, kind):
        seen = (m, k, n, kind)
        x, w, dy = (torch.rand(rows, columns, dtype=dtype) - 0.5 for rows, columns in ((m, k), (k, n), (m, n)))
        a, b = {"fwd": (x, w), "dX": (dy, w.T), "dW": (x.T, dy)}[kind]
        out = torch.empty(a.shape[0], b.shape[1], dtype=dtype)
        torch.mm(a, b, out=out)
    start = time.perf_counter()
    for _ in range(int(times)):
        torch.mm(a, b, out=out)
    print((time.perf_counter() - start) / int(times), flush=True)
