"""A matrix product of one element type in PyTorch, Y = X W, or one of its gradients.

    product_torch.py --rows 2048 --in 384 --out 1536 [--dtype f32 | bf16 | f16] [--part forward | input | kernel]

The result is written into an array of its own, as Tow does it. products_torch.py is the peer of bench_products.
"""

from common import arguments, measure, report, start_torch

args = arguments(rows=2048, out=1536, dtype="f32", part="forward", **{"in": 384})
torch = start_torch(args)
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[args.dtype]
inputs = vars(args)["in"]


def draw(rows, columns):
    return (2 * torch.rand(rows, columns) - 1).to(dtype)


x, w, ct = draw(args.rows, inputs), draw(inputs, args.out), draw(args.rows, args.out)
a, b = {"forward": (x, w), "input": (ct, w.T), "kernel": (x.T, ct)}[args.part]
out = torch.empty(a.shape[0], b.shape[1], dtype=dtype)
report("product", "torch", args, version=torch.__version__, **measure(lambda: torch.mm(a, b, out=out), args))
