"""Normalization of images, channels last, as in training, in PyTorch: the results, or with --gradient the gradients as well.

    norm_images_torch.py --batch 32 --height 56 --width 56 --features 256 [--kind batch] [--groups 32] [--gradient] [--compile]
"""

from common import arguments, measure, report, resident, start_torch

args = arguments(batch=32, height=56, width=56, features=256, groups=32, kind="batch", gradient=False, compile=False)
torch = start_torch(args)
from torch.nn import functional as F

sizes = (args.batch, args.features, args.height, args.width)
x, ct = (torch.randn(sizes).contiguous(memory_format=torch.channels_last) for _ in range(2))
values = [x, torch.randn(args.features), torch.randn(args.features)]
for value in values:
    value.requires_grad_(args.gradient)


def normalize(x, scale, bias):
    if args.kind == "group":
        return F.group_norm(x, args.groups, scale, bias)
    return F.batch_norm(x, None, None, scale, bias, True)


run = torch.compile(normalize) if args.compile else normalize


def step():
    if not args.gradient:
        with torch.no_grad():
            return run(*values)
    for value in values:
        value.grad = None
    return run(*values).backward(ct)


before = resident("VmRSS")
report("norm_images", "torch", args, rss_before=before, version=torch.__version__, **measure(step, args))
