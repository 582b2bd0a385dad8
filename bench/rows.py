"""The rows that bench/compare measures: what runs, what is compared, and which limit of the machine the work is held against.

A command is a line: "gpt --layers 6" is a program of bench/, "gpt_jax --mode plain" a script of bench/peers. A command that
several rows name runs once. Rows of one group run together, their commands in turn.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    number: int
    name: str
    group: str
    tow: str  # command
    peers: dict  # library: commands, of which the best counts
    value: str = "seconds"  # seconds, compile_seconds, temporary (bytes beside inputs, outputs, parameters and slots)
    limit: str = "peak"  # peak (of multiply-adds), memory (bandwidth of copying), or none; the share is of a step
    rounds: int = 3  # how often each command runs at least

    def __post_init__(self):
        assert self.value in ("seconds", "compile_seconds", "temporary"), f"row {self.number}: value {self.value}"
        assert self.limit in ("peak", "memory", "none"), f"row {self.number}: limit {self.limit}"


GPT = " --layers 6 --width 384 --heads 6 --context 256 --batch 8 --vocabulary 65"
SMALL = " --layers 12 --width 768 --heads 12 --context 64 --batch 4 --vocabulary 50257"
LONG = SMALL.replace("--context 64", "--context 256")
DEEP = " --layers 4096 --width 128 --batch 128"
FFN_BUDGET = 168 << 20  # inputs, gradients and a third of the arena that the plan without remat takes
CHAIN = " --layers 256 --width 64 --batch 64"


def gpt(sizes, options=""):
    """Tow's command: gradients go to the optimizer as soon as they are complete."""
    return f"gpt{sizes}{options} --early-update"


def gpt_peers(sizes, jax, torch=()):
    peers = {"JAX": [f"gpt_jax{sizes} --mode {mode}" for mode in jax]}
    return peers | {library: [f"gpt_torch{sizes} --mode {mode}"] for library, mode in zip(("PyTorch", "PyTorch compile"), torch)}


def both(name, options):
    return {"JAX": [f"{name}_jax{options}"], "PyTorch": [f"{name}_torch{options}"],
            "PyTorch compile": [f"{name}_torch{options} --compile"]}


def chain_peers(sizes, jax, torch):
    """Modes of JAX and the one mode of PyTorch, which it compiles as well."""
    return {"JAX": [f"chain_jax{sizes} --mode {mode}" for mode in jax], "PyTorch": [f"chain_torch{sizes} --mode {torch}"],
            "PyTorch compile": [f"chain_torch{sizes} --mode {'compile_sqrt' if torch == 'sqrt' else 'compile'}"]}


def ffn_rows(number, batch, budget):
    """Standard and checkpoint, in Tow within a budget of bytes."""
    rows = []
    for name, flag in (("standard", ""), ("checkpoint", " --checkpoint")):
        within = f" --memory-limit {budget}" if flag else ""
        options = f" --batch {batch}{flag}"
        rows.append(Row(number, f"FFN 512-8192-512, N {batch}: {name}", f"ffn {batch}", "ffn" + options + within,
                        both("ffn", options)))
    return rows


def conv_rows(number, name, options, limit="peak"):
    """All of a convolution, and its three parts: forward and the gradients of both operands."""
    command, group = f"conv {options}", "conv " + name
    parts = (("forward", "forward"), ("input", "gradient of the input"), ("kernel", "gradient of the kernel"))
    return [Row(number, name, group, command, both("conv", " " + options), limit=limit)] + \
           [Row(number, f"the same: {what}", group, f"{command} --part {part}", eager("conv", f" {options} --part {part}"), limit=limit)
            for part, what in parts]


def eager(name, options):
    """Peers of a single operation, which has nothing that torch.compile could fuse."""
    return {"JAX": [f"{name}_jax{options}"], "PyTorch": [f"{name}_torch{options}"]}


