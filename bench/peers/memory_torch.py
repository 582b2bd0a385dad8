"""Bytes and flops of PyTorch's ways to keep less for the backward pass: counted, nothing is timed.

    memory_torch.py --row 1 | 4 | 5 | 7 | 8 [--layers N] [--gradient]

Rows are those of bench/compare. --layers: another depth. --gradient: value and gradients alone in rows 1, 4 and 5, too.

Prints one JSON object for each point:
- method "compile": the code that Inductor makes for an activation_memory_budget of 0, 0.2, ..., 1. Its own kernels and its
  products do nothing here, so its buffers come and go, and nothing is computed;
- method "checkpoint": torch.utils.checkpoint around each block (use_reentrant=False), or around each of so many groups of
  layers of the chain;
- method "eager": neither.
"saved": bytes of what is kept for the backward pass, each storage once, without parameters and inputs. "peak": the most bytes
that are alive at once in a step, with all that PyTorch's allocator gives out: value and gradients of rows 7 and 8, and the update
by AdamW (fused) of the others, whose slots are counted, too.
"flops": two for each multiply-add of matrix products in both passes; of causal attention those of pairs that are not masked, two
products forward and five backward, as Tow counts them. Numbers depend on the version of PyTorch alone.
"""

import json
import math

from common import arguments, start_torch

args = arguments(row=1, layers=0, gradient=False)
torch = start_torch(args)
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.select_algorithm import extern_kernels
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from models_torch import GPT, feed_forward, tanh_layers

aten = torch.ops.aten
SHAPES = {1: dict(layers=6, width=384, heads=6, context=256, vocabulary=65),
          4: dict(layers=12, width=768, heads=12, context=64, vocabulary=50257),
          5: dict(layers=12, width=768, heads=12, context=256, vocabulary=50257)}
BATCH = {1: 8, 4: 4, 5: 4}
if args.row not in (*SHAPES, 7, 8):
    raise SystemExit(f"memory_torch: unknown --row {args.row}: expected 1, 4, 5, 7 or 8")


def product_flops(op, values):
    """Of a call of op with these arguments."""
    packet = getattr(op, "overloadpacket", op)
    if packet in (aten.mm, aten.bmm):
        return 2 * math.prod(values[0].shape) * values[1].shape[-1]
    if packet in (aten.addmm, aten.baddbmm):
        return 2 * math.prod(values[1].shape) * values[2].shape[-1]
    first = {aten._scaled_dot_product_flash_attention_for_cpu: 0,
             aten._scaled_dot_product_flash_attention_for_cpu_backward: 1}.get(packet)
    if first is None:
        if "attention" in str(packet) or "convolution" in str(packet):
            raise SystemExit(f"memory_torch: no formula for {packet}")
        return 0
    batch, heads, rows, width = values[first].shape
    return (5 if first else 2) * 2 * batch * heads * width * rows * (rows + 1) // 2


class CountFlops(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, op, types, values=(), kwargs=None):
        self.flops += product_flops(op, values)
        return op(*values, **(kwargs or {}))


def unique_bytes(tensors, known=()):
    """Of storages that none of the known tensors has."""
    skipped = {t.untyped_storage()._cdata for t in known}
    sizes = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tensors}
    return sum(size for storage, size in sizes.items() if storage not in skipped)


def trained(inputs):
    """An optimizer of the parameters, which has made its slots, and what it keeps; rows 7 and 8 have none."""
    parameters = [t for t in inputs if t.requires_grad]
    if args.row not in SHAPES or args.gradient:
        return None, []
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.01, fused=True)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return optimizer, [value for slots in optimizer.state.values() for value in slots.values()]


