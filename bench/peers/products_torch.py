"""Matrix products in PyTorch, on one thread: the peer of bench/kernels/products.c, which starts it with --peer.

    bench_products --peer "python3 bench/peers/products_torch.py"

Reads lines "m k n kind times" and answers each with the seconds of one product, the mean of so many: fwd is X W, dX is
dY W^T and dW is X^T dY for X [m, k] and W [k, n].
"""

import sys
import time

import torch

torch.set_num_threads(1)
seen = None

for line in sys.stdin:
    *sizes, kind, times = line.split()
    m, k, n = map(int, sizes)
    if seen != (m, k, n, kind):
        seen = (m, k, n, kind)
        x, w, dy = torch.rand(m, k) - 0.5, torch.rand(k, n) - 0.5, torch.rand(m, n) - 0.5
        a, b = {"fwd": (x, w), "dX": (dy, w.T), "dW": (x.T, dy)}[kind]
        out = torch.empty(a.shape[0], b.shape[1])
        torch.mm(a, b, out=out)
    start = time.perf_counter()
    for _ in range(int(times)):
        torch.mm(a, b, out=out)
    print((time.perf_counter() - start) / int(times), flush=True)