def pooling_rows(number):
    """Windows that do not overlap, windows that do, whole images."""
    sizes = ((" --batch 64 --height 28 --width 28 --features 32", "2x2, [64,28,28,32]", ""),
             (" --batch 32 --height 56 --width 56 --features 64", "3x3, stride 2, [32,56,56,64]", " --window 3"),
             (" --batch 32 --height 14 --width 14 --features 512", "whole images, [32,14,14,512]", " --window 0"))
    return [Row(number, f"{long} pooling {name}{what}", f"pooling {name}", f"pooling{options}",
                eager("pooling", options), limit="memory")
            for size, name, window in sizes for kind, long in (("max", "max"), ("avg", "average"))
            for gradient, what in (("", ": forward"), (" --gradient", ": forward and gradient"))
            for options in (f"{size}{window} --kind {kind}{gradient}",)]


def norm_rows(number):
    """Images beyond the caches and in them."""
    sizes = ((" --batch 32 --height 56 --width 56 --features 256", "[32,56,56,256]"),
             (" --batch 8 --height 28 --width 28 --features 256", "[8,28,28,256]"))
    return [Row(number, f"{long} of {name}{what}", f"norm {name}", f"norm_images{options}", both("norm_images", options),
                limit="memory")
            for size, name in sizes for kind, long in (("batch", "BatchNorm"), ("group", "GroupNorm, 32 groups,"))
            for gradient, what in (("", ": forward"), (" --gradient", ": forward and gradient"))
            for options in (f"{size} --kind {kind}{gradient}",)]


def product_rows(number):
    """Products of training as they are stored in 16 bits: forward and the gradients of both operands."""
    shapes = ((2048, 384, 1536), (256, 768, 3072))
    return [Row(number, f"product of {dtype}, [{rows},{width}] x [{width},{out}]: {what}", f"product {dtype} {rows}", f"product{options}",
                {"PyTorch": [f"product_torch{options}"]})
            for dtype in ("bf16", "f16") for rows, width, out in shapes
            for part, what in (("forward", "forward"), ("input", "gradient of the input"), ("kernel", "gradient of the kernel"))
            for options in (f" --rows {rows} --in {width} --out {out} --dtype {dtype} --part {part}",)]


def decode_rows(number):
    """One more token of a decoder, and a prompt, by the type of the weights."""
    return [Row(number, f"{long}, weights of {dtype}: {what}", f"decode {model} {dtype}", f"decode{options}",
                {"llama.cpp": [f"decode_llama{options}"]}, limit=limit)
            for model, long in (("gpt2", "GPT-2 124M"), ("llama", "Llama of 110M")) for dtype in ("f32", "bf16", "f16", "q8_0", "q4_0")
            for what, more, limit in (("one token", "", "memory"), ("a prompt of 512", " --prompt 512", "none"))
            for options in (f" --model {model} --dtype {dtype}{more}",)]


