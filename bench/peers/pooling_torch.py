"""Pooling of images, channels last, in PyTorch: the results, or with --gradient the results and the gradient of x.

    pooling_torch.py --batch 64 --height 28 --width 28 --features 32 [--kind max] [--window 2] [--stride 2] [--type f32] [--gradient]
                     [--compile]

--window 0: over the whole image.
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=64, height=28, width=28, features=32, window=2, stride=2, kind="max", type="f32", gradient=False,
                 compile=False)
torch = start_torch(args)
from torch.nn import functional as F

sizes = (args.batch, args.features, args.height, args.width)
dtype = {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8}[args.type]
x = torch.randn(sizes) if args.type == "f32" else torch.randint(0, 250, sizes, dtype=dtype)
x = x.contiguous(memory_format=torch.channels_last).requires_grad_(args.gradient)


def pool(x):
    if args.window == 0:
        return F.adaptive_avg_pool2d(x, 1) if args.kind == "avg" else F.adaptive_max_pool2d(x, 1)
    return (F.avg_pool2d if args.kind == "avg" else F.max_pool2d)(x, args.window, args.stride)


run = torch.compile(pool) if args.compile else pool
ct = torch.randn_like(pool(x)) if args.gradient else None


def step():
    if not args.gradient:
        with torch.no_grad():
            return run(x)
    x.grad = None
    return run(x).backward(ct)


before = resident("VmRSS")
report("pooling", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
