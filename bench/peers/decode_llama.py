"""What llama.cpp takes for one more token, or for a prompt, in the package xllamacpp: the model of bench/decode.c, drawn at random.

    decode_llama.py [--model gpt2 | llama] [--dtype f32 | f16 | bf16 | q8_0 | q4_0] [--tokens 64] [--prompt N]

A step is one token, the mean of --tokens of them behind a prompt of one; with --prompt, a prompt of so many tokens. Seconds are those that
llama.cpp takes itself. The file is made by bench/generation_files.py, in a temporary directory.
"""

import importlib.metadata
import pathlib
import statistics
import sys
import tempfile
import time

from common import arguments, report, watch

args = arguments(model="gpt2", dtype="f32", tokens=64, prompt=0)
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import generation_files as files
import numpy as np
import xllamacpp


def start_server():
    p = xllamacpp.CommonParams()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel = 1024, 1024, 512, 1
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = args.threads
    with tempfile.TemporaryDirectory() as folder:
        p.model.path = f"{folder}/model.gguf"
        files.write_gguf(p.model.path, args.model, files.tensors_of(args.model, np.random.default_rng(1)), args.dtype)
        return xllamacpp.Server(p)  # the file stays mapped


def step():
    """Seconds of the prompt, and of each token behind it. A text of n letters has n tokens."""
    n, predict = (args.prompt, 1) if args.prompt else (1, args.tokens + 1)
    timings = server.handle_completions({"prompt": "a" * n, "n_predict": predict, "temperature": 0, "top_k": 1, "samplers": ["top_k"],
                                         "ignore_eos": True, "cache_prompt": False})["timings"]
    return timings["prompt_ms" if args.prompt else "predicted_per_token_ms"] * 1e-3


server = start_server()
step()
others = watch()
seconds, end = [], time.perf_counter() + args.seconds
while len(seconds) < (args.steps or 5) or (not args.steps and time.perf_counter() < end):
    seconds.append(step())
report("decode", "llama.cpp", args, steps=len(seconds), median_seconds=statistics.median(seconds), min_seconds=min(seconds),
       version=importlib.metadata.version("xllamacpp"), system=xllamacpp.get_system_info().strip(), **others())