ROWS = [
    Row(1, "GPT 6 x 384, T 256, B 8, V 65, AdamW: no remat", "gpt", gpt(GPT),
        gpt_peers(GPT, ("plain", "scan"), ("eager", "compile"))),
    Row(2, "the same, full remat of each layer, scan", "gpt", gpt(GPT, " --policy nothing"),
        gpt_peers(GPT, ("remat", "scan_remat"), ("checkpoint", "compile_checkpoint"))),
    Row(3, "the same, temporary bytes: no remat", "gpt", gpt(GPT), gpt_peers(GPT, ("plain", "scan")), "temporary"),
    Row(3, "the same, temporary bytes: dots_with_no_batch_dims", "gpt", gpt(GPT, " --policy dots_with_no_batch_dims"),
        gpt_peers(GPT, ("scan_dots",)), "temporary"),
    Row(3, "the same, temporary bytes: nothing", "gpt", gpt(GPT, " --policy nothing"),
        gpt_peers(GPT, ("remat", "scan_remat")), "temporary"),
    Row(4, "GPT-2 124M, B 4, T 64, AdamW", "gpt2 64", gpt(SMALL), gpt_peers(SMALL, ("plain",), ("eager", "compile"))),
    Row(5, "GPT-2 124M, B 4, T 256, AdamW", "gpt2 256", gpt(LONG), gpt_peers(LONG, ("plain",), ("eager", "compile"))),
    Row(5, "the same, temporary bytes", "gpt2 256", gpt(LONG), gpt_peers(LONG, ("plain",)), "temporary"),
    *ffn_rows(6, 64, 1),
    *ffn_rows(7, 2048, FFN_BUDGET),
    Row(7, "the same, temporary bytes of checkpoint over Tow's own of standard", "ffn 2048", f"ffn --batch 2048 --checkpoint --memory-limit {FFN_BUDGET}",
        {"Tow": ["ffn --batch 2048"]}, "temporary"),
    Row(8, "tanh chain, 4096 layers, C 128, B 128, scan: plain", "deep", "chain" + DEEP,
        chain_peers(DEEP, ["scan"], "eager")),
    Row(8, "the same, temporary bytes: plain", "deep", "chain" + DEEP, {"JAX": [f"chain_jax{DEEP} --mode scan"]},
        "temporary"),
    Row(8, "the same, sqrt-nested remat", "deep", f"chain{DEEP} --mode sqrt",
        chain_peers(DEEP, ["sqrt"], "sqrt")),
    Row(8, "the same, temporary bytes: sqrt-nested remat", "deep", f"chain{DEEP} --mode sqrt",
        {"JAX": [f"chain_jax{DEEP} --mode sqrt"]}, "temporary"),
    Row(9, "tanh chain, 256 layers, C 64, B 64", "chain", "chain" + CHAIN,
        chain_peers(CHAIN, ["scan", "unrolled"], "eager")),
    Row(10, "LSTM, T 512, B 16, H 128", "lstm", "lstm --length 512 --batch 16 --width 128",
        both("lstm", " --length 512 --batch 16 --width 128")),
    Row(11, "LSTM, T 4096, B 1, H 32", "lstm", "lstm --length 4096 --batch 1 --width 32",
        both("lstm", " --length 4096 --batch 1 --width 32")),
    Row(12, "MLP 8-32-32-4, B 4, one call of value and gradient", "mlp", "mlp", both("mlp", "")),
    Row(13, "trace and compile: row 1", "compile", f"gpt{GPT} --only-compile",
        {"JAX": [f"gpt_jax{GPT} --mode {mode} --only-compile" for mode in ("plain", "scan")],
         "PyTorch compile": [f"gpt_torch{GPT} --mode compile --only-compile"]}, "compile_seconds"),
    Row(13, "trace and compile: row 9, 256 layers unrolled", "compile", f"chain{CHAIN} --mode unrolled --only-compile",
        {"JAX": [f"chain_jax{CHAIN} --mode unrolled --only-compile"]}, "compile_seconds"),
    Row(13, "trace and compile: row 9, 1024 layers unrolled", "compile 1024",
        "chain --layers 1024 --width 64 --batch 64 --mode unrolled --only-compile",
        {"JAX": ["chain_jax --layers 1024 --width 64 --batch 64 --mode unrolled --only-compile"]}, "compile_seconds", rounds=2),
    Row(13, "trace and compile with scan: 1024 layers over 256 layers", "compile", "chain --layers 1024 --width 64 --batch 64 --only-compile",
        {"Tow": [f"chain{CHAIN} --only-compile"]}, "compile_seconds"),
    Row(15, "gradients for each of 32 examples, MLP of 3 layers of 512", "perexample", "perexample",
        {"JAX": ["perexample_jax"]}),
    *conv_rows(16, "convolution 3x3, [32,32,32,64] to 64", "--batch 32 --height 32 --width 32 --features 64 --out 64"),
    *conv_rows(17, "convolution 3x3, [8,56,56,128] to 128", "--batch 8 --height 56 --width 56 --features 128 --out 128"),
    *conv_rows(18, "convolution 3x3, stride 2, [8,56,56,128] to 256",
             "--batch 8 --height 56 --width 56 --features 128 --out 256 --stride 2"),
    *conv_rows(19, "convolution 1x1, [8,28,28,256] to 1024", "--batch 8 --height 28 --width 28 --features 256 --out 1024 --kernel 1"),
    *conv_rows(20, "depthwise convolution 3x3, [8,56,56,256]",
             "--batch 8 --height 56 --width 56 --features 256 --out 256 --depthwise", "memory"),
    *conv_rows(21, "causal depthwise convolution 4, [16,1024,256]",
             "--batch 16 --height 0 --width 1024 --features 256 --out 256 --kernel 4 --depthwise", "memory"),
    Row(22, "ResNet-18, [8,64,64,3]", "resnet", "resnet", both("resnet", "")),
    Row(23, "while, 1000 iterations of [8,32] x [32,32] and tanh", "while", "while", both("while", "")),
    *[Row(number, f"sort {name}{': gradient' if gradient else ': values'}", "sort " + name, "sort" + options + gradient,
          both("sort", options + gradient))
      for number, name, options in ((24, "of 2^20 numbers", " --rows 1 --length 1048576"),
                                    (25, "along 1000 rows of 1000 numbers", " --rows 1000 --length 1000"))
      for gradient in ("", " --gradient")],
    *[Row(number, f"RNN of {cell.upper()}, T {length}, B {batch}, H {width}", f"rnn {cell}", f"rnn --cell {cell}{sizes}",
          {"PyTorch": [f"rnn_torch --cell {cell}{sizes}"]})
      for number, cell, length, batch, width in ((26, "lstm", 128, 32, 256), (27, "lstm", 512, 16, 128),
                                                 (28, "gru", 128, 32, 256), (29, "gru", 512, 16, 128))
      for sizes in (f" --length {length} --batch {batch} --width {width}",)],
    *pooling_rows(30),
    *norm_rows(31),
    Row(32, "a step of Flax's MNIST example, B 128", "mnist", "mnist", both("mnist", "")),
    Row(32, "the same, strides in place of pooling", "mnist", "mnist --no-pooling", both("mnist", " --no-pooling")),
    *[Row(number, f"row 1 by two processes of one thread, over {what}", "processes", f"gpt{GPT} --processes 2", peers)
      for number, what, peers in ((35, "Tow's own of one process", {"Tow": [f"gpt{GPT}"]}),
                                  (36, "DistributedDataParallel", {"PyTorch": [f"gpt_torch{GPT} --processes 2"]}),
                                  (37, "FSDP2", {"PyTorch": [f"gpt_torch{GPT} --processes 2 --sharded"]}))],
    *[Row(number, f"row 1 by two processes of one thread, stage {stage}, over {what}", "processes",
          f"gpt{GPT} --processes 2 --shard {stage}", peers)
      for stage in (2, 3)
      for number, what, peers in ((36, "DistributedDataParallel", {"PyTorch": [f"gpt_torch{GPT} --processes 2"]}),
                                  (37, "FSDP2", {"PyTorch": [f"gpt_torch{GPT} --processes 2 --sharded"]}))
      if (number == 37) == (stage == 3)],
    *[Row(number, f"row 1 with {what}{beside}", "gpt", gpt(GPT, f" --dtype {dtype}"), peers, value)
      for dtype, what in (("mixed", "activations of bf16, parameters of f32"), ("bf16", "bf16 throughout"))
      for number, beside, value, peers in (
          (33, "", "seconds", {"PyTorch": [f"gpt_torch{GPT} --mode eager --dtype {dtype}"]}),
          (34, ", over Tow's own of f32", "seconds", {"Tow": [gpt(GPT)]}),
          (34, ", temporary bytes over Tow's own of f32", "temporary", {"Tow": [gpt(GPT)]}))],
    *product_rows(38),
    *decode_rows(39),
]