def peak_bytes(loss, inputs):
    """Of a step with these parameters and inputs."""
    optimizer, slots = trained(inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss().backward()
        if optimizer:
            optimizer.step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak + unique_bytes(inputs + slots)


def graph_flops(graph):
    def value(argument):
        return argument.meta["val"] if isinstance(argument, torch.fx.Node) else argument

    return sum(product_flops(n.target, [value(a) for a in n.args]) for n in graph.nodes if n.op == "call_function")


def leave_kernels_out():
    """From here on code of Inductor allocates its buffers and computes nothing into them."""
    AsyncCompile.cpp_pybinding = lambda self, types, source: lambda *values: None
    for name in ("mm", "bmm", "addmm", "baddbmm", "bias_addmm"):
        setattr(extern_kernels, name, lambda *values, out, **options: out)


def count_compiled(loss, inputs, budget):
    """Bytes and flops of the two graphs that the partitioner makes of loss(), and of the code that Inductor makes of them."""
    counted, passes = {"saved": 0, "flops": 0}, []

    def inspect(module, values, **options):
        graph = module.graph
        passes.append(options.get("is_backward", False))
        counted["flops"] += graph_flops(graph)
        if not passes[-1]:
            outputs = graph.find_nodes(op="output")[0].args[0][1:]  # the first one is the loss
            kept = [n.meta["val"] for n in outputs if isinstance(n, torch.fx.Node) and n.op != "placeholder"]
            counted["saved"] = unique_bytes(kept, [n.meta["val"] for n in graph.find_nodes(op="placeholder")])
        return compile_fx_inner(module, values, **options)

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, dynamic=False,
                             backend=lambda module, values: compile_fx(module, values, inner_compile=inspect))
    with functorch_config.patch(activation_memory_budget=budget, enable_autograd_cache=False,
                                force_non_lazy_backward_lowering=True), \
            inductor_config.patch(force_disable_caches=True):
        compiled().backward()
        for tensor in inputs:
            tensor.grad = None
        peak = peak_bytes(compiled, inputs)
    if sorted(passes) != [False, True]:
        raise SystemExit("memory_torch: expected a forward and a backward graph")
    return counted | {"peak": peak}


def count_eager(make, point):
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with FakeTensorMode(), CountFlops() as count:
        loss, inputs = make(point)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            value = loss()
        saved = unique_bytes(kept, inputs)
        kept.clear()
        value.backward()
    return {"saved": saved, "peak": peak_bytes(*make(point)), "flops": count.flops}


def gpt(checkpointed):
    model = GPT(**SHAPES[args.row] | ({"layers": args.layers} if args.layers else {}), checkpointed=checkpointed)
    shape = SHAPES[args.row]
    tokens, labels = (torch.zeros(BATCH[args.row], shape["context"], dtype=torch.int64) for _ in range(2))
    return lambda: model(tokens, labels), [*model.parameters(), tokens, labels]


def ffn(checkpointed):
    values = [torch.zeros(shape, requires_grad=True) for shape in ((2048, 512), (512, 8192), (8192, 512))]
    if checkpointed:
        return lambda: checkpoint(feed_forward, *values, use_reentrant=False), values
    return lambda: feed_forward(*values), values


def chain(groups):
    """Groups of layers under checkpoint; 0: none."""
    layers = args.layers or 4096
    x = torch.zeros(128, 128)
    w = [torch.zeros(128, 128, requires_grad=True) for _ in range(layers)]
    b = [torch.zeros(128, requires_grad=True) for _ in range(layers)]

    def loss():
        y, size = x, -(-layers // (groups or 1))
        for i in range(0, layers, size):
            part = w[i : i + size], b[i : i + size]
            y = checkpoint(tanh_layers, y, *part, use_reentrant=False) if groups else tanh_layers(y, *part)
        return y.square().sum()

    return loss, [x, *w, *b]


def print_point(method, point, counted):
    print(json.dumps({"row": args.row, "layers": args.layers, "version": torch.__version__, "method": method,
                      "point": point} | counted), flush=True)


make = {7: ffn, 8: chain}.get(args.row, gpt)
layers = args.layers or 4096
for point in (0, *((layers, math.isqrt(layers)) if args.row == 8 else (1,))):
    print_point("checkpoint" if point else "eager", point, count_eager(make, point))
leave_kernels_out()
loss, inputs = make(0)
for fifth in range(6):
    print_point("compile", fifth / 5, count_compiled(loss, inputs, fifth / 5))
